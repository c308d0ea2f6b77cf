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
from lazyckpt.executors.pools.forking import own_threads, working
from lazyckpt.executors.pools.pool import PendingTask, WorkerPool
from lazyckpt.executors.pools.queued import QueuedPool
from lazyckpt.failures.notes import Failure

_PATIENCE = 1.0  # seconds that stopping waits for what is being made


class ThreadPool(QueuedPool):
    """Workers that are threads, all fed from one queue.

    If it drives other pools, they have to run before a thread does.
    """

    can_continue = True  # for its threads have the same handlers

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
        self._is_running = False  # all of them; not where starting or ending them was interrupted
        self._has_stopped: list[bool] = []
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._held: deque[tuple[PendingTask, int, Any]] = deque()

    def __str__(self) -> str:
        return "a thread"

    def submit(
        self, handler: int, payload: Any, size: int, after: PendingTask | None = None
    ) -> PendingTask:
        pending = self._begin(size)
        if not self._is_running:  # a signal's handler may stop this at any time
            raise TaskLost
        self._tasks.put((pending, handler, payload))
        return pending

    # Both ways each task is moved by C code alone: an interrupt would lose it in between.

    def hold_back(self) -> None:
        if self._is_running and not self.is_driven:  # who drives it waits for them
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
        deadline = monotonic() + _PATIENCE * waits
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
        self._has_stopped = []  # those threads know it, and no later ones
        for number in self._numbers:
            init = self._worker_init and partial(self._worker_init, number)
            thread = threading.Thread(
                target=_serve,
                args=(self._tasks, self._handlers, self._has_stopped, init),
                name=f"lazyckpt-{number}",
                daemon=True,  # one that hangs holds no interpreter up
            )
            self._threads.append(thread)
            own_threads.add(thread)
            thread.start()
        self._is_running = True
        if self.generation != generation:  # a signal's handler has stopped it meanwhile
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
            with working():
                outcome = _outcome(handlers[handler], payload, pending.items, inits)
            if outcome.failure is None or not has_stopped:  # else it may be of stopping
                pending.came.put(outcome)
            del outcome
        del task, pending, payload  # an error in there may hold the run, which nobody else holds


def _outcome(
    handler: Handler, payload: Any, items: list[Any], inits: list[Callable[[], Any]]
) -> Outcome:
    try:
        for init in inits:
            init()
        inits.clear()  # or the next task tries again
        return handler(payload, items)
    except BaseException as error:  # of `init`; or of ours, which nobody else would learn of
        return Outcome([], Failure(error, ""))
