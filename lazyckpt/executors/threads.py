"""A crew of threads in this process."""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from lazyckpt.errors import WorkerTimeout
from lazyckpt.executors.crew import Crew, Ticket
from lazyckpt.executors.parts import Outcome, Part, Stale, Walk
from lazyckpt.failures.notes import Failure

_TICK = 0.25  # seconds after which a signal is seen that came just before a wait
_PATIENCE = 1.0  # seconds that stopping waits for what is being made

ours: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Threads(Crew):
    """Workers that are threads, all fed from one queue.

    - `uses`: crews that have to be there before a thread is, for a process with threads is
    not to be forked
    """

    def __init__(
        self,
        parts: list[Part],
        workers: int,
        buffer_size: int,
        timeout: float | None = None,
        uses: tuple[Crew, ...] = (),
    ) -> None:
        super().__init__(workers, buffer_size)
        self._parts = parts
        self._uses = uses
        self._timeout = timeout
        self._works = True
        self._threads: list[threading.Thread] = []
        self._is_begun = False  # also where starting or stopping them was interrupted
        self._awaited: Ticket | None = None
        _crews.add(self)

    @property
    def is_there(self) -> bool:
        return bool(self._threads)

    def mend(self) -> None:
        if not all(crew.is_there for crew in self._uses):
            self.stop()

    def submit(self, part: int, payload: Any, size: int) -> Ticket:
        if not self.is_led:
            self.ready()
        life = self.life  # first, for a signal's handler may stop this at any time
        if not self._threads:
            raise Stale
        ticket = Ticket(life, SimpleQueue(), size)
        self._tasks.put((ticket, part, payload))
        return ticket

    def result(self, ticket: Ticket) -> Outcome:
        if ticket.outcome is None:
            self._awaited = ticket
            try:
                if ticket.life != self.life and ticket.handle.empty():
                    raise Stale
                ticket.outcome = self._awaiting(ticket.handle)
            finally:
                self._awaited = None
        if ticket.outcome is None:
            raise Stale
        return ticket.outcome

    def _awaiting(self, handle: SimpleQueue[Any]) -> Outcome | None:
        patience = inf if self._timeout is None else self._timeout
        until = monotonic() + patience
        while True:
            try:
                found: Outcome | None = handle.get(
                    timeout=max(0.0, min(_TICK, until - monotonic()))
                )
                return found
            except Empty:
                if not self._works:  # nobody is late
                    until = monotonic() + patience
                if monotonic() < until:
                    continue
            self.stop(_PATIENCE if self._uses else 0.0)  # one that leads others ends with them
            raise WorkerTimeout(f"no item within {self._timeout} s, from a thread")

    def has(self, ticket: Ticket) -> bool:
        return ticket.outcome is not None or not ticket.handle.empty()

    def stop(self, patience: float = _PATIENCE) -> None:
        self.life += 1
        threads, self._threads = self._threads, []
        if not self._is_begun:
            return
        self._gate.stop()
        if self._awaited is not None:
            self._awaited.handle.put(None)
        for _ in range(self.workers):
            self._tasks.put(None)
        self._is_begun = False
        for crew in self._uses:
            crew.stop()
        until = monotonic() + patience
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - monotonic()))
        if any(thread.is_alive() for thread in threads):  # and will go on with what it has
            self._parts = [part.anew() if isinstance(part, Walk) else part for part in self._parts]

    def let(self, work: bool) -> None:
        self._works = work
        if self._is_begun and self._gate.is_open != work:
            self._gate.let(work)

    def ready(self) -> None:
        if self._threads:
            return
        if self._is_begun:
            self.stop()
        for crew in self._uses:
            crew.ready()
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._gate = _Gate(self._works, self.workers)
        self._is_begun = True
        threads = []
        try:
            for number in range(self.workers):
                thread = threading.Thread(
                    target=_serve,
                    args=(self._tasks, self._parts, self._gate),
                    name=f"lazyckpt-{number}",
                    daemon=True,  # one that hangs holds no interpreter up
                )
                thread.start()
                ours.add(thread)
                threads.append(thread)
        except BaseException:
            self.stop()
            raise
        self._threads = threads

    def abandon(self) -> None:
        """Forget the threads, which a forked process has not."""
        self._threads, self._is_begun = [], False
        self.life += 1


_crews: weakref.WeakSet[Threads] = weakref.WeakSet()


def _abandon_all() -> None:
    for crew in list(_crews):
        crew.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


class _Gate:
    """What threads pass while it is open.

    Not an Event, whose lock is for ever taken where a signal's handler raises within `set`.
    """

    def __init__(self, is_open: bool, threads: int) -> None:
        self.is_open = is_open
        self._has_stopped = False
        self._threads = threads
        self._calls: SimpleQueue[None] = SimpleQueue()  # for those that wait

    def let(self, work: bool) -> None:
        self.is_open = work
        with suppress(Empty):
            while not work:
                self._calls.get_nowait()
        for _ in range(self._threads if work else 0):
            self._calls.put(None)

    def stop(self) -> None:
        """Let all threads pass, who find that it `has_stopped`."""
        self._has_stopped = True
        self.let(True)

    def has_stopped(self) -> bool:
        return self._has_stopped

    def wait(self) -> None:
        while not self.is_open:
            with suppress(Empty):
                self._calls.get(timeout=_TICK)


def _serve(tasks: SimpleQueue[Any], parts: list[Part], gate: _Gate) -> None:
    while (task := tasks.get()) is not None:
        gate.wait()
        ticket, part, payload = task
        if gate.has_stopped():
            ticket.handle.put(None)  # whoever waits for it learns that it is not done
        elif ticket.life >= 0:
            outcome = _done(parts[part], payload)
            is_lost = gate.has_stopped() and outcome.failure is not None  # it may be of stopping
            ticket.handle.put(None if is_lost else outcome)
            del outcome
        del task, ticket, payload  # an error in there may hold the run, which nobody else holds


def _done(part: Part, payload: Any) -> Outcome:
    try:
        return part(payload)
    except BaseException as error:  # of ours, which nobody else would learn of
        return Outcome([], Failure(error, ""))
