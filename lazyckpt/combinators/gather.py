"""`gather`: items by index."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Sequence
from typing import Any, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.machines.random_access import reordered
from lazyckpt.core.checks import index_sequence
from lazyckpt.core.machine import MOST, Machine
from lazyckpt.core.prng import Indices, affine, as_array
from lazyckpt.decorators import combinator
from lazyckpt.errors import ArgumentError

A = TypeVar("A")


@combinator(keeps_items=True, checks={"indices": index_sequence})
def gather(
    upstream: Machine[A], indices: Sequence[SupportsIndex] | NDArray[np.integer[Any]]
) -> Machine[A]:
    """Yield the items at `indices`, in that order, as if indexing a list.

    Args:
        indices: Ints, as a range, a list, a tuple or an array of shape `(n,)`. Negative ones
            count from the end; repeats are allowed.

    Raises:
        ArgumentError: If upstream has no random access, or an index is out of range.

    State:
        A count of items.

    Resume:
        Re-reads nothing.

    Random access:
        Kept; items not asked for are not computed.

    Rank-invariant:
        Yes.

    Memory:
        For a list or tuple, a copy as an array, 8 bytes per index; otherwise nothing.

    >>> import lazyckpt as lz
    >>> list(lz.source(list("abcd")) | lz.gather([-1, 0, 0]))
    ['d', 'a', 'a']
    """
    length = upstream.length
    if upstream.skip is None or length is None:
        raise ArgumentError("gather: the pipeline before it has no random access")
    order = _Given(indices, length)
    return reordered("gather", upstream, len(indices), lambda epoch: order)


class IndexOutOfRange(ArgumentError, IndexError):
    """There is no item at an index."""


class _Given:
    """The indices given to `gather`, as an order."""

    def __init__(self, indices: Any, length: int | float) -> None:
        self._length = length
        if isinstance(indices, (list, tuple)):
            indices = [operator.index(index) for index in indices]  # NumPy would round some of them
        most, ends = MOST - 1 if length == math.inf else sys.maxsize, _ends(indices)
        for index in ends:
            if not -length <= index < length or (index < 0 and length == math.inf):
                raise IndexOutOfRange(f"gather: index {index} is out of range for {length} items")
            if abs(index) > most:
                raise ArgumentError(f"gather: index {index} is beyond {most}, the largest possible")
        self._as_they_are = min(ends, default=0) >= 0
        if isinstance(indices, list) or len(indices) < 2:  # then a range's step doesn't matter
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
    """Return the least and the largest index, whatever their order."""
    if not len(indices):
        return []
    if isinstance(indices, range):
        return [indices[0], indices[-1]]
    if isinstance(indices, list):
        return [min(indices), max(indices)]
    return [int(indices.min()), int(indices.max())]
