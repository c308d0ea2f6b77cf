"""Iterators over existing sequences: they start at any index, and know how much is left.

CPython's iterators of lists, tuples, ranges and bytes do both in C, through `__setstate__`,
`__length_hint__` and `__reduce__`, so that a position costs nothing per item. No document
promises their answers, and at the end the answers differ between versions. They are used only
in this module. `Walk` does the same in plain Python, on an interpreter whose own iterators
fail `are_exact`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import length_hint
from typing import Any, TypeVar

T = TypeVar("T")

ENDLESS = sys.maxsize
remaining: Callable[[Iterator[Any]], int] = length_hint
"""How many items are left of an iterator of this module; 0 after its end."""


class Walk(Iterator[T]):
    """An iterator over a sequence, from an index on, in plain Python."""

    __slots__ = ("_index", "_items")

    def __init__(self, items: Sequence[T], index: int = 0) -> None:
        self._items: Sequence[T] = items
        self._index = index

    def __next__(self) -> T:
        items, index = self._items, self._index
        if index >= len(items):
            self._items = ()
            raise StopIteration
        self._index = index + 1
        return items[index]

    def __length_hint__(self) -> int:
        return max(0, len(self._items) - self._index)

    def __setstate__(self, index: int) -> None:
        self._index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return (Walk, (self._items,), self._index) if self._items != () else (Walk, ((),))


def are_exact(make: Callable[[Sequence[int]], Any] = iter) -> bool:
    """Return whether iterators can be positioned and count their rest, up to and after the end."""
    for items in ([4, 5, 6], (4, 5, 6), range(4, 7), b"\4\5\6", range(0, 3 << 64, 1 << 64)):
        for start in range(5):
            try:
                found = make(items)
                found.__setstate__(start)
                for index in range(start, 4):
                    if length_hint(found) != max(0, 3 - index):
                        return False
                    if next(found, None) != (items[index] if index < 3 else None):
                        return False
                if length_hint(found) or next(found, None) is not None:
                    return False
            except (AttributeError, TypeError):
                return False
    ticks = repeat(True, 2)
    return [(length_hint(ticks), next(ticks, None)) for _ in range(3)] == [
        (2, True),
        (1, True),
        (0, None),
    ]


MAKE: Callable[[Any], Any] = iter if are_exact() else Walk


def iterate(items: Sequence[T], start: int = 0) -> Iterator[T]:
    """Iterate over a list, tuple, range or bytes, from an index on.

    Args:
        items: The sequence. A list may change meanwhile, as with `iter`.
        start: The index of the first item; there are none from the length on.
    """
    found: Any = MAKE(items)
    if start:
        found.__setstate__(start)
    return found  # type: ignore[no-any-return]


def make_ticks(count: int = ENDLESS) -> Iterator[Any]:
    """Return an iterator of `count` true values, to take in step with items and so count them."""
    return repeat(True, count) if MAKE is iter else Walk(range(1, count + 1))


def end(iterator: Iterator[Any]) -> None:
    """End an iterator from `iterate`, without going through the rest."""
    iterator.__setstate__(ENDLESS)  # type: ignore[attr-defined]  # a range counts from its position


def index_reached(iterator: Iterator[Any]) -> int | None:
    """Return the index of the next item of an iterator from `iterate` over a list; None at the end.

    It is right also while the list is shorter than that.
    """
    found: tuple[Any, ...] = iterator.__reduce__()  # type: ignore[assignment]
    return found[2] if len(found) > 2 else None  # None from 3.12 on; 3.11 omits it
