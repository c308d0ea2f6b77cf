"""A crew of processes on this machine."""

from __future__ import annotations

import atexit
import importlib.util
import multiprocessing
import os
import pickle
import select
import signal
import socket
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from math import inf
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from time import monotonic
from typing import Any, NamedTuple

from lazyckpt.blame import Failure, traced
from lazyckpt.errors import PipelineError, WorkerDied, WorkerTimeout
from lazyckpt.executors.crew import Crew, Ticket
from lazyckpt.executors.parcels import packed, portable, sendable
from lazyckpt.executors.parts import Each, Outcome, Part, Stale
from lazyckpt.executors.slots import SPARE
from lazyckpt.executors.threads import ours
from lazyckpt.executors.transport import Receiver, Sender, Unreadable, Unwritable

_PATIENCE = 0.2  # seconds that a worker has to end by itself, and again to be terminated
_WATCH = 1.0  # seconds between two looks whether the parent lives
_TICK = 0.25  # and whether a worker does, should others hold its pipe open
_FEW = 100  # tasks that a pipe has room for, with their outcomes
_LOOK = 5e-3  # seconds between two looks whether libraries have started threads
_LIBRARIES = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM", "BLIS")

_crews: weakref.WeakSet[Processes] = weakref.WeakSet()


def _abandon_all() -> None:
    for crew in list(_crews):
        crew.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


@atexit.register  # after multiprocessing's own, and so called before it, which waits for workers
def _stop_all() -> None:
    for crew in list(_crews):
        crew.stop()


class Settings(NamedTuple):
    """What a worker is told when it starts."""

    init: Callable[[int], Any] | None
    library_threads: int | None
    slots: int
    shared_memory: bool


class _Hand:
    """One worker, seen from the consumer.

    Its connection is closed when nobody holds this any more: a thread that
    waits for an outcome may, for a while.
    """

    def __init__(self, connection: Connection[Any, Any], settings: Settings) -> None:
        self.process: Any = None
        self.connection = connection
        self.sender = Sender(connection, slots=settings.slots, shared=settings.shared_memory)
        self.receiver = Receiver(connection)
        self.tickets: deque[Ticket] = deque()
        self.load = 0  # items of those
        self.given = 0
        self.is_amid = False  # a message
        self.is_unfit = False

    def take(self) -> None:
        """Take in the next outcome; EOFError if there can be none."""
        self.is_amid = True
        try:
            found = self.receiver.receive()
        except Unreadable as error:
            found = _torn(error)
        self.is_amid = False
        if isinstance(found, Unfit):
            self.is_unfit = True
            while self.tickets:
                self._done(Outcome([], found.failure))
        else:
            self._done(found)

    def _done(self, outcome: Outcome) -> None:
        ticket = self.tickets.popleft()
        self.load -= ticket.size
        ticket.outcome = outcome

    def take_in(self) -> None:
        """Take in what has come."""
        with suppress(EOFError):  # as waiting for a ticket will tell
            while self.tickets and not self.is_amid and _seen(self.connection, 0):
                self.take()

    def hang_up(self) -> None:
        """Whoever waits at either end learns that it is over."""
        with suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as pipe:
            pipe.shutdown(socket.SHUT_RDWR)


