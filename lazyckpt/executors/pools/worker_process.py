"""A worker process as the consumer sees it: its start, its pipe and its end."""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from lazyckpt.executors.ipc.transport import Receiver, Sender, Unwritable
from lazyckpt.executors.pools.pool import PendingTask
from lazyckpt.executors.pools.progress import Progress
from lazyckpt.executors.pools.worker_main import START_FAILED, WorkerSettings, WorkerStart

unreaped: set[Any] = set()  # processes that this one has not seen end

PATIENCE = 0.2  # seconds that a worker has to end by itself, and again after `terminate`


class WorkerProcess:
    """A worker process and its tasks.

    While no message is in progress, each of its `pending_tasks` has been sent, and no outcome
    that was read is missing. An interrupt such as Ctrl-C may leave a message in progress: the
    worker must then be replaced.

    Attributes:
        process: The process, once it is started.
        pipe: A socket that is connected to it.
        pending_tasks: Its tasks, by their numbers.
        load: Number of items of its tasks.
        progress: Its progress.
        submitted: Number of tasks that it was ever sent, which is the number of the next task.
        is_whole: If True, it runs and no message is in progress, nor left half sent or read.
        has_hung_up: If True, no more outcomes can arrive.
    """

    def __init__(self, pipe: socket.socket, settings: WorkerSettings, progress: Progress) -> None:
        self.process: Any = None
        self.progress = progress
        pipe.setblocking(False)
        self.pipe = pipe
        self.sender = Sender(pipe, slots=settings.slots, shared=settings.shared_memory)
        self.receiver = Receiver(pipe)
        self.pending_tasks: dict[int, PendingTask] = {}
        self.load = 0
        self.submitted = 0
        self.is_whole = self.has_hung_up = False

    def start(self, process: Any, start: WorkerStart) -> None:
        process.start()
        unreaped.add(process)
        self.process = process
        with suppress(OSError):  # it has died; waiting for a task will raise that
            self.sender.send(start)
        self.is_whole = True

    def send(self, task: tuple[Any, ...], pending: PendingTask) -> None:
        """Send a task. Raises Unwritable if it can't be sent; the worker then doesn't have it."""
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
            pass  # the worker has died; waiting for the task will raise that
        self.submitted += 1
        self.is_whole = True

    def events(self) -> int:
        """Return the events to wait for: outcomes, and room in the pipe if it was full; or 0."""
        if self.has_hung_up or not self.is_whole:
            return 0
        return select.POLLIN | (select.POLLOUT if self.sender.has_more else 0)

    def handle(self, event: int) -> None:
        """Send waiting data if there is room, and receive outcomes."""
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
        """Receive outcomes that have arrived, unopened; return whether there may be more."""
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
            self.progress.say_alive()  # a large outcome is still arriving
        self.is_whole = True
        return has_come

    def note_lost(self, lost: Exception) -> None:
        """Note in each task that the worker was lost, and how far it was."""
        for number, pending in self.pending_tasks.items():
            pending.made, pending.called = self.progress.made(number), self.progress.called(number)
            pending.lost = lost

    def close(self) -> None:
        """Hang up, which wakes both ends, and release the worker's tasks and memory."""
        self.has_hung_up = True
        self.progress.let_go()
        with suppress(OSError):
            self.pipe.shutdown(socket.SHUT_RDWR)
        self.pipe.close()
        if self.is_whole:
            self.receiver.close()
            self.sender.close()
        for pending in self.pending_tasks.values():
            pending.handle = None

    def describe_end(self) -> str:
        """Describe how the process ended."""
        self.process.join(1.0)
        code = self.process.exitcode
        if code is None:
            error = getattr(self.process, "start_error", "")
            return f"couldn't start ({error})" if error else "has closed its pipe"
        if code >= 0:
            return f"ended with exit code {code}"
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
        return f"was ended by signal {-code}"


def reap(processes: list[Any], patience: float = PATIENCE) -> None:
    """Wait for processes to end, then terminate and kill them; kill immediately on Ctrl-C."""
    alive = processes
    try:
        for end, seconds in (("is_alive", patience), ("terminate", PATIENCE), ("kill", PATIENCE)):
            for process in alive:
                getattr(process, end)()
            deadline = monotonic() + seconds
            for process in alive:
                process.join(max(0.0, deadline - monotonic()))
            alive = [process for process in alive if process.is_alive()]
    except BaseException:
        kill_all(processes)
        raise
    for process in list(unreaped):  # also those whose `join` a Ctrl-C has interrupted
        if not process.is_alive():
            unreaped.discard(process)


def kill_all(processes: Iterable[Any]) -> None:
    """Kill processes without waiting for their end."""
    for process in processes:
        process.kill()


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Return a context in which Ctrl-C is blocked. Workers inherit that, as it isn't for them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:  # the next line raises a Ctrl-C that came before, and blocks later ones
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:  # done twice, as a different signal's handler may raise just before either
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
