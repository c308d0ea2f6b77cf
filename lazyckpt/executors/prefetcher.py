"""Flows whose items workers make: in order, ahead of the consumer, from any position."""

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
from lazyckpt.executors.plan.positions import Places, always, raise_or_position
from lazyckpt.executors.plan.tasks import LoggingItems, Task
from lazyckpt.failures.skip_log import SkipLog, Skipped, SkipRecord
from lazyckpt.timers.timings import go_on, pause, receive


class Chunk(NamedTuple):
    """Items at hand, and what is known of them: one value, so that an interrupt finds all of it.

    Attributes:
        places: Where they are.
        items: What is left of them.
        size: How many there were.
        before: How many were given before them.
        skipped: What was left out, and after how many of them.
        error: What comes after them.
        is_last: Whether the end does.
        after: The position from which tasks go on: of the end of a run, after the records
            that it left out after its last item. None if that is the position after them.
    """

    places: Places
    items: Iterator[Any]
    size: int = 0
    before: int = 0
    skipped: Sequence[tuple[int, SkipRecord]] = ()
    error: Exception | None = None
    is_last: bool = False
    after: Position = None

    def given(self) -> int:
        return self.size - remaining(self.items)

    def end(self) -> Position:
        """Return the position from which tasks go on."""
        if self.after is not None:
            return self.after
        return raise_or_position(self.places.after(self.size))


class Prefetcher:
    """Has a pool make the items from a position on, ahead of the consumer.

    An interrupt may come at any time. So whatever takes several steps is under way
    from its first one to its last: what is found under way was left in the middle,
    and its tasks are generated again, from the end of the chunk at hand.
    """

    def __init__(self, work: Work, position: Position) -> None:
        self._ahead, self._gate, self._rereader = Lookahead(work), work.gate, work.rereader
        self._skip_log, self._inner_log = work.skip_log or SkipLog(), work.inner_log
        self._is_under_way = False
        self._chunk = Chunk(always(position), iterate(()))

    def flow(self, chunks: Chunks[Any] | None = None) -> Flow[Any]:
        """The items, through its own chunks or others that give these."""
        chunks = chunks or self
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
    def ready(self) -> int:
        """How many items are made already, from the next one on."""
        return remaining(self._chunk.items) + self._ahead.ready

    def taken(self) -> int:
        return self._chunk.before + self._chunk.given()

    def snapshot(self) -> Position:
        return self.place()[0]

    def place(self) -> tuple[Position, int]:
        chunk = self._chunk
        given = chunk.size - remaining(chunk.items)
        try:
            return raise_or_position(chunk.places.after(given)), chunk.before + given
        finally:
            if self._gate.is_closed:
                self._rereader.close()

    def before(self) -> Position:
        """The position before the item that was taken last, once one was."""
        return self._chunk.places.before(self._chunk.given())

    def fill(self) -> None:
        """Have items made ahead; who is about to ask for one does so itself."""
        if not self._is_under_way:
            self._is_under_way = True
            self._ahead.fill(self._chunk.end)
            self._is_under_way = False

    def next_chunk(self) -> Iterator[Any] | None:
        """What is left of the chunk at hand, or the next one; None at the end."""
        while not remaining(self._chunk.items):
            next(self._chunk.items, None)  # logs the records left out after them, if none has yet
            if self._chunk.is_last:
                return None
            if (error := self._chunk.error) is not None:
                self._is_under_way = True  # so that who asks again has the same item made again
                self._chunk = self._chunk._replace(error=None)
                try:
                    raise error
                finally:
                    del error  # its traceback has this frame, which would be a cycle
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
        """Wait for the next task, and have its items at hand."""
        task, outcome = self._ahead.next(self._chunk.end)
        if outcome.timings is not None:
            receive(outcome.timings)
        for log in (self._skip_log, self._inner_log) if outcome.lost else ():
            if log is not None:
                log.lose(outcome.lost)
        if outcome.end is not None:
            self._rereader.close()
        size, is_last = len(outcome.items), task.payload is None
        error: Exception | None = outcome.failure
        if error is None and task.places is not None and size < task.size:
            error = SourceChanged(
                f"{task.size} items were expected, and {size} came: a source has become shorter"
            )
        skipped = task.skipped or outcome.skipped
        items: Iterator[Any] = iterate(outcome.items)
        if self._inner_log is not None and skipped:
            items = LoggingItems(items, self._inner_log, dict(skipped))
            if not size:
                next(items, None)
        after = None if size else self._chunk.after  # what was left out before an error
        chunk = Chunk(
            always(task.after) if is_last else task.places or self._places(task, outcome),
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

    def _places(self, task: Task, outcome: Outcome) -> Places:
        """Where a task's items are, by its outcome."""
        here, positions = self._chunk.places.after(self._chunk.size), outcome.positions
        if positions is None:
            return always(here)
        if task.is_run:  # whose own is after no item
            known = positions.__getitem__
            return Places(lambda given: known(given) if given else here, positions.before)
        return Places(partial(self._rereader.after, positions))

    def end_chunk(self) -> None:
        """End the iterator of the chunk at hand; what is left of it comes with another."""
        left = self._chunk.items
        self._hold(self._chunk._replace(items=copy(left)), self._skip_log.known)
        deque(left, 0)
        self._rereader.close()

    def _hold(self, chunk: Chunk, known: Skipped) -> None:
        # Without its `places`, which would be a cycle.
        of_chunk: Callable[[], SkipRecord] = SkipRecord
        if chunk.skipped:
            of_chunk = partial(_skipped_before, chunk.skipped, chunk.size, chunk.items)
        # Between these nothing can interrupt: what is counted is what is at hand.
        self._chunk, self._skip_log.known, self._skip_log.of_chunk = chunk, known, of_chunk

    def suspend(self) -> None:
        """Close what the tasks are generated from, and keep what is pending."""
        self._ahead.suspend()
        self._rereader.close()

    def resume(self, position: Position) -> bool:
        """Go on with what is pending, if that is what comes next."""
        if self._is_under_way:
            return False
        try:
            if self.snapshot() != position:
                return False
        except InvalidState:
            return False
        self._chunk = self._chunk._replace(before=-self._chunk.given())
        return True

    def close(self) -> None:
        """Have no more made."""
        self._ahead.close()
        self._rereader.close()


def _skipped_before(
    skipped: Sequence[tuple[int, SkipRecord]], size: int, items: Iterator[Any]
) -> SkipRecord:
    """What was left out before those items of a chunk that are delivered."""
    given, found = size - remaining(items), SkipRecord()
    for place, some in skipped:
        if place < given:
            found = found.plus(some)
    return found