class Processes(Crew):
    """Workers that are processes, each fed through a pipe of its own, first in, first out.

    - `method`: fork, forkserver or spawn; None is multiprocessing's default, where it is safe
    """

    def __init__(
        self,
        parts: list[Part],
        workers: int,
        buffer_size: int,
        timeout: float | None,
        method: str | None,
        settings: Settings,
    ) -> None:
        super().__init__(workers, buffer_size)
        self._parts = parts
        self._timeout = timeout
        self._method = method
        self._settings = settings._replace(slots=2 * workers + buffer_size + 2 + SPARE)
        self._hands: list[_Hand] = []
        self._lock = threading.RLock()  # between who takes an outcome in and who stops
        self._gate: _Gate | None = None
        self._works = True
        self._packed: bytes | None = None
        _crews.add(self)

    @property
    def is_there(self) -> bool:
        return bool(self._hands)

    def submit(self, part: int, payload: Any, size: int) -> Ticket:
        if not self.is_led:
            self.ready()
        life, hands = self.life, self._hands
        if not hands:
            raise Stale
        if len(hands) > 1:  # who has less to do shows in what has come
            with self._lock:
                for each in hands:
                    each.take_in()
        hand = min(hands, key=lambda hand: (hand.load, hand.given))
        hand.given += 1
        ticket = Ticket(life, hand, size)
        hand.tickets.append(ticket)
        hand.load += size
        try:
            hand.sender.send((part, payload))
        except Unwritable as error:
            hand.tickets.remove(ticket)
            hand.load -= size
            ticket.outcome = _torn(error)
        except OSError:
            pass  # it has died, as `result` will tell in its turn
        except BaseException:  # amid a message, perhaps
            self.stop()
            raise
        return ticket

    def result(self, ticket: Ticket) -> Outcome:
        hand: _Hand | None = ticket.handle
        until = None if self._timeout is None else monotonic() + self._timeout
        while ticket.outcome is None:
            if ticket.life != self.life or hand is None:
                raise Stale
            if not _seen(hand.connection, min(_TICK, (until or inf) - monotonic())):
                self._look_after(ticket, until)
                continue
            try:
                with self._lock:
                    if ticket.life == self.life:
                        hand.take()
            except EOFError:
                self._lost(ticket)
            except BaseException:  # amid a message, perhaps
                self.stop()
                raise
        if hand is not None and hand.is_unfit:
            self.stop()
        return ticket.outcome

    def has(self, ticket: Ticket) -> bool:
        with self._lock:
            hand: _Hand | None = ticket.handle
            if hand is None or ticket.life != self.life:
                return ticket.outcome is not None
            hand.take_in()
            return ticket.outcome is not None

    def stop(self) -> None:
        if not self._lock.acquire(timeout=_PATIENCE):  # a message that goes on and on
            for hand in self._hands:
                hand.hang_up()
            self._lock.acquire()
        try:
            hands, self._hands = self._hands, []
            for hand in hands:
                with suppress(OSError):
                    hand.take_in()
            self.life += bool(hands)
            for hand in hands:
                hand.hang_up()
                if not hand.is_amid:
                    hand.receiver.close()
                for ticket in hand.tickets:
                    ticket.handle = None
        finally:
            self._lock.release()
        _reap([hand.process for hand in hands if hand.process is not None])

    def let(self, work: bool) -> None:
        self._works = work
        if self._gate is not None:
            self._gate.let(work)

    def ready(self) -> None:
        if self._hands:
            return
        context: Any = multiprocessing.get_context(_method(self._method))
        self._gate = _Gate(self._works)
        settings: Any = self._parts, self._settings
        if context.get_start_method() == "forkserver":
            context.set_forkserver_preload(["__main__", __name__])  # of one not running yet
            import_module("multiprocessing.forkserver").ensure_running()  # with no Ctrl-C held back
        if context.get_start_method() != "fork":
            settings = self._packed = self._packed or packed(self._parts, self._settings)
        elif _has_threadpoolctl():
            import_module("threadpoolctl")  # once here, for all workers
        try:
            with _without_interrupts():
                for index in range(self.workers):
                    self._hire(context, index, settings)
        except BaseException:
            self.stop()
            raise

    def abandon(self) -> None:
        """Leave the workers to the process that this one was forked from."""
        for hand in self._hands:
            hand.connection.close()
        if self._gate is not None:
            self._gate.writer.close()
        self._hands, self._gate = [], None
        self._lock = threading.RLock()
        self.life += 1

    def _hire(self, context: Any, index: int, settings: Any) -> None:
        assert self._gate is not None
        mine, theirs = context.Pipe()
        hand = _Hand(mine, self._settings)
        self._hands.append(hand)
        process = context.Process(
            target=_work,
            args=(theirs, self._gate.reader, settings, index),
            name=f"lazyckpt-{index}",
        )
        with theirs:
            process.start()
        hand.process = process

    def _look_after(self, ticket: Ticket, until: float | None) -> None:
        """Nothing has come for a while."""
        with self._lock:
            if ticket.life != self.life:
                return
            hand: _Hand = ticket.handle
            if not hand.process.is_alive() and not _seen(hand.connection, 0):
                self._lost(ticket)
        if until is not None and monotonic() >= until:
            self.stop()
            raise WorkerTimeout(f"no item within {self._timeout} s, from {hand.process.name}")

    def _lost(self, ticket: Ticket) -> None:
        """The worker is not there any more."""
        with self._lock:
            if ticket.life != self.life:
                raise Stale  # because of `stop`
            died = WorkerDied(
                f"{_end(ticket.handle.process)} amid its work; the run can go on, with new workers"
            )
        self.stop()
        raise died


