"""Flows whose items workers make: in order, ahead of the consumer, from any position."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from functools import partial
from inspect import GEN_RUNNING, getgeneratorstate
from itertools import chain
from operator import length_hint
from typing import Any

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Flow, Position
from lazyckpt.errors import InvalidState, SourceChanged, WorkerDied, WorkerTimeout
from lazyckpt.executors.chunk import Chunk, skipped_before
from lazyckpt.executors.losses import Losses, LostItem
from lazyckpt.executors.placement import MadeHere, Placement
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.executors.plan.positions import Rereader, raise_or_position
from lazyckpt.executors.plan.runs import ItemRun
from lazyckpt.executors.plan.shares import Share
from lazyckpt.executors.plan.tasks import (
    CHUNK_BYTES,
    READY_BYTES,
    ChunkSizer,
    LoggingItems,
    Settled,
    Task,
    TaskGenerator,
    Tasks,
    always,
    stream_tasks,
)
from lazyckpt.executors.plan.timings import go_on, pause, receive
from lazyckpt.executors.pools.pool import PendingTask, PrefetchGate, Suspect, WorkerPool, abandon
from lazyckpt.failures.notes import Failure, places_of_functions
from lazyckpt.failures.skip_log import SkipLog, Skipped, SkipRecord

_SINGLES = 4096  # items among which one is looked for that a worker has not survived


class Prefetcher:
    """Has a pool make the items from a position on, ahead of the consumer.

    An interrupt may come at any time. So whatever takes several steps is under way
    from its first one to its last: what is found under way was left in the middle,
    and its tasks are generated again, from the end of the chunk at hand.
    """

    def __init__(
        self,
        pool: WorkerPool,
        gate: PrefetchGate,
        handler: int,
        generate: TaskGenerator,
        position: Position,
        rereader: Rereader,
        skip_log: SkipLog | None = None,
        calls: tuple[Call, ...] = (),
        share: Share | None = None,
        inner_log: SkipLog | None = None,
        placement: Placement | None = None,
    ) -> None:
        self._calls = calls
        self._placement = placement or Placement()
        self._pool, self._gate, self._handler, self._generate = pool, gate, handler, generate
        self._rereader = rereader
        self._skip_log, self._inner_log = skip_log or SkipLog(), inner_log
        self._share = share or Share()
        self._losses = self._no_losses()
        self._sizer = ChunkSizer(
            pool.workers, pool.in_transit, pool.buffer_size, gate.is_gated, self._share
        )
        if pool.suspect is not None:
            self._sizer.use_single_items(_SINGLES)
        self._tasks: Tasks | None = generate(position, self._sizer)
        self._pending: deque[tuple[Task, PendingTask | BaseException | None]] = deque()
        self._items_pending = 0
        self._is_over = False  # whether there are no more tasks
        self._is_under_way = False
        self._generation = pool.generation
        self._chunk = Chunk(always(position), iter(()))

    def _no_losses(self) -> Losses:
        return Losses(self._pool, self._calls, may_read_ahead=self._generate is stream_tasks)

    def flow(self, let_go: Callable[[Prefetcher], None] | None = None) -> Flow[Any]:
        """The items; once nobody holds their flow, this is let go, or has no more made."""
        chunks = _Chunks(self, let_go or Prefetcher.close)
        items = chain.from_iterable(iter(chunks.next_chunk, None))
        return Flow(
            items,
            self.snapshot,
            taken=self.taken,
            chunks=chunks,
            place=self.place,
            before=self.before,
        )

    @property
    def is_ready(self) -> bool:
        """Whether the next item is there, or an error or the end instead."""
        if length_hint(self._chunk.items):
            return True
        if not self._pending:
            return False
        pending = self._pending[0][1]
        return not isinstance(pending, PendingTask) or self._pool.is_done(pending)

    @property
    def ready(self) -> int:
        """How many items are made already, from the next one on."""
        found = length_hint(self._chunk.items)
        for task, pending in tuple(self._pending):
            if not isinstance(pending, PendingTask) or not self._pool.is_done(pending):
                break
            found += task.size if pending.outcome is None else len(pending.outcome.items)
        return found

    def taken(self) -> int:
        return self._chunk.before + self._chunk.given()

    def snapshot(self) -> Position:
        return self.place()[0]

    def place(self) -> tuple[Position, int]:
        chunk = self._chunk
        given = chunk.size - length_hint(chunk.items)
        try:
            return raise_or_position(chunk.position_after(given)), chunk.before + given
        finally:
            if self._gate.is_closed:
                self._rereader.close()

    def before(self) -> Position:
        """The position before the item that was taken last, once one was."""
        return raise_or_position(self._chunk.position_after(self._chunk.given() - 1))

    def fill(self) -> None:
        """Have items made ahead; who is about to ask for one does so itself."""
        if not self._is_under_way:
            self._is_under_way = True
            self._fill()
            self._is_under_way = False

    def next_chunk(self) -> Iterator[Any] | None:
        """What is left of the chunk at hand, or the next one; None at the end."""
        while not length_hint(self._chunk.items):
            if self._chunk.is_last:
                return None
            if (error := self._chunk.error) is not None:
                self._is_under_way = True  # so that who asks again has the same item made again
                self._chunk = self._chunk._replace(error=None)
                self._pool.recover()
                try:
                    raise error
                finally:
                    del error  # its traceback has this frame, which would be a cycle
            if self._is_under_way:  # what is known besides the position may be of a task half done
                self._chunk = self._chunk._replace(following=None)
                self._losses = self._no_losses()
                self._restart()
            self._is_under_way = True
            at_work = pause()
            try:
                self._advance()
            finally:
                go_on(at_work)
            self._is_under_way = False
        return self._chunk.items

    def _fill(self) -> None:
        """Submit tasks: as many as may be under way, or one where nothing is made ahead."""
        if self._generation != self._pool.generation and self._generate is stream_tasks:
            self._keep_done()
        self._generation = self._pool.generation
        self._continue_runs()
        limit = 1 if self._losses.is_retrying else self._sizer.limit()
        while not self._is_over:
            if self._items_pending >= (limit if self._gate.is_open else 1):
                return
            if self._placement.is_here and self._pending:
                return
            if self._gate.is_closed:
                raise TaskLost
            try:
                task = self._next_task()
                self._is_over = task.payload is None
                if not self._is_over:
                    self._check_suspect(task)
                pending = None if self._is_over else self._submit(task)
            except TaskLost:  # kept without its traceback, which would be a cycle
                self._pending.append((Task(None), TaskLost()))
                self._is_over = True
                return
            except Exception as error:  # items before it come first
                self._pending.append((Task(None), error))
                self._is_over = True
                return
            self._pending.append((task, pending))
            self._items_pending += task.size

    def _continue_runs(self) -> None:
        """Have the next parts made of the runs of which one is ready."""
        if not self._pending or not isinstance(self._pending[0][0].payload, ItemRun):
            return
        place, left = 0, READY_BYTES * self._pool.workers * self._share.fraction()
        while self._gate.is_open and place < len(self._pending) and left > 0:
            task, pending = self._pending[place]
            place += 1
            if isinstance(pending, PendingTask) and self._is_done(pending):
                with suppress(TaskLost):  # it is submitted anew when it is the next
                    outcome = self._placement.received(partial(self._pool.result, pending))
                    left -= outcome.item_bytes * len(outcome.items)
                    if outcome.item_bytes <= CHUNK_BYTES:
                        self._continue(place, task, pending, outcome)

    def _continue(self, place: int, task: Task, pending: PendingTask, outcome: Outcome) -> None:
        """Have the next part of a run made, if there is one which isn't under way."""
        if not outcome.left or pending.is_continued:
            return
        assert outcome.positions
        run = task.payload._replace(position=outcome.positions[-1], upstream=outcome.left)
        following = task._replace(payload=run, size=run.upstream)
        is_here = isinstance(pending, MadeHere)  # the others go on where they are open
        submitted = self._submit(following, after=pending, may_be_here=is_here)
        self._pending.insert(place, (following, submitted))
        self._items_pending += run.upstream
        pending.is_continued = True

    def _is_done(self, pending: PendingTask) -> bool:
        return self._placement.received(partial(self._pool.is_done, pending))

    def _next_task(self) -> Task:
        tasks = self._tasks
        if tasks is None:
            tasks = self._tasks = self._tasks_behind()
        size = self._sizer.size
        try:
            if self._gate.one_by_one:
                self._sizer.size = 1
            task = next(tasks, None)
        finally:
            self._sizer.size = size
        if task is None:  # closed by a signal's handler meanwhile
            raise TaskLost
        return task

    def _check_suspect(self, task: Task) -> None:
        """Raise the error of the item that a worker has not survived, where that is the next."""
        suspect = self._pool.suspect
        if suspect is None or suspect.handler != self._handler or task.position_after is None:
            return
        if task.position_after(0) == suspect.position:
            self._pool.suspect = None
            raise suspect.failure

    def _submit(
        self, task: Task, after: PendingTask | None = None, *, may_be_here: bool = True
    ) -> PendingTask:
        losses = self._losses
        if losses.is_retrying or losses.is_in_order(task.size):
            errors = losses.errors if losses.is_retrying else None
            return self._pool.submit_carefully(self._handler, task.payload, task.size, errors)
        may_be_here = may_be_here and self._pool.suspect is None and not self._gate.one_by_one
        if may_be_here and self._placement.is_here:
            return self._placement.submit(task.payload, task.size)
        submit = partial(self._pool.submit, self._handler, task.payload, task.size, after)
        return self._placement.received(submit)

    def _advance(self) -> None:
        """Wait for the next task, and have what came of it at hand, or generate tasks anew."""
        self._fill()
        if self._gate.is_open:
            self._share.fill_others(self._sizer.ahead())
        task, pending = self._pending[0]
        if isinstance(pending, TaskLost) and not self._pool.is_driven:
            return self._restart()
        if isinstance(pending, LostItem):
            return self._lose(pending.failure)
        if isinstance(pending, BaseException):
            self._abandon()
            try:
                raise pending
            finally:
                del pending  # its traceback has this frame, which would be a cycle
        if pending is None:
            assert task.position_after is not None
            if task.log_skips is not None:
                next(task.log_skips(iter([None])))
            self._receive(Outcome([]), task.position_after)
            self._chunk = self._chunk._replace(is_last=True)
            return None
        generation = self._pool.generation
        if self._gate.is_closed:
            raise TaskLost
        try:
            outcome = self._wait_for(pending)
        except TaskLost:
            is_stopped = generation != self._pool.generation  # while this was waiting
            if is_stopped and (self._gate.is_closed or self._pool.is_driven):
                raise
            if self._generate is stream_tasks:
                return self._restart()
            self._pending[0] = task, self._submit(task)
            return None
        except (WorkerDied, WorkerTimeout) as lost:
            return self._fail_behind(task, pending, lost)
        if outcome.timings is not None:
            receive(outcome.timings)
        failure, given = outcome.failure, len(outcome.items)
        is_of_new_worker = failure is not None and isinstance(failure.error, TaskLost)
        if is_of_new_worker or (outcome.is_transfer_error and not task.is_single):
            if is_of_new_worker:
                self._pool.recover()
            else:
                self._sizer.use_single_items(task.size)
            return self._restart()
        self._losses.end()
        for log in (self._skip_log, self._inner_log) if outcome.lost else ():
            if log is not None:
                log.lose(outcome.lost)
        self._continue(1, task, pending, outcome)
        counted = _counted(task, outcome)
        self._sizer.observe(outcome, counted)
        if self._sizer.is_growing:
            self._placement.forget()
        elif self._placement.is_here == isinstance(pending, MadeHere):
            self._placement.observe(counted, outcome)
        error: Exception | None = failure
        if failure is None and task.position_after is not None and given < task.size:
            error = SourceChanged(
                f"{task.size} items were expected, and {given} came: a source has become shorter"
            )
        self._pending.popleft()
        self._items_pending -= task.size
        if outcome.end is not None and task.position_after is None:
            self.close()
            self._pending.append((Task(None, always(outcome.end)), None))
        settled = task.settle and task.settle(outcome)
        position_after = task.position_after or self._reached(outcome, settled)
        if settled is not None:
            outcome = outcome._replace(skipped=settled.skipped)
        following = self._chunk.following  # behind what was left out before an error
        if outcome.items or error is None:
            following = None if outcome.left or error else task.following
        if settled and settled.following is not None:
            following = settled.following
        self._receive(outcome, position_after, task.log_skips, error, following)
        if settled and settled.following is not None:
            self._abandon()
            self._tasks, self._is_over = settled.following(self._sizer), False
        if self._gate.is_open and error is None:
            self._fill()

    def _lose(self, failure: Failure, pending: PendingTask | None = None) -> None:
        """Make the item again at which a worker died or hung, by itself; or raise that."""
        if not self._losses.is_tried_again(failure, pending):
            self._abandon()
            try:
                raise failure
            finally:
                del failure  # its traceback has this frame, which would be a cycle
        self._placement.close()
        self._placement = Placement()  # what has killed a worker is none to be made here
        self._sizer.use_single_items(1)
        self._restart()

    def _fail_behind(self, task: Task, pending: PendingTask, error: Exception) -> None:
        """Have the items made again that came before the one at which a worker died or hung."""
        made = pending.made
        failure = Failure(error, "" if made is None else places_of_functions(self._calls))
        is_run, is_driven = isinstance(task.payload, ItemRun), self._pool.is_driven
        is_known = is_driven and (is_run or self._pool.suspect is not None)
        if not made or is_known or (made >= task.size and not is_run):
            return self._lose(failure, pending if task.is_single else None)
        if is_run:
            self._abandon()
            task = task._replace(payload=task.payload._replace(most=made))
            pending = self._submit(task)
            pending.is_continued = True  # what is left of it comes behind the failure
            self._pending.extend([(task, pending), (Task(None), LostItem(failure))])
            self._items_pending, self._is_over = task.size, True
            return
        if is_driven:
            assert task.position_after is not None
            self._pool.suspect = Suspect(self._handler, task.position_after(made), failure)
            raise TaskLost  # so that who drives the pool begins once more
        self._restart()
        self._losses.keep_order(made)
        size = self._sizer.size
        try:
            while made > 0:
                self._sizer.size = made
                task = self._next_task()
                if task.payload is None:
                    break
                self._pending.append((task, self._submit(task)))
                self._items_pending += task.size
                made -= task.size
        finally:
            self._sizer.size = size
        self._pending.append((Task(None), LostItem(failure)))
        self._is_over = True

    def _wait_for(self, pending: PendingTask) -> Outcome:
        if isinstance(pending, MadeHere):
            outcome = self._placement.result(pending)
            if self._gate.is_closed:  # by a signal's handler meanwhile
                raise TaskLost
            return outcome
        return self._placement.received(partial(self._received, pending))

    def _received(self, pending: PendingTask) -> Outcome:
        # A closed gate stays closed for what is done already.
        is_done = not self._gate.is_open and self._pool.is_done(pending)
        if is_done or self._pool.is_driven:  # by a thread that may be held back as well
            return self._pool.result(pending)
        with self._gate:
            return self._pool.result(pending)

    def _reached(self, outcome: Outcome, settled: Settled | None) -> Callable[[int], Position]:
        if outcome.positions and settled is None:
            return self._rereader.positions(outcome.positions, outcome.recorded)
        here = self._chunk.position_after(self._chunk.given())  # behind the item before
        if settled is None or not settled.positions:  # it failed on its way, or before it had begun
            return always(here)
        found = settled.positions
        return lambda given: found[given] if given else here

    def _receive(
        self,
        outcome: Outcome,
        position_after: Callable[[int], Position],
        log_skips: Callable[[Iterator[Any]], Iterator[Any]] | None = None,
        error: Exception | None = None,
        following: Callable[[ChunkSizer], Tasks] | None = None,
    ) -> None:
        items: Iterator[Any] = iter(outcome.items)
        if self._inner_log is not None and outcome.skipped:
            items = LoggingItems(items, self._inner_log, dict(outcome.skipped))
            if not outcome.items:
                next(items, None)
        items = items if log_skips is None else log_skips(items)
        size, before, skipped = len(outcome.items), self.taken(), outcome.skipped
        chunk = Chunk(position_after, items, size, before, skipped, error, following=following)
        self._hold(chunk, self._skip_log.including(some for _, some in self._chunk.skipped))

    def end_chunk(self) -> None:
        """End the iterator of the chunk at hand; what is left of it comes with another."""
        left = self._chunk.items
        self._hold(self._chunk._replace(items=copy(left)), self._skip_log.known)
        deque(left, 0)
        self._rereader.close()

    def _hold(self, chunk: Chunk, known: Skipped) -> None:
        # Without its `position_after`, which would be a cycle.
        of_chunk: Callable[[], SkipRecord] = SkipRecord
        if chunk.skipped:
            of_chunk = partial(skipped_before, chunk.skipped, chunk.size, chunk.items)
        # Between these nothing can interrupt: what is counted is what is at hand.
        self._chunk, self._skip_log.known, self._skip_log.of_chunk = chunk, known, of_chunk

    def _restart(self) -> None:
        """Generate tasks from the end of the chunk at hand once more: those there were are lost."""
        self._abandon()
        self._generation = self._pool.generation
        following = self._chunk.following or partial(self._generate, self._chunk.end())
        self._tasks, self._is_over = following(self._sizer), False

    def _keep_done(self) -> None:
        """Where a stream's worker was stopped, keep what it had done, and go on behind that."""
        done: list[tuple[Task, PendingTask | BaseException | None]] = []
        position = self._chunk.end()
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
        self._items_pending = sum(task.size for task, _ in done)
        self._tasks = self._generate(raise_or_position(position), self._sizer)
        self._is_over = False

    def suspend(self) -> None:
        """Close what the tasks are generated from, and keep what is pending."""
        tasks = self._tasks
        is_stream = self._generate is stream_tasks  # which its worker has open
        # One that a signal's handler has interrupted is closed after that.
        if tasks is not None and not is_stream and getgeneratorstate(tasks) != GEN_RUNNING:
            self._tasks = None
            tasks.close()
        self._rereader.close()
        self._placement.close()

    def resume(self, position: Position) -> bool:
        """Go on with what is pending, if that is what comes next."""
        if self._is_under_way or self._pool.suspect is not None:
            return False
        try:
            if self.snapshot() != position:
                return False
        except InvalidState:
            return False
        if self._pending and isinstance(self._pending[-1][1], TaskLost):
            self._pending.pop()
            self._is_over = False
        self._chunk = self._chunk._replace(before=-self._chunk.given())
        return True

    def _tasks_behind(self) -> Tasks:
        """The tasks after what is pending, of those that know where they end."""
        if not self._pending:
            return self._generate(self._chunk.end(), self._sizer)
        task, _ = self._pending[-1]
        if task.following is not None:
            return task.following(self._sizer)
        assert task.position_after is not None
        position = raise_or_position(task.position_after(task.size))
        return self._generate(position, self._sizer)

    def close(self) -> None:
        """Have no more made."""
        self._abandon()
        self._is_over = True
        self._rereader.close()
        self._placement.close()

    def _abandon(self) -> None:
        abandon(pending for _, pending in self._pending if isinstance(pending, PendingTask))
        self._pending.clear()
        self._items_pending = 0


def _counted(task: Task, outcome: Outcome) -> int:
    """How many items a task had: upstream, where workers make any number of each."""
    if isinstance(task.payload, ItemRun):
        return max(1, task.payload.upstream - outcome.left)
    return len(outcome.items)


class _Chunks:
    """The chunks of a prefetcher, for who holds its flow: no part of it, which would be a cycle."""

    def __init__(self, prefetcher: Prefetcher, let_go: Callable[[Prefetcher], None]) -> None:
        self._prefetcher = prefetcher
        self._let_go = let_go

    _is_finalizing = staticmethod(sys.is_finalizing)  # which modules don't have any more by then

    def __del__(self) -> None:
        if not self._is_finalizing():
            self._let_go(self._prefetcher)

    def next_chunk(self) -> Iterator[Any] | None:
        return self._prefetcher.next_chunk()

    def end_chunk(self) -> None:
        self._prefetcher.end_chunk()
