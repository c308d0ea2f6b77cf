"""The progress of a worker process, in shared memory that outlives the worker."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from mmap import mmap
from typing import IO, Any

from lazyckpt.executors.ipc.shared_memory import unnamed_file

_CELL = 8  # bytes
_START = 60.0  # seconds

_own: list[tuple[Progress, int]] = []  # if this process is a worker: its progress and consumer


def shared_cells(workers: int) -> IO[bytes]:
    """Allocate memory for the progress of `workers` workers, as a file to map."""
    return unnamed_file(Progress.CELLS * workers * _CELL)


class Progress:
    """The progress of one worker.

    It has the number of the current task, from 1, the number of items computed, the watched call in
    progress, a counter that shows that the worker is alive while it computes no items, whether it
    has started, and whether its consumer has let it go.
    """

    CELLS = 6

    def __init__(self, shared: mmap, index: int) -> None:
        """Use the cells of the worker `index`, in the memory of `shared_cells`."""
        cells = memoryview(shared).cast("q")
        self._cells = cells[index * self.CELLS : (index + 1) * self.CELLS]

    def begin(self, number: int) -> CountedItems:
        """Begin a task; return the list for its items."""
        self._cells[1], self._cells[2], self._cells[0] = 0, 0, number + 1
        return CountedItems(self._cells[1:2], self._cells[2:3])

    def say_alive(self) -> None:
        """Restart the timeout of a process that waits for an item."""
        self._cells[3] += 1

    def note_start(self) -> None:
        """Begin the timeout of the first item, which doesn't include the start of a process."""
        self._cells[4] = 1

    @property
    def has_started(self) -> bool:
        """Whether the worker's process has started."""
        return self._cells[4] > 0

    @property
    def has_begun(self) -> bool:
        """Whether the worker has ever been ready for tasks."""
        return self._cells[3] > 0

    def reached(self) -> tuple[int, ...]:
        """Return values that change whenever the worker makes progress."""
        return tuple(self._cells)

    def let_go(self) -> None:
        """Tell the worker that the pipe ends because its consumer needs it no longer."""
        self._cells[5] = 1

    @property
    def is_let_go(self) -> bool:
        """Whether the consumer needs the worker no longer; else it dies where the pipe ends."""
        return self._cells[5] > 0

    def made(self, number: int) -> int | None:
        """Return how many items of a task are computed; None if it isn't in progress."""
        return self._cells[1] if self._cells[0] == number + 1 else None

    def called(self, number: int) -> int | None:
        """Return the watched call of a task that is in progress, if there is one."""
        return self._cells[2] or None if self._cells[0] == number + 1 else None


class Patience:
    """The timeout of a worker. It restarts whenever the worker makes progress.

    Until its process has started, which may import large packages, it is a minute longer.
    """

    def __init__(self, seconds: float | None, progress: Progress) -> None:
        self._seconds, self._progress = seconds, progress
        self._reached: tuple[int, ...] = ()
        self._left = inf

    def left(self) -> float:
        """Return how many seconds to wait."""
        if self._seconds is None:
            return inf
        if self._gets_on():
            if self._reached:
                say_alive()
            self._reached = self._progress.reached()
            start = 0 if self._progress.has_started else _START
            self._left = self._seconds + start
        return self._left

    def spend(self, seconds: float) -> None:
        """Count a wait, without the time for which this process was stopped."""
        self._left -= seconds

    @property
    def is_over(self) -> bool:
        """Whether the worker has made no progress for too long."""
        return self._left <= 0 and not self._gets_on()

    def _gets_on(self) -> bool:
        return self._progress.reached() != self._reached


def note_own(progress: Progress, consumer: int) -> None:
    """Register the progress and the consumer of this process, a worker."""
    _own[:] = [(progress, consumer)]


def consumer_of_this() -> int | None:
    """Return the process ID of this worker's consumer; None if this process is no worker."""
    return _own[0][1] if _own else None


def is_let_go() -> bool:
    """Return whether this process is a worker that its consumer needs no longer."""
    return any(progress.is_let_go for progress, _ in _own)


def say_alive() -> None:
    """If this process is a worker that waits for others, restart its consumer's timeout."""
    for progress, _ in _own:
        progress.say_alive()


class CountedItems(list[Any]):
    """A list that stores its length in shared memory while it grows.

    Attributes:
        call: The cell for the watched call in progress.
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
