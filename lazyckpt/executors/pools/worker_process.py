"""One worker process, seen from the consumer: its start, its pipe and its end."""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import active_children, resource_tracker
from time import monotonic
from typing import Any
from weakref import WeakSet

from lazyckpt.executors.ipc.transport import Receiver, Sender, Unwritable
from lazyckpt.executors.pools.pool import PendingTask
from lazyckpt.executors.pools.progress import Progress
from lazyckpt.executors.pools.worker_main import START_FAILED, WorkerSettings

unreaped: WeakSet[Any] = WeakSet()  # multiprocessing holds those whose end it has not seen

PATIENCE = 0.2  # seconds that a worker has to end by itself, and again to be terminated


class WorkerProcess:
    """One worker process, with the tasks that it has.

    Unless a message is under way, each of its `pending_tasks` has been sent, and no
    outcome that was read is missing. What leaves one under way, as a Ctrl-C does,
    makes the worker one to be replaced.

    Attributes:
        process: It, once it is started.
        pipe: A socket that is connected to it.
        pending_tasks: Its tasks, by their numbers.
        load: How many items those have.
        progress: How far it is.
        submitted: How many tasks it was ever sent, and so the number of the next.
        is_whole: Whether it works, and no message is under way or was left half sent or read.
        has_hung_up: Whether no more outcomes can come.
    """

    def __init__(self, pipe: socket.socket, settings: WorkerSettings, progress: Progress) -> None:
        self.process: Any = None
        self.progress = progress
        progress.end()
        pipe.setblocking(False)
        self.pipe = pipe
        self.sender = Sender(pipe, slots=settings.slots, shared=settings.shared_memory)
        self.receiver = Receiver(pipe)
        self.pending_tasks: dict[int, PendingTask] = {}
        self.load = 0
        self.submitted = 0
        self.is_whole = self.has_hung_up = False

    def start(self, process: Any) -> None:
        """Start its process."""
        process.start()
        unreaped.add(process)
        self.process = process
        self.is_whole = True

    def send(self, task: tuple[Any, ...], pending: PendingTask) -> None:
        """Send a task; Unwritable if it can't be, and then it is none of the worker's."""
        self.receiver.free_slots()
        self.is_whole = False
        self.pending_tasks[self.submitted] = pending
        self.load += pending.size
        try:
            self.sender.send(task)
        except Unwritable:
            self._take(self.submitted)
            self.is_whole = True
            raise
        except OSError:
            pass  # it has died, as waiting for the task will tell
        self.submitted += 1
        self.is_whole = True

    def events(self) -> int:
        """What to wait for: for outcomes, and for room if there wasn't any; 0 if for nothing."""
        if self.has_hung_up or not self.is_whole:
            return 0
        return select.POLLIN | (select.POLLOUT if self.sender.has_more else 0)

    def handle(self, event: int) -> None:
        """Send what there is room for by now, and take in what has come."""
        if event & select.POLLOUT and self.is_whole:
            self.is_whole = False
            with suppress(OSError):
                self.sender.flush()
            self.is_whole = True
        if event & ~select.POLLOUT:
            self.receive_ready()

    def _take(self, number: int) -> PendingTask:
        pending = self.pending_tasks.pop(number)
        self.load -= pending.size
        return pending

    def receive_ready(self) -> bool:
        """Take in the outcomes that have come, unopened; whether there may be more."""
        if self.has_hung_up or not self.is_whole:
            return False
        self.is_whole = False
        try:
            has_come = self.receiver.read()
        except EOFError:
            has_come, self.has_hung_up = False, True
        begun = len(self.pending_tasks)
        while has_come and (message := self.receiver.next()) is not None:
            if message.number == START_FAILED:
                self._take(0).came.put(message)
                return False
            self._take(message.number).came.put(message)
        if has_come and begun == len(self.pending_tasks):
            self.progress.say_alive()  # as a large one takes its time
        self.is_whole = True
        return has_come

    def note_lost(self, lost: Exception) -> None:
        """Note what became of it, and how far it is with the task that it does."""
        for number, pending in self.pending_tasks.items():
            pending.made, pending.called = self.progress.made(number), self.progress.called(number)
            pending.lost = lost

    def close(self) -> None:
        """Hang up, so that whoever waits at either end learns of it; let go of what it has."""
        self.has_hung_up = True
        with suppress(OSError):
            self.pipe.shutdown(socket.SHUT_RDWR)
        self.pipe.close()
        if self.is_whole:
            self.receiver.close()
            self.sender.close()
        for pending in self.pending_tasks.values():
            pending.handle = None

    def describe_end(self) -> str:
        """How it has ended, as what is said of it."""
        self.process.join(1.0)
        code = self.process.exitcode
        if code is None:
            return "has closed its pipe"
        if code >= 0:
            return f"ended with exit code {code}"
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
        return f"was ended by signal {-code}"


def reap(processes: list[Any], patience: float = PATIENCE) -> None:
    """See that processes end which have been told to: at once, if a Ctrl-C comes meanwhile."""
    alive = processes
    try:
        for end in ("is_alive", "terminate", "kill"):
            for process in alive:
                getattr(process, end)()
            deadline = monotonic() + patience
            for process in alive:
                process.join(max(0.0, deadline - monotonic()))
            alive = [process for process in alive if process.is_alive()]
    except BaseException:
        kill_all(processes)
        raise
    active_children()  # which sees the end of those as well that a Ctrl-C has kept from this


def kill_all(processes: Iterable[Any]) -> None:
    """Kill processes, without waiting for their end."""
    for process in processes:
        process.kill()


_is_tracked = False  # whether this process, or one it was forked from, has a resource tracker


def _ensure_tracker() -> None:
    """Start the resource tracker, once: to ask whether it lives wakes that process up.

    A process that is forked meanwhile does not try, as it finds the tracker's lock taken.
    multiprocessing's documentation has no way to start it beforehand.
    """
    global _is_tracked
    if not _is_tracked:
        _is_tracked = True
        try:
            resource_tracker.ensure_running()
        except BaseException:
            _is_tracked = False
            raise


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Hold a Ctrl-C back, from workers too, which inherit this: it is not theirs."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    _ensure_tracker()  # whose start would let it through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:  # a Ctrl-C that came before is raised by the next line, which blocks those behind it
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:  # done twice, as another signal's handler may raise just before either
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
