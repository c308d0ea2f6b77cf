"""Items read once and kept: `add_cache`, `uniter`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar

import lazyckpt as lz
from lazyckpt.compat.seqtools.sequence import LazySequence, random_access
from lazyckpt.core.checks import brief, checked, natural, optional, positive
from lazyckpt.errors import ArgumentError

A = TypeVar("A")


def add_cache(arr: Iterable[A], cache_size: int = 1) -> LazySequence[A]:
    """Keep the `cache_size` items that were used last, rather than make them again."""
    return LazySequence(random_access(LazySequence.of(arr)) | lz.lru_cache(cache_size))


def uniter(
    iterable: Iterable[A], cache_size: int = 0, n_parallel: int = 1, size: int | None = None
) -> LazySequence[A]:
    """Indices for an iterable, which is gone through as far as needed, and anew to go back.

    Each of at most `n_parallel` iterators keeps its last `cache_size` items.
    """
    if isinstance(iterable, Iterator):
        raise ArgumentError(
            f"uniter: iterable must begin anew each time, got the iterator {brief(iterable)}"
        )
    cache_size = checked("uniter", "cache_size", cache_size, natural)
    most = checked("uniter", "n_parallel", n_parallel, positive)
    size = checked("uniter", "size", size, optional(natural))
    return LazySequence(LazySequence.of(_Indexed(iterable, cache_size, most, size)))


class _Indexed:
    """Items of an iterable by index, by as many iterators as are allowed."""

    def __init__(
        self, iterable: Iterable[Any], cache_size: int, most: int, size: int | None
    ) -> None:
        self._iterable, self._cache_size = iterable, cache_size
        self._most, self._size = most, size
        self._cursors: list[_Cursor] = []  # the one least recently used first
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Indexed, (self._iterable, self._cache_size, self._most, self._size)

    def __len__(self) -> int:
        if self._size is None:
            raise TypeError("a sequence by uniter has no len() unless it is given one: size=...")
        return self._size

    def __getitem__(self, index: int) -> Any:
        with self._lock:
            cursor = self._nearest(index)
            item = cursor.item(index)
            self._cursors.append(cursor)  # after an error it is not used again
            return item

    def _nearest(self, index: int) -> _Cursor:
        """Take the cursor with the least to read out of the list, or make a new one."""
        cursors = self._cursors
        able = [each for each in cursors if each.next - len(each.kept) <= index]
        if able:
            cursor = max(able, key=attrgetter("next"))
            cursors.remove(cursor)
            return cursor
        del cursors[: len(cursors) + 1 - self._most]
        return _Cursor(self._iterable, self._cache_size + 1)


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
