"""The interface of a pool of workers: submit a task, get its outcome."""

from __future__ import annotations

import atexit
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from weakref import WeakSet

from lazyckpt.core.call import Chain
from lazyckpt.core.machine import Machine
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.failures.notes import Failure, as_failure
from lazyckpt.failures.skip_log import SkipLog

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class PendingTask:
    """A submitted task and, once it is done, its outcome.

    Attributes:
        generation: Generation of the pool at submission; -1 once the outcome isn't needed.
        size: Number of items.
        handle: The pool's own handle of the task.
        items: Items computed so far, if the worker stores them here.
        is_continued: If True, a later task does the rest of this one.
        made: Number of items computed by a worker that then died or hung; None if the worker
            was at a different task.
        called: The watched call that was in progress then, if there was one.
        lost: The loss of that worker, as a short error.
        came: Queue for the outcome until it is taken; None in it wakes a waiting thread.
        outcome: None until `WorkerPool.result` has it.
    """

    generation: int
    size: int
    handle: Any = None
    items: list[Any] = field(default_factory=list)
    is_continued: bool = False
    made: int | None = None
    called: int | None = None
    lost: Exception | None = None
    came: SimpleQueue[Any] = field(default_factory=SimpleQueue)
    outcome: Outcome | None = None

    @property
    def is_done(self) -> bool:
        return self.outcome is not None or not self.came.empty()


class WorkerPool(ABC):
    """Workers that start with the first task, can be stopped at any time, and start again.

    A pool `is_driven` if threads of a different pool submit its tasks. It refuses tasks that
    they submit after `stop` and before the next `start`.

    Attributes:
        in_transit: Number of large tasks in transit, in addition to the tasks being done.
        workers: Number of tasks that are done in parallel.
        buffer_size: Number of items to hold ready in addition.
        generation: How many times the workers were stopped.
        losses: How many times a worker died or hung.
        lost_at: The task at which a worker was last lost, if known.
        is_stopped: If True, the pool wasn't started after the last `stop`.
        is_awaited: If True, the thread that drives the pool waits for a task, so it isn't hung.
        is_joining: If True, it waits for other ranks.
        skip_log: Log of skipped records; new workers skip the records that killed others.
        retries: Number of times that an item is tried again after its worker was lost; None if
            the pool can't tell which item it was, or can't end the worker.
        chunk_size: Number of items of each task, on every rank; 0 to adapt to time and memory.
        reach: If set, `workers` and `buffer_size` for tasks whose items are read in this process,
            in place of this pool's.
        can_resume: If True, the items of a flow that was stopped can be used in the next flow.
        is_gated: If True, and if ranks share work, each computes only items that it waits for.
    """

    in_transit = 0
    is_driven = False
    can_continue = False  # whether a worker can continue a task that it has begun
    retries: int | None = None
    chunk_size = 0
    can_resume = True
    is_gated = False
    reach: tuple[int, int] | None = None
    ends_at_exit = True  # whether to stop it when the interpreter ends
    is_external = False  # whether stopping it waits for third-party software

    def __init__(self, workers: int, buffer_size: int) -> None:
        self.workers = workers
        self.buffer_size = buffer_size
        self.generation = self.losses = 0
        self.is_stopped = False
        self.is_awaited = self.is_joining = False
        self.skip_log: SkipLog | None = None
        self.lost_at: PendingTask | None = None
        pools.add(self)

    @property
    def refuses(self) -> bool:
        """Whether tasks are refused for good, so that a thread that submits some has to end."""
        return self.is_driven and self.is_stopped

    def start(self) -> None:  # noqa: B027  # most need no preparation
        """Start the workers, if they aren't running."""

    @abstractmethod
    def submit(
        self, handler: int, payload: Any, size: int, *careful: Any, after: PendingTask | None = None
    ) -> PendingTask:
        """Submit a task of `size` items, without waiting. Raises `TaskLost` if it is refused.

        Args:
            handler: The number of its handler.
            payload: The task as the handler takes it.
            size: The number of its items.
            careful: At most one value, if the pool has `retries`: the task is done without reading
                ahead. If the value isn't None, it opens its own flow and its calls are watched;
                calls that are keys of this mapping raise the errors there instead.
            after: If the pool `can_continue`, the task whose worker continues with the flow that it
                has open.
        """

    @abstractmethod
    def result(self, pending: PendingTask) -> Outcome:
        """Wait for a task. Raises `TaskLost` if its workers were stopped before it was done."""

    def is_done(self, pending: PendingTask) -> bool:
        """Return whether `result` would return without waiting."""
        return pending.is_done

    def drop(self, pending_tasks: Iterable[PendingTask]) -> None:  # noqa: B027  # most keep none
        """Forget tasks whose outcomes were used, or aren't needed."""

    def hold_back(self) -> None:  # noqa: B027  # most have handed their tasks on
        """Hold back tasks that haven't begun, until a thread waits for them or `release`."""

    def release(self) -> None:  # noqa: B027  # most hold none back
        """Let held back tasks begin."""

    @abstractmethod
    def stop(self) -> None:
        """End the workers, and keep the outcomes of finished tasks. Idempotent."""

    def opening(self, chain: Chain, machine: Machine[T]) -> Machine[T]:
        """Return the driving machine, which may tell the pool where each of its flows begins."""
        return machine

    def forget(self) -> None:
        """After a fork: leave the workers to the parent process."""
        self.generation += 1


