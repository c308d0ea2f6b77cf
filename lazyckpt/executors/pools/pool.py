"""A pool of workers as the rest sees it: submit a task, get its outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from lazyckpt.core.flow import Position
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.failures.notes import Failure

if TYPE_CHECKING:
    from lazyckpt.executors.ipc.transport import Message

T = TypeVar("T")

FEW_ITEMS = 1 << 9  # that a worker always counts one by one: a task has more if they are cheap
STRIDE = 64  # of its count of those behind


class PendingTask:
    """A task that was submitted, and its outcome once that is there.

    Attributes:
        generation: That of the pool when it was submitted; -1 once nobody wants it.
        handle: What the pool knows it by.
        size: How many items it has.
        items: Those made so far, where a worker leaves them here.
        is_continued: Whether what is left of it is another task's.
        made: How many were made by a worker that then died or hung; None if it did another task.
        is_exact: Whether that is so many, and not at least so many.
        called: Which of its watched calls was under way then, if one was.
        lost: What became of that worker, in a few words.
        message: The outcome as it has come, until it is asked for.
        outcome: None until `WorkerPool.result` has it.
    """

    __slots__ = (
        "called", "generation", "handle", "is_continued", "is_exact", "items", "lost", "made",
        "message", "outcome", "size",
    )  # fmt: skip

    def __init__(self, generation: int, handle: Any, size: int) -> None:
        self.generation = generation
        self.handle = handle
        self.size = size
        self.items: list[Any] = []
        self.is_continued = False
        self.made: int | None = None
        self.is_exact = True
        self.called: int | None = None
        self.lost: Exception | None = None
        self.message: Message | None = None
        self.outcome: Outcome | None = None

    @property
    def is_done(self) -> bool:
        return self.outcome is not None or self.message is not None


class Suspect(NamedTuple):
    """The item that a worker has not survived, of a pool which others drive.

    Attributes:
        handler: Whose task it was in.
        position: That before it.
        failure: What is raised in its place.
    """

    handler: int
    position: Position
    failure: Failure


class WorkerPool(ABC):
    """Workers that start with the first task, can be stopped at any time, and start again.

    A pool `is_driven` where the threads of another one submit its tasks: they call
    `start` first, and what they submit after `stop` is refused.

    Attributes:
        in_transit: How many large tasks are on their way, beside those that are done.
        workers: How many tasks are done at the same time.
        buffer_size: Items to have ready beyond those.
        generation: How often the workers were stopped.
        losses: How often that was because one died or hung.
        suspect: The item to fail at, once the items before it are made again.
        is_awaited: Whether who drives the pool waits for a task, which may take its time.
        retries: How often an item is tried again at which a worker was lost; None where
            nobody can tell which one that was, and end the worker.
    """

    in_transit = 0
    is_driven = False
    can_continue = False  # whether a task may be done by the worker that has done another one
    retries: int | None = None
    is_external = False  # whether stopping it waits for other people's software

    def __init__(self, workers: int, buffer_size: int) -> None:
        self.workers = workers
        self.buffer_size = buffer_size
        self.generation = self.losses = 0
        self.suspect: Suspect | None = None
        self.is_awaited = False

    def start(self) -> None:  # noqa: B027  # most need no preparation
        """Start the workers, if they aren't running."""

    @property
    def is_running(self) -> bool:
        """Whether workers are running; True where that is unknown."""
        return True

    def recover(self) -> None:  # noqa: B027  # most drive no others
        """After an error, stop if the pools that this one drives have: they start first."""

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

    @abstractmethod
    def stop(self) -> None:
        """End the workers, and keep what they have done. Idempotent."""

    def allow_work(self, is_allowed: bool) -> None:  # noqa: B027  # not every pool can be held back
        """Let workers begin tasks, or hold them back."""


class PrefetchGate:
    """Whether items are made that nobody waits for yet; none at all once it `is_closed`.

    Who waits for one enters the gate meanwhile. Where items are made `one_by_one`, that
    holds for those of a chunk too.
    """

    def __init__(self, is_gated: bool) -> None:
        self.is_gated = is_gated
        self.one_by_one = False
        self.is_closed = False  # by who closes the run, perhaps a signal's handler while it works
        self.pools: list[WorkerPool] = []
        self._reasons = int(not is_gated)
        self._are_allowed = not is_gated  # all pools, to work; not where that was interrupted
        self._is_waited_for = False
        self._lock = RLock()  # another thread, or a signal's handler, may pause the run

    @property
    def is_open(self) -> bool:
        return self._reasons > 0

    @property
    def reasons(self) -> int:
        """How many reasons there are to be open, less those to be closed."""
        return self._reasons

    def add_reason(self, count: int) -> None:
        """Count a reason to be open, or with -1 take one back."""
        with self._lock:
            self._reasons += count
            self._update()

    @contextmanager
    def without_lookahead(self) -> Iterator[None]:
        """A context in which nothing is made before somebody waits for it."""
        self.one_by_one = True
        self.add_reason(-1)
        try:
            yield
        finally:
            self.add_reason(1)
            self.one_by_one = False

    def __enter__(self) -> None:
        """Let workers make what is waited for."""
        try:
            self._wait(True)
        except BaseException:
            self._wait(False)
            raise

    def __exit__(self, *error: object) -> None:
        self._wait(False)

    def _wait(self, is_waited_for: bool) -> None:
        self._is_waited_for = is_waited_for  # first: who closes the gate looks at it
        if not (self.is_open and self._are_allowed):
            self._update()

    def _update(self) -> None:
        with self._lock:
            self._are_allowed = False
            for pool in self.pools:  # a signal's handler may pause the run in between
                pool.allow_work(self.is_open or self._is_waited_for)
            self._are_allowed = self.is_open or self._is_waited_for


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
