"""Tasks under way: submitted in the order of their items, as far ahead as they may be."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from inspect import GEN_RUNNING, getgeneratorstate
from typing import Any

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Position
from lazyckpt.errors import InvalidState
from lazyckpt.executors.chunk import Chunk
from lazyckpt.executors.losses import Losses, LostItem
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.executors.plan.positions import Found, raise_or_position
from lazyckpt.executors.plan.shares import Share
from lazyckpt.executors.plan.tasks import (
    CHUNK_BYTES,
    READY_BYTES,
    ChunkSizer,
    Task,
    TaskGenerator,
    Tasks,
    stream_tasks,
)
from lazyckpt.executors.pools.pool import (
    PendingTask,
    PrefetchGate,
    WorkerPool,
    abandon,
)
from lazyckpt.failures.marks import behind_others, marks_of
from lazyckpt.failures.notes import Failure, places_of_functions

_MOST_RUNS = 128  # that are looked at, whether one can be continued


class Lookahead:
    """The tasks that make what comes behind the chunk at hand.

    Attributes:
        pool: Whose workers do them.
        gate: Says whether they may be made ahead.
        is_stream: Whether one worker goes on where it is, and has the only tasks.
    """

    def __init__(
        self,
        pool: WorkerPool,
        gate: PrefetchGate,
        handler: int,
        generate: TaskGenerator,
        position: Position,
        calls: tuple[Call, ...] = (),
        share: Share | None = None,
    ) -> None:
        self.pool, self.gate, self._handler, self._calls = pool, gate, handler, calls
        self._generate, self.is_stream = generate, generate is stream_tasks
        self._share = share or Share()
        self._losses = self._no_losses()
        self._sizer = ChunkSizer(
            pool.workers, pool.in_transit, pool.buffer_size, gate.is_gated, self._share
        )
        self._tasks: Tasks | None
        self._generate_from(position)
        self._pending: deque[tuple[Task, PendingTask | BaseException | None]] = deque()
        self._items_pending = 0
        self._is_over = False  # whether there are no more tasks
        self._generation = pool.generation

    def _generate_from(self, position: Position) -> None:
        self._tasks = self._generate(position, self._sizer)
        # By stage how many were left out before the run whose parts come, and before the next one.
        self._left_out = self._left_out_then = marks_of(position)

    def _no_losses(self) -> Losses:
        return Losses(self.pool, self._calls, may_read_ahead=self.is_stream)

    def forget_losses(self) -> None:
        """Know nothing of the next item."""
        self._losses = self._no_losses()

    @property
    def first(self) -> tuple[Task, PendingTask | BaseException | None]:
        """The next task, as it was submitted; or an error in its place, or None at the end."""
        return self._pending[0]

    @property
    def is_ready(self) -> bool:
        """Whether the next task is done, or there is an error or the end instead."""
        if not self._pending:
            return False
        pending = self._pending[0][1]
        return not isinstance(pending, PendingTask) or self.pool.is_done(pending)

    @property
    def ready(self) -> int:
        """How many items are made already, from the next one on."""
        found = 0
        for task, pending in tuple(self._pending):
            if not isinstance(pending, PendingTask) or not self.pool.is_done(pending):
                break
            found += task.size if pending.outcome is None else len(pending.outcome.items)
        return found

    def fill(self, chunk: Chunk) -> None:
        """Submit tasks: as many as may be under way, or one where nothing is made ahead."""
        if self._generation != self.pool.generation and self.is_stream:
            self._keep_done(chunk)
        self._generation = self.pool.generation
        self._continue_runs()
        limit = 1 if self._losses.is_retrying else self._sizer.limit()
        while not self._is_over:
            if self._items_pending >= (limit if self.gate.is_open else 1):
                return
            if self.gate.is_closed:
                raise TaskLost
            try:
                task = self._next_task(chunk)
                self._is_over = task.payload is None
                pending = None if self._is_over else self._submit(task)
            except TaskLost:  # kept without its traceback, which would be a cycle
                self._end_with(TaskLost())
                return
            except Exception as error:  # items before it come first
                self._end_with(error)
                return
            self._add(task, pending)

    def fill_others(self) -> None:
        """Have items made of other pipelines that are joined, where anything is made ahead."""
        if self.gate.is_open:
            self._share.fill_others(self._sizer.ahead())

    def took(self, task: Task, pending: PendingTask, outcome: Outcome) -> None:
        """Learn from what has come of the first task, and have what is left of it made."""
        self._losses.end()
        self._continue(1, task, pending, outcome)
        self._sizer.observe(outcome, _counted(task, outcome))

    def numbered(self, outcome: Outcome) -> Outcome:
        """Number the records that a run left out after those of the runs before it.

        Its worker has numbered them from 0.
        """
        before, positions = self._left_out, outcome.positions or ()
        skipped = tuple([(place, some.behind(before)) for place, some in outcome.skipped])
        ends = {stage: end for _, some in skipped for stage, _, _, end in some.spans}
        self._left_out_then = {**self._left_out_then, **ends}
        if not outcome.left and outcome.failure is None:
            self._left_out = self._left_out_then
        if before:
            positions = Found(positions, partial(_marked, numbers=before))
        return outcome._replace(positions=positions, skipped=skipped)

    def after(self, task: Task) -> Position:
        """Return the position after a task that has been made, and all before it."""
        return behind_others(task.after, self._left_out_then) if task.is_run else task.after

    def drop_first(self) -> None:
        """Go on to the task behind the first one."""
        task, _ = self._pending.popleft()
        self._items_pending -= task.size

    def submit_first(self) -> None:
        """Submit the first task again."""
        task, _ = self._pending[0]
        self._pending[0] = task, self._submit(task)

    def use_single_items(self, count: int) -> None:
        """Make the next `count` items one by one."""
        self._sizer.use_single_items(count)

    def begin(self, chunk: Chunk) -> None:
        """Generate tasks from the end of a chunk once more: those there were are lost."""
        self.abandon()
        self._generation, self._is_over = self.pool.generation, False
        self._generate_from(chunk.end())

    def end(self, task: Task) -> None:
        """Have no more made: with this task all ends."""
        self.close()
        self._pending.append((task, None))

    def lose(self, failure: Failure, chunk: Chunk, pending: PendingTask | None = None) -> None:
        """Make the item again at which a worker died or hung, by itself; or raise that."""
        if not self._losses.is_tried_again(failure, pending):
            self.abandon()
            try:
                raise failure
            finally:
                del failure  # its traceback has this frame, which would be a cycle
        self._sizer.use_single_items(1)
        self.begin(chunk)

    def fail_behind(self, task: Task, pending: PendingTask, error: Exception, chunk: Chunk) -> None:
        """Have the items made again that came before the one at which a worker died or hung."""
        made = pending.made
        failure = Failure(error, "" if made is None else places_of_functions(self._calls))
        is_run = task.is_run
        if not made or (made >= task.size and not is_run):
            return self.lose(failure, chunk, pending if task.is_single else None)
        if is_run:
            self.abandon()
            task = task._replace(payload=task.payload._replace(most=made))
            pending = self._submit(task)
            pending.is_continued = True  # by what comes behind the failure
            self._add(task, pending)
            return self._end_with(LostItem(failure))
        self.begin(chunk)
        self._losses.keep_order(made)
        size = self._sizer.size
        try:
            while made > 0:
                self._sizer.size = made
                task = self._next_task(chunk)
                if task.payload is None:
                    break
                self._add(task, self._submit(task))
                made -= task.size
        finally:
            self._sizer.size = size
        self._end_with(LostItem(failure))
        return None

    def suspend(self) -> None:
        """Close what the tasks are generated from, and keep what is pending."""
        tasks = self._tasks
        # One that a signal's handler has interrupted is closed after that, and a stream is
        # open in its worker.
        if tasks is not None and not self.is_stream and getgeneratorstate(tasks) != GEN_RUNNING:
            self._tasks = None
            tasks.close()

    def resume(self) -> None:
        """Go on behind what is pending, where workers were stopped."""
        if self._pending and isinstance(self._pending[-1][1], TaskLost):
            self._pending.pop()
            self._is_over = False

    def close(self) -> None:
        """Have no more made."""
        self.abandon()
        self._is_over = True

    def abandon(self) -> None:
        """Forget the tasks under way."""
        abandon(pending for _, pending in self._pending if isinstance(pending, PendingTask))
        self._pending.clear()
        self._items_pending = 0

    def _add(self, task: Task, pending: PendingTask | None) -> None:
        self._pending.append((task, pending))
        self._items_pending += task.size

    def _end_with(self, error: Exception) -> None:
        """Have no more tasks, and an error behind those that there are."""
        self._pending.append((Task(None), error))
        self._is_over = True

    def _continue_runs(self) -> None:
        """Have the next parts made of the runs of which one is ready."""
        if not self._pending or not self._pending[0][0].is_run:
            return
        place, left = 0, READY_BYTES * self.pool.workers * self._share.fraction()
        unfinished = 0  # behind one of each worker none is done
        while self.gate.is_open and place < min(len(self._pending), _MOST_RUNS) and left > 0:
            task, pending = self._pending[place]
            place += 1
            if not isinstance(pending, PendingTask) or not self.pool.is_done(pending):
                unfinished += 1
                if unfinished >= self.pool.workers:
                    return
                continue
            with suppress(TaskLost):  # it is submitted anew when it is the next
                outcome = self.pool.result(pending)
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
        self._pending.insert(place, (following, self._submit(following, after=pending)))
        self._items_pending += run.upstream
        pending.is_continued = True

    def _next_task(self, chunk: Chunk) -> Task:
        tasks = self._tasks
        if tasks is None:
            tasks = self._tasks = self._tasks_behind(chunk)
        size = self._sizer.size
        try:
            if self.gate.one_by_one:
                self._sizer.size = 1
            task = next(tasks, None)
        finally:
            self._sizer.size = size
        if task is None:  # closed by a signal's handler meanwhile
            raise TaskLost
        return task

    def _tasks_behind(self, chunk: Chunk) -> Tasks:
        """The tasks after what is pending, of those that know where they end."""
        if not self._pending:
            return self._generate(chunk.end(), self._sizer)
        task, _ = self._pending[-1]
        return self._generate(task.after, self._sizer)

    def _submit(self, task: Task, after: PendingTask | None = None) -> PendingTask:
        losses = self._losses
        if losses.is_retrying or losses.is_in_order(task.size):
            errors = losses.errors if losses.is_retrying else None
            return self.pool.submit_carefully(self._handler, task.payload, task.size, errors)
        return self.pool.submit(self._handler, task.payload, task.size, after)

    def _keep_done(self, chunk: Chunk) -> None:
        """Where a stream's worker was stopped, keep what it had done, and go on behind that."""
        done: list[tuple[Task, PendingTask]] = []
        position = chunk.end()
        for task, pending in self._pending:
            if not isinstance(pending, PendingTask) or not self.pool.is_done(pending):
                break
            try:
                outcome = self.pool.result(pending)
            except TaskLost:
                break
            done.append((task, pending))
            if outcome.failure is not None or outcome.end is not None or not outcome.positions:
                return  # it ends with this
            position = outcome.positions[-1]
        for _ in done:
            self._pending.popleft()
        self.abandon()
        for each in done:
            self._add(*each)
        self._generate_from(raise_or_position(position))
        self._is_over = False


def _marked(position: Any, numbers: dict[int, int]) -> Any:
    """Return a position after so many records left out; or the error of taking it."""
    return position if isinstance(position, InvalidState) else behind_others(position, numbers)


def _counted(task: Task, outcome: Outcome) -> int:
    """How many items a task had: upstream, where workers make any number of each."""
    if task.is_run:
        return max(1, task.size - outcome.left)
    return len(outcome.items)
