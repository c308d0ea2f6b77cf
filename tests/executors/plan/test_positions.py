"""Positions of streams, wide ones too: those of every item are the ones of inline."""

from __future__ import annotations

from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.core.call import Chain
from lazyckpt.executors.plan.handlers import Outcome, Reader
from tests.executors.cases import Stream, square, until_error

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
}


def places(
    pipeline: lz.Pipeline[Any], executor: lz.Executor | None = None, **options: Any
) -> list[Any]:
    """Items, each with the position after it, and what was left out before."""
    with lz.run(pipeline, executor=executor, **options) as run:
        return [
            (item, state.items, state.position, state.skipped) for item, state in run.with_state()
        ]


def outcome(pipeline: Chain, count: int) -> Outcome:
    machine = pipeline.machine
    return Reader(pipeline)((machine.init(0), count))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", WIDE)
def test_states_within_a_chunk_are_inlines(name: str, executor: str) -> None:
    assert places(WIDE[name], EXECUTORS[executor]) == places(WIDE[name])


def halved(x: int) -> int:
    if x % 2:
        raise ValueError(x)
    return x // 2


def sums(total: int, x: int) -> tuple[int, int]:
    return total + x, total


SKIPPING: dict[str, lz.Pipeline[Any]] = {
    "within": lz.interleave(
        *[lz.source(Stream(3)) | lz.map(halved) | lz.map(square) for _ in range(WIDTH)]
    ),
    "behind": joined(WIDTH) | lz.map(halved) | lz.map(square) | lz.batch(3),
    "filter": joined(WIDTH) | lz.filter(halved) | lz.scan(sums, 0),
    "expansion": joined(WIDTH) | lz.flat_map(lambda x: map(halved, [2, x])) | lz.map(square),
    "window": joined(WIDTH) | lz.map(halved) | lz.shuffle(buffer_size=7, seed=0) | lz.map(square),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", SKIPPING)
def test_so_it_is_where_items_are_left_out(name: str, executor: str) -> None:
    expected = places(SKIPPING[name], on_error="skip")
    assert expected[-1][-1] > 9
    assert places(SKIPPING[name], EXECUTORS[executor], on_error="skip") == expected


class FailsOnce:
    """It fails at every third item, but not where that is read again."""

    def __init__(self) -> None:
        self.known: set[int] = set()

    def __call__(self, pair: tuple[int, int]) -> int:
        number, _ = pair
        is_new = number not in self.known
        self.known.add(number)
        if number % 3 == 1 and is_new:
            raise ValueError(number)
        return number


@pytest.mark.parametrize("executor", [lz.threads(), lz.threads(2, buffer_size=20)])
def test_states_hold_where_what_has_failed_does_so_once(executor: lz.Executor) -> None:
    pipeline = joined(WIDTH) | lz.enumerate() | lz.map(FailsOnce()) | lz.filter(keep)
    with lz.run(pipeline, executor=executor, on_error="skip") as run:
        given = list(run.with_state())
    for item, state in given[::7]:
        assert next(lz.run(pipeline, state, on_error="skip"), None) in (item + 1, item + 2)


def test_the_end_has_a_place_of_its_own() -> None:
    pipeline = joined(WIDTH)
    found = outcome(pipeline, 10**4)
    assert len(found.items) == 3 * WIDTH
    assert found.end is not None
    assert places(pipeline, lz.threads())[-1] == places(pipeline)[-1]


@pytest.mark.parametrize("executor", [lz.threads(), lz.processes(start_method="fork")])
def test_an_error_within_a_wide_chunk(executor: lz.Executor) -> None:
    """The items before it come, with their states, and the same item again after it."""
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
