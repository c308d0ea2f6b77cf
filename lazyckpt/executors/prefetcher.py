"""Flows whose items workers make: in order, ahead of the consumer, from any position."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from itertools import chain
from operator import length_hint
from typing import Any, NamedTuple

from lazyckpt.core.flow import Flow, Position
from lazyckpt.errors import SourceChanged
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Outcome, raise_or_position
from lazyckpt.executors.plan.tasks import ChunkSizer, Task, TaskGenerator, always, stream_tasks
from lazyckpt.executors.pools.pool import PendingTask, PrefetchGate, WorkerPool, abandon
from lazyckpt.failures.skip_log import SkipLog, Skipped, SkipRecord


class Prefetcher:
    """Has a pool make the items from a position on, ahead of the consumer."""

    def __init__(
        self,
        pool: WorkerPool,
        gate: PrefetchGate,
        handler: int,
        generate: TaskGenerator,
        position: Position,
        skip_log: SkipLog | None = None,
    ) -> None:
        self._pool, self._gate, self._handler, self._generate = pool, gate, handler, generate
        self._skip_log = skip_log or SkipLog()
        self._sizer = ChunkSizer(pool.workers, pool.buffer_size, gate.is_gated)
        self._tasks = generate(position, self._sizer)
        self._pending: deque[tuple[Task, PendingTask | BaseException | None]] = deque()
        self._under_way = 0  # items of those
        self._is_over = False  # whether there are no more tasks
        self._generation = pool.generation
        self._chunk = _Chunk(always(position), iter(()))

    def flow(self) -> Flow[Any]:
        chunks = _Chunks(self)
        items = chain.from_iterable(iter(chunks.next_chunk, None))
        return Flow(items, self.snapshot, taken=self.taken, chunks=chunks)

    @property
    def items(self) -> Iterator[Any]:
        """What is left of the chunk at hand."""
        return self._chunk.items

    @property
    def is_ready(self) -> bool:
        """Whether the next item is there, or an error or the end instead."""
        if length_hint(self.items):
            return True
        if not self._pending:
            return False
        pending = self._pending[0][1]
        return not isinstance(pending, PendingTask) or self._pool.is_done(pending)

    def taken(self) -> int:
        return self._chunk.before + self._chunk.given()

    def snapshot(self) -> Position:
        return raise_or_position(self._chunk.position_after(self._chunk.given()))

    def fill(self) -> None:
        """Submit tasks: as many as may be under way, or one where nothing is made ahead."""
        if self._generation != self._pool.generation and self._generate is stream_tasks:
            self._keep_done()
        self._generation = self._pool.generation
        while not self._is_over:
            if self._under_way >= (self._sizer.limit() if self._gate.is_open else 1):
                return
            if self._gate.is_closed:
                raise TaskLost
            try:
                task = next(self._tasks)
                is_end = task.payload is None
                pending = None if is_end else self._submit(task)
            except Exception as error:  # items before it come first
                self._pending.append((Task(None), error))
                self._is_over = True
                return
            except BaseException:  # of the consumer
                self._pending.append((Task(None), TaskLost()))
                self._is_over = True
                raise
            self._pending.append((task, pending))
            self._under_way += task.size
            self._is_over = is_end

    def _submit(self, task: Task) -> PendingTask:
        return self._pool.submit(self._handler, task.payload, task.size)

    def chunks(self) -> Iterator[Iterator[Any]]:
        """One chunk after another, each at hand while the consumer has it."""
        try:
            while True:
                self.fill()
                task, pending = self._pending.popleft()
                self._under_way -= task.size
                if isinstance(pending, TaskLost) and not self._pool.is_driven:
                    self._restart()
                    continue
                if isinstance(pending, BaseException):
                    try:
                        raise pending
                    finally:
                        del pending
                if pending is None:
                    assert task.position_after is not None
                    if task.log_skips is not None:
                        next(task.log_skips(iter([None])))
                    return self._receive(Outcome([]), task.position_after)
                generation = self._pool.generation
                if self._gate.is_closed:
                    raise TaskLost
                try:
                    outcome = self._wait_for(pending)
                except TaskLost:
                    if generation != self._pool.generation:  # stopped while this was waiting
                        raise
                    if self._generate is stream_tasks:
                        self._restart()
                    else:
                        self._pending.appendleft((task, self._submit(task)))
                        self._under_way += task.size
                    continue
                if outcome.is_transfer_error and task.size > 1:
                    self._sizer.use_single_items(task.size)
                    self._restart()
                    continue
                self._sizer.observe(outcome)
                given = len(outcome.items)
                position_after = task.position_after or self._reached(outcome)
                self._receive(outcome, position_after, task.log_skips)
                outcome, pending = outcome._replace(items=[]), None  # the consumer owns the items
                if self._gate.is_open and outcome.failure is None:
                    self.fill()
                yield self.items
                if outcome.failure is not None:
                    self._pool.recover()
                    if isinstance(outcome.failure.error, TaskLost):  # of a new worker
                        self._restart()
                        continue
                    failure, outcome = outcome.failure, Outcome([])
                    try:
                        raise failure
                    finally:
                        del failure  # its traceback has this frame, which would be a cycle
                if task.position_after is not None and given < task.size:
                    raise SourceChanged(
                        f"{task.size} items were expected, and {given} came: "
                        "a source has become shorter"
                    )
                if task.position_after is None and outcome.end is not None:
                    return self._receive(Outcome([]), always(outcome.end))
        finally:
            self._abandon()

    def _wait_for(self, pending: PendingTask) -> Outcome:
        # A closed gate stays closed for what is done already.
        is_done = not self._gate.is_open and self._pool.is_done(pending)
        if is_done or self._pool.is_driven:  # by a thread that may be held back as well
            return self._pool.result(pending)
        with self._gate.waiting():
            return self._pool.result(pending)

    def _reached(self, outcome: Outcome) -> Callable[[int], Position]:
        if not outcome.positions:  # it failed on its way, or before it had begun
            return always(self._chunk.position_after(self._chunk.given()))
        return outcome.positions.__getitem__

    def _receive(
        self,
        outcome: Outcome,
        position_after: Callable[[int], Position],
        log_skips: Callable[[Iterator[Any]], Iterator[Any]] | None = None,
    ) -> None:
        items = iter(outcome.items)
        items = items if log_skips is None else log_skips(items)
        size = len(outcome.items)
        chunk = _Chunk(position_after, items, size, self.taken(), outcome.skipped)
        self._hold(chunk, self._skip_log.including(some for _, some in self._chunk.skipped))

    def end_chunk(self) -> None:
        """End the iterator of the chunk at hand; what is left of it comes with another."""
        left = self._chunk.items
        self._hold(self._chunk._replace(items=copy(left)), self._skip_log.known)
        deque(left, 0)

    def _hold(self, chunk: _Chunk, known: Skipped) -> None:
        # Without its `position_after`, which would be a cycle.
        of_chunk = partial(_skipped_before, chunk.skipped, chunk.size, chunk.items)
        # Between these nothing can interrupt: what is counted is what is at hand.
        self._chunk, self._skip_log.known, self._skip_log.of_chunk = chunk, known, of_chunk

    def _restart(self) -> None:
        """Generate tasks from here on once more: what was under way is lost."""
        self._abandon()
        self._generation = self._pool.generation
        self._tasks, self._is_over = self._generate(self.snapshot(), self._sizer), False

    def _keep_done(self) -> None:
        """Where a stream's worker was stopped, keep what it had done, and go on behind that."""
        done: list[tuple[Task, PendingTask | BaseException | None]] = []
        position = self._chunk.position_after(self._chunk.size)
        for task, pending in self._pending:
            if not isinstance(pending, PendingTask) or not self._pool.is_done(pending):
                break
            try:
                outcome = self._pool.result(pending)
            except TaskLost:
                break
            done.append((task, pending))
            if outcome.failure is not None or outcome.end is not None or not outcome.positions:
                return  # it ends with this
            position = outcome.positions[-1]
        for _ in done:
            self._pending.popleft()
        self._abandon()
        self._pending.extend(done)
        self._under_way = sum(task.size for task, _ in done)
        self._tasks = self._generate(raise_or_position(position), self._sizer)
        self._is_over = False

    def _abandon(self) -> None:
        abandon(pending for _, pending in self._pending if isinstance(pending, PendingTask))
        self._pending.clear()
        self._under_way = 0


