"""What is made of consecutive blocks of items, in random order: under two combinators, and others.

Where the order comes from is an argument: the combinators take hashes of a
block's number, `lazyckpt.compat.infinibatch` takes a `random.Random`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from operator import length_hint
from typing import Any, Protocol, TypeVar

from lazyckpt.core.machine import Flow, Machine, Position, machine, within
from lazyckpt.core.prng import Permutation, derive
from lazyckpt.errors import SourceChanged

A = TypeVar("A")
B = TypeVar("B")


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
        number, self._number = self._number, self._number + 1
        if self._seed is None:
            return items
        order = Permutation(derive(self._seed, self._name, self._epoch, number), len(items))
        return [items[place] for place in order.at(range(len(items))).tolist()]


def shuffled_blocks(
    name: str,
    upstream: Machine[A],
    size: int,
    orders: Callable[..., Orders],
    *,
    made: Callable[[list[A]], list[Any]] = list,
    what: str = "item",
    first: tuple[int, ...] = (0,),
    length: int | float | None = None,
) -> Machine[Any]:
    """The machine that gives what is made of each block of `size` items, in random order.

    A position is the place before the block, the mark of its order, and a count
    of what it has given; between blocks that count is 0.

    Args:
        name: of the stage, for errors.
        upstream: what blocks are cut from.
        size: items a block; the last one may be shorter.
        orders: from the epoch and a mark, checked, to the orders from there on.
        made: from the items of a block to what it gives, at least one and at
            most as many.
        what: what one of these is called, for errors.
        first: the mark before the first block.
        length: how many are given in an epoch, where that is known.
    """

    def flow(position: Position) -> Flow[Any]:
        anchor, *mark, given = position
        within(name, given, size)
        before = upstream.flow(anchor)
        order = orders(upstream.epoch(anchor), *mark)
        block: list[Any] = []
        ticks: Iterator[Any] = iter(block)
        passed = 0  # given by the blocks before

        def blocks() -> Iterator[Iterator[Any]]:
            nonlocal anchor, mark, given, block, ticks, passed
            stream = iter(before)
            here, there = anchor, mark
            while items := list(islice(stream, size)):
                outputs = order.shuffled(made(items))
                if given and given >= len(outputs):
                    raise _shrunk(name, what, given, len(outputs))
                left: Any = iter(outputs)
                left.__setstate__(given)
                passed += len(block) - given
                anchor, mark, given, block, ticks = here, there, 0, outputs, left
                yield ticks
                here, there = before.snapshot(), order.mark
            if given:
                raise _shrunk(name, what, given, 0)
            passed += len(block)
            anchor, mark, block = before.snapshot(), order.mark, []

        def snapshot() -> Position:
            left = length_hint(ticks)
            if block and not left:
                return before.snapshot(), *order.mark, 0
            return anchor, *mark, len(block) - left if block else given

        def taken() -> int:
            return passed + len(block) - length_hint(ticks)

        return Flow(chain.from_iterable(blocks()), snapshot, taken=taken)

    return machine(
        init=lambda epoch: (upstream.init(epoch), *first, 0),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
        length=length,
    )


def _shrunk(name: str, what: str, given: int, found: int) -> SourceChanged:
    return SourceChanged(
        f"{name}: the state stands after {what} {given} of a window that now has {found}"
    )
