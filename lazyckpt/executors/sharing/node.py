"""One reader per node: the leader reads up to `shard`, and sends the other ranks their rows."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.errors import PipelineError, RankMissing
from lazyckpt.executors.lookahead import Work
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Reader
from lazyckpt.executors.plan.segments import Segment, cut_after, dealt
from lazyckpt.executors.plan.tasks import stream_tasks
from lazyckpt.executors.planned import DrivenFlows, Plan, handlers_of
from lazyckpt.executors.pools.pool import PendingTask, PrefetchGate, WorkerPool, get_within
from lazyckpt.executors.pools.processes import stop_at_exit
from lazyckpt.executors.pools.progress import say_alive
from lazyckpt.executors.pools.queued import QueuedPool
from lazyckpt.executors.sharing.agreement import join, opening_of
from lazyckpt.executors.sharing.fetching import FetchingPool, cut_at_shard, fetched
from lazyckpt.executors.sharing.link import Link, Meeting, Reach
from lazyckpt.executors.sharing.outcomes import KEY_BYTES, key_of, opened_apart, packed_apart
from lazyckpt.executors.sharing.payloads import Payloads
from lazyckpt.executors.sharing.pool import SharedPool, uninterrupted
from lazyckpt.executors.sharing.tee import Tee
from lazyckpt.failures.skip_log import SkipLog
from lazyckpt.failures.skipping import apart, skip_log_of

if TYPE_CHECKING:
    from lazyckpt.executors.sharing.executor import SharedExecutor

_CATCH_UP = 3.0  # seconds that a leader which ends waits for followers that are behind it
_PATIENCE = 1.0  # seconds that it then waits for their end
_TICK = 0.25  # seconds between two looks whether the leader is alive
_LOST = b"we lost "  # the first half of the key of a message; the other half is a rank


class LeaderLeft(Exception):
    """The leader of this node has ended its run."""


def shard_of(chain: Chain) -> int | None:
    """Return the number of the stage up to which a node reads as one; None if there is nothing.

    Raises:
        PipelineError: Ranks can't be read for.
    """
    shards = [n for n, call in enumerate(chain.calls) if n and "num_shards" in call.arguments]
    parting = (n for n in shards if chain.machines[n].share.ranks > 1)
    number = next(parting, max(shards, default=0))  # the last one if there is only one rank
    upstream = chain.machines[number].upstream
    if upstream is None or upstream.share.ranks > 1:
        raise PipelineError(
            'shared: readers="node" needs one shard after all joined pipelines: '
            'put it there, or pass readers="rank"'
        )
    return None if upstream.skip is not None or dealt(chain) else number


def driven_by_node(
    executor: SharedExecutor, chain: Chain, segments: list[Segment], gate: PrefetchGate
) -> tuple[list[WorkerPool], Machine[Any]]:
    """Return the pools of one rank of a node, and the machine of the thread that drives them.

    The rank's own pool does its tasks after `shard`, and before it only if the leader has left.
    """
    inner, meeting = executor.inner.spec, executor.arguments["meeting"]
    number = shard_of(chain)
    assert number is not None, "otherwise ranks share nothing"
    skip_log, common = skip_log_of(chain), Chain(chain.calls[: number + 1])
    before, after = cut_after(segments, chain.calls[number])
    own = inner.start(handlers_of([*before, *after]), inner.workers)
    own.chunk_size = executor.arguments["chunk_size"]
    plan = Plan(own, gate, skip_log)
    alone = plan.machine(before)
    pool: LeadingPool | FollowingPool
    pools: list[WorkerPool] = [own]
    if meeting.role.leader == meeting.rank:
        pool = _leading(executor, chain, number, gate)
        pool.own = own
        calls, inner_log = apart(common.calls) if pool.stays else (common.calls, skip_log)
        flow = partial(pool.flow, inner_log)
        machine = alone._replace(flow=flow, item=None, view=None)
        if pool.stays:
            suffices = partial(pool.has_no_more_for, meeting.rank)
            fetching = FetchingPool(pool, Chain(calls), machine, suffices)
            machine = fetching.machine(gate, skip_log)
            pools.append(fetching)
    else:
        pool = FollowingPool(meeting, chain.calls[number].arguments["index"], executor, own)
        work = Work(pool, gate, 0, stream_tasks, common.calls, inner_log=skip_log)
        flow = partial(_followed, pool, work, alone)
        machine = alone._replace(flow=flow, item=None, view=None)
    pool.is_driven = True
    whole = plan.machine(after, upstream=machine) if after else machine
    more = {"chunk_size": own.chunk_size}
    return [pool, *pools], opening_of(pool, chain, whole, pool.begin, more)


def _leading(
    executor: SharedExecutor, chain: Chain, number: int, gate: PrefetchGate
) -> LeadingPool:
    calls, skip_log = apart(chain.calls[:number])  # not the log of the leader's own stream
    common, deals = Chain(calls), chain.calls[number]
    segments = executor.spec.split(common)
    parts = cut_at_shard(Chain((*calls, deals)), [*segments, Segment("local", (deals,))])
    if parts is not None:
        *segments, _ = parts.before
    pool = executor.start(LeadingPool, handlers_of(segments))
    if parts is not None:
        pool.stays = parts.stays
    machine = Plan(pool, PrefetchGate(gate.is_gated), skip_log).machine(segments)
    pool.read(common, machine, deals, skip_log_of(chain))
    return pool


class LeadingPool(SharedPool):
    """The workers of a leader for common tasks, and the streams that it reads for its node."""

    own: WorkerPool  # for this rank's own tasks
    _tee: Tee | None = None
    _followers: Mapping[int, SimpleQueue[Any]] = {}  # their requests
    _are_done: threading.Event | None = None  # set once no follower is left
    _reading: Sequence[threading.Thread] = ()  # for followers

    def read(self, common: Chain, machine: Machine[Any], deals: Call, log: SkipLog | None) -> None:
        """Say what to read, before the first opening.

        Args:
            common: The stages before `shard`.
            machine: Their machine, whose tasks this pool does.
            deals: The stage that deals their items to the ranks.
            log: The skip log of this rank's own stream.
        """
        self._common, self._machine, self._deals, self._own_log = common, machine, deals, log

    def begin(self, told: Mapping[str, Any]) -> None:
        """Begin an opening."""
        self._let_others_catch_up(self._patience)  # it will wait for them anyway
        self._open(told)
        self.own.reach = self.reach

    def flow(self, log: SkipLog | None, position: Position) -> Flow[Any]:
        """Return this rank's own stream, which records skipped items in a log."""
        if self._tee is None:
            raise TaskLost
        machine = self._tee.machine(self._meeting.rank, log)
        return self._deals.build(machine).flow(position)

    def has_no_more_for(self, rank: int) -> bool:
        """Return whether a rank has to wait for its next item."""
        tee = self._tee
        return tee is None or tee.lacks(rank, self._deals.arguments["num_shards"])

    def _prepare(self, link: Link) -> None:
        followers, skip_log = self._meeting.role.followers, skip_log_of(self._common)
        if skip_log is not None and self._own_log is not None:
            skip_log.lose(self._own_log.lost)
        ranks = [link.rank, *followers]
        tee = self._tee = Tee(
            self._machine,
            self._common.calls,
            ranks,
            skip_log,
            partial(self._look_after_ranks, link),
            self._start_reading,
            reads_ahead=not self.is_gated,
        )
        self._followers = {rank: SimpleQueue() for rank in followers}
        self._are_done = threading.Event() if followers else None
        self._reading = [
            threading.Thread(
                target=self._read_for,
                args=(link, self.payloads, tee, rank, requests),
                name=f"lazyckpt-follower-{rank}",
                daemon=True,
            )
            for rank, requests in self._followers.items()
        ]
        for thread in self._reading:
            thread.start()

    def stop(self) -> None:
        try:
            self._let_others_catch_up(_CATCH_UP)
            if self._are_done is not None:
                self._are_done.wait(_PATIENCE)  # so that none has to read its last items itself
        finally:  # also after an error of a signal handler
            super().stop()

    def _let_others_catch_up(self, seconds: float) -> None:
        """Read for followers what this rank has passed, so that none makes it again."""
        tee, are_done, rank = self._tee, self._are_done, self._meeting.rank
        if tee is None or are_done is None:
            return
        tee.leave(rank)
        deadline = monotonic() + seconds
        while tee.behind(rank) and not are_done.wait(_TICK) and monotonic() < deadline:
            say_alive()  # where this is a process of which others wait for items

    def _say_goodbye(self) -> None:
        tee, self._tee, self._are_done = self._tee, None, None
        if tee is not None:
            tee.close(TaskLost())
        followers, self._followers = self._followers, {}
        for requests in followers.values():
            requests.put(None)
        for thread in self._reading:
            if thread.is_alive():  # a thread may not have started, at the limit of threads
                thread.join(_PATIENCE)  # it may have an answer to send
        super()._say_goodbye()

    def _receive(self, link: Link, rank: int, message: memoryview) -> None:
        if rank in link.makers:
            tee = self._tee
            if not key_of(message).startswith(_LOST):
                super()._receive(link, rank, message)
            elif link is self._link and tee is not None:
                self._tell_followers(link, message.tobytes())
                tee.close(_loss(message, self._meeting))
        elif link is self._link and (requests := self._followers.get(rank)) is not None:
            requests.put(message)

    def _leave(self, link: Link, rank: int, why: str) -> None:
        super()._leave(link, rank, why)
        tee, requests = self._tee, self._followers.get(rank)
        if link is self._link and tee is not None and requests is not None:
            requests.put(None)
            tee.leave(rank)
            if self._are_done is not None and self._turns.gone.keys() >= self._followers.keys():
                self._are_done.set()
        if link is self._link and tee is not None and why:
            number = rank.to_bytes(KEY_BYTES - len(_LOST), "big")
            message = _LOST + number + why.encode()
            self._tell_followers(link, message)
            if requests is not None:
                link.post(message)
                tee.close(_loss(message, self._meeting))

    def _tell_followers(self, link: Link, message: bytes) -> None:
        for rank in self._followers:
            link.send(rank, message)

    def _start_reading(self, read: Callable[[], None]) -> bool:
        """Start to read; return False if no thread can start, as the interpreter ends."""
        thread = threading.Thread(target=read, name="lazyckpt-tee", daemon=True)
        with self._lock:
            self._drivers.add(thread)  # before it submits: a new opening waits for its end
        try:
            thread.start()
        except RuntimeError:
            if threading.main_thread().is_alive():  # the limit of threads
                raise
            return False
        return True

    def _look_after_ranks(self, link: Link, ranks: Iterable[int]) -> None:
        """Note which of the ranks that this node's stream waits for are lost, being silent."""
        for rank in ranks:
            if rank != link.rank and link.silence(rank) > self._patience:
                self._leave(link, rank, f"has said nothing for {self._patience:g} s")

    def _read_for(
        self,
        link: Link,
        payloads: Payloads | None,
        tee: Tee,
        rank: int,
        requests: SimpleQueue[Any],
    ) -> None:
        """Do the tasks of a follower, one after another."""
        readers: dict[int, Reader] = {}
        while (message := requests.get()) is not None:
            key = key_of(message)
            index, task = pickle.loads(message[KEY_BYTES:])
            if index not in readers:
                calls, skip_log = apart(self._common.calls)
                deals = self._deals.replaced(index=index)
                machine = deals.build(tee.machine(rank, skip_log))
                suffices = partial(self.has_no_more_for, rank)
                readers[index] = Reader(Chain((*calls, deals)), machine, suffices)
            outcome = readers[index](task)
            if self.stays and payloads is not None:
                outcome = fetched(outcome, payloads, readers[index].calls)
            link.send(rank, packed_apart(key, outcome))
            del outcome, message