class _Chunk(NamedTuple):
    """Items at hand, and what is known of them: one value, so that an interrupt finds all of it.

    Attributes:
        position_after: The position after so many of them.
        items: What is left of them.
        size: How many there were.
        before: How many were given before them.
        skipped: What was left out, and after how many of them.
    """

    position_after: Callable[[int], Position]
    items: Iterator[Any]
    size: int = 0
    before: int = 0
    skipped: tuple[tuple[int, SkipRecord], ...] = ()

    def given(self) -> int:
        return self.size - length_hint(self.items)


class _Chunks:
    """The chunks of a prefetcher. No part of it, so that it is no cycle."""

    def __init__(self, prefetcher: Prefetcher) -> None:
        self._prefetcher = prefetcher
        self._chunks = prefetcher.chunks()

    def next_chunk(self) -> Iterator[Any] | None:
        items = self._prefetcher.items
        return items if length_hint(items) else next(self._chunks, None)

    def end_chunk(self) -> None:
        self._prefetcher.end_chunk()


def _skipped_before(
    skipped: tuple[tuple[int, SkipRecord], ...], size: int, items: Iterator[Any]
) -> SkipRecord:
    """What was left out before those items of a chunk that are delivered."""
    given, found = size - length_hint(items), SkipRecord()
    for place, some in skipped:
        if place < given:
            found = found.plus(some)
    return found
