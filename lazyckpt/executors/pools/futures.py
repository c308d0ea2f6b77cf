"""A pool that is the user's: whatever takes functions and gives futures."""

from __future__ import annotations

import pickle
import uuid
from concurrent.futures import BrokenExecutor, CancelledError, Future
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

from lazyckpt.errors import PipelineError, WorkerDied, WorkerTimeout
from lazyckpt.executors.ipc.serialization import (
    Message,
    OutcomeMessage,
    SerializedMessage,
    serialize_handlers,
    this_process,
)
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Handler, Outcome, without_flows
from lazyckpt.executors.pools.forking import resting
from lazyckpt.executors.pools.pool import PendingTask, WorkerPool, get_within
from lazyckpt.failures.notes import Failure, add_note, as_failure

_CACHED_RUNS = 8  # the last ones, whose handlers a worker keeps

_cache: dict[str, list[Handler]] = {}


class RemoteTask:
    """A task as an executor gets it: with its handlers in this process, elsewhere with their key.

    Attributes:
        key: Of the run, and so of its handlers.
        number: Of the task.
        handler: The handler's number.
        payload: What the handler gets.
        handlers: The handlers, in this process.
        serialized: They as bytes, for a worker that lacks them.
    """

    def __init__(
        self,
        key: str,
        number: int,
        handler: int,
        payload: Message | SerializedMessage,
        handlers: list[Handler] | None = None,
        serialized: bytes | None = None,
    ) -> None:
        self.key, self.number, self.handler = key, number, handler
        self.payload, self.handlers, self.serialized = payload, handlers, serialized

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteTask, (
            self.key,
            self.number,
            self.handler,
            self.payload,
            None,
            self.serialized,
        )

    def __dask_tokenize__(self) -> tuple[str, int]:
        return self.key, self.number  # Dask takes tasks with like arguments for the same one


def run_task(task: RemoteTask) -> Message:
    """Do a task; or give the name of this worker, if it lacks the handlers."""
    try:
        handlers = task.handlers or _handlers_of(task)
        if handlers is None:
            return Message(this_process())
        payload = task.payload.open()
    except BaseException as error:
        return OutcomeMessage(Outcome([], as_failure(error, ())))
    return OutcomeMessage(handlers[task.handler](payload))


def _handlers_of(task: RemoteTask) -> list[Handler] | None:
    handlers = _cache.get(task.key)
    if handlers is None and task.serialized is not None:
        handlers = _cache[task.key] = pickle.loads(task.serialized)
        with suppress(KeyError, RuntimeError):  # another thread was faster
            while len(_cache) > _CACHED_RUNS:
                del _cache[next(iter(_cache))]
    return handlers


class Job:
    """What it takes to submit a task, and where its future goes once that is done.

    Attributes:
        worker: Who has it, where that is known.
        tries: How often it came to a worker that lacked the handlers.
    """

    def __init__(self, handler: int, payload: Any) -> None:
        self.handler = handler
        self.payload = Message(payload)
        self.future: Future[Any] = Future()
        self.done: SimpleQueue[Future[Any] | None] = SimpleQueue()
        self.worker: Any = None
        self.tries = 0


