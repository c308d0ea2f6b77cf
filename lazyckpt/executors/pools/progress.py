"""How far a worker process is with a task, in shared memory, which outlives it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import chain, compress, repeat
from math import inf
from mmap import mmap
from multiprocessing.heap import Arena
from time import monotonic
from typing import Any

import numpy as np

from lazyckpt.executors.pools.pool import FEW_ITEMS, STRIDE

_CELL = np.dtype(np.int64).itemsize
_MOST = 1 << 14  # items that can be counted one by one: as many as a chunk has
_STEP = (True,) * STRIDE
_NUMBERS = np.arange(1, _MOST + 1).astype(np.int64).tobytes()

_own: list[Progress] = []  # that of this process, if it is a worker


def shared_cells(context: Any, workers: int) -> Any:
    """Memory for the progress of so many workers.

    It is none of multiprocessing's common heap, which an interrupt may leave in disorder.
    """
    size = Progress.CELLS * workers * _CELL
    return mmap(-1, size) if context.get_start_method() == "fork" else Arena(size)


def _bytes_of(shared: mmap | Arena) -> memoryview:
    return memoryview(shared.buffer if isinstance(shared, Arena) else shared)


class Progress:
    """The number of the task that a worker does, and how many items of it are made.

    Besides, which watched call of the task is under way, and how often the worker has
    said that it is alive though it gives nothing.
    """

    CELLS = 4

    def __init__(self, shared: Any, index: int, *, each: bool) -> None:
        """Use the cells of one worker.

        Args:
            shared: Memory of `shared_cells`.
            index: The worker's number.
            each: Whether items are counted one by one also where a task has many.
        """
        self._exact = _MOST if each else FEW_ITEMS
        cells = _bytes_of(shared)
        self._cells = cells.cast("q")[index * self.CELLS : (index + 1) * self.CELLS]
        begin = (index * self.CELLS + 1) * _CELL
        self._made = cells[begin : begin + _CELL]

    def begin(self, number: int) -> CountedItems:
        """The list for the items of a task."""
        self._cells[1], self._cells[2], self._cells[0] = 0, 0, number
        return CountedItems(self._made, self._cells[2:3], self._exact)

    def say_alive(self) -> None:
        """Have who waits for an item wait anew."""
        self._cells[3] += 1

    def reached(self) -> tuple[int, ...]:
        """What changes whenever the worker gets on."""
        return tuple(self._cells)

    def end(self) -> None:
        """Say that no task is being done."""
        self._cells[0] = -1

    def made(self, number: int) -> int | None:
        """How many items of a task are made, if it is being done; or so many at least."""
        return self._cells[1] if self._cells[0] == number else None

    def is_exact(self, made: int | None) -> bool:
        """Whether such a count is that of each item."""
        return made is None or made < self._exact

    def called(self, number: int) -> int | None:
        """Which call of a task is under way, of those that are watched, if one is."""
        return self._cells[2] or None if self._cells[0] == number else None


class Patience:
    """How long is waited for a worker: anew whenever it gets on, as each item has its time."""

    def __init__(self, seconds: float | None, progress: Progress) -> None:
        self._seconds, self._progress = seconds, progress
        self._reached: tuple[int, ...] = ()
        self._deadline = inf

    def left(self) -> float:
        """How many seconds to wait."""
        if self._seconds is None:
            return inf
        if self._gets_on():
            if self._reached:
                say_alive()
            self._reached = self._progress.reached()
            self._deadline = monotonic() + self._seconds
        return self._deadline - monotonic()

    @property
    def is_over(self) -> bool:
        """Whether nothing has happened for too long."""
        return monotonic() >= self._deadline and not self._gets_on()

    def _gets_on(self) -> bool:
        return self._progress.reached() != self._reached


def note_own(progress: Progress) -> None:
    """Note that this process is the worker with that progress."""
    _own[:] = [progress]


def say_alive() -> None:
    """Where this process is a worker that waits for others, have its consumer wait anew."""
    for progress in _own:
        progress.say_alive()


class CountedItems(list[Any]):
    """A list that writes down its length while it grows: at C speed, 20 to 60 ns an item.

    Behind the first `exact` items it does so at every 64th, which costs little.

    Attributes:
        call: The cell for the watched call that is under way.
    """

    __slots__ = ("_exact", "_place", "call")

    def __init__(self, place: memoryview, call: memoryview, exact: int) -> None:
        self._place, self.call, self._exact = place, call, exact

    def extend(self, items: Iterable[Any]) -> None:
        numbers, made = BytesIO(_NUMBERS), len(self)
        numbers.seek(made * _CELL)
        counts = map(numbers.readinto, repeat(self._place, max(0, self._exact - made)))
        super().extend(compress(items, chain(counts, chain.from_iterable(self._steps()))))

    def _steps(self) -> Iterator[tuple[bool, ...]]:
        cell = self._place.cast("q")
        while True:
            cell[0] = len(self) + 1  # with the one that this is asked about
            yield _STEP

    def append(self, item: Any) -> None:
        super().append(item)
        self._place.cast("q")[0] = len(self)
