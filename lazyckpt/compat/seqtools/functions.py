"""Functions of sequences: map, reorder, join, group and cache their items."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, pairwise
from operator import attrgetter, getitem
from typing import Any, SupportsIndex, TypeVar

import numpy as np

import lazyckpt as lz
from lazyckpt.compat.seqtools.sequence import EvaluationError, LazySequence, places, random_access
from lazyckpt.core.checks import brief, checked, function, is_integer, natural, optional, positive
from lazyckpt.core.show import show, written_at

__all__ = [
    "add_cache", "arange", "batch", "case", "collate", "concatenate", "cycle", "gather",
    "interleave", "repeat", "smap", "split", "starmap", "switch", "take", "unbatch", "uniter",
]  # fmt: skip

A = TypeVar("A")
B = TypeVar("B")
Join = Callable[..., lz.Pipeline[Any]]


def smap(f: Callable[..., B], *sequences: Iterable[Any]) -> LazySequence[B]:
    """Return `f(item)` for every item; with several sequences, `f` of one item from each.

    It is as long as the shortest sequence.

    >>> list(smap(lambda x, y: x + y, [1, 2, 3], [10, 20]))
    [11, 22]
    """
    if not sequences:
        raise lz.ArgumentError("smap: at least one sequence is needed, got none")
    if len(sequences) == 1:
        return _smap(LazySequence.of(*sequences), f, spread=False)
    return _smap(lz.zip(*map(LazySequence.of, sequences)), f, spread=True)


def starmap(f: Callable[..., B], sequence: Iterable[Iterable[Any]]) -> LazySequence[B]:
    """Return `f(*item)` for every item. Errors are as in `smap`."""
    return _smap(LazySequence.of(sequence), f, spread=True)


def _smap(items: lz.Pipeline[Any], f: Callable[..., Any], spread: bool) -> LazySequence[Any]:
    checked("smap", "f", f, function)
    return LazySequence(items | lz.enumerate() | lz.map(_Evaluation(f, spread, written_at())))


@dataclass(frozen=True)
class _Evaluation:
    """The user's function, and the place in the code that passed it."""

    func: Callable[..., Any]
    spread: bool
    site: str

    def __post_init__(self) -> None:
        self.__dict__["__qualname__"] = show(self.func)

    def __call__(self, numbered: tuple[int, Any]) -> Any:
        number, item = numbered
        try:
            return self.func(*item) if self.spread else self.func(item)
        except Exception as error:
            what = f"item {number} of smap({show(self.func)})"
            raise EvaluationError.of(error, what, self.site)  # noqa: B904  # it has its cause


def arange(start: int, stop: int | None = None, step: int | None = None) -> LazySequence[int]:
    """Return the ints of `range`. An index out of range is an error."""
    first, end = (0, start) if stop is None else (start, stop)
    numbers = range(first, end, 1 if step is None else step)
    return LazySequence(lz.source(numbers))


def gather(sequence: Iterable[A], indexes: Iterable[SupportsIndex]) -> LazySequence[A]:
    """Return the items at `indexes`, in their order; negative ones count from the end."""
    items: lz.Pipeline[A] = LazySequence.of(sequence)
    chosen: Any = indexes
    if isinstance(chosen, (range, list, tuple)) or hasattr(chosen, "__array__"):
        return LazySequence(items | lz.gather(chosen))
    return LazySequence(LazySequence.of(chosen) | lz.map(LazySequence(items).__getitem__))


take = gather


def cycle(sequence: Iterable[A], limit: int | None = None) -> LazySequence[A]:
    """Repeat the items, forever or up to `limit` items.

    >>> list(cycle("abc", 5)), cycle("abc")[3 * 10**9 + 1]
    (['a', 'b', 'c', 'a', 'b'], 'b')
    """
    limit = checked("cycle", "limit", limit, optional(natural))
    items: lz.Pipeline[A] = LazySequence.of(sequence)
    if limit != 0 and items.machine.length == 0:
        raise lz.ArgumentError("cycle: an empty sequence can't be repeated")
    endless = items | lz.repeat()
    return LazySequence(endless if limit is None else endless | lz.take(limit))