class FollowingPool(QueuedPool):
    """The leader of this rank's node as the only worker of a pool: it reads this rank's stream."""

    def __init__(
        self, meeting: Meeting, index: int, executor: SharedExecutor, own: WorkerPool
    ) -> None:
        """Prepare to follow.

        Args:
            meeting: The meeting of all ranks.
            index: This rank's index of `shard`.
            executor: The executor.
            own: The pool for this rank's own tasks.
        """
        inner = executor.inner.spec
        super().__init__(1, inner.buffer_size, None)
        self.in_transit = inner.in_transit
        self._meeting, self._index, self._own = meeting, index, own
        self._patience, self.is_gated = executor.arguments["timeout"], inner.is_gated
        self._lock = threading.RLock()
        self._link: Link | None = None
        self._closing = threading.RLock()
        self._count = 0
        self._asked: dict[bytes, PendingTask] = {}
        self._gone: Exception | None = None  # why the leader does no more tasks
        self._loss: RankMissing | None = None  # of a rank that the leader has lost

    @property
    def has_left(self) -> bool:
        """Whether the leader has ended its run."""
        return isinstance(self._gone, LeaderLeft)

    def begin(self, told: Mapping[str, Any]) -> None:
        stop_at_exit()
        self._hang_up()
        reach = Reach(self._own.workers, self.buffer_size)
        link = join(self, self._meeting, told, reach, self._use)
        self._own.reach = link.reach.workers, link.reach.buffer_size
        link.open(partial(self._receive, link), partial(self._leave, link))

    def _use(self, link: Link) -> None:
        with self._lock:
            self._link, self._gone, self._loss = link, None, None
            self._asked.clear()

    def _hang_up(self) -> None:
        uninterrupted(self._say_goodbye)

    def _say_goodbye(self) -> None:
        with self._closing:  # who comes later waits too, so that no process ends before
            with self._lock:
                link, self._link = self._link, None
            if link is not None:
                link.close()

    def submit(
        self, handler: int, payload: Any, size: int, *careful: Any, after: PendingTask | None = None
    ) -> PendingTask:
        pending = self._begin(size)
        with self._lock:
            link = self._link
            if link is None:
                raise TaskLost
            self._count += 1
            key = pending.handle = self._count.to_bytes(KEY_BYTES, "big")
            if self._gone is not None:
                pending.came.put(self._gone)
                return pending
            self._asked[key] = pending
        link.send(self._meeting.role.leader, key + pickle.dumps((self._index, payload)))
        return pending

    def _take_in(self, pending: PendingTask, found: Any) -> None:
        if isinstance(found, Exception):
            pending.came.put(found)  # it stays there, for whoever waits for the task
            raise found
        pending.outcome = opened_apart(found)

    def drop(self, pending_tasks: Any) -> None:
        with self._lock:
            for pending in pending_tasks:
                self._asked.pop(pending.handle, None)

    def _wait_for(self, pending: PendingTask) -> Any:
        while pending.generation == self.generation or not pending.came.empty():
            try:
                return get_within(pending.came, _TICK)
            except Empty:
                say_alive()  # where this is a process of which others wait for items
                link, leader = self._link, self._meeting.role.leader
                if link is not None and link.silence(leader) > self._patience:
                    self._leave(link, leader, f"has said nothing for {self._patience:g} s")
        return None

    def _receive(self, link: Link, rank: int, message: memoryview) -> None:
        with self._lock:
            if link is self._link and key_of(message).startswith(_LOST):
                self._loss = self._loss or _loss(message, self._meeting)  # it ends the leader, too
                return
            pending = self._asked.pop(key_of(message), None) if link is self._link else None
        if pending is not None:
            pending.came.put(message)

    def _leave(self, link: Link, rank: int, why: str) -> None:
        with self._lock:
            if link is not self._link or self._gone is not None:
                return
            error = RankMissing(f"rank {rank}, which reads for this node, {why}", [rank])
            self._gone = self._loss or (error if why else LeaderLeft())
            asked, self._asked = self._asked, {}
        for pending in asked.values():
            pending.came.put(self._gone)

    def _start(self) -> None:
        """Nothing: the leader starts by itself."""

    def _end(self, *, waits: bool = True) -> None:
        super()._end()
        self._hang_up()

    def forget(self) -> None:
        super().forget()
        self._link = None
        self._lock, self._closing = threading.RLock(), threading.RLock()


def _loss(message: bytes | memoryview, meeting: Meeting) -> RankMissing:
    """Return the error for a lost rank, from a message that names it."""
    rank, why = int.from_bytes(message[len(_LOST) : KEY_BYTES], "big"), bytes(message[KEY_BYTES:])
    is_near = any(rank in node and meeting.rank in node for node in meeting.nodes)
    where = "this node" if is_near else "another node"
    return RankMissing(f"rank {rank}, which is on {where}, {why.decode()}", [rank])


def _followed(
    pool: FollowingPool, work: Work, alone: Machine[Any], position: Position
) -> Flow[Any]:
    """Return the stream that the leader reads; this rank reads the rest if the leader leaves."""
    follow = DrivenFlows(work, may_wait=False)  # a new one: no items of an earlier opening
    flow: Flow[Any] = alone.flow(position) if pool.has_left else follow(position)

    def items() -> Iterator[Any]:
        nonlocal flow
        try:
            yield from flow
        except LeaderLeft:
            flow = alone.flow(flow.snapshot())
            yield from flow

    return Flow(items(), lambda: flow.snapshot())
