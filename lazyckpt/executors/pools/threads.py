"""A pool of threads in this process."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import repeat, starmap
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Handler, Outcome, without_flows
from lazyckpt.executors.pools.pool import PendingTask, WorkerPool
from lazyckpt.executors.pools.queued import QueuedPool
from lazyckpt.failures.notes import Failure

PATIENCE = 1.0  # seconds that stopping waits for tasks in progress


class ThreadPool(QueuedPool):
    """Workers that are threads, all fed from one queue.

    If it drives other pools, they are started before its threads.
    """

    can_continue = True  # its threads share handlers

    def __init__(
        self,
        handlers: list[Handler],
        workers: int,
        buffer_size: int,
        timeout: float | None = None,
        drives: tuple[WorkerPool, ...] = (),
        worker_init: Callable[[int], Any] | None = None,
        number: int = 0,
    ) -> None:
        super().__init__(workers, buffer_size, timeout, drives)
        self._worker_init = worker_init
        self._numbers = range(number, number + workers)
        self._handlers = handlers
        self._threads: list[threading.Thread] = []
        self._is_running = False  # True if all threads run; starting them may be interrupted
        self._has_stopped: list[bool] = []
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._held: deque[tuple[PendingTask, int, Any]] = deque()

    def __str__(self) -> str:
        return "a thread"

    def submit(
        self, handler: int, payload: Any, size: int, after: PendingTask | None = None
    ) -> PendingTask:
        pending = self._begin(size)
        if not self._is_running:  # a signal handler may stop the pool at any time
            raise TaskLost
        self._tasks.put((pending, handler, payload))
        return pending

    # Both methods move tasks by C code alone: in Python code an interrupt could lose a task.

    def hold_back(self) -> None:
        if self._is_running and not self.is_driven:  # a driver waits for its tasks anyway
            with suppress(Empty):
                self._held.extend(iter(self._tasks.get_nowait, None))

    def release(self) -> None:
        self._release(len(self._held))

    def _release(self, count: int) -> None:
        deque(map(self._tasks.put, starmap(self._held.popleft, repeat((), count))), 0)

    def _let_begin(self, pending: PendingTask) -> None:
        for place, (held, *_) in enumerate(tuple(self._held), 1):
            if held is pending:
                self._release(place)

    def _made(self, pending: PendingTask) -> int:
        return len(pending.items)

    def _end(self, *, waits: bool = True) -> None:
        self._is_running = False
        super()._end()
        self._held.clear()
        if not self._threads:
            return
        self._has_stopped.append(True)
        for _ in self._numbers:
            self._tasks.put(None)
        for pool in self._drives:
            pool.stop()
        deadline = monotonic() + PATIENCE * waits
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - monotonic()))
        self._threads = []
        self._handlers = without_flows(self._handlers)

    def _start(self) -> None:
        if self._is_running:
            return
        if self._threads:
            self._end()
        generation = self.generation
        for pool in self._drives:
            pool.start()
        self._tasks = SimpleQueue()
        self._has_stopped = []  # a new list, so that stopping old threads doesn't stop new ones
        for number in self._numbers:
            init = self._worker_init and partial(self._worker_init, number)
            thread = threading.Thread(
                target=_serve,
                args=(self._tasks, self._handlers, self._has_stopped, init),
                name=f"lazyckpt-{number}",
                daemon=True,  # so that a hanging thread doesn't keep the interpreter alive
            )
            self._threads.append(thread)
            thread.start()
        self._is_running = True
        if self.generation != generation:  # a signal handler has stopped the pool meanwhile
            self._end()

    def forget(self) -> None:
        super().forget()
        self._threads, self._is_running = [], False


def _serve(
    tasks: SimpleQueue[Any],
    handlers: list[Handler],
    has_stopped: list[bool],
    init: Callable[[], Any] | None,
) -> None:
    inits = [] if init is None else [init]
    while (task := tasks.get()) is not None:
        pending, handler, payload = task
        if not has_stopped and pending.generation >= 0:
            outcome = _outcome(handlers[handler], payload, pending.items, inits)
            if outcome.failure is None or not has_stopped:  # stopping may cause failures
                pending.came.put(outcome)
            del outcome
        del task, pending, payload  # their errors may be the last references to the run


def _outcome(
    handler: Handler, payload: Any, items: list[Any], inits: list[Callable[[], Any]]
) -> Outcome:
    try:
        for init in inits:
            init()
        inits.clear()  # after an error, the next task tries again
        return handler(payload, items)
    except BaseException as error:  # an error of `init`, or an internal one
        return Outcome([], Failure(error, ""))