def repeat(value: A, times: int | None = None) -> LazySequence[A]:
    """Repeat the same value, forever or `times` times."""
    times = checked("repeat", "times", times, optional(natural))
    return cycle([value], times)


def interleave(*sequences: Iterable[Any]) -> LazySequence[Any]:
    """Return one item of each sequence in turn, skipping sequences that have ended."""
    return _joined(lz.interleave, map(LazySequence.of, sequences))


def concatenate(sequences: Iterable[Iterable[A]]) -> LazySequence[A]:
    """Return the items of the first sequence, then of the second, and so on."""
    return _joined(lz.concat, chain.from_iterable(map(_parts, sequences)))


def _parts(sequence: Iterable[Any]) -> Sequence[lz.Pipeline[Any]]:
    """Return the parts of a sequence made by `concatenate`, or the sequence itself."""
    pipeline = LazySequence.of(sequence)
    last = pipeline.calls[-1]
    return last.arguments["pipelines"] if last.name == "concat" else [pipeline]


def _joined(join: Join, pipelines: Iterable[lz.Pipeline[Any]]) -> LazySequence[Any]:
    parts = list(pipelines)
    return LazySequence(join(*parts) if parts else lz.source(()))


def collate(sequences: Iterable[Iterable[Any]]) -> LazySequence[tuple[Any, ...]]:
    """Return tuples of one item per sequence. Unequal lengths are a `ValueError`."""
    return _level("collate", lz.zip, map(LazySequence.of, sequences))


def switch(condition: Iterable[Any], x: Iterable[A], y: Iterable[A]) -> LazySequence[A]:
    """Return item i of `x` if item i of `condition` is true, else of `y`. Lengths must be equal."""
    return _level("switch", lz.switch, map(LazySequence.of, (condition, x, y)))


def case(selector: Iterable[int], *values: Iterable[A]) -> LazySequence[A]:
    """Return item i of the sequence that item i of `selector` names, for each i.

    Negative numbers count from the last sequence.

    >>> list(case([0, 1, -1], "abc", "xyz"))
    ['a', 'y', 'z']
    """
    chosen = LazySequence.of(selector) | lz.map(partial(_choice, len(values)))
    return _level("case", lz.case, [chosen, *map(LazySequence.of, values)])


def _level(name: str, join: Join, pipelines: Iterable[lz.Pipeline[Any]]) -> LazySequence[Any]:
    """Join pipelines, if all finite ones have the same length."""
    parts = list(pipelines)
    lengths = [pipeline.machine.length for pipeline in parts]
    if len({*lengths} - {None, math.inf}) > 1:
        raise lz.ArgumentError(f"{name}: all sequences must have the same length, got {lengths}")
    return LazySequence(join(*parts))


def _choice(count: int, selector: Any) -> Any:
    """Return a selector as the number of one of `count` sequences."""
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
    """Return lists of k consecutive items, or `collate_fn` of each list.

    >>> list(batch(range(5), 2, pad=0))
    [[0, 1], [2, 3], [4, 0]]
    """
    pad = None if drop_last else pad
    batches: Any = lz.batch(k, drop_last=bool(drop_last), collate=collate_fn, pad=pad)
    return LazySequence(LazySequence.of(sequence) | batches)


def unbatch(
    sequence: Iterable[Sequence[A]], batch_size: int, last_batch_size: int | None = None
) -> LazySequence[A]:
    """Return the items of batches, one after another; each thread keeps its last batch."""
    size = checked("unbatch", "batch_size", batch_size, positive)
    last = checked("unbatch", "last_batch_size", last_batch_size or size, positive)
    batches = random_access(LazySequence.of(sequence))
    count: Any = batches.machine.length
    length = (count - 1) * size + last if count else count
    return LazySequence(places(length) | lz.map(_Rows(LazySequence(batches), size).__getitem__))


