"""Best-fit decreasing over groups of equal sizes and equal rows, for `plan_packing`."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class _Rows(NamedTuple):
    """Adjacent rows with the same room."""

    room: int
    first: int
    rows: int


class _Step(NamedTuple):
    """A number of rows, from the first on, that each take the same number of pieces of one size."""

    first: int
    rows: int
    pieces: int


def best_fit_decreasing(sizes: NDArray[np.int64], length: int) -> tuple[NDArray[np.int64], int]:
    """Return the row of each size, and the number of rows.

    Args:
        sizes: Ints from 1 to `length`, falling.
        length: The room in a row.
    """
    starts = np.flatnonzero(np.diff(sizes, prepend=0))
    counts = np.diff(starts, append=len(sizes))
    found = [*_steps(sizes[starts].tolist(), counts.tolist(), length)]
    steps = np.array(found, np.int64).reshape(-1, 3)
    firsts, many, pieces = steps.T
    begins = np.repeat(many.cumsum() - many, many)
    rows = np.repeat(firsts, many) + np.arange(len(begins)) - begins
    return np.repeat(rows, np.repeat(pieces, many)), int(rows.max(initial=-1)) + 1


def _steps(sizes: list[int], counts: list[int], length: int) -> Iterator[_Step]:
    """Yield how pieces are dealt to rows, all of one size at a time, in the order of sizes.

    When a row takes no more pieces of a size, its remaining room is less than that size, and so
    less than the room of any row that can still take one. So the rows that can are a stack with the
    least room on top. The others wait until sizes have become small enough for them.
    """
    fitting: list[_Rows] = []
    waiting: list[_Rows] = []  # a heap by negative room: the most room comes first
    total = 0
    for size, left in zip(sizes, counts, strict=True):
        while waiting and -waiting[0].room >= size:
            group = heappop(waiting)
            fitting.append(group._replace(room=-group.room))
        while left:
            if not fitting:
                needed = -(-left // (length // size))
                fitting.append(_Rows(length, total, needed))
                total += needed
            room, first, rows = fitting.pop()
            each = room // size
            full = min(rows, left // each)
            if full:
                yield _Step(first, full, each)
                left -= full * each
                heappush(waiting, _Rows(each * size - room, first, full))
            first, rows = first + full, rows - full
            if left and rows:
                yield _Step(first, 1, left)
                last, left = _Rows(room - left * size, first, 1), 0
                if rows > 1:
                    fitting.append(_Rows(room, first + 1, rows - 1))
                fitting.append(last)
            elif rows:
                fitting.append(_Rows(room, first, rows))
