"""The main function of a worker process, from its start to the end of its pipe."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import select
import signal
import socket
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from mmap import mmap
from time import monotonic
from typing import Any, NamedTuple

from lazyckpt.executors.ipc.serialization import opened, send_outcome
from lazyckpt.executors.ipc.transport import Receiver, Sender, Unwritable
from lazyckpt.executors.plan.handlers import Handler, Outcome
from lazyckpt.executors.pools.pool import init_worker, stop_pools
from lazyckpt.executors.pools.progress import CountedItems, Progress, is_let_go, note_own
from lazyckpt.executors.pools.seeding import seed_generators, seed_torch
from lazyckpt.failures.notes import add_note, as_failure
from lazyckpt.failures.watching import Watch, watched

_UNKNOWN_MODULE = (
    "lazyckpt: workers can't import it: put its folder on sys.path, or call "
    "cloudpickle.register_pickle_by_value with the module"
)
_UNKNOWN_NAME = (
    "lazyckpt: workers don't run the main module: define it in a module that they can import"
)
_CHECK_PARENT = 1.0  # seconds between two checks that the parent is alive
START_FAILED = -1  # number of the only outcome of a worker that can't start
_CHECK_LIBRARIES = 20e-3  # seconds between two checks whether libraries have started threads
_LIBRARIES = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM", "BLIS")


class WorkerSettings(NamedTuple):
    """The settings of a worker.

    Attributes:
        init: Function to call with the worker's number.
        library_threads: Number of BLAS, OpenMP and torch threads; None keeps their defaults.
        slots: Number of messages that may lie in shared memory.
        shared_memory: If True, send arrays through shared memory.
    """

    init: Callable[[int], Any] | None
    library_threads: int | None
    slots: int
    shared_memory: bool


class WorkerStart(NamedTuple):
    """The first message to a worker.

    Attributes:
        name: The name of its process.
        consumer: The process ID of its consumer.
        cells: Which cells of the memory for progress are its own.
        number: Its number, for `WorkerSettings.init`.
        lost: Records to skip, as earlier workers were lost at them.
    """

    name: str
    consumer: int
    cells: int
    number: int
    lost: Mapping[int, Exception]


def serve(
    pipe: socket.socket,
    cells: mmap,
    content: Callable[[], tuple[list[Handler], WorkerSettings]],
    consumer: Any = None,
) -> None:
    """Do tasks until the pipe ends. Each outcome has its task's number, from 0.

    Args:
        pipe: The socket for tasks and outcomes. The first message is a `WorkerStart`.
        cells: Memory for the progress of all workers.
        content: Function that returns the handlers and the settings.
        consumer: File that ends with the consumer; None for a child of multiprocessing.
    """
    # Only the consumer handles Ctrl-C. Not SIG_IGN: programs started by a function inherit that.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the consumer's handler
    if consumer is None:
        process = multiprocessing.parent_process()
        consumer = process and process.sentinel
    handlers: list[Handler] = []
    # Starting a `Thread` would wait for it to run.
    start_new_thread(_end_with, (consumer, os.getppid(), pipe.fileno(), handlers))
    pipe.settimeout(None)  # whatever the default timeout of sockets is
    receiver, sender = Receiver(pipe), Sender(pipe, slots=0)
    try:
        name, consumer_id, own, number, lost = receiver.receive().open()
    except (EOFError, OSError):
        return
    multiprocessing.current_process().name = name
    progress = Progress(cells, own)
    progress.note_start()
    try:
        try:
            found, settings = content()
        except (ModuleNotFoundError, AttributeError) as error:
            is_module = isinstance(error, ModuleNotFoundError)
            add_note(error, _UNKNOWN_MODULE if is_module else _UNKNOWN_NAME)
            raise
        handlers += found
        for each in handlers if lost else ():
            each.leave_out(lost)
        sender = Sender(pipe, slots=settings.slots, shared=settings.shared_memory)
        if settings.library_threads is not None:
            _prepare_libraries(settings.library_threads)
        seed_generators()
        if settings.init is not None:
            init_worker(settings.init, number)
    except BaseException as error:
        with suppress(EOFError, OSError):
            receiver.receive()
            _send(sender, START_FAILED, Outcome([], as_failure(error, ())), name)
        return
    limit, checked_at = settings.library_threads, 0.0
    done, this = 0, os.getpid()
    note_own(progress, consumer_id)
    progress.say_alive()  # so that a slow start doesn't count towards an item's timeout
    while not progress.is_let_go and (task := _next_task(receiver)) is not None:
        if limit is not None and monotonic() - checked_at > _CHECK_LIBRARIES:
            checked_at = monotonic()
            limit = None if _limit_libraries(limit) else limit
        seed_torch()
        if isinstance(task, Outcome):
            outcome = task
        elif len(task) > 2:
            outcome = _carefully(handlers[task[0]], task[1], task[2], progress.begin(done))
        else:
            outcome = handlers[task[0]](task[1], progress.begin(done))
        if os.getpid() != this:  # a child that a function has forked, and that did not end itself
            os._exit(_status_of(outcome))
        try:
            _send(sender, done, outcome, name)
        except OSError:
            break
        done += 1
        del task, outcome  # frees their memory before the next task
    if not progress.is_let_go:  # its consumer is dying: other ranks must not think that it leaves
        os._exit(1)
    stop_pools()  # of workers that this one drives


def _status_of(outcome: Outcome) -> int:
    """Return the status with which a process ends after its last function."""
    error = outcome.failure and outcome.failure.error
    if isinstance(error, SystemExit) and isinstance(error.code, int | None):
        return error.code or 0
    return int(error is not None)


def _carefully(
    handler: Handler, payload: Any, errors: dict[int, Exception] | None, items: CountedItems
) -> Outcome:
    """Do a task that was submitted as `careful`."""
    with handler.without_lookahead():
        if errors is None:
            return handler(payload, items)
        handler.close_flows()
        watch = Watch(items.call, errors)
        with watched(handler.calls, watch):
            outcome = handler(payload, items)
        return outcome._replace(lost={**outcome.lost, **watch.lost})


def _next_task(receiver: Receiver) -> Any:
    """Return the next task, an outcome if it can't be unpickled here, or None at the end."""
    try:
        message = receiver.receive()
    except (EOFError, OSError):
        return None
    return opened(message)