class _Rows:
    """The items of batches, by their numbers across all batches."""

    def __init__(self, batches: LazySequence[Any], size: int) -> None:
        self._batches, self._size = batches, size
        self._kept = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Rows, (self._batches, self._size)

    def __getitem__(self, index: int) -> Any:
        number, place = divmod(index, self._size)
        kept, rows = getattr(self._kept, "batch", (-1, ()))
        if kept != number:
            rows = self._batches[number]
            self._kept.batch = number, rows
        if place >= len(rows):
            raise ValueError(
                f"unbatch: batch {number} has {len(rows)} items, but item {place} is needed; "
                "batch_size or last_batch_size is wrong"
            )
        return rows[place]


def split(sequence: Sequence[A], edges: Any) -> LazySequence[Any]:
    """Return consecutive parts of a sequence, as its own slices.

    `edges` is a list of ascending cuts, or the number of cuts into equal parts, or pairs of the
    start and stop of each part. Edges out of range are clamped.

    >>> list(split("abcdef", [1, 4])), list(split([1, 2, 3, 4], 1))
    (['a', 'bcd', 'ef'], [[1, 2], [3, 4]])
    """
    size = len(sequence)
    if is_integer(edges):
        parts = int(edges) + 1
        if parts < 1 or size % parts:
            raise lz.ArgumentError(f"split: {parts} parts must divide the length {size}")
        edges = [size // parts * i for i in range(1, parts)]
    edges = list(edges)
    if not edges or is_integer(edges[0]):
        edges = pairwise([0, *edges, size])
    bounds = [slice(*(max(0, min(int(edge), size)) for edge in pair)) for pair in edges]
    return LazySequence(lz.source(bounds) | lz.map(partial(getitem, sequence)))


def add_cache(arr: Iterable[A], cache_size: int = 1) -> LazySequence[A]:
    """Keep the `cache_size` most recently used items instead of computing them again."""
    return LazySequence(random_access(LazySequence.of(arr)) | lz.lru_cache(cache_size))


def uniter(
    iterable: Iterable[A], cache_size: int = 0, n_parallel: int = 1, size: int | None = None
) -> LazySequence[A]:
    """Add indices to an iterable: iterate over it as far as needed, and again to go back.

    Each of at most `n_parallel` iterators keeps its last `cache_size` items.
    """
    if isinstance(iterable, Iterator):
        raise lz.ArgumentError(
            f"uniter: iterable must begin again each time, got the iterator {brief(iterable)}"
        )
    cache_size = checked("uniter", "cache_size", cache_size, natural)
    most = checked("uniter", "n_parallel", n_parallel, positive)
    size = checked("uniter", "size", size, optional(natural))
    return LazySequence(LazySequence.of(_Indexed(iterable, cache_size, most, size)))


class _Indexed:
    """The items of an iterable by index, read by a limited number of iterators."""

    def __init__(
        self, iterable: Iterable[Any], cache_size: int, most: int, size: int | None
    ) -> None:
        self._iterable, self._cache_size = iterable, cache_size
        self._most, self._size = most, size
        self._cursors: list[_Cursor] = []  # the least recently used first
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Indexed, (self._iterable, self._cache_size, self._most, self._size)

    def __len__(self) -> int:
        if self._size is None:
            raise TypeError("a sequence by uniter has no len() unless you pass size=...")
        return self._size

    def __getitem__(self, index: int) -> Any:
        with self._lock:
            cursors = self._cursors
            able = [each for each in cursors if each.next - len(each.kept) <= index]
            if able:
                cursor = max(able, key=attrgetter("next"))  # it has the fewest items to read
                cursors.remove(cursor)
            else:
                del cursors[: len(cursors) + 1 - self._most]
                cursor = _Cursor(self._iterable, self._cache_size + 1)
            item = cursor.item(index)
            cursors.append(cursor)  # not after an error
            return item


class _Cursor:
    """An iterator that counts its items and keeps the last ones."""

    def __init__(self, iterable: Iterable[Any], size: int) -> None:
        self._iterable, self._items, self.next = iterable, iter(iterable), 0
        self.kept: deque[Any] = deque(maxlen=size)

    def item(self, index: int) -> Any:
        for item in islice(self._items, max(0, index + 1 - self.next)):
            self.kept.append(item)
            self.next += 1
        if index >= self.next:
            raise IndexError(f"index {index} is past the end of {brief(self._iterable)}")
        return self.kept[index - self.next]