class _Gate:
    """A pipe in which a byte lies while work may be begun: whoever is killed, nobody hangs."""

    def __init__(self, is_open: bool) -> None:
        self.reader, self.writer = multiprocessing.Pipe(duplex=False)
        self._is_open = False
        self.let(is_open)

    def let(self, work: bool) -> None:
        if work and not self._is_open:
            os.write(self.writer.fileno(), b"1")
        if self._is_open and not work:
            os.read(self.reader.fileno(), 1)
        self._is_open = work


def _seen(connection: Connection[Any, Any], seconds: float | None) -> int:
    """Wait until there is something to read, or the end: what was seen, 0 for nothing.

    A tenth of what `Connection.poll` costs.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    found = poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
    return found[0][1] if found else 0


def _reap(processes: list[Any]) -> None:
    """See that processes end, which have been told to."""
    for end in ("", "terminate", "kill"):
        for process in processes:
            if end and process.is_alive():
                getattr(process, end)()
        until = monotonic() + _PATIENCE
        for process in processes:
            process.join(max(0.0, until - monotonic()))
    for process in processes:
        if not process.is_alive():
            process.close()


def _end(process: Any) -> str:
    process.join(1.0)
    code = process.exitcode
    if code is None:
        return f"{process.name} has closed its pipe"
    if code >= 0:
        return f"{process.name} ended with exit code {code}"
    with suppress(ValueError):
        return f"{process.name} was ended by {signal.Signals(-code).name}"
    return f"{process.name} was ended by signal {-code}"


def _torn(error: Exception) -> Outcome:
    """What comes of a task if it or its outcome can't cross."""
    cause = error.__cause__
    assert isinstance(cause, Exception)
    which = "can't leave its process" if isinstance(error, Unwritable) else "can't be unpickled"
    note = f"lazyckpt: an item {which}"
    if note not in getattr(cause, "__notes__", ()):
        cause.add_note(note)
    return Outcome([], Failure(cause, ""), is_torn=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Hold a Ctrl-C back, from workers too, which inherit this: it is not theirs."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would let it through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _method(wanted: str | None) -> str:
    """The start method: never fork where a thread of ours lives, for it may hold a lock."""
    threads = any(thread.is_alive() for thread in ours)
    if wanted == "fork" and threads:
        raise PipelineError(
            "processes(start_method='fork') can't start while threads of another run are alive; "
            "use 'forkserver', or close that run"
        )
    if wanted is not None:
        return wanted
    default = multiprocessing.get_start_method(allow_none=True)
    default = default or multiprocessing.get_all_start_methods()[0]
    return "forkserver" if default == "fork" and threads else default


class Unfit(NamedTuple):
    """In place of the first outcome: what befell a worker when it started. It has ended."""

    failure: Failure


def _work(
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
        if not _seen(gate, None) & select.POLLIN:
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
            return _torn(error)
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


def _has_threadpoolctl() -> bool:
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
    if _has_threadpoolctl():
        import_module("threadpoolctl").threadpool_limits(count)
    return True
