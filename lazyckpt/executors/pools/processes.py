"""A pool of processes on this machine."""

from __future__ import annotations

import errno
import multiprocessing
import os
import select
import socket
import threading
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from importlib import import_module
from mmap import mmap
from multiprocessing.util import Finalize
from time import monotonic
from typing import IO, Any

from lazyckpt.errors import WorkerDied, WorkerTimeout
from lazyckpt.executors.ipc.serialization import (
    opened,
    share_handlers,
    transfer_failure,
    with_inputs,
)
from lazyckpt.executors.ipc.shared_memory import LENT_SLOTS
from lazyckpt.executors.ipc.shared_pickle import PickledOnce
from lazyckpt.executors.ipc.transport import Unwritable, too_many_files
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Handler, Outcome
from lazyckpt.executors.pools.pool import PendingTask, WorkerPool, stop_pools
from lazyckpt.executors.pools.progress import (
    Patience,
    Progress,
    consumer_of_this,
    say_alive,
    shared_cells,
)
from lazyckpt.executors.pools.served_process import ServedProcess, ensure_server, stop_servers
from lazyckpt.executors.pools.start_method import choose_start_method, warn_of_threads
from lazyckpt.executors.pools.worker_main import (
    START_FAILED,
    WorkerSettings,
    WorkerStart,
    has_threadpoolctl,
    serve,
)
from lazyckpt.executors.pools.worker_process import (
    PATIENCE,
    WorkerProcess,
    kill_all,
    reap,
    unreaped,
    without_interrupts,
)

_MOST_SLOTS = 1024  # per worker, for any number of segments
_TICK = 0.25  # seconds between two checks that a worker is alive, in case its pipe stays open

_at_exit: Finalize[Any] | None = None


def _forget_all() -> None:
    global _at_exit
    _at_exit = None
    for process in unreaped:
        if isinstance(process, ServedProcess):
            process.close()
    unreaped.clear()


os.register_at_fork(after_in_child=_forget_all)


def stop_at_exit() -> None:
    """End all workers before multiprocessing waits for them, also in multiprocessing's children.

    Such children end without `atexit`, so this uses the undocumented `Finalize`.
    """
    global _at_exit
    if _at_exit is None or not _at_exit.still_active():
        _at_exit = Finalize(None, _stop_all, exitpriority=100)


def _stop_all() -> None:
    try:
        stop_pools()
    finally:  # also after a Ctrl-C
        kill_all(list(unreaped))
        stop_servers()


def _let_go(workers: list[WorkerProcess]) -> None:
    """Receive arrived outcomes, and hang up.

    This is a function because from Python 3.13 on, the jump back of a loop may lie outside of
    the `try` around the loop: an interrupt at the jump would not be caught.
    """
    for worker in workers:
        with suppress(OSError):
            while worker.receive_ready():
                pass
    for worker in workers:
        worker.close()


def slot_count(workers: int, buffer_size: int, segments: int) -> int:
    """Return the number of shared memory slots per worker, with those a consumer may keep."""
    slots = 3 * workers + buffer_size + 2  # the most tasks that it may have of one segment
    return max(slots, min(slots * segments, _MOST_SLOTS)) + LENT_SLOTS


