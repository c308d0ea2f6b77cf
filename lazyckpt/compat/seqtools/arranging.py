"""Items of sequences in another order, joined, and in groups."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, pairwise
from operator import getitem
from typing import Any, SupportsIndex, TypeVar

import numpy as np

import lazyckpt as lz
from lazyckpt.compat.seqtools.sequence import (
    Arrangement,
    LazySequence,
    Rebuilt,
    arranged,
    random_access,
)
from lazyckpt.core.checks import checked, is_integer, natural, optional, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Pipeline

A = TypeVar("A")


def arange(start: int, stop: int | None = None, step: int | None = None) -> LazySequence[int]:
    """The ints of `range`. An index out of range raises."""
    first, end = (0, start) if stop is None else (start, stop)
    numbers = range(first, end, 1 if step is None else step)
    return LazySequence(lz.source(numbers))


def gather(sequence: Iterable[A], indexes: Iterable[SupportsIndex]) -> LazySequence[A]:
    """The items at `indexes`, in their order; negative ones count from the end."""
    if hasattr(indexes, "__array__"):
        indexes = np.asarray(indexes)
    if isinstance(indexes, list):
        indexes = tuple(indexes)
    if isinstance(indexes, (range, tuple, np.ndarray)):
        return arranged([sequence], lz.gather(indexes))
    return arranged([sequence], partial(_looked_up, LazySequence.of(indexes)))


take = gather


def _looked_up(indexes: Pipeline[Any], pipeline: Pipeline[A]) -> Pipeline[A]:
    return indexes | lz.map(LazySequence(pipeline).__getitem__)


def cycle(sequence: Iterable[A], limit: int | None = None) -> LazySequence[A]:
    """The items again and again, for ever or `limit` of them.

    >>> list(cycle("abc", 5)), cycle("abc")[3 * 10**9 + 1]
    (['a', 'b', 'c', 'a', 'b'], 'b')
    """
    limit = checked("cycle", "limit", limit, optional(natural))
    if limit != 0 and LazySequence.of(sequence).machine.length == 0:
        raise ArgumentError("cycle: a sequence of nothing can't be repeated")
    return arranged([sequence], lz.repeat() if limit is None else lz.repeat() | lz.take(limit))


def repeat(value: A, times: int | None = None) -> LazySequence[A]:
    """The same value, for ever or `times` times. To assign one item is to assign all."""
    times = checked("repeat", "times", times, optional(natural))
    return cycle([value], times)


def interleave(*sequences: Iterable[Any]) -> LazySequence[Any]:
    """An item of each sequence in turn, round and round over those that still have some."""
    return arranged(sequences, partial(_joined, lz.interleave))


def concatenate(sequences: Iterable[Iterable[A]]) -> LazySequence[A]:
    """The items of the first sequence, then of the second, and so on."""
    parts = [*chain.from_iterable(map(_parts, sequences))]
    return arranged(parts, _concatenated)


def _parts(sequence: Any) -> Sequence[Any]:
    """What was concatenated to a sequence, if it is such a one."""
    is_one = isinstance(sequence, LazySequence) and sequence.layout is _concatenated
    return sequence.inputs if is_one else [sequence]


def _concatenated(*pipelines: Pipeline[Any]) -> Pipeline[Any]:
    return _joined(lz.concat, *pipelines)


def _joined(join: Arrangement, *pipelines: Pipeline[Any]) -> Pipeline[Any]:
    return join(*pipelines) if pipelines else lz.source(())


def collate(sequences: Iterable[Iterable[Any]]) -> LazySequence[tuple[Any, ...]]:
    """Tuples of one item from each sequence. Unequal lengths are a `ValueError`."""
    return arranged([*sequences], partial(_level, "collate", lz.zip))


def switch(condition: Iterable[Any], x: Iterable[A], y: Iterable[A]) -> LazySequence[A]:
    """Item i of `x` where item i of `condition` is true, else of `y`. Lengths must be equal."""
    return arranged([x, y], partial(_level, "switch", lz.switch, LazySequence.of(condition)))


def case(selector: Iterable[int], *values: Iterable[A]) -> LazySequence[A]:
    """Item i of the sequence that item i of `selector` says; negative ones count from the last.

    >>> list(case([0, 1, -1], "abc", "xyz"))
    ['a', 'y', 'z']
    """
    chosen = LazySequence.of(selector) | lz.map(partial(_choice, len(values)))
    return arranged(values, partial(_level, "case", lz.case, chosen))


def _level(name: str, join: Arrangement, *pipelines: Pipeline[Any]) -> Pipeline[Any]:
    """Pipelines joined, if all that have an end have it at the same place."""
    lengths = [pipeline.machine.length for pipeline in pipelines]
    if len({*lengths} - {None, math.inf}) > 1:
        raise ArgumentError(f"{name}: all sequences must have one length, got {lengths}")
    return join(*pipelines)


def _choice(count: int, selector: Any) -> Any:
    """A selector as the number of one of so many sequences."""
    number = int(selector) if isinstance(selector, (bool, np.bool_)) else selector
    is_last = is_integer(number) and -count <= number < 0
    return int(number) + count if is_last else number


def batch(
    sequence: Iterable[Any],
    k: int,
    drop_last: bool = False,
    pad: Any = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> LazySequence[Any]:
    """Lists of k consecutive items, or what `collate_fn` makes of them.

    >>> list(batch(range(5), 2, pad=0))
    [[0, 1], [2, 3], [4, 0]]
    """
    options = {"collate": collate_fn, "pad": None if drop_last else pad}
    alone = partial(lz.batch, k, drop_last=bool(drop_last))
    return arranged([sequence], alone(**options), alone())


def unbatch(
    sequence: Iterable[Sequence[A]], batch_size: int, last_batch_size: int | None = None
) -> LazySequence[A]:
    """The items of batches, one after another. Each thread keeps the batch that it used last."""
    batch_size = checked("unbatch", "batch_size", batch_size, positive)
    last = checked("unbatch", "last_batch_size", last_batch_size or batch_size, positive)
    batches = LazySequence(random_access(LazySequence.of(sequence)))
    return LazySequence(LazySequence.of(_Rows(batches, batch_size, last)))


class _Rows(Rebuilt):
    """The items of batches, by their numbers over all batches."""

    def __init__(self, batches: LazySequence[Any], size: int, last: int) -> None:
        self._batches, self._size, self._last_size = batches, size, last
        self._kept = threading.local()

    def __len__(self) -> int:
        count = len(self._batches)
        return (count - 1) * self._size + self._last_size if count else 0

    def __getitem__(self, index: int) -> Any:
        number, place = divmod(index, self._size)
        kept, rows = getattr(self._kept, "batch", (-1, ()))
        if kept != number:
            rows = self._batches[number]
            self._kept.batch = number, rows
        if place >= len(rows):
            raise ValueError(
                f"unbatch: batch {number} has {len(rows)} items, and item {place} is wanted; "
                "batch_size or last_batch_size is wrong"
            )
        return rows[place]


def split(sequence: Sequence[A], edges: Any) -> LazySequence[Any]:
    """Consecutive parts of a sequence, as its own slices.

    `edges` says where to cut, in rising order; or how often, into equal parts; or where
    each part begins and ends. What is out of range is moved to it.

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
        edges = pairwise([0, *edges, size])
    bounds = [slice(*(max(0, min(int(edge), size)) for edge in pair)) for pair in edges]
    return arranged([sequence], partial(_cut, bounds, sequence), partial(_cut, bounds, None))


def _cut(bounds: list[slice], sequence: Any, pipeline: Pipeline[Any]) -> Pipeline[Any]:
    """Slices of a sequence, or of the pipeline if that is None."""
    whole = LazySequence(pipeline) if sequence is None else sequence
    return lz.source(bounds) | lz.map(partial(getitem, whole))
