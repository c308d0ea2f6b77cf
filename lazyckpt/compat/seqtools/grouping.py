"""Items in groups, and out of them."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from lazyckpt.compat.seqtools.sequence import (
    LazySequence,
    arranged,
    check_count,
    places,
    stage,
)
from lazyckpt.core.checks import checked, is_integer, positive
from lazyckpt.errors import ArgumentError

A = TypeVar("A")


def batch(
    sequence: Iterable[Any],
    k: int,
    drop_last: bool = False,
    pad: Any = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> LazySequence[Any]:
    """Lists of k consecutive items, or what `collate_fn` makes of them.

    Args:
        drop_last: Leave out a last batch that is shorter; `pad` is not used then.
        pad: An item that fills up a last batch which is shorter. [D]: where k divides
            the length, it got k more.

    >>> list(batch(range(5), 2, pad=0))
    [[0, 1], [2, 3], [4, 0]]
    """
    options = {"collate": collate_fn, "pad": None if drop_last else pad}
    alone = partial(stage, "batch", k, drop_last=bool(drop_last))
    return arranged([sequence], alone(**options), alone())


def unbatch(
    sequence: Iterable[Sequence[A]], batch_size: int, last_batch_size: int | None = None
) -> LazySequence[A]:
    """The items of batches, one after another: the inverse of `batch`.

    [D]: of no batches it is empty; its length was `batch_size`. The batch used last
    is kept, in each thread. One that is too short is a `ValueError`.

    >>> list(unbatch([[1, 2], [3]], 2, 1))
    [1, 2, 3]
    """
    batch_size = checked("unbatch", "batch_size", batch_size, positive)
    last = checked("unbatch", "last_batch_size", last_batch_size or batch_size, positive)
    batches = LazySequence(LazySequence.of(sequence))
    size = batches.pipeline.machine.length
    if size != math.inf:
        size = (len(batches) - 1) * batch_size + last if len(batches) else 0
    return LazySequence(places(size) | stage("map", _Row(batches, batch_size)))


class _Row(threading.local):
    """An item of a batch, by its number over all batches. Each thread keeps a batch."""

    def __init__(self, batches: LazySequence[Any], size: int) -> None:
        self._batches, self._size = batches, size
        self._number, self._rows = -1, ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Row, (self._batches, self._size)

    def __call__(self, index: int) -> Any:
        number, place = divmod(index, self._size)
        if self._number != number:
            self._number, self._rows = -1, self._batches[number]
            self._number = number
        try:
            return self._rows[place]
        except IndexError:
            raise ValueError(
                f"unbatch: batch {number} has {len(self._rows)} items, and item {place} is wanted; "
                "batch_size or last_batch_size is wrong"
            ) from None


def split(sequence: Sequence[A], edges: Any) -> LazySequence[Any]:
    """Consecutive parts of a sequence, as its own slices.

    [D]: a cut at the very end gives a part of nothing; it gave the last item again.

    Args:
        edges: Where to cut, in rising order; or a number of cuts into equal parts; or
            pairs of where parts begin and end. What is out of range is moved to it.

    >>> list(split("abcdef", [1, 4])), list(split([1, 2, 3, 4], 1))
    (['a', 'bcd', 'ef'], [[1, 2], [3, 4]])
    """
    size = len(sequence)
    if is_integer(edges):
        parts = int(edges) + 1
        if parts < 1 or size % parts:
            raise ArgumentError(f"split: {parts} parts must divide the length {size}")
        edges = [size // parts * i for i in range(1, parts)]
    edges = list(edges)
    if not edges or is_integer(edges[0]):
        edges = itertools.pairwise([0, *edges, size])
    bounds = [slice(_within(start, size), _within(stop, size)) for start, stop in edges]
    return arranged([_Parts(sequence, bounds)])


def _within(edge: Any, size: int) -> int:
    return max(0, min(int(edge), size))


class _Parts:
    """Slices of a sequence, by number."""

    def __init__(self, sequence: Any, bounds: list[slice]) -> None:
        self._sequence, self._bounds = sequence, bounds

    def __len__(self) -> int:
        return len(self._bounds)

    def __getitem__(self, number: int) -> Any:
        return self._sequence[self._bounds[number]]

    def __setitem__(self, number: int, part: Any) -> None:
        bounds = self._bounds[number]
        check_count(max(0, bounds.stop - bounds.start), part)
        self._sequence[bounds] = part