pools: WeakSet[WorkerPool] = WeakSet()  # of this process


def _forget_all() -> None:
    for pool in list(pools):
        pool.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


@atexit.register
def stop_pools() -> None:
    """Stop the pools of this process that have to end before it does."""
    for pool in list(pools):
        if pool.ends_at_exit:
            pool.stop()


class PrefetchGate:
    """Says whether items may be computed ahead. Once it `is_closed`, none are computed.

    When it stops allowing this, threads begin no more of their tasks; processes finish theirs.
    """

    def __init__(self, is_gated: bool) -> None:
        self.is_gated = is_gated
        self.is_steady = False  # whether reasons don't count, so that it stays as it is
        self.one_by_one = False  # whether each task has only one item
        self.is_closed = False  # set by closing the run, perhaps in a signal handler
        self.pools: list[WorkerPool] = []
        # Counted by `append`, which is atomic: signal handlers and other threads do it too.
        self._allowed: list[None] = []
        self._refused: list[None] = []

    @property
    def is_open(self) -> bool:
        return not self.one_by_one and self.reasons > 0

    @property
    def reasons(self) -> int:
        """The number of reasons to be open, minus the number of reasons to be closed."""
        return len(self._allowed) - len(self._refused) + (not self.is_gated)

    def add_reason(self, count: int) -> None:
        """Add reasons to be open; a negative count removes some."""
        if self.is_steady:
            return
        for _ in range(abs(count)):
            (self._allowed if count > 0 else self._refused).append(None)
        for pool in self.pools:
            (pool.release if self.is_open else pool.hold_back)()

    @contextmanager
    def without_lookahead(self) -> Iterator[None]:
        """Return a context in which items are computed only when a consumer waits for them."""
        self.one_by_one = True
        try:
            yield
        finally:
            self.one_by_one = False


def abandon(pending_tasks: Iterable[PendingTask]) -> None:
    """Mark tasks whose outcomes aren't needed."""
    for pending in pending_tasks:
        pending.generation = -1


def init_worker(init: Callable[[int], Any], number: int) -> None:
    """Call a `worker_init`; raise its error as a `Failure` that names it."""
    try:
        init(number)
    except BaseException as error:
        raise Failure(as_failure(error, ()).error, f"worker_init({number})") from None


def get_within(queue: SimpleQueue[T], seconds: float | None) -> T:
    """Return `queue.get(timeout=seconds)`, without a bug of CPython 3.11.

    There, the first wait on a queue may never end if its time is up before it begins.
    """
    with suppress(Empty):
        return queue.get_nowait()
    return queue.get(timeout=seconds)
