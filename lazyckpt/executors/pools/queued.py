"""Pools whose outcomes are delivered by other threads."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from queue import Empty
from typing import Any

from lazyckpt.errors import WorkerTimeout
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.executors.pools.pool import PendingTask, WorkerPool, get_within

_TICK = 0.25  # seconds until a signal is handled that came just before a wait


class QueuedPool(WorkerPool):
    """A pool in which each outcome is put into the queue of its task.

    It may drive other pools; a task's timeout doesn't run while it waits for them.
    """

    def __init__(
        self,
        workers: int,
        buffer_size: int,
        timeout: float | None,
        drives: tuple[WorkerPool, ...] = (),
    ) -> None:
        super().__init__(workers, buffer_size)
        self._timeout = timeout
        self._drives = drives
        self._awaited: list[PendingTask] = []  # by the threads that drive it

    def start(self) -> None:
        self.is_stopped = False
        self._start()

    def stop(self) -> None:
        self.is_stopped = True
        self._end()

    def result(self, pending: PendingTask) -> Outcome:
        while pending.outcome is None:
            self._awaited.append(pending)
            self.is_awaited = True
            try:
                found = self._wait_for(pending)
            finally:
                self._awaited.remove(pending)
                self.is_awaited = bool(self._awaited)
            if found is None:
                raise TaskLost
            self._take_in(pending, found)
        return pending.outcome

    def _wait_for(self, pending: PendingTask) -> Any:
        """Wait for a task's outcome; None if the workers were stopped before it was done."""
        patience = left = inf if self._timeout is None else self._timeout
        while pending.generation == self.generation or not pending.came.empty():
            self._let_begin(pending)
            seconds = min(_TICK, left)
            with suppress(Empty):
                return get_within(pending.came, seconds)
            left -= seconds  # and not the time for which this process was stopped
            if any(pool.is_awaited or pool.is_joining for pool in self._drives):
                left = patience
            if left <= 0:
                pending.made = len(pending.items)
                self.losses += 1
                self._end(waits=bool(self._drives))  # driven pools end with this one
                raise WorkerTimeout(f"no item within {self._timeout} s, from {self}")
        return None

    def _begin(self, size: int) -> PendingTask:
        """Return a pending task, about to be submitted. Raises `TaskLost` if it is refused."""
        self._ensure_started()
        return PendingTask(self.generation, size)

    def _ensure_started(self) -> None:
        """Start the workers, if they aren't running. Raises `TaskLost` if tasks are refused."""
        if self.is_driven and self.is_stopped:
            raise TaskLost
        self._start()
        if self.is_driven and self.is_stopped:  # by a different thread, while they started
            self._end()
            raise TaskLost

    def _start(self) -> None:
        """Start the workers, if they aren't running."""

    def _end(self, *, waits: bool = True) -> None:
        """End the workers and, if `waits`, wait for them. The next task starts new ones."""
        self.generation += 1
        for pending in tuple(self._awaited):
            pending.came.put(None)

    def _take_in(self, pending: PendingTask, found: Any) -> None:
        """Store the outcome of a task."""
        pending.outcome = found

    def _let_begin(self, pending: PendingTask) -> None:
        """Begin a task that a thread waits for, if it was held back."""
