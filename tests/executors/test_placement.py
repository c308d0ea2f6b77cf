"""Where items are made: by workers, or by the process that reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.core.prng import hashed
from lazyckpt.executors.placement import Placement
from lazyckpt.executors.plan.costs import times_waited, with_cost
from lazyckpt.executors.plan.handlers import Mapper, Outcome
from tests.executors.plan.test_runs import fallible_graphs, graphs, told, whole

pytestmark = pytest.mark.usefixtures("nothing_left")


class Awkward:
    """What takes no time to make, and long to send."""

    def __init__(self, pid: int) -> None:
        self.pid, self.rest = pid, bytes(4_000)  # of which a chunk has few

    def __reduce__(self) -> tuple[Any, ...]:
        return Awkward, (self.pid + 0 * sum(range(5_000)),)


def at_once(x: int) -> Awkward:
    return Awkward(os.getpid())


def slowly(x: int) -> int:
    return sum(range(5_000)) and os.getpid()


def expanded(x: int) -> list[Any]:
    return [at_once(x)] * 2


def keep(x: Any) -> bool:
    return True


FORKED = lz.processes(2, start_method="fork")
SHAPES: dict[str, lz.Pipeline[Any]] = {
    "seekable": lz.source(range(3000)) | lz.map(at_once),
    "runs": lz.source(range(3000)) | lz.flat_map(expanded) | lz.filter(keep),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_costs_less_to_make_than_to_send_is_made_by_who_reads_it(shape: str) -> None:
    made_by = [item.pid for item in lz.run(SHAPES[shape], executor=FORKED)]
    assert made_by[0] != os.getpid() == made_by[-1]


def decide(patched: pytest.MonkeyPatch, name: str, seed: int = 0) -> None:
    """Decide without a look at any cost, whenever that is asked for."""
    asked = count()

    def is_here(self: Placement) -> bool:
        chosen = name == "here" or (name == "to and fro" and hashed(seed, next(asked)) % 2 == 0)
        return chosen and self._made_by is not None

    patched.setattr(
        Placement, "is_here", property(is_here, lambda self, value: None), raising=False
    )


def test_what_is_costly_is_made_by_workers() -> None:
    pipeline = lz.source(range(1200)) | lz.map(slowly)
    assert os.getpid() not in lz.run(pipeline, executor=FORKED)


TO_STAY = {"timeout": 60.0, "worker_init": keep, "gated": True}


@pytest.mark.parametrize("name", TO_STAY)
def test_what_has_to_stay_with_workers_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decide(monkeypatch, "here")
    settings: Any = {name: TO_STAY[name]}
    executor = lz.processes(2, start_method="fork", **settings)
    pipeline = lz.source(range(99)) | lz.map(at_once)
    assert os.getpid() not in [item.pid for item in lz.run(pipeline, executor=executor)]


@pytest.mark.parametrize("name", ["here", "to and fro"])
@settings(max_examples=6)
@given(graphs, st.data())
def test_items_and_states_are_those_of_inline(
    name: str, pipeline: lz.Pipeline[Any], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        decide(patched, name, data.draw(st.integers(0, 99)))
        expected = whole(pipeline)
        with lz.run(pipeline, executor=FORKED) as run:
            assert list(run.with_state()) == expected
        cut = data.draw(st.integers(0, len(expected)))
        state = expected[cut - 1][1] if cut else lz.init(pipeline)
        with lz.run(pipeline, state, executor=FORKED) as run:
            assert list(run.with_state()) == expected[cut:]


@pytest.mark.parametrize("name", ["here", "to and fro"])
@settings(max_examples=5)
@given(fallible_graphs)
def test_what_fails_is_left_out_as_by_inline(name: str, pipeline: lz.Pipeline[Any]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        decide(patched, name)
        assert told(pipeline, None, FORKED) == told(pipeline)


class Interrupted:
    """The identity, but in this process it is interrupted once."""

    def __init__(self, flag: Path, what: Any) -> None:
        self._flag, self._what, self._pid = flag, what, os.getpid()

    def __call__(self, x: int) -> int:
        if x > 50 and os.getpid() == self._pid and self._flag.exists():
            self._flag.unlink()
            self._what()
        return x


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("shape", ["seekable", "runs"])
def test_an_interrupt_of_making_comes_at_once_and_loses_nothing(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(monkeypatch, "here")
    flag = tmp_path / "flag"
    flag.touch()
    numbers = lz.source(range(2000)) | lz.map(Interrupted(flag, interrupt))
    pipeline = numbers if shape == "seekable" else numbers | lz.filter(keep)
    found: list[int] = []
    with lz.run(pipeline, executor=FORKED) as run:
        with pytest.raises(KeyboardInterrupt):
            found.extend(run)
        assert run.state.items == len(found)
        assert found == [*range(len(found))]
        assert [*found, *run] == [*range(2000)]


def test_a_run_that_is_left_and_entered_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    decide(monkeypatch, "here")
    pipeline = lz.source(range(900)) | lz.flat_map(lambda x: [x] * 3) | lz.filter(keep)
    run, found = lz.run(pipeline, executor=FORKED), list[int]()
    for _ in range(3):
        with run:
            found += [next(run) for _ in range(500)]
    with run:
        found += run
    assert found == list(pipeline)


def outcome(making: float, sending: float = 0.0) -> Outcome:
    return Outcome([], making=making, sending=sending)


def observed(placement: Placement, costs: Iterator[Outcome] | list[Outcome]) -> list[bool]:
    found = []
    for each in costs:
        placement.observe(100, each)
        found.append(placement.is_here)
    return found


def test_it_takes_two_comparisons_to_make_items_here() -> None:
    placement = Placement(partial(Mapper, ()))
    assert observed(placement, [outcome(1, 2)] * 6) == [False] * 5 + [True]
    assert all(observed(placement, [outcome(3)] * 30))  # below twice what sending costs
    assert observed(placement, [outcome(5)] * 3) == [True, True, False]
    assert observed(placement, [outcome(1, 2)] * 12) == [False] * 11 + [True]  # later each time


def test_what_is_costly_stays_where_it_is() -> None:
    assert not any(observed(Placement(partial(Mapper, ())), [outcome(2, 1)] * 50))
    assert not any(observed(Placement(None), [outcome(1, 2)] * 50))
    placement = Placement(partial(Mapper, ()))
    placement.observe(0, outcome(1))  # which has failed at its first item
    to_and_fro = [outcome(1, 2)] * 3 + [outcome(2, 1)] * 3
    assert not any(observed(Placement(partial(Mapper, ())), to_and_fro * 5))


def test_time_that_is_waited_is_a_cost() -> None:
    def waiting() -> Outcome:
        sleep(0.01)
        return Outcome([], seconds=5.0)

    assert with_cost(waiting)[1] == 5.0
    before = times_waited()
    sleep(0.001)
    assert times_waited() != before
