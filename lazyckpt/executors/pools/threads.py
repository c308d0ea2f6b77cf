"""A pool of threads in this process."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import repeat, starmap
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from lazyckpt.errors import WorkerTimeout
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Handler, Outcome, without_flows
from lazyckpt.executors.pools.forking import own_threads, resting, working
from lazyckpt.executors.pools.pool import PendingTask, WorkerPool, get_within
from lazyckpt.failures.notes import Failure

_TICK = 0.25  # seconds after which a signal is seen that came just before a wait
_PATIENCE = 1.0  # seconds that stopping waits for what is being made


class ThreadPool(WorkerPool):
    """Workers that are threads, all fed from one queue.

    It may drive other pools, which have to run before a thread does.
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
        super().__init__(workers, buffer_size)
        self._worker_init = worker_init
        self._numbers = range(number, number + workers)
        self._handlers = handlers
        self._drives = drives
        self._timeout = timeout
        self._threads: list[threading.Thread] = []
        self._has_begun = False  # also where starting or stopping them was interrupted
        self._awaited: PendingTask | None = None
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._held: deque[tuple[PendingTask, int, Any]] = deque()

    def submit(
        self, handler: int, payload: Any, size: int, after: PendingTask | None = None
    ) -> PendingTask:
        if self.is_driven and self.is_stopped:
            raise TaskLost
        self._start()
        generation = self.generation  # first, for a signal's handler may stop this at any time
        if not self._threads:
            raise TaskLost
        pending = PendingTask(generation, SimpleQueue(), size)
        self._tasks.put((pending, handler, payload))
        return pending

    # Both ways each task is moved by C code alone: an interrupt would lose it in between.

    def hold_back(self) -> None:
        if self._threads and not self.is_driven:  # who drives it waits for them
            with suppress(Empty):
                self._held.extend(iter(self._tasks.get_nowait, None))

    def release(self) -> None:
        self._release(len(self._held))

    def _release(self, count: int) -> None:
        deque(map(self._tasks.put, starmap(self._held.popleft, repeat((), count))), 0)

    def result(self, pending: PendingTask) -> Outcome:
        if pending.outcome is None:
            self._awaited = pending
            try:
                if pending.generation != self.generation and pending.handle.empty():
                    raise TaskLost
                self.is_awaited = True
                with resting():
                    pending.outcome = self._wait_for(pending)
            finally:
                self.is_awaited, self._awaited = False, None
        if pending.outcome is None:
            raise TaskLost
        return pending.outcome

    def _wait_for(self, pending: PendingTask) -> Outcome | None:
        patience = inf if self._timeout is None else self._timeout
        deadline = monotonic() + patience
        while True:
            for place, (held, *_) in enumerate(tuple(self._held), 1):
                if held is pending:
                    self._release(place)
            try:
                seconds = max(0.0, min(_TICK, deadline - monotonic()))
                found: Outcome | None = get_within(pending.handle, seconds)
                return found
            except Empty:
                if any(pool.is_awaited for pool in self._drives):
                    deadline = monotonic() + patience
                if monotonic() < deadline:
                    continue
            pending.made = len(pending.items)
            self.losses += 1
            self._end(_PATIENCE if self._drives else 0.0)  # a driver ends with those it drives
            raise WorkerTimeout(f"no item within {self._timeout} s, from a thread")

    def is_done(self, pending: PendingTask) -> bool:
        return pending.outcome is not None or not pending.handle.empty()

    def stop(self) -> None:
        self.is_stopped = True
        self._end(_PATIENCE)

    def _end(self, patience: float) -> None:
        """End the threads; a task starts others."""
        self.generation += 1
        threads, self._threads = self._threads, []
        self._held.clear()
        if not self._has_begun:
            return
        self._has_stopped.append(True)
        if self._awaited is not None:
            self._awaited.handle.put(None)
        for _ in range(self.workers):
            self._tasks.put(None)
        self._has_begun = False
        for pool in self._drives:
            pool.stop()
        deadline = monotonic() + patience
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - monotonic()))
        self._handlers = without_flows(self._handlers)

    def start(self) -> None:
        self.is_stopped = False
        self._start()

    def _start(self) -> None:
        if self._threads:
            return
        if self._has_begun:
            self._end(_PATIENCE)
        generation = self.generation
        for pool in self._drives:
            pool.start()
        self._tasks = SimpleQueue()
        self._has_stopped: list[bool] = []  # those threads know it, and no later ones
        self._has_begun = True
        threads = []
        try:
            for number in self._numbers:
                init = self._worker_init and partial(self._worker_init, number)
                thread = threading.Thread(
                    target=_serve,
                    args=(self._tasks, self._handlers, self._has_stopped, init),
                    name=f"lazyckpt-{number}",
                    daemon=True,  # one that hangs holds no interpreter up
                )
                thread.start()
                own_threads.add(thread)
                threads.append(thread)
        except BaseException:
            self._end(_PATIENCE)
            raise
        self._threads = threads
        if self.generation != generation:  # a signal's handler has stopped it meanwhile
            self._has_begun = True
            self._end(_PATIENCE)

    def forget(self) -> None:
        super().forget()
        self._threads, self._has_begun = [], False


def _serve(
    tasks: SimpleQueue[Any],
    handlers: list[Handler],
    has_stopped: list[bool],
    init: Callable[[], Any] | None,
) -> None:
    while (task := tasks.get()) is not None:
        pending, handler, payload = task
        if has_stopped:
            pending.handle.put(None)  # whoever waits for it learns that it is not done
        elif pending.generation >= 0:
            with working():
                failed = None if init is None else _failed(init)
                init = failed and init  # the next task tries again
                outcome = failed or _outcome(handlers[handler], payload, pending.items)
            is_lost = has_stopped and outcome.failure is not None  # it may be of stopping
            pending.handle.put(None if is_lost else outcome)
            del failed, outcome
        del task, pending, payload  # an error in there may hold the run, which nobody else holds


def _failed(init: Callable[[], Any]) -> Outcome | None:
    """Why a thread can't start, if it can't."""
    try:
        init()
    except BaseException as error:
        return Outcome([], Failure(error, ""))
    return None


def _outcome(handler: Handler, payload: Any, items: list[Any]) -> Outcome:
    try:
        return handler(payload, items)
    except BaseException as error:  # of ours, which nobody else would learn of
        return Outcome([], Failure(error, ""))
