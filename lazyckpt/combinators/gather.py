"""Items by index: `gather`, and what it has in common with `shuffle`."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import index_sequence
from lazyckpt.core.machine import MOST, End, Flow, Machine, Position, View, machine, placed
from lazyckpt.core.prng import Indices, affine, as_array
from lazyckpt.core.registry import Taken
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import combinator

A = TypeVar("A")


class IndexOutOfRange(ArgumentError, IndexError):
    """There is no item with an index that was given."""


class Order(Protocol):
    """Which of upstream's items is the i-th, for one i and for many."""

    def __getitem__(self, index: int, /) -> int: ...
    def at(self, indices: Indices, /) -> Indices: ...


_WINDOW = 1024  # indices worked out at once


def reordered(
    name: str, upstream: Machine[A], length: int, order: Callable[[int], Order]
) -> Machine[A]:
    """`length` items a pass, those of `order(epoch)`; upstream has random access."""
    jump, below = upstream.skip, upstream.view
    assert jump is not None

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert below is not None
        epoch, index = position
        return below.ahead(upstream.init(epoch), order(epoch).at(affine(offsets, index)))

    def flow(position: Position) -> Flow[A]:
        epoch, index = placed(name, position, length)

        def items() -> Iterator[A]:
            nonlocal index
            begin = upstream.init(epoch)
            while index < length:
                window = range(index, min(index + _WINDOW, length))
                for chosen in as_array(order(epoch).at(window)).tolist():
                    item = upstream.step(jump(begin, chosen)[0])[1]
                    index += 1
                    yield item

        return Flow(items(), lambda: (epoch, index))

    def step(position: Position) -> tuple[Position, A]:
        epoch, index = placed(name, position, length)
        if index == length:
            raise End(position)
        chosen = order(epoch)[index]
        item = upstream.step(jump(upstream.init(epoch), chosen)[0])[1]
        return (epoch, index + 1), item

    def skip(position: Position, n: int) -> tuple[Position, int]:
        epoch, index = placed(name, position, length)
        passed = min(n, length - index)
        return (epoch, index + passed), passed

    return machine(
        init=lambda epoch: (epoch, 0),
        epoch=lambda position: position[0],
        step=step,
        flow=flow if below is None else None,
        skip=skip,
        length=length,
        view=below and View(below.table, ahead),
    )


@combinator(
    keeps_items=True,
    checks={"indices": index_sequence},
    rigid=lambda indices: True,
    takes=Taken(),
)
def gather(
    upstream: Machine[A], indices: Sequence[SupportsIndex] | NDArray[np.integer[Any]]
) -> Machine[A]:
    """The items at `indices`, in their order, as a list would be indexed.

    - `indices`: ints as a range, a list, a tuple or an array of shape `(n,)`;
      negative ones count from the end, and any may come again

    State: the epoch and a count of items.
    Resume: reads nothing again.
    Random access: kept; items not asked for are not computed.
    Rank-free: yes.
    Memory: a list or tuple also as an array, 8 bytes an index; else nothing.
    Errors: `ArgumentError` where upstream has no random access, or not that index.

    >>> import lazyckpt as lz
    >>> list(lz.source(list("abcd")) | lz.gather([-1, 0, 0]))
    ['d', 'a', 'a']
    """
    length = upstream.length
    if upstream.skip is None or length is None:
        raise ArgumentError("gather: what comes before it has no random access")
    order = _Given(indices, length)
    return reordered("gather", upstream, len(indices), lambda epoch: order)


class _Given:
    """The indices given to `gather`, as an order."""

    def __init__(self, indices: Any, length: int | float) -> None:
        self._length = length
        if isinstance(indices, (list, tuple)):
            indices = [operator.index(index) for index in indices]  # NumPy would round some
        most, ends = MOST - 1 if length == math.inf else sys.maxsize, _ends(indices)
        for index in ends:
            if not -length <= index < length or (index < 0 and length == math.inf):
                raise IndexOutOfRange(f"gather: index {index} is out of range for {length} items")
            if abs(index) > most:
                raise ArgumentError(f"gather: index {index} is beyond {most}, the largest possible")
        self._as_they_are = min(ends, default=0) >= 0
        if isinstance(indices, list) or len(indices) < 2:  # then a range's step is no matter
            indices = np.array([*indices], np.int64)
        self._chosen = indices

    def __getitem__(self, number: int) -> int:
        index = int(self._chosen[number])
        return index if index >= 0 else index + int(self._length)

    def at(self, numbers: Indices) -> Indices:
        chosen = self._chosen
        if isinstance(chosen, range):
            found = affine(numbers, chosen.start, chosen.step)
            found = found if chosen.step > 0 else as_array(found)
        else:
            found = chosen[as_array(numbers)].astype(np.int64)
        if self._as_they_are:
            return found
        found = as_array(found)
        return np.where(found < 0, found + int(self._length), found)


def _ends(indices: Any) -> list[int]:
    """The least and the largest index, in whatever order."""
    if not len(indices):
        return []
    if isinstance(indices, range):
        return [indices[0], indices[-1]]
    if isinstance(indices, list):
        return [min(indices), max(indices)]
    return [int(indices.min()), int(indices.max())]
