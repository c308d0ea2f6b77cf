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
from lazyckpt.executors.pools.pool import PendingTask, WorkerPool, init_worker
from lazyckpt.executors.pools.queued import QueuedPool
from lazyckpt.failures.notes import as_failure

PATIENCE = 1.0  # seconds that stopping waits for tasks in progress


class _Crew:
    """Threads that were started together.

    Attributes:
        tasks: The queue that feeds all of them.
        threads: The threads.
        has_stopped: Not empty once they do no more tasks.
    """

    def __init__(self) -> None:
        self.tasks: SimpleQueue[Any] = SimpleQueue()
        self.threads: list[threading.Thread] = []
        self.has_stopped: list[bool] = []


class ThreadPool(QueuedPool):
    """Workers that are threads, all fed from one queue.

    If it drives other pools, they are started before its threads. One thread submits tasks; any
    thread may stop the pool.
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
        self._crew: _Crew | None = None  # all of whose threads run; starting may be interrupted
        self._crews: list[_Crew] = []  # those with threads that may run
        self._held: deque[tuple[PendingTask, int, Any]] = deque()

    def __str__(self) -> str:
        return "a thread"

    def submit(
        self, handler: int, payload: Any, size: int, *careful: Any, after: PendingTask | None = None
    ) -> PendingTask:
        pending = self._begin(size)
        if (crew := self._crew) is None:  # a signal handler may stop the pool at any time
            raise TaskLost
        crew.tasks.put((pending, handler, payload))
        return pending

    # Both methods move tasks by C code alone: in Python code an interrupt could lose a task.

    def hold_back(self) -> None:
        crew = self._crew
        if crew is not None and not self.is_driven:  # a driver waits for its tasks anyway
            with suppress(Empty):
                self._held.extend(iter(crew.tasks.get_nowait, None))

    def release(self) -> None:
        self._release(len(self._held))

    def _release(self, count: int) -> None:
        if (crew := self._crew) is not None:
            deque(map(crew.tasks.put, starmap(self._held.popleft, repeat((), count))), 0)

    def _let_begin(self, pending: PendingTask) -> None:
        for place, (held, *_) in enumerate(tuple(self._held), 1):
            if held is pending:
                self._release(place)

    def _end(self, *, waits: bool = True) -> None:
        self._crew = None
        super()._end()
        self._held.clear()
        for crew in tuple(self._crews):
            self._end_crew(crew, PATIENCE * waits)

    def _end_crew(self, crew: _Crew, patience: float) -> None:
        crew.has_stopped.append(True)
        for _ in self._numbers:
            crew.tasks.put(None)
        for pool in self._drives:
            pool.stop()
        deadline = monotonic() + patience
        for thread in crew.threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - monotonic()))
        with suppress(ValueError):  # a different thread has ended it too
            self._crews.remove(crew)
        self._handlers = without_flows(self._handlers)

    def _start(self) -> None:
        if self._crew is not None:
            return
        if self._crews:
            self._end()
        generation = self.generation
        for pool in self._drives:
            pool.start()
        crew = _Crew()
        self._crews.append(crew)
        for number in self._numbers:
            init = self._worker_init and partial(init_worker, self._worker_init, number)
            thread = threading.Thread(
                target=_serve,
                args=(crew, self._handlers, init),
                name=f"lazyckpt-{number}",
                daemon=True,  # so that a hanging thread doesn't keep the interpreter alive
            )
            crew.threads.append(thread)
            thread.start()
        self._crew = crew
        if self.generation != generation:  # another thread or a signal handler has stopped it
            self._end()

    def forget(self) -> None:
        super().forget()
        self._crew, self._crews = None, []


def _serve(crew: _Crew, handlers: list[Handler], init: Callable[[], Any] | None) -> None:
    inits = [] if init is None else [init]
    while (task := crew.tasks.get()) is not None:
        pending, handler, payload = task
        if not crew.has_stopped and pending.generation >= 0:
            outcome = _outcome(handlers[handler], payload, pending.items, inits)
            if outcome.failure is None or not crew.has_stopped:  # stopping may cause failures
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
        return Outcome([], as_failure(error, ()))
