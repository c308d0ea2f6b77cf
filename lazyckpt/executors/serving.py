"""The life of a worker process, from its start to the end of its pipe."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import pickle
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from time import monotonic
from typing import Any, NamedTuple

from lazyckpt.executors.parcels import portable, sendable
from lazyckpt.executors.parts import Each, Outcome, Part
from lazyckpt.executors.transport import Receiver, Sender, Unreadable, Unwritable
from lazyckpt.failures.notes import Failure, traced

_WATCH = 1.0  # seconds between two looks whether the parent lives
_FEW = 100  # tasks that a pipe has room for, with their outcomes
_LOOK = 5e-3  # seconds between two looks whether libraries have started threads
_LIBRARIES = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM", "BLIS")


class Settings(NamedTuple):
    """What a worker is told when it starts."""

    init: Callable[[int], Any] | None
    library_threads: int | None
    slots: int
    shared_memory: bool


class Unfit(NamedTuple):
    """In place of the first outcome: what befell a worker when it started. It has ended."""

    failure: Failure


def serve(
    connection: Connection[Any, Any],
    gate: Connection[Any, Any],
    given: tuple[list[Part], Settings] | bytes,
    index: int,
) -> None:
    """The life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the consumer's
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # and so is what it does when told to end
    name = multiprocessing.current_process().name
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    receiver = Receiver(connection)
    sender = Sender(connection, slots=0)
    try:
        parts, settings = pickle.loads(given) if isinstance(given, bytes) else given
        sender = Sender(connection, slots=settings.slots, shared=settings.shared_memory)
        if settings.library_threads is not None:
            _prepare_libraries(settings.library_threads)
        if settings.init is not None:
            settings.init(index)
    except BaseException as error:
        with suppress(EOFError, OSError):
            receiver.receive()
            sender.send(Unfit(portable(traced(error, (), name), name)))
        return
    next_task = _receiving(receiver)
    if settings.slots > _FEW or any(isinstance(part, Each) for part in parts):
        next_task = _listening(next_task)
    limit, looked = settings.library_threads, 0.0
    while (task := next_task()) is not None:
        if limit is not None and monotonic() - looked > _LOOK:
            looked = monotonic()
            limit = None if _limit_libraries(limit) else limit
        if not seen(gate, None) & select.POLLIN:
            return  # it won't be opened any more
        outcome = task if isinstance(task, Outcome) else parts[task[0]](task[1])
        try:
            _send(sender, outcome, name)
        except OSError:
            return
        del task, outcome  # not to hold them while the next are made


def _receiving(receiver: Receiver) -> Callable[[], Any]:
    def receive() -> Any:
        """The next task, an outcome if it can't be unpickled here, or None at the end."""
        try:
            return receiver.receive()
        except Unreadable as error:
            return torn(error)
        except (EOFError, OSError):
            return None

    return receive


def _send(sender: Sender, outcome: Outcome, worker: str) -> None:
    if outcome.failure is not None:
        outcome = outcome._replace(failure=portable(outcome.failure, worker))
    try:
        sender.send(outcome)
    except Unwritable:
        sender.send(sendable(outcome, worker))


def _listening(receive: Callable[[], Any]) -> Callable[[], Any]:
    """Take in tasks as they come: a consumer that hands in large ones, or many, never waits.

    It would for ever, if this worker waited for it to take an outcome.
    """
    tasks: SimpleQueue[Any] = SimpleQueue()

    def listen() -> None:
        while (task := receive()) is not None:
            tasks.put(task)
        tasks.put(None)

    threading.Thread(target=listen, daemon=True).start()
    return tasks.get


def _watch(parent: int) -> None:
    """End with the parent, which may have been killed while a function here takes its time."""
    consumer = multiprocessing.parent_process()
    assert consumer is not None
    while not wait([consumer.sentinel], _WATCH) and os.getppid() == parent:
        pass
    os._exit(1)


def has_threadpoolctl() -> bool:
    return importlib.util.find_spec("threadpoolctl") is not None


def _prepare_libraries(count: int) -> None:
    """Tell torch how many threads to use, and those that are loaded later."""
    for library in _LIBRARIES:
        os.environ[f"{library}_NUM_THREADS"] = str(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def _limit_libraries(count: int) -> bool:
    """Limit BLAS and OpenMP, once they have threads; whether that is done.

    Before, OpenBLAS would start its threads to be told that there should be
    one, and they spin for 25 ms.
    """
    with suppress(OSError):
        if len(os.listdir("/proc/self/task")) <= threading.active_count():
            return False
    if has_threadpoolctl():
        import_module("threadpoolctl").threadpool_limits(count)
    return True


def seen(connection: Connection[Any, Any], seconds: float | None) -> int:
    """Wait until there is something to read, or the end: what was seen, 0 for nothing.

    A tenth of what `Connection.poll` costs.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    found = poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
    return found[0][1] if found else 0


def torn(error: Exception) -> Outcome:
    """What comes of a task if it or its outcome can't cross."""
    cause = error.__cause__
    assert isinstance(cause, Exception)
    which = "can't leave its process" if isinstance(error, Unwritable) else "can't be unpickled"
    note = f"lazyckpt: an item {which}"
    if note not in getattr(cause, "__notes__", ()):
        cause.add_note(note)
    return Outcome([], Failure(cause, ""), is_torn=True)
