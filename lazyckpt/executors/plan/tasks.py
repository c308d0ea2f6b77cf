"""Generate tasks for workers from a position on, and choose how many items each has."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain, repeat
from math import inf
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Position
from lazyckpt.core.iterators import remaining
from lazyckpt.core.machine import Machine, machines
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import (
    MappedItems,
    Outcome,
    Span,
    build_machine,
    items_machine,
)
from lazyckpt.executors.plan.positions import ItemPositions, raise_or_position
from lazyckpt.executors.plan.reading import Reading
from lazyckpt.executors.plan.shares import Share
from lazyckpt.failures.skip_log import SkipLog, SkipRecord

_CHUNK_SECONDS = 32e-3  # time limit of a chunk
CHUNK_BYTES = 1 << 18  # size limit of a chunk
READY_BYTES = 9 << 19  # size limit of the parts of runs that are computed ahead, per worker
SHARED_BYTES = 1 << 26  # size limit of tasks that ranks share, done or in flight, in sum
CHUNK_ITEMS = 1 << 14
POSITION_BYTES = 256  # approximate size of a position
ANY = 1 << 60  # a number of items that is no limit
_END: Any = object()
Skip: TypeAlias = Callable[[Position, int], tuple[Position, int]]
_FIRST_ITEMS = 64  # items of the buffer to ask for while chunks still grow


class ChunkSizer:
    """Chooses the number of items per task: one at first, then more if items are small and fast.

    Attributes:
        size: Number of items that fit into a task.
        most: The most items that the next task may have; for a run, the most outputs.
        is_growing: If True, tasks are still far smaller than they will be.
    """

    def __init__(
        self,
        workers: int,
        in_transit: int,
        buffer_size: int,
        is_gated: bool,
        share: Share,
        fixed: int = 0,
        *,
        are_noted: bool = False,
    ) -> None:
        """Begin with one item per task.

        Args:
            workers: Number of workers.
            in_transit: Number of large chunks that may be in transit, plus one per worker.
            buffer_size: Number of items to hold ready.
            is_gated: If True, compute only items that the consumer waits for.
            share: This pipeline's share of the limits.
            fixed: Number of items of every task, whatever their size and time; 0 to adapt.
            are_noted: If True, tasks hold the position after each item.
        """
        self.size, self.most = fixed or 1, ANY
        self.fixed = fixed
        self._workers, self._in_transit = workers, in_transit
        self._buffer_size, self._is_gated = buffer_size, is_gated
        self._share, self._fraction = share, 1.0
        self._fitting = 1.0  # items per task, if this pipeline had all workers and all memory
        self.is_growing = not is_gated
        self._is_small = False
        self._beside = POSITION_BYTES if are_noted else 0
        self._bytes = CHUNK_BYTES / 8

    @property
    def count(self) -> int:
        """The number of items of the next task."""
        return min(self.size, self.most)

    def observe(self, outcome: Outcome, count: int, reading: float = 0.0) -> None:
        """Adapt the size of tasks.

        Args:
            outcome: The outcome of a task.
            count: Number of the task's items.
            reading: Seconds spent reading the task's inputs.
        """
        if not count or self._is_gated:
            return
        if outcome.items:  # the size of skipped items is unknown
            beside = self._beside if outcome.positions is None else POSITION_BYTES
            item_bytes = outcome.item_bytes + beside
            self._bytes = item_bytes * len(outcome.items) / count or 1
            self._is_small = self._bytes <= CHUNK_BYTES
        # Large items go alone: if two are alive together, each is allocated in new memory.
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

    def limit(self) -> int:
        """Return how many of this pipeline's items to have in flight; at least one."""
        return max(1, int(self._share.of(self.ahead())))

    def ahead(self) -> float:
        """Return how many items to have in flight: the buffer plus one chunk per worker.

        There are three chunks per worker if they are small, and otherwise the chunks in
        transit in addition. While chunks grow, the buffer is kept small: a full buffer of the
        first, tiny chunks would be slow.
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
    """Work for a worker or, if `payload` is None, the end.

    Attributes:
        payload: The task as its handler takes it.
        size: Number of items; for a run, the number of inputs.
        after: The position after the task; None if `item_positions` or the outcome has it.
        item_positions: The positions of its items; None if the outcome has them.
        skipped: The records skipped among the items to map, as in `Outcome`.
        is_run: If True, this belongs to a run, or is the end of runs. The records skipped in a
            run are numbered from 0.
        seconds: Time spent reading the task's inputs.
    """

    payload: Any
    size: int = 0
    after: Position = None
    item_positions: ItemPositions | None = None
    skipped: Sequence[tuple[int, SkipRecord]] = ()
    is_run: bool = False
    seconds: float = 0.0

    @property
    def is_single(self) -> bool:
        """Whether the task has only one item, so that an error is of that item."""
        return self.size == 1 and getattr(self.payload, "most", 1) == 1

    def rest(self, outcome: Outcome, most: int) -> Task:
        """Return the task for the inputs that an outcome has left, of at most `most` outputs."""
        made, item_positions = len(outcome.items), self.item_positions
        if item_positions is None:
            assert outcome.positions
            found = outcome.positions.last
        else:
            found, item_positions = item_positions.after(made), item_positions.since(made)
        payload = self.payload.rest(raise_or_position(found), outcome.left, most)
        skipped = [(number - made, some) for number, some in self.skipped if number >= made]
        return Task(payload, outcome.left, self.after, item_positions, skipped, is_run=self.is_run)

    def divided(self, count: int) -> tuple[Task, Task]:
        """Return the tasks for the first `count` of the items to map, and for the others."""
        positions, payload, left = self.item_positions, self.payload, self.size - count
        assert positions is not None
        rest = payload.rest(raise_or_position(positions.after(count)), left, ANY)
        before = [each for each in self.skipped if each[0] < count]
        skipped = [(number - count, some) for number, some in self.skipped if number >= count]
        first = self._replace(
            payload=payload._replace(items=payload.items[:count]), size=count, skipped=before
        )
        return first, Task(rest, left, self.after, positions.since(count), skipped)


TaskGenerator = Callable[[Position, ChunkSizer], Tasks]


def random_access_tasks(machine: Machine[Any]) -> TaskGenerator:
    """Return a generator of tasks for a `Reader` with random access, each with its own position."""
    skip = machine.skip
    assert skip is not None

    def generate(position: Position, sizer: ChunkSizer) -> Tasks:
        while True:
            count = sizer.count
            after, passed = skip(position, count)
            if passed:
                span = Span(position, passed, in_parts=not sizer.fixed)
                yield Task(span, passed, after, ItemPositions(_after(skip, position)))
            if passed < count:
                yield Task(None, after=after)
                return
            position = after

    return generate


def stream_tasks(position: Position, sizer: ChunkSizer) -> Tasks:
    """Yield tasks for the only `Reader` of a stream: the first has a position, later ones None."""
    for start in chain([position], repeat(None)):
        yield Task(Span(start, sizer.count), size=sizer.count)


def pointwise_tasks(
    upstream: Machine[Any],
    calls: tuple[Call, ...],
    skip_log: SkipLog | None = None,
) -> TaskGenerator:
    """Return a generator of tasks for a `Mapper` over a stream, which is read in this process.

    Args:
        upstream: The stream.
        calls: The pointwise stages to map.
        skip_log: Log of the stream. Each task carries the records skipped while its items were
            read; they are recorded again when the items come back.
    """
    log = skip_log or SkipLog()

    def generate(position: Position, sizer: ChunkSizer) -> Tasks:
        before = _upstream_position(calls, position)
        owns_part = before is not position  # one of the stages has its own position
        origin = upstream.epoch(before), upstream.share
        reading = Reading(
            upstream.flow(before),
            log,
            has_befores=not owns_part,
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
            except TaskLost:  # a new one, as the traceback of this one keeps files open
                error = TaskLost()
            except Exception as raised:
                error = raised
            finally:
                log.drain()  # records before an error; they are skipped again
                log.record(earlier)
            seconds = perf_counter() - begun
            skip = build_machine(
                calls, items_machine(items, *origin, positions.__getitem__, end)
            ).skip
            assert skip is not None
            if items:
                payload = MappedItems(position, origin, items, in_parts=not sizer.fixed)
                size = len(items)
                item_positions = ItemPositions(_after(skip, position), positions.before)
                yield Task(payload, size, None, item_positions, skipped, seconds=seconds)
                skipped = []
            if error is not None:
                try:
                    raise error
                finally:
                    del error  # its traceback refers to this frame: a reference cycle
            wanted = len(items) if end is None else count
            position, passed = skip(position, wanted)
            if passed < wanted:
                yield Task(None, after=position, skipped=skipped)
                return

    return generate


class LoggingItems(Iterator[Any]):
    """Items that log the records skipped before each item and after the last one."""

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
    return lambda count: skip(start, count)[0]


def _upstream_position(calls: tuple[Call, ...], position: Position) -> Position:
    """Return the upstream position inside a position of pointwise stages."""
    for machine in machines(build_machine(calls, items_machine([], 0)))[1:]:
        position = position[0] if machine.owns else position
    return position
