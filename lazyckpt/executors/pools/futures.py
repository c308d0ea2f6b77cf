"""A pool around the user's executor, which takes functions and returns futures."""

from __future__ import annotations

import pickle
import uuid
from concurrent.futures import BrokenExecutor, CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from typing import Any

from lazyckpt.errors import PipelineError, WorkerDied
from lazyckpt.executors.ipc.serialization import (
    Message,
    SerializedMessage,
    opened,
    serialize_handlers,
    this_process,
    transfer_failure,
)
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Handler, Outcome, without_flows
from lazyckpt.executors.pools.pool import PendingTask
from lazyckpt.executors.pools.queued import QueuedPool
from lazyckpt.executors.pools.seeding import seed_generators, seed_torch
from lazyckpt.failures.notes import Failure, as_failure

_CACHED_RUNS = 8  # recent runs whose handlers a worker keeps

_cache: dict[str, list[Handler]] = {}
_seeded: set[str] = set()  # this process, once it has worked for a different one


@dataclass
class RemoteTask:
    """A task for an executor, with its handlers in this process, and their key elsewhere.

    Attributes:
        key: Key of the run, and so of its handlers.
        number: Number of the task.
        handler: Number of the handler.
        payload: Argument of the handler.
        handlers: The handlers, in this process.
        serialized: The handlers as bytes, for a worker that lacks them.
        consumer: The process that waits for the task.
    """

    key: str
    number: int
    handler: int
    payload: Message | SerializedMessage
    handlers: list[Handler] | None
    serialized: bytes | None
    consumer: str

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "handlers": None}

    def __dask_tokenize__(self) -> tuple[str, int]:
        return self.key, self.number  # Dask identifies tasks with equal arguments


def run_task(task: RemoteTask) -> Message:
    """Do a task; return its outcome, or this worker's name if it lacks the handlers."""
    try:
        handlers = task.handlers or _handlers_of(task)
        if handlers is None:
            return Message(this_process())
        payload = task.payload.open()
        _seed(task.consumer)
    except BaseException as error:
        return Message(Outcome([], as_failure(error, ())))
    return Message(handlers[task.handler](payload))


def _seed(consumer: str) -> None:
    """Seed the generators of a process that isn't the consumer, before its first task."""
    here = this_process()
    if here == consumer:
        return
    if here not in _seeded:
        _seeded.add(here)
        seed_generators()
    seed_torch()


def _handlers_of(task: RemoteTask) -> list[Handler] | None:
    handlers = _cache.get(task.key)
    if handlers is None and task.serialized is not None:
        handlers = _cache[task.key] = pickle.loads(task.serialized)
        with suppress(KeyError, RuntimeError):  # a different thread was faster
            while len(_cache) > _CACHED_RUNS:
                del _cache[next(iter(_cache))]
    return handlers


class Job:
    """A task to submit, and its future once it is submitted.

    Attributes:
        worker: The worker that has the task, if known.
        tries: How many times the task reached a worker that lacked the handlers.
    """

    def __init__(self, handler: int, payload: Any) -> None:
        self.handler = handler
        self.payload = Message(payload)
        self.future: Future[Any] = Future()
        self.worker: Any = None
        self.tries = 0


class FuturesPool(QueuedPool):
    """The workers of the user's executor, about which nothing is known.

    The handlers are sent when a worker reports that it lacks them. Each such worker gets them
    once, as far as the executor doesn't pass the task to a different worker.
    """

    is_external = True
    ends_at_exit = False

    def __init__(
        self, executor: Any, handlers: list[Handler], buffer_size: int, timeout: float | None
    ) -> None:
        super().__init__(buffer_size, 0, timeout)
        self.handlers = handlers
        self.pending_tasks: list[PendingTask] = []
        self._executor = executor
        self._key = uuid.uuid4().hex
        self._numbers = count()
        self._serialized: bytes | None = None
        self._lacking: set[str] = set()

    def send(self, job: Job) -> Future[Any]:
        """Submit a task to the executor."""
        is_lacking = job.tries > 1 or (job.tries == 1 and job.worker not in self._lacking)
        if is_lacking:
            self._lacking.add(job.worker)
            self._serialized = self._serialized or serialize_handlers(self.handlers)
        sent = self._serialized if is_lacking else None
        task = RemoteTask(
            self._key,
            next(self._numbers),
            job.handler,
            job.payload,
            self.handlers,
            sent,
            this_process(),
        )
        future: Future[Any] = self._executor.submit(run_task, task)
        return future

    def submit(
        self, handler: int, payload: Any, size: int, *careful: Any, after: PendingTask | None = None
    ) -> PendingTask:
        for other in self.pending_tasks:
            if other.generation != self.generation:
                other.handle.future.cancel()  # its outcome isn't needed
        self.pending_tasks = [
            other
            for other in self.pending_tasks
            if other.generation == self.generation and not other.is_done
        ]
        pending = self._begin(size)
        pending.handle = Job(handler, payload)
        self._send(pending)
        return pending

    def __str__(self) -> str:
        return f"a {type(self._executor).__name__}"

    def _end(self, *, waits: bool = True) -> None:
        super()._end()
        self.handlers = without_flows(self.handlers)
        pending_tasks, self.pending_tasks = self.pending_tasks, []
        for pending in pending_tasks:
            if not pending.is_done:
                pending.came = SimpleQueue()  # the old queue gets the cancelled future
            pending.handle.future.cancel()

    def _send(self, pending: PendingTask) -> None:
        job: Job = pending.handle
        if pending.generation != self.generation:
            raise TaskLost
        try:
            job.future = self.send(job)
        except Exception as error:
            pending.outcome = self._failed(pending, error)
        else:
            job.future.add_done_callback(pending.came.put)
            self.pending_tasks.append(pending)

    def _take_in(self, pending: PendingTask, found: Future[Any]) -> None:
        # The future's error may refer to the run, which the pool would keep alive.
        self.pending_tasks = [other for other in self.pending_tasks if other is not pending]
        job: Job = pending.handle
        try:
            error = found.exception()
        except CancelledError as cancelled:
            error = cancelled
        if error is not None:  # the executor's; an error of the task itself is in its outcome
            pending.outcome = self._failed(pending, error)
            return
        content: Outcome | str = opened(found.result())
        if isinstance(content, Outcome):
            pending.outcome = content
        else:  # the name of a worker that lacks the handlers
            job.worker, job.tries = content, job.tries + 1
            self._send(pending)

    def _failed(self, pending: PendingTask, error: BaseException) -> Outcome:
        """Return the outcome of a task that the executor has failed to do."""
        payload: Message = pending.handle.payload
        if (reason := payload.error) is not None:
            payload.error = None  # the executor may keep the payload
            return transfer_failure(reason, "can't be sent to a worker")
        if isinstance(error, PipelineError):
            return Outcome([], Failure(error, ""))
        if pending.generation != self.generation:
            raise TaskLost
        if isinstance(error, BrokenExecutor):
            # A broken pool fails all its futures; a cancelled one would make that raise.
            self.pending_tasks.clear()
        self.losses += 1
        self._end()
        died = WorkerDied(f"{self} has failed: {type(error).__name__}: {error}")
        died.__cause__ = error
        return Outcome([], Failure(died, ""))
