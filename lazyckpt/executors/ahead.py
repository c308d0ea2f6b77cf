"""Flows whose items are made by workers: in order, ahead of the consumer, from any position."""

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
from lazyckpt.executors.crew import Crew, Gate, Ticket, forgotten
from lazyckpt.executors.feeds import Feed, Pace, Task, always, going
from lazyckpt.executors.parts import Outcome, Stale, known
from lazyckpt.failures.skip_log import Met, Skipped, Tally


class Ahead:
    """A walk that a crew does, seen from the consumer."""

    def __init__(
        self,
        crew: Crew,
        gate: Gate,
        part: int,
        feed: Feed,
        position: Position,
        tally: Tally | None = None,
    ) -> None:
        self._crew, self._gate, self._part, self._feed = crew, gate, part, feed
        self._tally = tally or Tally()
        self._pace = Pace(crew, gate.is_gated)
        self._tasks = feed(position, self._pace)
        self._pending: deque[tuple[Task, Ticket | BaseException | None]] = deque()
        self._under_way = 0  # items of those
        self._is_over = False  # whether the feed has nothing more
        self._life = crew.life
        self._lot = _Lot(lambda given: position, iter(()))

    def flow(self) -> Flow[Any]:
        lots = _Lots(self)
        items = chain.from_iterable(iter(lots.lot, None))
        return Flow(items, self.snapshot, taken=self.taken, lots=lots)

    @property
    def items(self) -> Iterator[Any]:
        """Those at hand."""
        return self._lot.items

    def taken(self) -> int:
        return self._lot.before + self._lot.given()

    def snapshot(self) -> Position:
        return known(self._lot.at(self._lot.given()))

    def fill(self) -> None:
        """Hand in tasks: as many as may be under way, or one where nothing is made ahead."""
        if self._life != self._crew.life and self._feed is going:
            self._shed()
        self._life = self._crew.life
        while not self._is_over:
            if self._under_way >= (self._pace.most() if self._gate.is_open else 1):
                return
            if self._gate.is_shut:
                raise Stale
            try:
                task = next(self._tasks)
                is_end = task.payload is None
                ticket = None if is_end else self._crew.submit(self._part, task.payload, task.size)
            except Exception as error:  # items before it come first
                self._pending.append((Task(None), error))
                self._is_over = True
                return
            except BaseException:  # of the consumer
                self._pending.append((Task(None), Stale()))
                self._is_over = True
                raise
            self._pending.append((task, ticket))
            self._under_way += task.size
            self._is_over = is_end

    def chunks(self) -> Iterator[Iterator[Any]]:
        """The next ones at hand, again and again."""
        try:
            while True:
                self.fill()
                task, ticket = self._pending.popleft()
                self._under_way -= task.size
                if isinstance(ticket, Stale) and not self._crew.is_led:
                    self._again()
                    continue
                if isinstance(ticket, BaseException):
                    try:
                        raise ticket
                    finally:
                        del ticket
                if ticket is None:
                    assert task.at is not None
                    if task.telling is not None:
                        next(task.telling(iter([None])))
                    return self._arrived(Outcome([]), task.at)
                life = self._crew.life
                if self._gate.is_shut:
                    raise Stale
                try:
                    outcome = self._outcome(ticket)
                except Stale:
                    if life != self._crew.life:  # it was stopped while this was waiting
                        raise
                    if self._feed is going:
                        self._again()
                    else:
                        ticket = self._crew.submit(self._part, task.payload, task.size)
                        self._pending.appendleft((task, ticket))
                        self._under_way += task.size
                    continue
                if outcome.is_torn and task.size > 1:
                    self._pace.slow(task.size)
                    self._again()
                    continue
                self._pace.saw(outcome)
                given = len(outcome.items)
                self._arrived(outcome, task.at or self._reached(outcome), task.telling)
                outcome, ticket = outcome._replace(items=[]), None  # who takes the items owns them
                if self._gate.is_open and outcome.failure is None:
                    self.fill()
                yield self.items
                if outcome.failure is not None:
                    self._crew.mend()
                    if isinstance(outcome.failure.error, Stale):  # of a new worker, or a crew led
                        self._again()
                        continue
                    failure, outcome = outcome.failure, Outcome([])
                    try:
                        raise failure
                    finally:
                        del failure  # its traceback has this frame, which would be a cycle
                if task.at is not None and given < task.size:
                    raise SourceChanged(
                        f"{task.size} items were to come, and there were {given}: "
                        "a source has become shorter"
                    )
                if task.at is None and outcome.end is not None:
                    return self._arrived(Outcome([]), always(outcome.end))
        finally:
            self._forget()

    def _outcome(self, ticket: Ticket) -> Outcome:
        at_hand = not self._gate.is_open and self._crew.has(ticket)  # nothing slips through then
        if at_hand or self._crew.is_led:  # by a thread that may be held back as well
            return self._crew.result(ticket)
        with self._gate.waiting():
            return self._crew.result(ticket)

    def _reached(self, outcome: Outcome) -> Callable[[int], Position]:
        if not outcome.reached:  # it failed on its way, or before it had begun
            return always(self._lot.at(self._lot.given()))
        return outcome.reached.__getitem__

    def _arrived(
        self,
        outcome: Outcome,
        at: Callable[[int], Position],
        telling: Callable[[Iterator[Any]], Iterator[Any]] | None = None,
    ) -> None:
        items = iter(outcome.items) if telling is None else telling(iter(outcome.items))
        lot = _Lot(at, items, len(outcome.items), self.taken(), outcome.skipped)
        self._hold(lot, self._tally.after(some for _, some in self._lot.skipped))

    def leave(self) -> None:
        """End the iterator of the items at hand; what is left of them comes with another."""
        left = self._lot.items
        self._hold(self._lot._replace(items=copy(left)), self._tally.known)
        deque(left, 0)

    def _hold(self, lot: _Lot, known: Skipped) -> None:
        of_lot = partial(_left_out, lot.skipped, lot.size, lot.items)  # not `at`: a cycle
        # Between these nothing can interrupt: what is counted is what is at hand.
        self._lot, self._tally.known, self._tally.of_lot = lot, known, of_lot

    def _again(self) -> None:
        """Feed from here on once more: what was under way is lost."""
        self._forget()
        self._life = self._crew.life
        self._tasks, self._is_over = self._feed(self.snapshot(), self._pace), False

    def _shed(self) -> None:
        """Where a stream's worker was stopped, keep what it had done, and feed from there on."""
        done: list[tuple[Task, Ticket | BaseException | None]] = []
        at = self._lot.at(self._lot.size)
        for task, ticket in self._pending:
            if not isinstance(ticket, Ticket) or not self._crew.has(ticket):
                break
            try:
                outcome = self._crew.result(ticket)
            except Stale:
                break
            done.append((task, ticket))
            if outcome.failure is not None or outcome.end is not None or not outcome.reached:
                return  # it ends with this
            at = outcome.reached[-1]
        for _ in done:
            self._pending.popleft()
        self._forget()
        self._pending.extend(done)
        self._under_way = sum(task.size for task, _ in done)
        self._tasks, self._is_over = self._feed(known(at), self._pace), False

    def _forget(self) -> None:
        forgotten(ticket for _, ticket in self._pending if isinstance(ticket, Ticket))
        self._pending.clear()
        self._under_way = 0


class _Lot(NamedTuple):
    """Items at hand, and what is known of them: one value, so that an interrupt finds all of it.

    - `at`: the position after so many of them
    - `size`: how many there were; `before`: and before them
    - `skipped`: what was left out after so many of them
    """

    at: Callable[[int], Position]
    items: Iterator[Any]
    size: int = 0
    before: int = 0
    skipped: tuple[tuple[int, Met], ...] = ()

    def given(self) -> int:
        return self.size - length_hint(self.items)


class _Lots:
    """The chunks of a walk, each as a lot. No part of it, so that it is no cycle."""

    def __init__(self, walk: Ahead) -> None:
        self._walk = walk
        self._chunks = walk.chunks()

    def lot(self) -> Iterator[Any] | None:
        items = self._walk.items
        return items if length_hint(items) else next(self._chunks, None)

    def leave(self) -> None:
        self._walk.leave()


def _left_out(lot: tuple[tuple[int, Met], ...], size: int, items: Iterator[Any]) -> Met:
    """What was left out before those items of a lot that are delivered."""
    given, found = size - length_hint(items), Met()
    for place, some in lot:
        if place < given:
            found = found.and_then(some)
    return found
