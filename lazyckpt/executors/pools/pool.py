"""A pool of workers as the rest sees it: submit a task, get its outcome."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from weakref import WeakSet

from lazyckpt.core.call import Chain
from lazyckpt.core.machine import Machine
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.failures.skip_log import SkipLog

T = TypeVar("T")


class PendingTask:
    """A task that was submitted, and its outcome once that is there.

    Attributes:
        generation: That of the pool when it was submitted; -1 once nobody wants it.
        size: How many items it has.
        handle: What the pool knows it by.
        items: Those made so far, where a worker leaves them here.
        is_continued: Whether what is left of it is another task's.
        made: How many were made by a worker that then died or hung; None if it did another task.
        called: Which of its watched calls was under way then, if one was.
        lost: What became of that worker, in a few words.
        came: A queue for the outcome as it comes, until it is asked for; None wakes who waits.
        outcome: None until `WorkerPool.result` has it.
    """

    __slots__ = (
        "called", "came", "generation", "handle", "is_continued", "items", "lost", "made",
        "outcome", "size",
    )  # fmt: skip

    def __init__(self, generation: int, size: int, handle: Any = None) -> None:
        self.generation = generation
        self.size = size
        self.handle = handle
        self.items: list[Any] = []
        self.is_continued = False
        self.made: int | None = None
        self.called: int | None = None
        self.lost: Exception | None = None
        self.came: SimpleQueue[Any] = SimpleQueue()
        self.outcome: Outcome | None = None

    @property
    def is_done(self) -> bool:
        return self.outcome is not None or not self.came.empty()


class WorkerPool(ABC):
    """Workers that start with the first task, can be stopped at any time, and start again.

    A pool `is_driven` where the threads of another one submit its tasks: what they submit
    after `stop`, and before the next `start`, is refused.

    Attributes:
        in_transit: How many large tasks are on their way, beside those that are done.
        workers: How many tasks are done at the same time.
        buffer_size: Items to have ready beyond those.
        generation: How often the workers were stopped.
        losses: How often that was because one died or hung.
        lost_at: The task at which one did so last, if that is known.
        is_stopped: Whether nothing started it after the last `stop`.
        is_awaited: Whether who drives the pool waits for a task, which may take its time.
        skip_log: What was left out of its pipeline: new workers leave out what killed others.
        retries: How often an item is tried again at which a worker was lost; None where
            nobody can tell which one that was, and end the worker.
        chunk_size: How many items each task has, on every rank; 0 if that may follow the time
            and memory they take.
    """

    in_transit = 0
    is_driven = False
    can_continue = False  # whether a task may be done by the worker that has done another one
    retries: int | None = None
    chunk_size = 0
    ends_at_exit = False  # whether it has to be stopped before multiprocessing ends this process
    is_external = False  # whether stopping it waits for other people's software

    def __init__(self, workers: int, buffer_size: int) -> None:
        self.workers = workers
        self.buffer_size = buffer_size
        self.generation = self.losses = 0
        self.is_stopped = False
        self.is_awaited = False
        self.skip_log: SkipLog | None = None
        self.lost_at: PendingTask | None = None
        pools.add(self)

    def start(self) -> None:  # noqa: B027  # most need no preparation
        """Start the workers, if they aren't running."""

    @abstractmethod
    def submit(
        self, handler: int, payload: Any, size: int, after: PendingTask | None = None
    ) -> PendingTask:
        """Submit a task of so many items, without waiting. `TaskLost` if it is refused.

        It goes on with what the worker of the one `after` which it comes has open, if
        the pool `can_continue`.
        """

    def submit_carefully(
        self, handler: int, payload: Any, size: int, errors: Mapping[int, Exception] | None
    ) -> PendingTask:
        """Submit a task; where there are `retries`, nothing of it is made before that is needed.

        With `errors` it begins by itself, whatever its worker has open; its calls are
        watched, and those with these numbers raise an error instead.
        """
        return self.submit(handler, payload, size)

    @abstractmethod
    def result(self, pending: PendingTask) -> Outcome:
        """Wait for a task. `TaskLost` if its workers were stopped before it was done."""

    def is_done(self, pending: PendingTask) -> bool:
        """Whether `result` would return at once."""
        return pending.is_done

    def drop(self, pending_tasks: Iterable[PendingTask]) -> None:  # noqa: B027  # most keep none
        """Learn that nobody will ask for the outcomes of tasks."""

    def hold_back(self) -> None:  # noqa: B027  # most have handed their tasks on
        """Keep tasks from being begun, until each is waited for or they are released."""

    def release(self) -> None:  # noqa: B027  # those that hold none back have none
        """Let tasks be begun that were held back."""

    @abstractmethod
    def stop(self) -> None:
        """End the workers, and keep what they have done. Idempotent."""

    def opening(self, chain: Chain, machine: Machine[T]) -> Machine[T]:
        """The machine that drives the pool, telling it from where a flow of it begins."""
        return machine

    def forget(self) -> None:
        """Leave the workers to the process that this one was forked from."""
        self.generation += 1


pools: WeakSet[WorkerPool] = WeakSet()  # of this process


def _forget_all() -> None:
    for pool in list(pools):
        pool.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


class PrefetchGate:
    """Whether items are made that nobody waits for yet; none at all once it `is_closed`.

    When it shuts, threads begin none of what they have been given; processes make that.
    """

    def __init__(self, is_gated: bool) -> None:
        self.is_gated = is_gated
        self.one_by_one = False  # whether what is waited for is made item by item
        self.is_closed = False  # by who closes the run, perhaps a signal's handler while it works
        self.pools: list[WorkerPool] = []
        # A list's `append` is one step: a signal's handler, or another thread, may do it as well.
        self._allowed: list[None] = []
        self._refused: list[None] = []

    @property
    def is_open(self) -> bool:
        return not self.one_by_one and self.reasons > 0

    @property
    def reasons(self) -> int:
        """How many reasons there are to be open, less those to be closed."""
        return len(self._allowed) - len(self._refused) + (not self.is_gated)

    def add_reason(self, count: int) -> None:
        """Count reasons to be open, or if it is negative take some back."""
        for _ in range(abs(count)):
            (self._allowed if count > 0 else self._refused).append(None)
        for pool in self.pools:
            (pool.release if self.is_open else pool.hold_back)()

    @contextmanager
    def without_lookahead(self) -> Iterator[None]:
        """A context in which nothing is made before somebody waits for it."""
        self.one_by_one = True
        try:
            yield
        finally:
            self.one_by_one = False


def abandon(pending_tasks: Iterable[PendingTask]) -> None:
    """Mark tasks whose outcome nobody wants any more."""
    for pending in pending_tasks:
        pending.generation = -1


def get_within(queue: SimpleQueue[T], seconds: float | None) -> T:
    """As `queue.get(timeout=seconds)`, which in CPython 3.11 may wait without an end.

    That it does where the time is up before it waits, for the first time with that queue.
    """
    with suppress(Empty):
        return queue.get_nowait()
    return queue.get(timeout=seconds)
