"""How far a worker process is with a task, in shared memory, which outlives it."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from mmap import mmap
from multiprocessing.heap import Arena
from time import monotonic
from typing import Any

_CELL = 8  # bytes

_own: list[Progress] = []  # that of this process, if it is a worker


def shared_cells(context: Any, workers: int) -> Any:
    """Memory for the progress of so many workers.

    It is none of multiprocessing's common heap, which an interrupt may leave in disorder.
    """
    size = Progress.CELLS * workers * _CELL
    return mmap(-1, size) if context.get_start_method() == "fork" else Arena(size)


class Progress:
    """The number of the task that a worker does, and how many items of it are made.

    Besides, which watched call of the task is under way, and how often the worker has
    said that it is alive though it gives nothing.
    """

    CELLS = 4

    def __init__(self, shared: Any, index: int) -> None:
        """Use the cells of one worker, by its number, in memory of `shared_cells`."""
        cells = memoryview(shared.buffer if isinstance(shared, Arena) else shared).cast("q")
        self._cells = cells[index * self.CELLS : (index + 1) * self.CELLS]

    def begin(self, number: int) -> CountedItems:
        """The list for the items of a task."""
        self._cells[1], self._cells[2], self._cells[0] = 0, 0, number
        return CountedItems(self._cells[1:2], self._cells[2:3])

    def say_alive(self) -> None:
        """Have who waits for an item wait anew."""
        self._cells[3] += 1

    @property
    def has_begun(self) -> bool:
        """Whether the worker is ready for tasks, or was."""
        return self._cells[3] > 0

    def reached(self) -> tuple[int, ...]:
        """What changes whenever the worker gets on."""
        return tuple(self._cells)

    def end(self) -> None:
        """Say that no task is being done, and that none has begun."""
        self._cells[0], self._cells[3] = -1, 0

    def made(self, number: int) -> int | None:
        """How many items of a task are made, if it is being done."""
        return self._cells[1] if self._cells[0] == number else None

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
    """A list that writes down its length while it grows.

    Attributes:
        call: The cell for the watched call that is under way.
    """

    __slots__ = ("_made", "call")

    def __init__(self, made: memoryview, call: memoryview) -> None:
        self._made, self.call = made, call

    def extend(self, items: Iterable[Any]) -> None:
        add, made = super().append, self._made
        for number, item in enumerate(items, len(self) + 1):
            add(item)
            made[0] = number

    def append(self, item: Any) -> None:
        super().append(item)
        self._made[0] = len(self)
