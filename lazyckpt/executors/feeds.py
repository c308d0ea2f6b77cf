"""What there is to do for workers: tasks of a walk, and how many items are in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice, repeat
from operator import length_hint
from typing import Any, NamedTuple

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.executors.crew import Crew
from lazyckpt.executors.parts import Outcome, fed, folded
from lazyckpt.failures.skip_log import Met, Tally

_LONG = 32e-3  # seconds that a chunk may take
_LARGE = 1 << 18  # bytes that it may fill
_HUGE = 5 << 19  # the same, where the buffer has room for twice that: two items of 1 MiB
_MOST = 2048  # items
_FIRST = 64  # items of the buffer to ask for while it is not known how many make a chunk


class Pace:
    """How many items to a task: one at first, then as many as are quickly made and small.

    - `wide`: how many tasks before the end they begin to shrink; 1 is never
    """

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
                yield Task(None, always(after))
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
                try:
                    raise error
                finally:
                    del error  # its traceback has this frame, which would be a cycle
            position, passed = skip(position, count)
            if passed < count:
                yield Task(None, always(position), telling=telling({0: rest} if rest.spans else {}))
                return

    return feed


def always(position: Position) -> Callable[[int], Position]:
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
