"""A crew that is somebody else's: whatever takes functions and gives futures."""

from __future__ import annotations

import pickle
import uuid
from concurrent.futures import BrokenExecutor, CancelledError, Future
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

from lazyckpt.errors import PipelineError, WorkerDied, WorkerTimeout
from lazyckpt.executors.crew import Crew, Ticket
from lazyckpt.executors.parcels import Parcel, Report, Sealed, packed, whereabouts
from lazyckpt.executors.parts import Outcome, Part, Stale
from lazyckpt.failures.notes import Failure, traced

_KEPT = 8  # runs whose parts a worker keeps, the last ones

_kept: dict[str, list[Part]] = {}


class Errand:
    """A task as it is handed in. Within this process it holds the parts, elsewhere their key.

    - `packed`: the parts as bytes, for a worker that lacks them
    """

    def __init__(
        self,
        key: str,
        number: int,
        part: int,
        payload: Parcel | Sealed,
        parts: list[Part] | None = None,
        packed: bytes | None = None,
    ) -> None:
        self.key, self.number, self.part = key, number, part
        self.payload, self.parts, self.packed = payload, parts, packed

    def __reduce__(self) -> tuple[Any, ...]:
        return Errand, (self.key, self.number, self.part, self.payload, None, self.packed)

    def __dask_tokenize__(self) -> tuple[str, int]:
        return self.key, self.number  # Dask takes tasks with like arguments for the same one


def work(errand: Errand) -> Parcel:
    """Do a task. Where the parts have yet to be sent, the name of the worker that lacks them."""
    try:
        parts = errand.parts or _found(errand)
        if parts is None:
            return Parcel(whereabouts())
        payload = errand.payload.open()
    except BaseException as error:
        return Report(Outcome([], traced(error, (), whereabouts())))
    return Report(parts[errand.part](payload))


def _found(errand: Errand) -> list[Part] | None:
    parts = _kept.get(errand.key)
    if parts is None and errand.packed is not None:
        parts = _kept[errand.key] = pickle.loads(errand.packed)
        with suppress(KeyError, RuntimeError):  # another thread was faster
            while len(_kept) > _KEPT:
                del _kept[next(iter(_kept))]
    return parts


class Job:
    """What it takes to hand a task in, and where its future goes once that is done.

    - `worker`: who has it, where that is known
    - `tries`: how often it came to a worker that lacked the parts
    """

    def __init__(self, part: int, payload: Any) -> None:
        self.part = part
        self.payload = Parcel(payload)
        self.future: Future[Any] = Future()
        self.done: SimpleQueue[Future[Any] | None] = SimpleQueue()
        self.worker: Any = None
        self.tries = 0


class Futures(Crew):
    """Workers that an executor of the user's has; nothing is known of them.

    The parts stay here until a worker says that it lacks them. Where several
    do, each is sent them once, as far as an executor can be told who does what.
    """

    is_foreign = True

    def __init__(
        self, executor: Any, parts: list[Part], buffer_size: int, timeout: float | None
    ) -> None:
        super().__init__(buffer_size, 0)
        self.parts = parts
        self.tickets: list[Ticket] = []
        self._executor = executor
        self._timeout = timeout
        self._works = False
        self._key = uuid.uuid4().hex
        self._numbers = count()
        self._packed: bytes | None = None
        self._lacking: set[str] = set()

    def send(self, job: Job) -> Future[Any]:
        """Hand in a task."""
        is_lacking = job.tries > 1 or (job.tries == 1 and job.worker not in self._lacking)
        if is_lacking:
            self._lacking.add(job.worker)
            self._packed = self._packed or packed(self.parts, has_main=False)
        blob = self._packed if is_lacking else None
        errand = Errand(self._key, next(self._numbers), job.part, job.payload, self.parts, blob)
        future: Future[Any] = self._executor.submit(work, errand)
        return future

    @property
    def is_there(self) -> bool:
        return self._works

    def ready(self) -> None:
        self._works = True

    def submit(self, part: int, payload: Any, size: int) -> Ticket:
        for ticket in self.tickets:
            if ticket.life != self.life:
                ticket.handle.future.cancel()  # nobody will ask for it
        self.tickets = [ticket for ticket in self.tickets if ticket.life == self.life]
        ticket = Ticket(self.life, Job(part, payload), size)
        self._hand_in(ticket)
        if ticket.outcome is None:
            self.tickets.append(ticket)
        return ticket

    def result(self, ticket: Ticket) -> Outcome:
        job: Job = ticket.handle
        while ticket.outcome is None:
            if ticket.life != self.life and job.done.empty():
                raise Stale
            try:
                future = job.done.get(timeout=self._timeout)
            except Empty:
                self.stop()
                raise WorkerTimeout(f"no item within {self._timeout} s, from {self}") from None
            if future is None or (future.cancelled() and ticket.life != self.life):
                raise Stale
            found = self._opened(job, future)
            if isinstance(found, Outcome):
                ticket.outcome = found
            else:
                job.worker, job.tries = found, job.tries + 1
                self._hand_in(ticket)
        self.tickets = [other for other in self.tickets if other is not ticket]
        return ticket.outcome

    def stop(self) -> None:
        self.life += 1
        self._works = False
        tickets, self.tickets = self.tickets, []
        for ticket in tickets:
            if not ticket.handle.future.cancel():
                ticket.handle.done.put(None)  # for who waits for it

    def __str__(self) -> str:
        return f"a {type(self._executor).__name__}"

    def _hand_in(self, ticket: Ticket) -> None:
        job: Job = ticket.handle
        if not self.is_led:
            self.ready()
        if not self._works or ticket.life != self.life:
            raise Stale
        try:
            job.future = self.send(job)
        except Exception as error:
            ticket.outcome = self._failed(job, error)
        else:
            job.future.add_done_callback(job.done.put)

    def _opened(self, job: Job, future: Future[Any]) -> Outcome | str:
        """The outcome, or the name of a worker that has to be sent the parts."""
        try:
            error = future.exception()
        except CancelledError as cancelled:
            error = cancelled
        if error is not None:  # not the task's own, which its outcome would hold
            return self._failed(job, error)
        try:
            found: Outcome | str = future.result().open()
        except Exception as error:
            return Outcome([], Failure(error, ""), is_torn=True)
        return found

    def _failed(self, job: Job, error: BaseException) -> Outcome:
        if job.payload.error is not None:
            error, job.payload.error = job.payload.error, None  # a pool may hold the payload
            error.add_note("lazyckpt: an item can't be sent to a worker")
            return Outcome([], Failure(error, ""), is_torn=True)
        if not isinstance(error, PipelineError):
            if isinstance(error, BrokenExecutor):
                self.tickets.clear()  # a pool stumbles over one cancelled while it fails them all
            self.stop()
            died = WorkerDied(f"{self} has failed: {type(error).__name__}: {error}")
            died.__cause__ = error
            error = died
        return Outcome([], Failure(error, ""))
