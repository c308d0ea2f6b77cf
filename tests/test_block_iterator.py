"""Iterators over blocks, which outlive errors and ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import lazyckpt as lz
from lazyckpt.block_iterator import BlockIterator


class Blocks(BlockIterator[int]):
    """Gives what stands in a list: items of a block, None at an end, or an error."""

    def __init__(self, *blocks: Any) -> None:
        self.blocks = [*blocks]

    def _block(self) -> Iterator[int] | None:
        block = self.blocks.pop(0) if self.blocks else None
        if isinstance(block, Exception):
            raise block
        return block if block is None else iter(block)


def outcomes(it: Iterator[int], count: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(count):
        try:
            found.append(next(it))
        except Exception as error:
            found.append(type(error))
    return found


def test_after_an_error_and_an_end_it_asks_again() -> None:
    blocks = Blocks([1, 2], KeyError(), [], [3], None, range(300), None)
    assert outcomes(blocks, 6) == [1, 2, KeyError, 3, StopIteration, 0]
    assert list(blocks) == list(range(1, 300))
    assert outcomes(blocks, 2) == [StopIteration] * 2
    blocks.blocks = [[4]]
    assert list(blocks) == [4]


def test_it_is_gone_with_its_last_reference() -> None:
    blocks = Blocks([1, 2])
    next(blocks)
    gone: list[bool] = []
    blocks.blocks = [type("Told", (), {"__del__": lambda self: gone.append(True)})()]
    del blocks
    assert gone == [True]


def test_next_of_a_run_calls_no_function_for_an_item_that_is_there() -> None:
    run = lz.run(lz.source(range(10_000)))
    items, calls = 1_000, 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_name != "_deliver"

    sys.setprofile(count)
    try:
        for _ in range(items):
            next(run)
    finally:
        sys.setprofile(None)
    assert calls < items // 2
    assert next(run) == items