class ProcessPool(WorkerPool):
    """Workers that are processes, each fed through its own pipe, first in, first out."""

    can_continue = True
    in_transit = 1

    def __init__(
        self,
        handlers: list[Handler],
        workers: int,
        buffer_size: int,
        timeout: float | None,
        start_method: str | None,
        settings: WorkerSettings,
        number: int = 0,
        patience: float | None = None,
        retries: int = 0,
        linger: float = PATIENCE,
        pickled: PickledOnce | None = None,
    ) -> None:
        super().__init__(workers, buffer_size)
        self._number, self._linger = number, linger
        self._pickled = pickled or PickledOnce()
        self.retries = retries
        self._handlers = handlers
        self._timeout, self._patience = timeout, patience or timeout
        self._start_method, self._are_forked = start_method, False
        slots = slot_count(workers, buffer_size, len(handlers))
        self._settings = settings._replace(slots=slots)
        self._workers: list[WorkerProcess] = []
        self._owner = 0  # the process that started them
        self._lock = threading.RLock()  # held while receiving outcomes and while stopping

    def submit(
        self, handler: int, payload: Any, size: int, *careful: Any, after: PendingTask | None = None
    ) -> PendingTask:
        self.start()
        generation, workers = self.generation, self._workers
        if not workers:
            raise TaskLost
        with self._lock:
            worker = None if after is None else after.handle
            if worker not in workers:
                worker = min(workers, key=lambda worker: (worker.load, worker.submitted))
            pending = PendingTask(generation, size, worker)
            task = handler, with_inputs(payload, has_main=self._are_forked), *careful
            try:
                worker.send(task, pending)
            except Unwritable as error:
                pending.outcome = transfer_failure(error.reason, "can't leave its process")
        return pending

    def result(self, pending: PendingTask) -> Outcome:
        if pending.is_done and pending.outcome is None:
            self._take_in()  # updates the load of each worker
        self.is_awaited = True
        try:
            self._wait_for(pending)
        finally:
            self.is_awaited = False
        if pending.outcome is None:
            message = pending.came.get_nowait()
            found = opened(message)
            if message.number == START_FAILED:
                self._end_workers()  # before the error is raised; also newer workers
            pending.outcome = found if isinstance(found, Outcome) else Outcome(*found)
        return pending.outcome

    def _wait_for(self, pending: PendingTask) -> None:
        """Wait for a task. Raises `TaskLost` if the workers were stopped before it was done."""
        patience: Patience | None = None
        while not pending.is_done:
            worker = self._worker_of(pending)
            patience = patience or Patience(self._patience, worker.progress)
            seconds, begun = max(0.0, min(_TICK, patience.left())), monotonic()
            has_news = not worker.has_hung_up and self._take_in(seconds)
            patience.spend(min(seconds, monotonic() - begun))
            if has_news and not patience.is_over:
                continue
            with self._lock:
                if self.is_done(pending) or pending.generation != self.generation:
                    continue  # because of a different thread, or a signal handler
                is_alive = worker.process.is_alive() and not worker.has_hung_up
                if not is_alive or patience.is_over:
                    raise self._loss(worker, is_late=is_alive)

    def _worker_of(self, pending: PendingTask) -> WorkerProcess:
        """Return the worker of a task. Raises `TaskLost` if it has to be replaced, or was."""
        with self._lock:  # otherwise a different thread may be receiving an outcome
            worker: WorkerProcess | None = pending.handle
            if worker is not None and pending.generation == self.generation:
                if worker.is_whole:
                    return worker
                self._end_workers()
            raise TaskLost

    def _take_in(self, seconds: float = 0.0) -> bool:
        """Wait until a worker has sent data or can receive some; return whether one has."""
        with self._lock:
            workers = {worker.pipe.fileno(): worker for worker in self._workers}
        poller = select.poll()
        for number, worker in workers.items():
            if events := worker.events():
                poller.register(number, events)
        found = poller.poll(seconds * 1000)
        with self._lock:
            for number, event in found:
                workers[number].handle(event)
        return bool(found)

    def is_done(self, pending: PendingTask) -> bool:
        if not pending.is_done and pending.generation == self.generation:
            self._take_in()
        return pending.is_done

    def stop(self) -> None:
        self._end_workers()
        self._pickled.release(id(self))

    def _end_workers(self, *, linger: bool = True) -> list[WorkerProcess]:
        """End the workers, unless a thread or signal handler has; return those that it ended.

        If `linger`, a process that reads for ranks has time to announce that it leaves.
        """
        if self._workers and self._owner != os.getpid():  # forked, before `forget` was called
            self.forget()
            return []
        with self._lock:
            self.generation += bool(self._workers)  # first, so that waiting threads give up
            workers, self._workers = self._workers, []
            _let_go(workers)
        processes = [worker.process for worker in workers if worker.process is not None]
        linger = linger and any(worker.progress.has_begun for worker in workers)
        reap(processes, self._linger if linger else PATIENCE)
        return workers

    def start(self) -> None:
        with self._lock:
            if len(self._workers) == self.workers and all(each.is_whole for each in self._workers):
                return
        self._end_workers()
        stop_at_exit()
        self._owner = os.getpid()
        method = choose_start_method(self._start_method)
        self._are_forked = method == "fork"
        try:
            with self._content(method) as content, shared_cells(self.workers) as cells:
                files = [each.fileno() for each in (cells, content) if each is not None]
                with without_interrupts():
                    self._start_workers(method, mmap(cells.fileno(), 0), files)
        except BaseException as error:
            self._end_workers()
            if isinstance(error, OSError) and error.errno == errno.EMFILE:
                raise too_many_files() from error
            raise

    def _content(self, method: str) -> AbstractContextManager[IO[bytes] | None]:
        """Return the memory with the handlers, for processes that aren't forked from this one."""
        if method == "fork":
            return nullcontext()
        ensure_server()
        return self._pickled.take(id(self), partial(share_handlers, self._handlers, self._settings))

    def _start_workers(self, method: str, cells: mmap, files: list[int]) -> None:
        if method == "fork" and has_threadpoolctl():
            import_module("threadpoolctl")  # imported once, before the forks
        for index in range(self.workers):
            self._start_worker(method, index, cells, files)
        if method == "fork" and consumer_of_this() is None:  # workers have idle threads
            warn_of_threads()

    def forget(self) -> None:
        super().forget()
        for worker in self._workers:
            worker.pipe.close()
        self._workers = []
        self._lock = threading.RLock()
        self._pickled.close()
        self._pickled = PickledOnce()

    def _start_worker(self, method: str, index: int, cells: mmap, files: list[int]) -> None:
        ours, theirs = socket.socketpair()
        number = self._number + index
        lost = {} if self.skip_log is None else self.skip_log.lost
        start = WorkerStart(f"lazyckpt-{number}", self._owner, index, number, lost)
        with theirs:
            worker = WorkerProcess(ours, self._settings, Progress(cells, index))
            self._workers.append(worker)
            process: Any
            if method == "fork":
                handlers, settings = self._handlers, self._settings
                process = multiprocessing.get_context("fork").Process(
                    target=serve,
                    args=(theirs, cells, lambda: (handlers, settings)),
                    name=start.name,
                )
            else:
                process = ServedProcess(start.name, method, [theirs.fileno(), *files])
            worker.start(process, start)

    def _loss(self, worker: WorkerProcess, *, is_late: bool) -> Exception:
        """Stop because a worker hangs or has died; return the error to raise.

        Raises:
            TaskLost: A signal handler has stopped the workers meanwhile, so none was lost.
        """
        name = worker.process.name
        kind: type[Exception] = WorkerTimeout if is_late else WorkerDied
        if is_late:
            lost = f"timed out after {self._timeout:g} s"
            text = f"no item within {self._timeout} s, from {name}"
            if not worker.progress.has_started:
                text = f"{name} did not start in time: check the modules that it imports"
        else:
            end = worker.describe_end()
            when = "while it worked; the run can continue, with new workers"
            if not worker.progress.has_begun:
                when = (
                    "before its first item: check worker_init, the modules that it imports, and "
                    "the limits of memory, processes and open files (ulimit -a)"
                )
            lost = f"worker {end.replace('was ended', 'killed')}"
            text = f"{name} {end} {when}"
        worker.note_lost(kind(lost))
        under_way = [each for each in worker.pending_tasks.values() if each.made is not None]
        if worker not in self._end_workers(linger=False):  # one that hangs announces nothing
            raise TaskLost
        self.losses += 1
        self.lost_at = under_way[0] if under_way else None
        say_alive()
        return kind(text)
