"""What is made of consecutive blocks of items, in random order: `shuffled_blocks`.

`block_shuffle` and `bucket_batch` are made of it. Where the order comes from is
an argument: they take hashes of a block's number, and
`lazyckpt.compat.infinibatch` takes a `random.Random`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from lazyckpt.combinators.machines.reordered import permuted
from lazyckpt.core.flow import Flow, Position, in_blocks
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.machine import Machine, Rate, Reread, within
from lazyckpt.core.prng import as_array
from lazyckpt.core.stages import stateful
from lazyckpt.errors import SourceChanged

if TYPE_CHECKING:
    from numpy.typing import NDArray

A = TypeVar("A")


class Orders(Protocol):
    """Random orders of one block after another; `mark` is where the next one comes from."""

    @property
    def mark(self) -> tuple[int, ...]: ...

    def shuffled(self, items: list[Any]) -> list[Any]:
        """The items of the next block, reordered. The list may be changed."""


class HashedOrders:
    """A permutation for each block, from a seed, the epoch and the block's number."""

    def __init__(self, name: str, seed: int | None, epoch: int, number: int) -> None:
        self._name, self._seed, self._epoch = name, seed, epoch
        self._number = within(name, number)

    @property
    def mark(self) -> tuple[int, ...]:
        return (self._number,)

    def shuffled(self, items: list[Any]) -> list[Any]:
        number, size = self._number, len(items)
        self._number += 1
        if self._seed is None:
            return items
        order = permuted(size, self._seed, self._name, self._epoch, number)
        return rearranged(items, as_array(order.at(range(size))))


def rearranged(items: list[A], order: NDArray[np.integer[Any]]) -> list[A]:
    """The items at these places. NumPy looks up many of them faster than a loop does."""
    found: list[A] = np.fromiter(items, object, len(items))[order].tolist()
    return found


def shuffled_blocks(
    name: str,
    upstream: Machine[A],
    size: int,
    orders: Callable[..., Orders],
    *,
    made: Callable[[list[A]], list[Any]] = list,
    what: str = "item",
    first: tuple[int, ...] = (0,),
    rate: Rate | None = None,
    length: int | float | None = None,
) -> Machine[Any]:
    """The machine that gives what is made of each block of `size` items, in random order.

    A position is the place before the block, the mark of its order, and a count of
    what it has given, which is 0 between blocks.

    Args:
        name: What errors call the stage.
        upstream: What blocks are cut from.
        size: How many items a block has; the last one may be shorter.
        orders: From the epoch and a mark, which it checks, to the orders from there on.
        made: From the items of a block to what it gives, at least one and at most as many.
        what: What errors call one of these.
        first: The mark before the first block.
        rate: How many items are taken for each that is given; by default a block.
        length: How many are given in an epoch, where that is known.
    """

    def check(*own: Any) -> None:
        *mark, given = own
        within(name, given, size - 1)
        orders(0, *mark)

    def rereads(position: Position) -> list[Reread]:
        return [Reread(position[0], size if position[-1] else 0)]

    def flow(position: Position) -> Flow[Any]:
        anchor, mark, given = position[0], position[1:-1], position[-1]
        before = upstream.flow(anchor)
        order = orders(upstream.epoch(anchor), *mark)
        block: list[Any] = []
        ticks: Iterator[Any] = iterate(block)
        passed = 0  # given by the blocks before

        def blocks() -> Iterator[Iterator[Any]]:
            nonlocal anchor, mark, given, block, ticks, passed
            stream = iter(before)
            here, there = anchor, mark
            while items := list(islice(stream, size)):
                outputs = order.shuffled(made(items))
                if given and given >= len(outputs):
                    raise _shrunk(name, what, given, len(outputs))
                left = iterate(outputs, given)
                anchor, mark = here, there
                # Together, as an interrupt may come at any time, and this is counted.
                passed, given, block, ticks = passed + len(block) - given, 0, outputs, left
                yield ticks
                here, there = before.snapshot(), order.mark
            if given:
                raise _shrunk(name, what, given, 0)
            anchor, mark = before.snapshot(), order.mark
            passed, block = passed + len(block), []

        def snapshot() -> Position:
            left = remaining(ticks)
            if block and not left:
                return before.snapshot(), *order.mark, 0
            return anchor, *mark, len(block) - left if block else given

        def taken() -> int:
            return passed + len(block) - remaining(ticks)

        return in_blocks(blocks(), snapshot, taken)

    return stateful(
        name,
        upstream,
        first=(*first, 0),
        check=check,
        rate=rate or Rate(size),
        rereads=rereads,
        flow=flow,
        length=length,
    )


def _shrunk(name: str, what: str, given: int, found: int) -> SourceChanged:
    return SourceChanged(
        f"{name}: the state stands after {what} {given} of a window that now has {found}"
    )
