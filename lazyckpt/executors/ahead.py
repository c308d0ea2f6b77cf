"""Flows whose items are made by workers: in order, ahead of the consumer, from any position."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice, repeat
from operator import length_hint
from typing import Any, NamedTuple

from lazyckpt.call import Call
from lazyckpt.errors import SourceChanged
from lazyckpt.executors.crew import Crew, Gate, Ticket, forgotten
from lazyckpt.executors.parts import Outcome, Stale, fed, folded, known
from lazyckpt.machine import Flow, Machine, Position
from lazyckpt.tally import Met, Tally

_LONG = 16e-3  # seconds that a chunk may take
_LARGE = 1 << 18  # bytes that it may fill
_HUGE = 5 << 19  # the same, where the buffer has room for twice that: two items of 1 MiB
_MOST = 2048  # items
_FIRST = 64  # items of the buffer to ask for while it is not known how many make a chunk


class Pace:
    """How many items to a task: one at first, then as many as are quickly made and small."""

    def __init__(self, crew: Crew, is_gated: bool) -> None:
        self.size = 1
        self._is_growing = not is_gated
        self.wide = 2 * crew.workers if crew.workers > 1 else 1
        self._crew = crew
        self._is_gated = is_gated
        self._is_small = False
        self._slow = 0

    def slow(self, count: int) -> None:
        """Go one by one for so many items."""
        self.size, self._slow, self._is_growing = 1, count, False

    def saw(self, outcome: Outcome) -> None:
        count = len(outcome.items)
        self._slow -= min(count, self._slow)
        if not count or self._is_gated or self._slow:
            return
        size = outcome.size or 1
        spared = min(self._crew.buffer_size // 2, _HUGE / size)  # the buffer has room for those
        small = max(_LARGE / size, spared)
        fitting = min(small, _LONG * count / (outcome.seconds or _LONG), _MOST)
        self._is_growing = fitting > 8 * self.size
        self.size = max(1, min(int(fitting), 8 * self.size))
        self._is_small = outcome.size <= _LARGE

    def share(self, left: int) -> int:
        """The size, or less near the end, so that workers end at the same time."""
        return max(-(-left // self.wide), -(-self.size // 8))

    def most(self) -> int:
        """Items to have under way: a chunk a worker, the next two if small, and the buffer.

        As long as chunks grow, few of them: a buffer full of the first would take long.
        """
        chunks = self._crew.workers * (3 if self._is_small else 1)
        buffer = self._crew.buffer_size
        return chunks * self.size + (min(buffer, _FIRST) if self._is_growing else buffer)


class Task(NamedTuple):
    """Something for a worker to do; or with `payload` None the end.

    - `at`: the position after so many of its items; None if the outcome says
    - `telling`: makes of its items an iterator that tells what was left out before each
    """

    payload: Any
    at: Callable[[int], Position] | None = None
    size: int = 0
    telling: Callable[[Iterator[Any]], Iterator[Any]] | None = None


class _Telling(Iterator[Any]):
    """Items, before which a tally is told what was left out there."""

    def __init__(self, items: Iterator[Any], tally: Tally, left_out: dict[int, Met]) -> None:
        self._items, self._tally, self._left_out = items, tally, left_out
        self._place = 0

    def __next__(self) -> Any:
        item = next(self._items)
        if found := self._left_out.get(self._place):
            self._tally.more(found)
        self._place += 1
        return item

    def __length_hint__(self) -> int:
        return length_hint(self._items)


Feed = Callable[[Position, Pace], Iterator[Task]]


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
        self._tally = tally
        self._pace = Pace(crew, gate.is_gated)
        self._tasks = feed(position, self._pace)
        self._pending: deque[tuple[Task, Ticket | BaseException | None]] = deque()
        self._under_way = 0  # items of those
        self._is_over = False  # whether the feed has nothing more
        self._life = crew.life
        self._at: Callable[[int], Position] = lambda given: position
        self.items: Iterator[Any] = iter(())
        self._skipped: tuple[tuple[int, Met], ...] = ()
        self._size = self._delivered = 0  # of the items at hand; of all, once these are given

    def flow(self) -> Flow[Any]:
        lots = _Lots(self)
        items = chain.from_iterable(iter(lots.lot, None))
        return Flow(items, self.snapshot, taken=self.taken, lots=lots)

    def taken(self) -> int:
        return self._delivered - length_hint(self.items)

    def snapshot(self) -> Position:
        return known(self._at(self._size - length_hint(self.items)))

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
        """Set `items` to the next ones, again and again."""
        try:
            while True:
                self.fill()
                task, ticket = self._pending.popleft()
                self._under_way -= task.size
                if isinstance(ticket, Stale) and not self._crew.is_led:
                    self._again()
                    continue
                if isinstance(ticket, BaseException):
                    raise ticket
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
                self._arrived(outcome, task.at or self._reached(outcome))
                if task.telling is not None:
                    self.items = task.telling(self.items)
                outcome, ticket = outcome._replace(items=[]), None  # who takes the items owns them
                if self._gate.is_open and outcome.failure is None:
                    self.fill()
                yield self.items
                if outcome.failure is not None:
                    self._crew.mend()
                    if isinstance(outcome.failure.error, Stale):  # of a new worker, or a crew led
                        self._again()
                        continue
                    raise outcome.failure
                if task.at is not None and given < task.size:
                    raise SourceChanged(
                        f"{task.size} items were to come, and there were {given}: "
                        "a source has become shorter"
                    )
                if task.at is None and outcome.end is not None:
                    return self._arrived(Outcome([]), _always(outcome.end))
        finally:
            self._forget()

    def _outcome(self, ticket: Ticket) -> Outcome:
        if self._gate.is_open or self._crew.has(ticket):  # nothing else slips through then
            return self._crew.result(ticket)
        with self._gate.waiting():
            return self._crew.result(ticket)

    def _reached(self, outcome: Outcome) -> Callable[[int], Position]:
        if not outcome.reached:  # it failed on its way, or before it had begun
            return _always(self._at(self._size - length_hint(self.items)))
        return outcome.reached.__getitem__

    def _arrived(self, outcome: Outcome, at: Callable[[int], Position]) -> None:
        if self._tally is not None:
            for _, some in self._skipped:
                self._tally.arrived(some)
        self._at, self._size, self._skipped = at, len(outcome.items), outcome.skipped
        self._hold(iter(outcome.items))
        self._delivered += self._size

    def leave(self) -> None:
        """End the iterator of the items at hand; what is left of them comes with another."""
        self._hold(iter([*self.items]))

    def _hold(self, items: Iterator[Any]) -> None:
        self.items = items
        if self._tally is not None:  # which knows nothing of this: that would be a cycle
            self._tally.of_lot = partial(_left_out, self._skipped, self._size, items)

    def _again(self) -> None:
        """Feed from here on once more: what was under way is lost."""
        self._forget()
        self._life = self._crew.life
        self._tasks, self._is_over = self._feed(self.snapshot(), self._pace), False

    def _shed(self) -> None:
        """Where a stream's worker was stopped, keep what it had done, and feed from there on."""
        done: list[tuple[Task, Ticket | BaseException | None]] = []
        at = self._at(self._size)
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