class FuturesPool(WorkerPool):
    """The workers of an executor of the user's, of which nothing is known.

    The handlers stay here until a worker says that it lacks them. Where several
    do, each is sent them once, as far as an executor lets one choose the worker.
    """

    is_external = True

    def __init__(
        self, executor: Any, handlers: list[Handler], buffer_size: int, timeout: float | None
    ) -> None:
        super().__init__(buffer_size, 0)
        self.handlers = handlers
        self.pending_tasks: list[PendingTask] = []
        self._executor = executor
        self._timeout = timeout
        self._key = uuid.uuid4().hex
        self._numbers = count()
        self._serialized: bytes | None = None
        self._lacking: set[str] = set()

    def send(self, job: Job) -> Future[Any]:
        """Give a task to the executor."""
        is_lacking = job.tries > 1 or (job.tries == 1 and job.worker not in self._lacking)
        if is_lacking:
            self._lacking.add(job.worker)
            self._serialized = self._serialized or serialize_handlers(self.handlers)
        sent = self._serialized if is_lacking else None
        task = RemoteTask(
            self._key, next(self._numbers), job.handler, job.payload, self.handlers, sent
        )
        future: Future[Any] = self._executor.submit(run_task, task)
        return future

    def start(self) -> None:
        self.is_stopped = False
        self._start()

    def _start(self) -> None:
        """Start the workers, if they aren't running."""

    def submit(
        self, handler: int, payload: Any, size: int, after: PendingTask | None = None
    ) -> PendingTask:
        for pending in self.pending_tasks:
            if pending.generation != self.generation:
                pending.handle.future.cancel()  # nobody will ask for it
        self.pending_tasks = [
            pending for pending in self.pending_tasks if pending.generation == self.generation
        ]
        pending = PendingTask(self.generation, Job(handler, payload), size)
        self._send(pending)
        if pending.outcome is None:
            self.pending_tasks.append(pending)
        return pending

    def result(self, pending: PendingTask) -> Outcome:
        job: Job = pending.handle
        while pending.outcome is None:
            if pending.generation != self.generation and job.done.empty():
                raise TaskLost
            try:
                with resting():
                    future = get_within(job.done, self._timeout)
            except Empty:
                self.losses += 1
                self._end()
                raise WorkerTimeout(f"no item within {self._timeout} s, from {self}") from None
            if future is None or (future.cancelled() and pending.generation != self.generation):
                raise TaskLost
            found = self._open(job, future)
            if isinstance(found, Outcome):
                pending.outcome = found
            else:
                job.worker, job.tries = found, job.tries + 1
                self._send(pending)
        self.pending_tasks = [other for other in self.pending_tasks if other is not pending]
        return pending.outcome

    def stop(self) -> None:
        self.is_stopped = True
        self._end()

    def _end(self) -> None:
        """Let go of all tasks."""
        self.generation += 1
        self.handlers = without_flows(self.handlers)
        pending_tasks, self.pending_tasks = self.pending_tasks, []
        for pending in pending_tasks:
            if not pending.handle.future.cancel():
                pending.handle.done.put(None)  # for who waits for it

    def __str__(self) -> str:
        return f"a {type(self._executor).__name__}"

    def _send(self, pending: PendingTask) -> None:
        job: Job = pending.handle
        if self.is_driven and self.is_stopped:
            raise TaskLost
        self._start()
        if pending.generation != self.generation:
            raise TaskLost
        try:
            job.future = self.send(job)
        except Exception as error:
            pending.outcome = self._failed(job, error)
        else:
            job.future.add_done_callback(job.done.put)

    def _open(self, job: Job, future: Future[Any]) -> Outcome | str:
        """The outcome, or the name of a worker that lacks the handlers."""
        try:
            error = future.exception()
        except CancelledError as cancelled:
            error = cancelled
        if error is not None:  # not the task's own, which its outcome would hold
            return self._failed(job, error)
        try:
            found: Outcome | str = future.result().open()
        except Exception as error:
            return Outcome([], Failure(error, ""), is_transfer_error=True)
        return found

    def _failed(self, job: Job, error: BaseException) -> Outcome:
        if job.payload.error is not None:
            error, job.payload.error = job.payload.error, None  # a pool may hold the payload
            add_note(error, "lazyckpt: an item can't be sent to a worker")
            return Outcome([], Failure(error, ""), is_transfer_error=True)
        if not isinstance(error, PipelineError):
            if isinstance(error, BrokenExecutor):
                # A broken pool fails all its futures, and stumbles over one that is cancelled.
                self.pending_tasks.clear()
            self.losses += 1
            self._end()
            died = WorkerDied(f"{self} has failed: {type(error).__name__}: {error}")
            died.__cause__ = error
            error = died
        return Outcome([], Failure(error, ""))
