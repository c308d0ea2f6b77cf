"""Tasks in flight: submitted in the order of their items, as far ahead as allowed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from inspect import GEN_RUNNING, getgeneratorstate
from typing import Any, NamedTuple, TypeAlias

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Position
from lazyckpt.errors import WorkerDied, WorkerTimeout
from lazyckpt.executors.losses import Losses
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.executors.plan.positions import raise_or_position
from lazyckpt.executors.plan.shares import Share
from lazyckpt.executors.plan.tasks import (
    CHUNK_BYTES,
    POSITION_BYTES,
    READY_BYTES,
    ChunkSizer,
    Task,
    TaskGenerator,
    Tasks,
    stream_tasks,
)
from lazyckpt.executors.pools.pool import PendingTask, PrefetchGate, WorkerPool, abandon
from lazyckpt.failures.marks import after_skips, marks_of
from lazyckpt.failures.skip_log import SkipLog

_MOST_PARTS = 128  # tasks to check for a part that can be continued

End: TypeAlias = Callable[[], Position]
"""Returns the position at the end of the current chunk, from which tasks are generated."""


class Work(NamedTuple):
    """The work of a pool.

    Attributes:
        pool: The workers.
        gate: Says whether items may be computed ahead.
        handler: The number of the workers' handler for this work.
        generate: Generates the tasks from a position on.
        calls: The stages that the tasks run.
        skip_log: Log that counts skipped records once their items are delivered.
        inner_log: Log that records skipped records as their items are yielded.
        share: The tasks' share of the buffer.
        holds_items: If True, tasks contain their input items, so that these aren't read again.
    """

    pool: WorkerPool
    gate: PrefetchGate
    handler: int
    generate: TaskGenerator
    calls: tuple[Call, ...]
    skip_log: SkipLog | None = None
    inner_log: SkipLog | None = None
    share: Share = Share()
    holds_items: bool = False


class Lookahead:
    """The tasks for the items after the current chunk, and their outcomes in order.

    An interrupt may leave it in any state. `begin` restores a valid one, with no tasks.

    Attributes:
        gate: Says whether items may be computed ahead.
    """

    def __init__(self, work: Work) -> None:
        """Begin with no tasks."""
        pool, gate = work.pool, work.gate
        self._pool, self.gate, self._handler = pool, gate, work.handler
        self._generate, self._calls, self._share = work.generate, work.calls, work.share
        self._is_stream = work.generate is stream_tasks  # one worker continues from its position
        self._holds_items = work.holds_items
        own = pool.workers, pool.buffer_size
        workers, buffer_size = (pool.reach if self._holds_items else None) or own
        self._sizer = ChunkSizer(
            workers,
            pool.in_transit,
            buffer_size,
            gate.is_gated,
            self._share,
            pool.chunk_size,
            are_noted=self._holds_items,
        )
        self._queue: deque[tuple[Task, PendingTask | Exception | None]] = deque()
        self._tasks: Tasks | None
        self._again = deque[Task | Exception]()  # tasks to do once more, before those
        self._generation: int  # of the pool, when tasks were last submitted
        self._is_over: bool  # whether there are no more tasks
        self._are_in_parts: bool  # whether the last task has left some of its inputs
        self._left_out: Mapping[int, int]  # by stage, the records skipped before the next task
        self.begin()

    def begin(self) -> None:
        """Forget all tasks and losses."""
        self._losses = Losses(self._pool.retries, self._calls, may_read_ahead=self._is_stream)
        self._generate_again()

    @property
    def ready(self) -> int:
        """The number of items that are ready, from the next item on."""
        found = 0
        for task, pending in tuple(self._queue):
            if not isinstance(pending, PendingTask) or not self._pool.is_done(pending):
                break
            found += task.size if pending.outcome is None else len(pending.outcome.items)
        return found

    def next(self, end: End) -> tuple[Task, Outcome]:
        """Wait for the next task; return it with its outcome. The end is also a task."""
        is_alone = False  # True once other work has lost the workers that both use
        while True:
            if self._losses.is_next:
                self._losses.try_again()
                self._do_again()
            if not self._queue or self._generation != self._pool.generation:
                self.fill(end)
            if self.gate.is_open and not is_alone:
                self._share.fill_others(self._sizer.ahead())
            task, pending = self._queue[0]
            if pending is None:
                return self._numbered(task, Outcome([]))
            try:
                if isinstance(pending, Exception):
                    self.abandon()
                    raise pending
                if self.gate.is_closed:
                    raise TaskLost
                outcome = self._pool.result(pending)
                if _is_lost(outcome):
                    raise TaskLost
            except TaskLost:
                if self.gate.is_closed or self._pool.refuses:
                    raise
                self._keep_done()
            except (WorkerDied, WorkerTimeout) as error:
                if not isinstance(pending, PendingTask):
                    raise
                if self._is_lost_by_others(error):
                    is_alone = True
                    self._keep_done()
                    continue
                if not self._is_behind_lost(pending):
                    self._pool.drop([pending])
                    self._losses.add(error, task, pending)
                self._do_again()
            else:
                if not outcome.is_transfer_error or task.is_single:
                    return self._received(task, pending, outcome)
                self._pool.drop([pending])
                self._losses.use_single_items(task.size)
                self._do_again()
            finally:
                del pending  # an error's traceback refers to this frame: a reference cycle

    def fill(self, end: End) -> None:
        """Submit as many tasks as may be in flight, or one if nothing is computed ahead."""
        if self._generation != self._pool.generation and not self.gate.is_closed:
            self._keep_done()
        self._continue_parts()
        is_ahead = self.gate.is_open and not self._losses.is_recovering
        limit = self._sizer.limit() if is_ahead else 1
        while not self._is_over and self._items < limit and not self._losses.is_next:
            if self.gate.is_closed:
                raise TaskLost
            try:
                task = self._next_task(end)
                self._is_over = task.payload is None
                self._add(task, None if self._is_over else self._submit(task))
            except Exception as error:  # raised after the items before it
                is_lost = isinstance(error, TaskLost)  # its traceback would be a reference cycle
                self._queue.append((Task(None), TaskLost() if is_lost else error))
                self._is_over = True

    def suspend(self) -> None:
        """Close the generator of tasks, and keep the pending tasks."""
        tasks = self._tasks
        # A generator that a signal handler has interrupted is closed after the handler. The
        # flow of a stream is open in its worker.
        if tasks is not None and not self._is_stream and getgeneratorstate(tasks) != GEN_RUNNING:
            self._tasks = None
            self._again.clear()
            tasks.close()

    def close(self) -> None:
        """Drop all tasks; no more are submitted."""
        # A list: an interrupt in a generator's destructor, which not all pools read, would be lost.
        self._pool.drop([each for _, each in self._queue if isinstance(each, PendingTask)])
        self.abandon()
        self._is_over = True

    def abandon(self) -> None:
        """Forget the tasks in flight."""
        abandon(pending for _, pending in self._queue if isinstance(pending, PendingTask))
        self._queue.clear()
        self._items = 0

    # Generating and submitting tasks.

    def _generate_again(self) -> None:
        """Forget all tasks, and generate them again from the end of the current chunk."""
        self.abandon()
        self._tasks = None
        self._again.clear()
        self._is_over = self._are_in_parts = False
        self._generation = self._pool.generation

    def _do_again(self) -> None:
        """Do all tasks once more, perhaps in parts. Items that they hold aren't read again."""
        queue, tasks, again = tuple(self._queue), self._tasks, tuple(self._again)
        has_ended = any(isinstance(each, TaskLost) for _, each in queue)  # the generator of tasks
        self._generate_again()
        if self._holds_items and tasks is not None and not has_ended:
            self._tasks, self._again = tasks, deque([*(_own_part(*each) for each in queue), *again])

    def _next_task(self, end: End) -> Task:
        is_single = self.gate.one_by_one and not self._sizer.fixed
        most = self._sizer.most = 1 if is_single else self._losses.most
        if self._again:
            found = self._again.popleft()
            if isinstance(found, Exception):
                raise found
            if found.size > most:
                found, rest = found.divided(most)
                self._again.appendleft(rest)
            return found
        tasks = self._tasks
        if tasks is None:
            tasks = self._tasks = self._tasks_after(self._queue[-1] if self._queue else None, end)
        task = next(tasks, None)
        if task is None:  # a signal handler has closed the generator
            raise TaskLost
        return task

    def _tasks_after(self, last: tuple[Task, Any] | None, end: End) -> Tasks:
        """Generate the tasks after the last pending task, or after the current chunk."""
        if last is None:
            position = end()
            self._left_out = marks_of(position)
        else:
            task, pending = last
            position = task.after
            if self._is_stream:
                position = raise_or_position(pending.outcome.positions.last)
            elif position is None and task.item_positions is not None:
                position = raise_or_position(task.item_positions.after(task.size))
        return self._generate(position, self._sizer)

    def _submit(self, task: Task, after: PendingTask | None = None) -> PendingTask:
        if self._losses.is_careful(task.size):
            errors = self._losses.errors
            return self._pool.submit(self._handler, task.payload, task.size, errors)
        return self._pool.submit(self._handler, task.payload, task.size, after=after)

    def _add(self, task: Task, pending: PendingTask | None) -> None:
        self._queue.append((task, pending))
        self._items += task.size

    # Tasks that are done.

    def _received(self, task: Task, pending: PendingTask, outcome: Outcome) -> tuple[Task, Outcome]:
        """Take the first task off the queue, and adapt to its outcome."""
        used = max(1, task.size - outcome.left) if task.is_run else len(outcome.items)
        self._are_in_parts = outcome.left > 0
        self._sizer.observe(outcome, used, task.seconds)
        self._losses.made(used, len(outcome.items))
        if not self._losses.is_next:
            self._continue(1, task, pending, outcome)
        self._queue.popleft()
        self._items -= task.size
        self._pool.drop([pending])
        if outcome.end is not None and self._is_stream:
            self.close()
            self._add(Task(None, after=outcome.end), None)
        return self._numbered(task, outcome)

    def _numbered(self, task: Task, outcome: Outcome) -> tuple[Task, Outcome]:
        """Number the records skipped in a run after the records skipped in earlier runs.

        The worker numbers the records of each run from 0.
        """
        if not task.is_run or not (outcome.skipped or self._left_out):
            return task, outcome
        known = marks_of(task.payload and task.payload.position)  # since the run's beginning
        before = {stage: n - known.get(stage, 0) for stage, n in self._left_out.items()}
        positions = outcome.positions
        skipped = tuple([(number, some.after_skips(before)) for number, some in outcome.skipped])
        ends = {stage: end for _, some in skipped for stage, _, _, end in some.spans}
        then = self._left_out = {**self._left_out, **ends}
        if positions is not None:
            positions = positions.after_skips(before)
        task = task._replace(after=after_skips(task.after, then))
        return task, outcome._replace(positions=positions, skipped=skipped)

    def _continue_parts(self) -> None:
        """Submit the next part of each task that has a part ready, if tasks are done in parts."""
        if not self._queue or not (self._are_in_parts or self._queue[0][0].is_run):
            return
        place, left = 0, READY_BYTES * self._pool.workers * self._share.fraction()
        unfinished = 0  # once there is one per worker, no later task is done
        while place < len(self._queue) and place < _MOST_PARTS and left > 0:
            task, pending = self._queue[place]
            place += 1
            outcome = self._found(pending)
            if outcome is None:
                unfinished += 1
                if unfinished >= self._pool.workers:
                    return
                continue
            assert isinstance(pending, PendingTask)
            left -= (outcome.item_bytes + POSITION_BYTES) * len(outcome.items)
            if outcome.item_bytes <= CHUNK_BYTES and self.gate.is_open:
                self._continue(place, task, pending, outcome)

    def _continue(self, place: int, task: Task, pending: PendingTask, outcome: Outcome) -> None:
        """Submit the next part of a task, if it has one that isn't in flight."""
        if not outcome.left or pending.is_continued:
            return
        following = task.rest(outcome, self._losses.most)
        self._queue.insert(place, (following, self._submit(following, after=pending)))
        self._items += outcome.left
        pending.is_continued = True

    def _keep_done(self) -> None:
        """Keep the next tasks that stopped workers had finished; generate tasks after those.

        Tasks that contain their items are submitted again.
        """
        queue = tuple(self._queue)
        is_whole = bool(queue) and not any(isinstance(each, TaskLost) for _, each in queue)
        if self._holds_items and is_whole:  # otherwise the generator of tasks has ended
            with suppress(TaskLost):
                self._submit_again(queue)
                return
        self._generate_again()
        last: PendingTask | None = None
        for task, pending in queue:
            if not isinstance(pending, PendingTask) or (outcome := self._found(pending)) is None:
                break
            self._add(task, pending)
            self._is_over = outcome.failure is not None or outcome.end is not None
            last = pending
        if last is not None:
            last.is_continued = False

    def _submit_again(self, queue: Sequence[tuple[Task, Any]]) -> None:
        self._queue.clear()
        self._items, self._generation = 0, self._pool.generation
        for task, pending in queue:
            if isinstance(pending, PendingTask) and self._found(pending) is None:
                pending = self._submit(task)
            self._add(task, pending)

    def _is_lost_by_others(self, error: Exception) -> bool:
        """Return whether workers were lost at a task of other work.

        A hang of those that don't hold their items counts as this work's: a hang at each item up
        to that one would take too long.
        """
        is_known = self._holds_items or isinstance(error, WorkerDied)
        lost = self._pool.lost_at if is_known else None
        return lost is not None and all(each is not lost for _, each in self._queue)

    def _is_behind_lost(self, pending: PendingTask) -> bool:
        """Return whether the worker was lost at a task of later items that it did first.

        This happens to the next part of a task. Submitted again, it precedes all other tasks.
        """
        known = [each for _, each in self._queue if isinstance(each, PendingTask)]
        return pending.made is None and any(each.made is not None for each in known)

    def _found(self, pending: PendingTask | Exception | None) -> Outcome | None:
        """Return the outcome of a task if it is done."""
        if not isinstance(pending, PendingTask) or not pending.is_done:
            return None
        with suppress(TaskLost, WorkerDied, WorkerTimeout):  # raised by `next` when it waits
            outcome = pending.outcome or self._pool.result(pending)
            return None if _is_lost(outcome) else outcome
        return None


def _own_part(task: Task, pending: PendingTask | Exception | None) -> Task | Exception:
    """Return a task without the part that the next one does; or the error in place of a task."""
    if isinstance(pending, Exception):
        return pending
    if pending is None or not pending.is_continued:
        return task
    assert pending.outcome is not None
    return task.divided(task.size - pending.outcome.left)[0]


def _is_lost(outcome: Outcome) -> bool:
    """Return whether a stream's worker was asked to continue the task of a different worker."""
    return outcome.failure is not None and isinstance(outcome.failure.error, TaskLost)
