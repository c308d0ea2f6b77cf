"""Positions of streams: after every item, or a few of a chunk where they are wide."""

from __future__ import annotations

import math
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.executors.plan import positions
from lazyckpt.executors.plan.handlers import Outcome, Reader
from tests.executors.cases import Stream, square, until_error

pytestmark = pytest.mark.usefixtures("watchdog")

WIDTH = 34


def keep(x: Any) -> bool:
    return True


def joined(width: int, size: int = 3) -> lz.Pipeline[int]:
    return lz.interleave(*[lz.source(Stream(size)) | lz.map(square) for _ in range(width)])


WIDE: dict[str, lz.Pipeline[Any]] = {
    "stream": joined(WIDTH),
    "mix": lz.mix([joined(1, 5)] * WIDTH, [1] * WIDTH, seed=0, stop="all_exhausted"),
    "beside": joined(WIDTH) | lz.map(square) | lz.filter(keep) | lz.batch(2),
    "some": joined(WIDTH) | lz.flat_map(lambda x: [x] * (x % 3)) | lz.map(square),
    "window": joined(WIDTH) | lz.shuffle(buffer_size=7, seed=0),
    "own state": joined(WIDTH) | lz.scan(lambda total, x: (total + x, total), 0),
}
EXECUTORS = {
    "threads": lz.threads(),
    "threads2": lz.threads(2, buffer_size=20),
    "fork": lz.processes(start_method="fork"),
    "fork2": lz.processes(2, start_method="fork"),
    "to_device": lz.to_device(lz.threads(), "cpu"),
}


def places(pipeline: lz.Pipeline[Any], executor: lz.Executor | None = None) -> list[Any]:
    """Items, each with the position after it."""
    with lz.run(pipeline, executor=executor) as run:
        return [(item, state.items, state.position) for item, state in run.with_state()]


def outcome(pipeline: lz.Pipeline[Any], count: int) -> Outcome:
    machine = pipeline.machine
    return Reader(pipeline)((machine.init(0), count))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", WIDE)
def test_states_within_a_chunk_are_inlines(
    name: str, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "_COST", math.inf)  # so that there are none but at its ends
    assert places(WIDE[name], EXECUTORS[executor]) == places(WIDE[name])


def test_a_wide_position_is_taken_once_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "_COST", math.inf)
    found = outcome(joined(WIDTH), 100).positions
    assert found is not None
    assert [place for place, each in enumerate(found) if each is not None] == [0, 100]
    found = outcome(joined(2, 100), 100).positions
    assert found is not None
    assert None not in found


def test_the_end_has_a_place_of_its_own() -> None:
    pipeline = joined(WIDTH)
    found = outcome(pipeline, 10**4)
    assert len(found.items) == 3 * WIDTH
    assert found.end is not None
    assert places(pipeline, lz.threads())[-1] == places(pipeline)[-1]


@pytest.mark.parametrize("executor", [lz.threads(), lz.processes(start_method="fork")])
def test_an_error_within_a_wide_chunk(
    executor: lz.Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The items before it come, with their states, and the same item again after it."""
    monkeypatch.setattr(positions, "_COST", math.inf)
    plain = joined(WIDTH, 9) | lz.enumerate()
    expected = places(plain)[:150]
    with lz.run(plain | lz.map(fail), executor=executor) as run:
        for start in (0, 150):
            found, error = until_error(run)
            assert found == [item for item, *_ in expected[start:]]
            assert "150" in str(error)
            assert run.state.items == 150
            assert run.state.position == lz.state_at(plain, 150).position


def fail(pair: tuple[int, int]) -> tuple[int, int]:
    if pair[0] == 150:
        raise ValueError(pair)
    return pair
