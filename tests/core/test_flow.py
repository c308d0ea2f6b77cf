"""Blocks of items that are there: no call for each, and each of them counted."""

from __future__ import annotations

import sys
from itertools import islice
from types import FrameType
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream

N = 3_000


def ten(x: int) -> list[int]:
    return [x] * 10


def mixed(x: int) -> Any:
    """Lists, and sometimes an iterable that isn't a list."""
    return [[x] * (x % 4), range(x % 3), iter([x, x]), (x,)][0 if x < 5 else x % 4]


SOURCE = lz.source([*range(N)])
THERE: dict[str, lz.Pipeline[Any]] = {
    "list": SOURCE,
    "tuple": lz.source(tuple(range(N))),
    "range": lz.source(range(N)),
    "array": lz.source(np.arange(N)),
    "skip": SOURCE | lz.skip(5),
    "shuffle": SOURCE | lz.shuffle(seed=0),
    "repeat": SOURCE | lz.repeat(3),
    "shuffle, repeat": lz.source(range(700)) | lz.shuffle(seed=0) | lz.repeat(4),
    "block_shuffle": SOURCE | lz.block_shuffle(500, seed=0),
    "unbatch": lz.source([[*range(200)]] * 20) | lz.unbatch(),
}
BLOCKS = {
    **THERE,
    "blocks of a stream": lz.source(Stream(range(N))) | lz.block_shuffle(500, seed=0),
    "short epochs": lz.source([*range(7)]) | lz.repeat(9),
    "short expansions": lz.source(Stream(range(N))) | lz.take(9) | lz.flat_map(ten),
    "mixed expansions": lz.source(range(30)) | lz.flat_map(mixed),
    "mixed expansions of a stream": lz.source(Stream(range(N))) | lz.take(30) | lz.flat_map(mixed),
    "epochs of expansions": lz.source(range(12)) | lz.flat_map(mixed) | lz.repeat(3),
}
blocks = pytest.mark.parametrize("name", BLOCKS)


@pytest.mark.parametrize("name", THERE)
def test_a_loop_calls_no_function_for_an_item_that_is_there(name: str) -> None:
    pipeline, calls = THERE[name], 0
    whole = list(pipeline)

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        for _ in pipeline:
            pass
    finally:
        sys.setprofile(None)
    assert calls < len(whole) / 4


@blocks
def test_loops_share_what_is_left_of_a_block(name: str) -> None:
    pipeline = BLOCKS[name]
    whole, run, found = list(pipeline), lz.run(pipeline), list[Any]()
    loops = [iter(run), iter(run), run]
    for number in range(2 * len(whole)):
        found.extend(islice(loops[number % 3], 1 + number % 2))
    assert found == whole
    assert [next(loop, None) for loop in loops] == [None] * 3


@blocks
@pytest.mark.parametrize("at", [0, 1, 17])
def test_a_loop_gives_nothing_of_its_block_after_close(name: str, at: int) -> None:
    pipeline = BLOCKS[name]
    whole, run = list(pipeline), lz.run(pipeline)
    start, loop = run.state, iter(run)
    assert list(islice(loop, at)) == whole[:at]
    run.load_state_dict(start)
    assert list(islice(loop, at)) == whole[:at]
    run.close()
    assert list(loop) == []
    assert run.state.items == at
    with run:
        assert list(run) == whole[at:]


def test_to_close_passes_over_no_items() -> None:
    run = lz.run(lz.source(range(10**15)))
    assert next(run) == 0
    run.close()
    assert run.state.items == 1


@pytest.mark.parametrize(
    "upstream", [lz.source(range(50)), lz.source(Stream(range(N))) | lz.take(50)]
)
def test_an_error_between_blocks(upstream: lz.Pipeline[int]) -> None:
    failures = [True, True]

    def expanded(x: int) -> list[int]:
        if x == 31 and failures:
            failures.pop()
            raise StopIteration if failures else KeyError(x)
        return ten(x)

    run, found, seen = lz.run(upstream | lz.flat_map(expanded)), list[int](), list[type]()
    for _ in range(3):
        try:
            for item in run:
                found.append(item)
        except (lz.PipelineError, KeyError) as error:
            seen.append(type(error))
            assert run.state.items == len(found) == 310
    assert seen == [lz.PipelineError, KeyError]
    assert found == [x for x in range(50) for _ in range(10)]
