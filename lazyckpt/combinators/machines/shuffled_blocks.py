"""`shuffled_blocks`: outputs of consecutive blocks of items, in random order.

`block_shuffle` and `bucket_batch` use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lazyckpt.combinators.machines.random_access import permuted
from lazyckpt.core.flow import Flow, Position, in_blocks
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.machine import Machine, Rate, Reread, within
from lazyckpt.core.prng import as_array
from lazyckpt.core.stages import stateful
from lazyckpt.errors import SourceChanged

if TYPE_CHECKING:
    from numpy.typing import NDArray

A = TypeVar("A")


def shuffled_blocks(
    name: str,
    upstream: Machine[A],
    size: int,
    seed: int | None,
    *,
    made: Callable[[list[A]], list[Any]] = list,
    what: str = "item",
    rate: Rate | None = None,
    length: int | float | None = None,
) -> Machine[Any]:
    """Build a machine that yields the outputs of each block of `size` items in random order.

    A position is the position before the block, its number, and a count of its outputs yielded,
    which is 0 between blocks.

    Args:
        name: Name for errors.
        upstream: The machine whose items are cut into blocks.
        size: Number of items per block; the last one may be shorter.
        seed: Seed of a permutation per block, with the epoch and the block's number; None to keep
            the order.
        made: Function from the items of a block to its outputs, at least one and at most as many.
        what: Name of an output for errors.
        rate: How many items are taken per output; by default a block.
        length: Number of outputs per epoch, if known.
    """

    def check(number: Any, yielded: Any) -> None:
        within(name, number), within(name, yielded, size - 1)

    def rereads(position: Position) -> list[Reread]:
        return [Reread(position[0], size if position[-1] else 0)]

    def flow(position: Position) -> Flow[Any]:
        anchor, number, yielded = position
        before, epoch = upstream.flow(anchor), upstream.epoch(anchor)
        block: list[Any] = []
        ticks: Iterator[Any] = iterate(block)
        passed = 0  # yielded by the earlier blocks

        def blocks() -> Iterator[Iterator[Any]]:
            nonlocal anchor, number, yielded, block, ticks, passed
            stream = iter(before)
            here, following = anchor, number
            while items := list(islice(stream, size)):
                outputs = made(items)
                if seed is not None:
                    order = permuted(len(outputs), seed, name, epoch, following)
                    outputs = _rearranged(outputs, as_array(order.at(range(len(outputs)))))
                if yielded > len(outputs):
                    raise _shrunk(name, what, yielded, len(outputs))
                left = iterate(outputs, yielded)
                anchor, number = here, following
                # In one assignment, because an interrupt may come at any time, and this is counted.
                passed, yielded, block, ticks = passed + len(block) - yielded, 0, outputs, left
                yield ticks
                here, following = before.snapshot(), following + 1
            if yielded:
                raise _shrunk(name, what, yielded, 0)
            anchor, number = before.snapshot(), following
            passed, block = passed + len(block), []

        def snapshot() -> Position:
            left = remaining(ticks)
            if block and not left:
                return before.snapshot(), number + 1, 0
            return anchor, number, len(block) - left if block else yielded

        def taken() -> int:
            return passed + len(block) - remaining(ticks)

        return in_blocks(blocks(), snapshot, taken)

    return stateful(
        name,
        upstream,
        first=(0, 0),
        check=check,
        rate=rate or Rate(size),
        rereads=rereads,
        flow=flow,
        length=length,
    )


def _rearranged(items: list[Any], order: NDArray[np.integer[Any]]) -> list[Any]:
    """Return the items at these indices. For many, NumPy is faster than a loop."""
    found: list[Any] = np.fromiter(items, object, len(items))[order].tolist()
    return found


def _shrunk(name: str, what: str, yielded: int, found: int) -> SourceChanged:
    return SourceChanged(
        f"{name}: the state is after {what} {yielded} of a window that now has {found}"
    )
