"""Items in groups, and out of them."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from lazyckpt.compat.seqtools.sequence import LazySequence, places, produced, stage
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
    pad = None if drop_last else pad
    options = {"drop_last": bool(drop_last), "collate": collate_fn, "pad": pad}
    return LazySequence(LazySequence.of(sequence) | stage("batch", k, **options))


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
        bounds = [(size // parts * i, size // parts * (i + 1)) for i in range(parts)]
    else:
        edges = list(edges)
        if not edges or is_integer(edges[0]):
            cuts = [0, *edges, size]
            edges = itertools.pairwise(cuts)
        bounds = [(_within(start, size), _within(stop, size)) for start, stop in edges]
    return LazySequence(produced("source", bounds) | stage("map", partial(_part, sequence)))


def _within(edge: Any, size: int) -> int:
    return max(0, min(int(edge), size))


def _part(sequence: Any, bounds: tuple[int, int]) -> Any:
    return sequence[slice(*bounds)]


class _Last(threading.local):
    """The batch used last in a thread, and its number."""

    held: tuple[int, Any] = (-1, ())


class _Row:
    """An item of a batch, by its number over all batches."""

    def __init__(self, batches: LazySequence[Any], size: int) -> None:
        self._batches, self._size = batches, size
        self._last = _Last()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Row, (self._batches, self._size)

    def __call__(self, index: int) -> Any:
        number, place = divmod(index, self._size)
        held, rows = self._last.held
        if held != number:
            rows = self._batches[number]
            self._last.held = number, rows
        try:
            return rows[place]
        except IndexError:
            raise ValueError(
                f"unbatch: batch {number} has {len(rows)} items, and item {place} is wanted; "
                "batch_size or last_batch_size is wrong"
            ) from None