def seeking(machine: Machine[Any]) -> Feed:
    """Tasks of a walk with random access: each from its own position."""
    skip = machine.skip
    assert skip is not None

    def feed(position: Position, pace: Pace) -> Iterator[Task]:
        while True:
            count = pace.size
            if pace.wide > 1:
                count = pace.share(skip(position, pace.wide * count)[1])
            after, passed = skip(position, count)
            if passed:
                yield Task((position, passed), _after(skip, position), passed)
            if passed < count:
                yield Task(None, _always(after))
                return
            position = after

    return feed


def going(position: Position, pace: Pace) -> Iterator[Task]:
    """Tasks of a stream's only worker: from a position, and then on and on."""
    for start in chain([position], repeat(None)):
        yield Task((start, pace.size), size=pace.size)


def pulling(upstream: Machine[Any], calls: tuple[Call, ...], tally: Tally | None = None) -> Feed:
    """Tasks of pointwise stages over a stream, which is read here.

    What the tally counts meanwhile is told once more where the items come back.
    """

    def telling(
        left_out: dict[int, Met],
    ) -> Callable[[Iterator[Any]], Iterator[Any]] | None:
        if tally is None or not left_out:
            return None
        return partial(_Telling, tally=tally, left_out=left_out)

    def feed(position: Position, pace: Pace) -> Iterator[Task]:
        before = _before(calls, position)
        epoch = upstream.epoch(before)
        items = upstream.flow(before)
        stream = iter(items)
        while True:
            some: list[Any] = []
            places = [items.snapshot()]
            error = end = None
            count = pace.size
            left_out: dict[int, Met] = {}
            before_it = Met() if tally is None else tally.told()
            try:
                for item in islice(stream, count):
                    if tally is not None and (found := tally.told()).spans:
                        left_out[len(some)] = found
                    some.append(item)
                    places.append(items.snapshot())
                if len(some) < count:
                    end = items.snapshot()
            except Exception as raised:
                error = raised
            finally:
                rest = Met() if tally is None else tally.told()
                if tally is not None:
                    tally.more(before_it)
            skip = folded(calls, fed(some, epoch, places, end)).skip
            assert skip is not None
            if some:
                yield Task(
                    (position, epoch, some), _after(skip, position), len(some), telling(left_out)
                )
            if error is not None:
                raise error
            position, passed = skip(position, count)
            if passed < count:
                yield Task(
                    None, _always(position), telling=telling({0: rest} if rest.spans else {})
                )
                return

    return feed


def _left_out(lot: tuple[tuple[int, Met], ...], size: int, items: Iterator[Any]) -> Met:
    """What was left out before those items of a lot that are delivered."""
    given, found = size - length_hint(items), Met()
    for place, some in lot:
        if place < given:
            found = found.and_then(some)
    return found


def _always(position: Position) -> Callable[[int], Position]:
    return lambda given: position


def _after(
    skip: Callable[[Position, int], tuple[Position, int]], start: Position
) -> Callable[[int], Position]:
    return lambda given: skip(start, given)[0]


def _before(calls: tuple[Call, ...], position: Position) -> Position:
    """The upstream position within one of pointwise stages."""
    found: list[Position] = []

    def flow(before: Position) -> Flow[Any]:
        found.append(before)
        return Flow(iter(()), lambda: before)

    folded(calls, fed([], 0)._replace(flow=flow)).flow(position)
    return found[0]
