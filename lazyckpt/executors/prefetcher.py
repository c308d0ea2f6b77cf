"""Flows whose items workers compute: in order, ahead of the consumer, from any position."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from lazyckpt.core.flow import Chunks, Flow, Position
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.errors import InvalidState, SourceChanged
from lazyckpt.executors.lookahead import Lookahead, Work
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.executors.plan.positions import ItemPositions, always, raise_or_position
from lazyckpt.executors.plan.tasks import LoggingItems, Task
from lazyckpt.failures.skip_log import SkipLog, Skipped, SkipRecord
from lazyckpt.timers.timings import go_on, pause, receive


class Chunk(NamedTuple):
    """Items that have arrived, with their positions: one value, so that interrupts can't split it.

    Attributes:
        positions: Positions of the items.
        items: The items that are left.
        size: Number of items that the chunk had.
        before: Number of items yielded before the chunk.
        skipped: The records skipped, each with the number of items before it.
        error: Error to raise after the items.
        is_last: Whether the items end with it.
        after: The position from which tasks continue if it isn't the position after the items:
            at the end of a run, the position after the records skipped after its last item.
    """

    positions: ItemPositions
    items: Iterator[Any]
    size: int = 0
    before: int = 0
    skipped: Sequence[tuple[int, SkipRecord]] = ()
    error: Exception | None = None
    is_last: bool = False
    after: Position = None

    def yielded(self) -> int:
        return self.size - remaining(self.items)

    def end(self) -> Position:
        """Return the position from which tasks continue."""
        if self.after is not None:
            return self.after
        return raise_or_position(self.positions.after(self.size))


class Prefetcher:
    """Has a pool compute the items from a position on, ahead of the consumer.

    An interrupt may come at any time. So an operation of several steps is marked as under way
    from its first step to its last. If the mark is found set, an operation was interrupted, and
    the tasks are generated again from the end of the current chunk.
    """

    def __init__(self, work: Work, position: Position) -> None:
        self._ahead, self._gate = Lookahead(work), work.gate
        self._skip_log, self._inner_log = work.skip_log or SkipLog(), work.inner_log
        self._is_under_way = False
        self._chunk = Chunk(always(position), iterate(()))

    def flow(self, chunks: Chunks[Any] | None = None) -> Flow[Any]:
        """Return a flow of the items, through its own chunks or a wrapper of these."""
        chunks = chunks or self
        items = chain.from_iterable(iter(chunks.next_chunk, None))
        return Flow(
            items,
            self.snapshot,
            taken=self.taken,
            chunks=chunks,
            reached=self.reached,
            before=self.before,
        )

    @property
    def ready(self) -> int:
        """The number of items that are ready, from the next item on."""
        return remaining(self._chunk.items) + self._ahead.ready

    def taken(self) -> int:
        return self._chunk.before + self._chunk.yielded()

    def snapshot(self) -> Position:
        return self.reached()[0]

    def reached(self) -> tuple[Position, int]:
        chunk = self._chunk
        yielded = chunk.size - remaining(chunk.items)
        return raise_or_position(chunk.positions.after(yielded)), chunk.before + yielded

    def before(self) -> Position:
        """Return the position before the last item taken; at least one must have been taken."""
        return self._chunk.positions.before(self._chunk.yielded())

    def fill(self) -> None:
        """Submit tasks, unless `next_chunk` is under way: it submits tasks itself."""
        if not self._is_under_way:
            self._is_under_way = True
            self._ahead.fill(self._chunk.end)
            self._is_under_way = False

    def next_chunk(self) -> Iterator[Any] | None:
        """Return the rest of the current chunk, or the next chunk; None at the end."""
        while not remaining(self._chunk.items):
            next(self._chunk.items, None)  # logs the records skipped after them, if not logged yet
            if self._chunk.is_last:
                return None
            if (error := self._chunk.error) is not None:
                self._is_under_way = True  # so that the next call computes the same item again
                self._chunk = self._chunk._replace(error=None)
                try:
                    raise error
                finally:
                    del error  # its traceback refers to this frame: a reference cycle
            if self._is_under_way:
                self._ahead.begin()
            self._is_under_way = True
            at_work = pause()
            try:
                self._advance()
            finally:
                go_on(at_work)
            self._is_under_way = False
        return self._chunk.items

    def _advance(self) -> None:
        """Wait for the next task, and make its items the current chunk."""
        task, outcome = self._ahead.next(self._chunk.end)
        if outcome.timings is not None:
            receive(outcome.timings)
        for log in (self._skip_log, self._inner_log) if outcome.lost else ():
            if log is not None:
                log.lose(outcome.lost)
        size, is_last = len(outcome.items), task.payload is None
        error: Exception | None = outcome.failure
        if error is None and task.item_positions is not None and size < task.size - outcome.left:
            error = SourceChanged(
                f"{task.size} items were expected, but {size} arrived: a source has become shorter"
            )
        skipped = task.skipped or outcome.skipped
        if outcome.left and task.skipped:
            skipped = [each for each in skipped if each[0] < size]
        items: Iterator[Any] = iterate(outcome.items)
        if self._inner_log is not None and skipped:
            items = LoggingItems(items, self._inner_log, dict(skipped))
            if not size:
                next(items, None)
        after = None if size else self._chunk.after  # keeps the records skipped before an error
        chunk = Chunk(
            always(task.after) if is_last else task.item_positions or self._found(task, outcome),
            items,
            size,
            self.taken(),
            skipped,
            error,
            is_last,
            task.after if error is None and not outcome.left else after,
        )
        self._hold(chunk, self._skip_log.including(some for _, some in self._chunk.skipped))
        if self._gate.is_open and error is None:
            self._ahead.fill(chunk.end)

    def _found(self, task: Task, outcome: Outcome) -> ItemPositions:
        """Return the positions of a task's items, found through its outcome."""
        here, positions = self._chunk.positions.after(self._chunk.size), outcome.positions
        if positions is None:
            return always(here)
        known = positions.__getitem__  # those of a run begin after its first item
        return ItemPositions(lambda count: known(count) if count else here, positions.before)

    def end_chunk(self) -> None:
        """End the current chunk's iterator; the items left are yielded by a new one."""
        left = self._chunk.items
        self._hold(self._chunk._replace(items=copy(left)), self._skip_log.known)
        deque(left, 0)

    def _hold(self, chunk: Chunk, known: Skipped) -> None:
        # Not the whole chunk: its `positions` would be a reference cycle.
        of_chunk: Callable[[], SkipRecord] = SkipRecord
        if chunk.skipped:
            of_chunk = partial(_skipped_before, chunk.skipped, chunk.size, chunk.items)
        # No interrupt can come between these assignments: the counts match the chunk.
        self._chunk, self._skip_log.known, self._skip_log.of_chunk = chunk, known, of_chunk

    def suspend(self) -> None:
        """Close the generator of tasks, and keep the pending tasks."""
        self._ahead.suspend()

    def resume(self, position: Position) -> bool:
        """Continue with the pending tasks if they start at a position; return whether they do."""
        if self._is_under_way:
            return False
        try:
            if self.snapshot() != position:
                return False
        except InvalidState:
            return False
        self._chunk = self._chunk._replace(before=-self._chunk.yielded())
        return True

    def close(self) -> None:
        """Drop all tasks; no more are submitted."""
        self._ahead.close()


def _skipped_before(
    skipped: Sequence[tuple[int, SkipRecord]], size: int, items: Iterator[Any]
) -> SkipRecord:
    """Return the records skipped before the last delivered item of a chunk."""
    yielded, found = size - remaining(items), SkipRecord()
    for number, some in skipped:
        if number < yielded:
            found = found.plus(some)
    return found
