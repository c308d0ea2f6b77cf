"""Flows whose items workers make: in order, ahead of the consumer, from any position."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.errors import InvalidState, SourceChanged
from lazyckpt.executors.lookahead import Lookahead
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.executors.plan.positions import Rereader, raise_or_position
from lazyckpt.executors.plan.tasks import LoggingItems, Task, always
from lazyckpt.failures.skip_log import SkipLog, Skipped, SkipRecord
from lazyckpt.timers.timings import go_on, pause, receive


class Chunk(NamedTuple):
    """Items at hand, and what is known of them: one value, so that an interrupt finds all of it.

    Attributes:
        position_after: The position after so many of them.
        items: What is left of them.
        size: How many there were.
        before: How many were given before them.
        position_before: The position just before one of them, by its number from 1 on; None where
            that is always the one after the item before it.
        skipped: What was left out, and after how many of them.
        error: What comes after them.
        is_last: Whether the end does.
        after: The position from which tasks go on: of the end of a run, after the records
            that it left out after its last item. None if that is the position after them.
    """

    position_after: Callable[[int], Position]
    items: Iterator[Any]
    size: int = 0
    before: int = 0
    position_before: Callable[[int], Position] | None = None
    skipped: tuple[tuple[int, SkipRecord], ...] = ()
    error: Exception | None = None
    is_last: bool = False
    after: Position = None

    def given(self) -> int:
        return self.size - remaining(self.items)

    def end(self) -> Position:
        """Return the position from which tasks go on."""
        if self.after is not None:
            return self.after
        return raise_or_position(self.position_after(self.size))


class Prefetcher:
    """Has a pool make the items from a position on, ahead of the consumer.

    An interrupt may come at any time. So whatever takes several steps is under way
    from its first one to its last: what is found under way was left in the middle,
    and its tasks are generated again, from the end of the chunk at hand.
    """

    def __init__(
        self,
        ahead: Lookahead,
        position: Position,
        rereader: Rereader,
        skip_log: SkipLog | None = None,
        inner_log: SkipLog | None = None,
    ) -> None:
        self._ahead, self._gate = ahead, ahead.gate
        self._rereader = rereader
        self._skip_log, self._inner_log = skip_log or SkipLog(), inner_log
        self._is_under_way = False
        self._chunk = Chunk(always(position), iterate(()))

    def flow(self, let_go: Callable[[Prefetcher], None] | None = None) -> Flow[Any]:
        """The items; once nobody holds their flow, this is let go, where that is asked for."""
        chunks = _Chunks(self) if let_go is None else _DrivenChunks(self, let_go)
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
        return remaining(self._chunk.items) > 0 or self._ahead.is_ready

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
            return raise_or_position(chunk.position_after(given)), chunk.before + given
        finally:
            if self._gate.is_closed:
                self._rereader.close()

    def before(self) -> Position:
        """The position before the item that was taken last, once one was."""
        chunk = self._chunk
        given = chunk.given()
        if chunk.position_before is not None:
            return chunk.position_before(given)
        return raise_or_position(chunk.position_after(given - 1))

    def fill(self) -> None:
        """Have items made ahead; who is about to ask for one does so itself."""
        if not self._is_under_way:
            self._is_under_way = True
            self._ahead.fill(self._chunk.end)
            self._is_under_way = False

    def next_chunk(self) -> Iterator[Any] | None:
        """What is left of the chunk at hand, or the next one; None at the end."""
        while not remaining(self._chunk.items):
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
        if error is None and task.position_after is not None and size < task.size:
            error = SourceChanged(
                f"{task.size} items were expected, and {size} came: a source has become shorter"
            )
        position_after = always(task.after) if is_last else self._position_after(task, outcome)
        position_before = task.position_before
        if outcome.befores:
            position_before = partial(_before, outcome.befores, position_after)
        skipped = task.skipped or outcome.skipped
        items: Iterator[Any] = iterate(outcome.items)
        if self._inner_log is not None and skipped:
            items = LoggingItems(items, self._inner_log, dict(skipped))
            if not size:
                next(items, None)
        after = None if size else self._chunk.after  # what was left out before an error
        chunk = Chunk(
            position_after,
            items,
            size,
            self.taken(),
            position_before,
            skipped,
            error,
            is_last,
            task.after if error is None and not outcome.left else after,
        )
        self._hold(chunk, self._skip_log.including(some for _, some in self._chunk.skipped))
        if self._gate.is_open and error is None:
            self._ahead.fill(chunk.end)

    def _position_after(self, task: Task, outcome: Outcome) -> Callable[[int], Position]:
        """Return a function from a number of items to the position after them."""
        if task.position_after is not None:
            return task.position_after
        found = outcome.positions
        if found and not task.is_run:
            return self._rereader.positions(found, outcome.recorded)
        here = self._chunk.position_after(self._chunk.size)  # a run's own is after no item
        return lambda given: found[given] if found and given else here

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
    skipped: tuple[tuple[int, SkipRecord], ...], size: int, items: Iterator[Any]
) -> SkipRecord:
    """What was left out before those items of a chunk that are delivered."""
    given, found = size - remaining(items), SkipRecord()
    for place, some in skipped:
        if place < given:
            found = found.plus(some)
    return found


def _before(
    befores: Mapping[int, Position], position_after: Callable[[int], Position], number: int
) -> Position:
    found = befores.get(number)
    return raise_or_position(position_after(number - 1) if found is None else found)


class _Chunks:
    """The chunks of a prefetcher, for who holds its flow: no part of it, which would be a cycle."""

    def __init__(self, prefetcher: Prefetcher) -> None:
        self._prefetcher = prefetcher

    def next_chunk(self) -> Iterator[Any] | None:
        return self._prefetcher.next_chunk()

    def end_chunk(self) -> None:
        self._prefetcher.end_chunk()

    def close(self) -> None:
        self._prefetcher.close()


class _DrivenChunks(_Chunks):
    """The same in the thread that drives a pool, which no signal's handler interrupts."""

    def __init__(self, prefetcher: Prefetcher, let_go: Callable[[Prefetcher], None]) -> None:
        super().__init__(prefetcher)
        self._let_go = let_go

    _is_finalizing = staticmethod(sys.is_finalizing)  # which modules don't have any more by then

    def __del__(self) -> None:
        if not self._is_finalizing():
            self._let_go(self._prefetcher)
