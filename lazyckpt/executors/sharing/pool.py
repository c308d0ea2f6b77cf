"""The workers of one rank, and the tasks that they share with the workers of other ranks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

from lazyckpt.core.call import Chain
from lazyckpt.core.machine import Machine
from lazyckpt.errors import RankMissing, WorkerDied, WorkerTimeout
from lazyckpt.executors.ipc.serialization import this_process
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Handler, Outcome
from lazyckpt.executors.pools.pool import PendingTask, WorkerPool, get_within
from lazyckpt.executors.pools.processes import stop_at_exit
from lazyckpt.executors.pools.progress import say_alive
from lazyckpt.executors.pools.queued import QueuedPool
from lazyckpt.executors.sharing.agreement import common_key, join, opening_of
from lazyckpt.executors.sharing.link import Link, Meeting, Reach
from lazyckpt.executors.sharing.outcomes import Loss, key_of, outcome_of, packed
from lazyckpt.executors.sharing.payloads import Payloads, has_left
from lazyckpt.executors.sharing.turns import Turns, handed_on_by, number_of, wish_of
from lazyckpt.failures.notes import Failure, add_note

T = TypeVar("T")
_PATIENCE = 1.0  # seconds that stopping waits for what is being made
_TICK = 0.25  # seconds between two looks whether a rank that is waited for is alive
_SOON = 0.05  # seconds until the first one


class _Job(NamedTuple):
    """A task for a worker of this rank.

    Attributes:
        key: The name of its outcome on all ranks; None for a task of this rank alone.
        handler: The number of its handler.
        payload: The task as the handler takes it.
        size: The number of its items.
        careful: See `WorkerPool.submit`.
        pending: The pending task of this rank that waits for it.
        link: The link of the opening that it belongs to.
    """

    key: bytes | None
    handler: int
    payload: Any
    size: int
    careful: tuple[Any, ...]
    pending: PendingTask
    link: Link | None


class SharedPool(QueuedPool):
    """Workers of one rank, for its own tasks and, in turns, for the common tasks of all ranks.

    A task for items before `shard` is the same on all ranks. Its key follows from the stage and
    the position alone, and the position decides which rank does it. That rank does the task when
    it reaches it, and posts the outcome to all. Each rank keeps the outcome until it delivers the
    items itself. So no rank gets further ahead of the slowest rank than the tasks that the slowest
    has under way, and the slowest finds all that it needs next made by the ranks ahead of it.

    A rank that leaves has posted all of its outcomes, and the others do the rest in its place. If
    a rank is lost, its next task raises an error.

    If the stages up to `shard` don't look into the items of a task, its maker keeps them, and the
    outcome that it posts only refers to them.

    Each flow through the pipeline is an opening: all ranks begin it at the same position.

    Attributes:
        stays: By handler, a function from an item to the form in which its maker keeps it; None if
            the items travel.
        payloads: The items that ranks keep; None if there is no opening.
        reader: The pool of a thread that drives this one within an opening.
    """

    stays: Sequence[Callable[[Any], Any] | None] = ()
    payloads: Payloads | None = None
    reader: WorkerPool | None = None

    def __init__(
        self,
        pools: list[WorkerPool],
        handlers: list[Handler],
        meeting: Meeting,
        chunk_size: int,
        timeout: float,
    ) -> None:
        """Prepare to share.

        Args:
            pools: The pool of each thread that drives one; several threads may share a pool.
            handlers: The handlers of tasks.
            meeting: The meeting of the ranks.
            chunk_size: Items per task.
            timeout: Seconds of silence after which an awaited rank is lost.
        """
        inner = pools[0]
        super().__init__(len(pools), inner.buffer_size, None)
        self.retries, self.chunk_size, self.in_transit = inner.retries, chunk_size, inner.in_transit
        self.is_external = inner.is_external
        self._pools, self._handlers = pools, handlers
        self._own_reach = Reach(len(pools), inner.buffer_size, len(pools))
        self._meeting, self._patience = meeting, timeout
        self._lock = threading.RLock()
        self._closing = threading.RLock()
        self._link: Link | None = None
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._drivers = WeakSet[threading.Thread]()  # those that submit tasks, in this opening
        self._forget_outcomes()

    def _forget_outcomes(self) -> None:
        self._have: dict[bytes, deque[Any]] = {}  # outcomes, until they are taken
        self._asked: dict[bytes, list[_Job]] = {}  # tasks whose outcome isn't there yet
        self._unwanted: set[bytes] = set()  # those that nobody here will ask for any more
        self._making: set[bytes] = set()

    # Openings.

    def opening(self, chain: Chain, machine: Machine[T]) -> Machine[T]:
        return opening_of(self, chain, machine, self._open)

    def _open(self, told: Mapping[str, Any]) -> None:
        stop_at_exit()
        self._ensure_started()
        self._hang_up()
        self._end_drivers()
        link = join(self, self._meeting, told, self._own_reach, self._use)
        reach = link.reach
        self.reach, self.buffer_size = (reach.workers, reach.buffer_size), reach.buffer_size
        self.workers = reach.common_workers * len(link.makers)  # tasks under way in all
        self._prepare(link)
        link.open(partial(self._receive, link), partial(self._leave, link))
        if self.reader is not None and not self.is_stopped:
            self.reader.start()

    def _use(self, link: Link) -> None:
        with self._lock:
            self._forget_outcomes()
            self._link, self.payloads = link, Payloads(link, self._patience)
            self._turns = Turns(link.makers)

    @property
    def refuses(self) -> bool:
        return self._link is None

    def _end_drivers(self) -> None:
        """Wait for other threads that read in the last opening: they would take items of this."""
        if self.reader is not None:
            self.reader.stop()
        with self._lock:
            drivers = {*self._drivers} - {threading.current_thread()}
            self._drivers.clear()
        for thread in drivers:
            while thread.is_alive():
                say_alive()  # where this is a process of which others wait for items
                thread.join(_TICK)

    def _prepare(self, link: Link) -> None:
        """Prepare for the messages of an opening."""

    def _hang_up(self) -> None:
        uninterrupted(self._say_goodbye)

    def _say_goodbye(self) -> None:
        with self._closing:  # who comes later waits too, so that no process ends before
            with self._lock:
                link, self._link = self._link, None
                for pending in tuple(self._awaited):
                    pending.came.put(None)
                payloads, self.payloads = self.payloads, None
            if link is not None and payloads is not None:
                payloads.close()
                link.close()

    # Tasks, in the thread that drives the pool.

    def submit(
        self, handler: int, payload: Any, size: int, *careful: Any, after: PendingTask | None = None
    ) -> PendingTask:
        pending, link = self._begin(size), self._link
        more = [each and sorted(each) for each in careful]
        key = common_key(self._handlers, handler, payload, more)
        pending.handle = key, link  # an opening that is over has the same keys
        if key is None:
            self._jobs.put(_Job(None, handler, payload, size, careful, pending, None))
            return pending
        if link is None:
            raise TaskLost
        position, *_ = self._handlers[handler].name(payload)
        job = _Job(key, handler, payload, size, careful, pending, link)
        with self._lock:
            self._drivers.add(threading.current_thread())
            if self.payloads is not None:
                self.payloads.tell_passed()
            self._turns.begin(key, number_of(position) // self.chunk_size + handler)
            self._unwanted.discard(key)
            if key in self._have:
                pending.came.put(self._have[key][0])
            else:
                self._asked.setdefault(key, []).append(job)
                self._make_or_fail(key)
        return pending

    def _make_or_fail(self, key: bytes) -> None:
        """Do a requested task if it is this rank's turn, or fail if no rank will do it."""
        link = self._link
        if link is None:
            return
        maker = self._turns.maker(key)
        if maker == link.rank and key not in self._making:
            self._making.add(key)
            self._jobs.put(self._asked[key][0])
        elif why := self._turns.gone.get(maker):
            error = RankMissing(f"rank {maker}, which makes a part of the items, {why}", [maker])
            self._answer(key, Outcome([], Failure(error, "")))

    def _take_in(self, pending: PendingTask, found: Any) -> None:
        if not callable(found):
            key, link = pending.handle
            found = self._opened(found, link)
            with self._lock:
                if link is self._link and key in self._have:
                    self._have[key][0] = found  # until it is dropped: it may be asked for again
            if isinstance(found, Loss):
                self.losses += 1
                found = partial(found.raise_at, pending)
        if callable(found):  # it stays there, for whoever waits for the task
            pending.came.put(found)
            found()
        pending.outcome = found

    def _opened(self, found: Any, link: Link | None) -> Any:
        """Return an outcome that came in an opening; its items may be with other ranks."""
        found = outcome_of(found) if isinstance(found, memoryview) else found
        payloads = self.payloads
        if payloads is not None and link is self._link:
            return payloads.opened(found)
        if has_left(found):
            raise TaskLost  # who has the items is known in that opening only
        return found

    def drop(self, pending_tasks: Iterable[PendingTask]) -> None:
        with self._lock:
            for pending in pending_tasks:
                key, link = pending.handle
                if key is None or link is not self._link:
                    continue
                if found := self._have.get(key):
                    self._opened(found.popleft(), link)  # so that its maker is told
                    if not found:
                        del self._have[key]
                        self._turns.forget(key)
                elif not pending.is_done:
                    self._unwanted.add(key)

    def _wait_for(self, pending: PendingTask) -> Any:
        self._make_awaited()
        seconds = _SOON
        while self._may_come(pending) or not pending.came.empty():
            try:
                return get_within(pending.came, seconds)
            except Empty:
                say_alive()  # where this is a process of which others wait for items
                self._look_after(pending.handle[0])
                seconds = _TICK
        return None

    def _may_come(self, pending: PendingTask) -> bool:
        key, link = pending.handle
        return pending.generation == self.generation and (key is None or link is self._link)

    def _look_after(self, key: bytes | None) -> None:
        """Note that an awaited rank is lost, if it is silent; else say that this one waits."""
        with self._lock:
            link = self._link
            if link is None or key is None or key not in self._asked:
                return
            maker, wish = self._turns.maker(key), self._turns.wish(key)
        if maker == link.rank:
            return
        if link.silence(maker) > self._patience:
            self._leave(link, maker, f"has said nothing for {self._patience:g} s")
        else:
            link.send(maker, wish)

    def _hand_on(self, link: Link, rank: int, key: bytes, received: int) -> None:
        """Let a rank make what it wants, if this one waits for others before it comes to that."""
        with self._lock:
            if link is not self._link:  # which belongs to an opening that is over
                return
            turns, awaited = self._turns, [each.handle[0] for each in tuple(self._awaited)]
            waits = any(each in self._asked and turns.maker(each) != link.rank for each in awaited)
            is_new = not (key in self._making or key in self._have or turns.is_handed_on(key))
            if waits and is_new and received == turns.posted:  # else what it wants is on its way
                message = turns.hand_on(key, rank)
                for each in {*link.makers} - {link.rank}:  # all, as this rank may leave
                    link.send(each, message)

    def _note_handed_on(self, link: Link, key: bytes, rank: int) -> None:
        """Note which rank makes what another has handed on; perhaps this one."""
        with self._lock:
            if link is self._link:
                self._turns.hand_on(key, rank)
                if key in self._asked:
                    self._make_or_fail(key)

    # Outcomes, in the threads of the link and of the workers.

    def _receive(self, link: Link, rank: int, message: memoryview) -> None:
        payloads = self.payloads
        if link is not self._link or payloads is None or payloads.receive(rank, message):
            return
        if wish := wish_of(message):
            self._hand_on(link, rank, *wish)
        elif handed_on := handed_on_by(message):
            self._note_handed_on(link, *handed_on)
        else:
            self._turns.received[rank] += 1
            self._deliver(link, key_of(message), message)

    def _leave(self, link: Link, rank: int, why: str) -> None:
        with self._lock:
            if link is self._link:  # and not one of an opening that is over
                self._turns.gone.setdefault(rank, why)
                if self.payloads is not None:
                    self.payloads.leave(rank, why)
        self._make_awaited()

    def _make_awaited(self) -> None:
        """Have the awaited task done if the rank whose turn it was is gone.

        Other tasks may have been requested only by ranks that are leaving.
        """
        with self._lock:
            for pending in tuple(self._awaited):
                if pending.handle[0] in self._asked:
                    self._make_or_fail(pending.handle[0])

    def _deliver(self, link: Link, key: bytes, found: Any) -> None:
        with self._lock:
            if link is not self._link:  # which belongs to an opening that is over
                return
            self._making.discard(key)
            if key in self._unwanted:
                self._unwanted.remove(key)
                self._asked.pop(key, None)
                self._turns.forget(key)
                self._opened(found, link)  # so that its maker is told
                return
            self._have.setdefault(key, deque()).append(found)
            self._answer(key, found)

    def _answer(self, key: bytes, found: Any) -> None:
        for job in self._asked.pop(key, ()):
            job.pending.came.put(found)

    def _work(self, pool: WorkerPool, jobs: SimpleQueue[_Job | None], generation: int) -> None:
        """Have a pool do one task after another."""
        while (job := jobs.get()) is not None:
            found = None
            while found is None:
                if self.generation != generation:  # all is over
                    return
                with suppress(TaskLost):  # as another task has cost its worker
                    found = _outcome_of(pool, job)
            if job.key is None:
                job.pending.came.put(found)
            elif job.link is not None:
                with suppress(TaskLost):  # as the opening is over
                    self._hand_out(job.link, job.key, self._kept(job.link, job.handler, found))
            del job, found

    def _hand_out(self, link: Link, key: bytes, found: Outcome | Loss) -> None:
        """Post an outcome that this rank has made, and take it as the others do.

        So an item that can't travel is the same error on all ranks.
        """
        if len(link.makers) == 1:
            self._deliver(link, key, found)
        else:
            message = packed(key, found)
            with self._lock:  # first, so that no rank is thought to have all
                self._turns.posted += link is self._link
            link.post(message)
            self._deliver(link, key, memoryview(message))

    def _kept(self, link: Link, handler: int, found: Outcome | Loss) -> Outcome | Loss:
        """Return an outcome as it travels: its items may stay here."""
        with self._lock:
            payloads = self.payloads if link is self._link else None
        stays = self.stays[handler] if self.stays else None
        if stays is None or isinstance(found, Loss):
            return found
        if payloads is None:
            raise TaskLost
        return payloads.keep(found, stays)

    # The workers.

    def _start(self) -> None:
        if self._threads:
            return
        self._jobs = SimpleQueue()
        for pool in self._pools:  # before any thread, which a fork would not have
            pool.skip_log, pool.is_driven = self.skip_log, True
            pool.start()
        for number, pool in enumerate(self._pools):
            thread = threading.Thread(
                target=self._work,
                args=(pool, self._jobs, self.generation),
                name=f"lazyckpt-shared-{number}",
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()

    def _end(self, *, waits: bool = True) -> None:
        super()._end()
        self._hang_up()
        self._meeting.leave()
        threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        for pool in {*self._pools}:
            thread = threading.Thread(target=pool.stop, daemon=True)
            try:
                thread.start()
                threads.append(thread)
            except RuntimeError:  # the interpreter ends, or the limit of threads
                pool.stop()
        for thread in threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(_PATIENCE)

    def forget(self) -> None:
        super().forget()
        self._link, self.payloads, self._threads = None, None, []
        self._lock, self._closing = threading.RLock(), threading.RLock()


def uninterrupted(work: Callable[[], None]) -> None:
    """Call a function to its end, even if a signal handler raises an error meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    thread = threading.Thread(target=work, name="lazyckpt-goodbye", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        if thread.ident is not None:  # it is of a signal handler
            raise
        work()  # the interpreter ends, or the limit of threads
    else:
        thread.join()


def _outcome_of(pool: WorkerPool, job: _Job) -> Outcome | Loss:
    """Have a pool do a task; raise `TaskLost` if its workers were stopped before it was done."""
    try:
        pending = pool.submit(job.handler, job.payload, job.size, *job.careful)
    except TaskLost:
        raise
    except Exception as error:
        return Outcome([], Failure(error, ""))
    try:
        return pool.result(pending)
    except (WorkerDied, WorkerTimeout) as error:
        if job.link is not None:  # others raise it too
            add_note(
                error, f"lazyckpt: a worker of rank {job.link.rank}, started by {this_process()}"
            )
        return Loss(Failure(error, ""), pending.made, pending.called, pending.lost)