def _send(sender: Sender, number: int, outcome: Outcome, worker: str) -> None:
    send_outcome(outcome, worker, lambda found: sender.send((*found,), number), Unwritable)


def _end_with(consumer: int, parent: int, pipe: int, handlers: Sequence[Handler]) -> None:
    """End this process when its consumer or parent ends, even in the middle of a long call.

    Once the consumer lets it go, tell the handlers, which may wait for other processes.
    """
    poller = select.poll()
    poller.register(consumer, select.POLLIN)
    poller.register(pipe, 0)  # that it has hung up is always reported
    while os.getppid() == parent:
        ready = [number for number, _ in poller.poll(_CHECK_PARENT * 1000)]
        if consumer in ready:
            break
        if pipe in ready:
            poller.unregister(pipe)
            with suppress(RuntimeError):  # the limit of threads: then the consumer ends it
                if is_let_go():
                    start_new_thread(_stop, (handlers,))
    os._exit(1)


def _stop(handlers: Sequence[Handler]) -> None:
    for each in tuple(handlers):
        each.stop()


@cache
def has_threadpoolctl() -> bool:
    return importlib.util.find_spec("threadpoolctl") is not None


def _prepare_libraries(count: int) -> None:
    """Set the number of threads of torch, and of libraries that are loaded later."""
    for library in _LIBRARIES:
        os.environ[f"{library}_NUM_THREADS"] = str(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def _limit_libraries(count: int) -> bool:
    """Limit the threads of BLAS and OpenMP once they run; return whether that is done.

    A limit before that would make OpenBLAS start all its threads, which spin for 25 ms.
    """
    with suppress(OSError):
        if len(os.listdir("/proc/self/task")) <= threading.active_count() + 1:  # of `_end_with`
            return False
    if has_threadpoolctl():
        import_module("threadpoolctl").threadpool_limits(count)
    return True
