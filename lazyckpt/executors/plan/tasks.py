"""Tasks for workers, generated from a position on, and how many items each has."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from math import inf
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.iterators import remaining
from lazyckpt.core.machine import Machine
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Outcome, build_machine, items_machine
from lazyckpt.executors.plan.positions import Places, Rereader, raise_or_position
from lazyckpt.executors.plan.reading import Reading
from lazyckpt.executors.plan.shares import Share
from lazyckpt.failures.skip_log import SkipLog, SkipRecord

_CHUNK_SECONDS = 32e-3  # what making a chunk may take
CHUNK_BYTES = 1 << 18  # what it may fill
READY_BYTES = 9 << 19  # what parts of runs may fill that are made ahead, by each worker
SHARED_BYTES = 1 << 26  # what tasks that ranks share may fill, made or under way on all of them
CHUNK_ITEMS = 1 << 14
ANY = 1 << 60  # a number of items that is no limit
_END: Any = object()
Skip: TypeAlias = Callable[[Position, int], tuple[Position, int]]
_FIRST_ITEMS = 64  # of the buffer, to ask for while chunks still grow


class ChunkSizer:
    """How many items a task has: one at first, then as many as are small and quickly made.

    Attributes:
        size: Items that fit into a task.
        most: The most items that the next task may have; of a run, that may come of it.
        tail: How many tasks before the end they begin to shrink; 1 is never.
        is_growing: Whether tasks are still far smaller than they will be.
    """

    def __init__(
        self,
        workers: int,
        in_transit: int,
        buffer_size: int,
        is_gated: bool,
        share: Share,
        fixed: int = 0,
    ) -> None:
        """Begin with one item a task.

        Args:
            workers: How many workers there are.
            in_transit: How many large chunks may be on their way besides theirs.
            buffer_size: Items to have ready.
            is_gated: Whether nothing is made that nobody waits for.
            share: What is this pipeline's of all of that.
            fixed: Items of every task, whatever they take; 0 if there is no such number.
        """
        self.size, self.most = fixed or 1, ANY
        self.fixed = fixed
        self.tail = 2 * workers if workers > 1 and not fixed else 1
        self._workers, self._in_transit = workers, in_transit
        self._buffer_size, self._is_gated = buffer_size, is_gated
        self._share, self._fraction = share, 1.0
        self._fitting = 1.0  # items of a task, if this had all workers and all memory
        self.is_growing = not is_gated
        self._is_small = False
        self._bytes = CHUNK_BYTES / 8

    @property
    def count(self) -> int:
        """Items of the next task."""
        return min(self.size, self.most)

    def observe(self, outcome: Outcome, count: int, reading: float = 0.0) -> None:
        """Fit the size to what a task of so many items took, and the reading of what it got."""
        if not count or self._is_gated:
            return
        if outcome.items:  # of those left out nobody knows the size
            self._bytes = outcome.item_bytes * len(outcome.items) / count or 1
            self._is_small = self._bytes <= CHUNK_BYTES
        # Of large ones no two: if they are alive together, each is made in memory that is new.
        small = CHUNK_BYTES / self._bytes
        quick = _CHUNK_SECONDS * count / (max(outcome.seconds, reading) or _CHUNK_SECONDS)
        self._fraction = self._share.fraction()
        if self.fixed:
            self._fitting, self.is_growing = self.fixed / self._fraction, False
            return
        self._fitting = min(small, quick, CHUNK_ITEMS / self._fraction)
        fitting = self._fitting * self._fraction
        self.is_growing = fitting > 8 * self.size
        self.size = max(1, min(int(fitting), 8 * self.size))

    def next(self, skip: Skip, position: Position) -> tuple[int, Position, int]:
        """Return the size of the next task, the position after it, and how many items there are.

        Near the end tasks shrink, so that workers end at the same time.
        """
        count = self.count
        if self.tail > 1:
            left = skip(position, self.tail * count)[1]
            count = max(-(-left // self.tail), -(-count // 8))
        return count, *skip(position, count)

    def limit(self) -> int:
        """Items to have under way, of those that come next.

        Each pipeline that is joined has at least one.
        """
        return max(1, int(self._share.of(self.ahead())))

    def ahead(self) -> float:
        """Items to have under way: the buffer, and chunks: one a worker, three if they are small.

        Of large ones there are those in transit besides. As long as chunks grow, few of
        them: a buffer full of the first would take long.
        """
        workers = self._workers
        chunks = 3 * workers if self._is_small else workers + self._in_transit
        buffer = min(self._buffer_size, _FIRST_ITEMS) if self.is_growing else self._buffer_size
        items = chunks * min(self.size / self._fraction, max(1, self._fitting))
        return buffer + (
            min(items, self.size + SHARED_BYTES / self._bytes) if self.fixed else items
        )


Tasks: TypeAlias = Generator["Task", None, None]


class Task(NamedTuple):
    """Work for a worker; or, if `payload` is None, the end.

    Attributes:
        payload: The task as its handler takes it.
        size: Number of items; of a run, items upstream.
        after: The position after all of it; None if `places` or the outcome has it.
        places: Those of its items. None if the outcome has them.
        skipped: The records that were left out of the items to map, as in `Outcome`.
        is_run: If True, a part of a run or the end of runs. Records left out in a run are
            numbered from 0.
        seconds: How long it took to read what the worker gets.
    """

    payload: Any
    size: int = 0
    after: Position = None
    places: Places | None = None
    skipped: Sequence[tuple[int, SkipRecord]] = ()
    is_run: bool = False
    seconds: float = 0.0

    @property
    def is_single(self) -> bool:
        """Whether an error is that of its only item."""
        return self.size == 1 and getattr(self.payload, "most", 1) == 1


TaskGenerator = Callable[[Position, ChunkSizer], Tasks]


def random_access_tasks(machine: Machine[Any]) -> TaskGenerator:
    """Tasks for a `Reader` with random access: each has its own position."""
    skip = machine.skip
    assert skip is not None

    def generate(position: Position, sizer: ChunkSizer) -> Tasks:
        while True:
            count, after, passed = sizer.next(skip, position)
            if passed:
                yield Task((position, passed), passed, after, Places(_after(skip, position)))
            if passed < count:
                yield Task(None, after=after)
                return
            position = after

    return generate


def stream_tasks(position: Position, sizer: ChunkSizer) -> Tasks:
    """Tasks for the only `Reader` of a stream: from a position, and then on and on."""
    for start in chain([position], repeat(None)):
        yield Task((start, sizer.count), size=sizer.count)


def pointwise_tasks(
    upstream: Machine[Any],
    calls: tuple[Call, ...],
    rereader: Rereader,
    skip_log: SkipLog | None = None,
) -> TaskGenerator:
    """Generate tasks for a `Mapper` of pointwise stages over a stream, which is read here.

    Each task has the records that the skip log got meanwhile, to be recorded again where
    the items come back. The rereader finds positions upstream.
    """
    log = skip_log or SkipLog()

    def generate(position: Position, sizer: ChunkSizer) -> Tasks:
        before = _upstream_position(calls, position)
        has_place = before is not position  # one of the stages, of its own
        origin = upstream.epoch(before), upstream.share
        reading = Reading(
            upstream.flow(before),
            log,
            is_counted=rereader.is_counting,
            has_befores=not (rereader.is_counting or has_place),
            is_strict=True,
        )
        while True:
            count, begun, items = sizer.count, perf_counter(), list[Any]()
            reading.begin_part()
            positions, skipped = reading.positions, reading.skipped
            raise_or_position(positions.last)
            error: Exception | None = None
            end, earlier = None, log.drain()
            try:
                deadline = inf if sizer.fixed else begun + _CHUNK_SECONDS
                if not reading.read(items, count, deadline):
                    end = reading.flow.snapshot()
            except TaskLost:  # without its traceback, which holds open files
                error = TaskLost()
            except Exception as raised:
                error = raised
            finally:
                log.drain()  # before an error; it comes again
                log.record(earlier)
            seconds = perf_counter() - begun
            after = partial(rereader.after, positions)
            skip = build_machine(calls, items_machine(items, *origin, after, end)).skip
            assert skip is not None
            if items:
                payload, size = (position, origin, items), len(items)
                places = Places(_after(skip, position), positions.before)
                yield Task(payload, size, None, places, skipped, seconds=seconds)
                skipped = []
            if error is not None:
                try:
                    raise error
                finally:
                    del error  # its traceback has this frame, which would be a cycle
            wanted = len(items) if end is None else count
            position, passed = skip(position, wanted)
            if passed < wanted:
                yield Task(None, after=position, skipped=skipped)
                return

    return generate


class LoggingItems(Iterator[Any]):
    """Items that log, before each and behind the last, what was left out there."""

    def __init__(
        self, items: Iterator[Any], skip_log: SkipLog, skipped: dict[int, SkipRecord]
    ) -> None:
        self._items, self._skip_log, self._skipped = items, skip_log, skipped
        self._place, self._is_over = 0, False

    def __next__(self) -> Any:
        item = next(self._items, _END)
        if not self._is_over and (found := self._skipped.get(self._place)):
            self._skip_log.record(found)
        if item is _END:
            self._is_over = True
            raise StopIteration
        self._place += 1
        return item

    def __length_hint__(self) -> int:
        return remaining(self._items)


def _after(skip: Skip, start: Position) -> Callable[[int], Position]:
    return lambda given: skip(start, given)[0]


def _upstream_position(calls: tuple[Call, ...], position: Position) -> Position:
    """The upstream position within that of pointwise stages."""
    found: list[Position] = []

    def flow(before: Position) -> Flow[Any]:
        found.append(before)
        return Flow(iter(()), lambda: before)

    build_machine(calls, items_machine([], 0)._replace(flow=flow)).flow(position)
    return found[0]
