"""A crew of processes on this machine."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import socket
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from math import inf
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

from lazyckpt.errors import PipelineError, WorkerDied, WorkerTimeout
from lazyckpt.executors.crew import Crew, Ticket
from lazyckpt.executors.parcels import packed
from lazyckpt.executors.parts import Outcome, Part, Stale
from lazyckpt.executors.serving import Settings, Unfit, has_threadpoolctl, seen, serve, torn
from lazyckpt.executors.slots import SPARE
from lazyckpt.executors.threads import ours
from lazyckpt.executors.transport import Receiver, Sender, Unreadable, Unwritable

_PATIENCE = 0.2  # seconds that a worker has to end by itself, and again to be terminated
_TICK = 0.25  # and whether a worker does, should others hold its pipe open

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
        self.has_answered = False
        self.is_amid = False  # a message
        self.is_unfit = False

    def take(self) -> None:
        """Take in the next outcome; EOFError if there can be none."""
        self.is_amid = True
        try:
            found = self.receiver.receive()
        except Unreadable as error:
            found = torn(error)
        self.is_amid, self.has_answered = False, True
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
            while self.tickets and not self.is_amid and seen(self.connection, 0):
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
            ticket.outcome = torn(error)
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
            if self._timeout is not None and not self._works:  # nobody is late
                until = monotonic() + self._timeout
            if ticket.life != self.life or hand is None:
                raise Stale
            if not seen(hand.connection, min(_TICK, (until or inf) - monotonic())):
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
            context.set_forkserver_preload(["__main__", serve.__module__])  # of one not running yet
            import_module("multiprocessing.forkserver").ensure_running()  # with no Ctrl-C held back
        if context.get_start_method() != "fork":
            settings = self._packed = self._packed or packed(self._parts, self._settings)
        elif has_threadpoolctl():
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
            target=serve,
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
            if not hand.process.is_alive() and not seen(hand.connection, 0):
                self._lost(ticket)
        if until is not None and monotonic() >= until:
            self.stop()
            raise WorkerTimeout(f"no item within {self._timeout} s, from {hand.process.name}")

    def _lost(self, ticket: Ticket) -> None:
        """The worker is not there any more."""
        with self._lock:
            if ticket.life != self.life:
                raise Stale  # because of `stop`
            hand: _Hand = ticket.handle
            end, why = _end(hand.process), "amid its work; the run can go on, with new workers"
            if self._packed is not None and not hand.has_answered and hand.process.exitcode == 1:
                why = (
                    "before its first item; it runs the script anew, whose main part has to be "
                    "guarded by if __name__ == '__main__'"
                )
            died = WorkerDied(f"{end} {why}")
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
