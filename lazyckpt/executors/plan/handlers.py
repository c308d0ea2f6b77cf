"""Handlers of tasks in workers: read a chunk of a pipeline, or map stages over items."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from math import inf
from time import perf_counter
from typing import Any, NamedTuple

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.machine import ALL, Machine, Share
from lazyckpt.core.sizes import item_bytes
from lazyckpt.core.stages import closing, sourced
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.positions import Positions, try_snapshot
from lazyckpt.executors.plan.reading import Reading
from lazyckpt.failures.notes import Failure, as_failure
from lazyckpt.failures.skip_log import SkipRecord
from lazyckpt.failures.skipping import skip_log_of
from lazyckpt.failures.watching import guarded_in, leave_out
from lazyckpt.timers.timings import Timings, taken

PART_SECONDS = 0.1  # time limit of a part of a task, not counting its last items


class Outcome(NamedTuple):
    """The result of a task: items, optionally followed by an error or the end.

    Attributes:
        items: The items, up to an error or the end.
        failure: The error after the items.
        positions: The positions before the items and after each; None if the task has them.
        end: The position of the end, if the stream has ended.
        seconds: Time that the task took.
        item_bytes: Approximate size of an item.
        skipped: In a stream, the records skipped, each with the number of items before it.
        left: The number of input items left for the next part of the task.
        lost: The records skipped because workers were lost at them, by their names.
        timings: Times of its stages, if they are measured.
        is_transfer_error: If True, the task or the outcome couldn't be sent. The outcome then
            has no items, even if some were good.
    """

    items: list[Any]
    failure: Failure | None = None
    positions: Positions | None = None
    end: Position | None = None
    seconds: float = 0.0
    item_bytes: float = 0.0
    skipped: Sequence[tuple[int, SkipRecord]] = ()
    left: int = 0
    is_transfer_error: bool = False
    lost: Mapping[int, Exception] = {}
    timings: list[Timings] | None = None


class Handler(ABC):
    """Does one kind of task.

    Attributes:
        calls: The stages that it runs.
    """

    calls: tuple[Call, ...] = ()

    def __call__(self, task: Any, items: list[Any] | None = None, /) -> Outcome:
        """Do a task; return its outcome. If a list is passed, items are added as they come."""
        begun = perf_counter()
        items = [] if items is None else items
        failure, known = None, dict[str, Any]()
        try:
            self.make(task, items, known)
        except TaskLost:  # a new one, as the traceback of this one keeps files open
            failure = Failure(TaskLost(), "")
        except BaseException as error:
            failure = as_failure(error, self.calls)
        seconds = perf_counter() - begun
        try:
            known["item_bytes"] = known.get("item_bytes", 0.0) + item_bytes(items)
            return Outcome(items, failure, seconds=seconds, timings=taken(), **known)
        finally:
            del failure  # its traceback refers to this frame: a reference cycle

    @abstractmethod
    def make(self, task: Any, items: list[Any], known: dict[str, Any], /) -> None:
        """Add a task's items to `items`, and further fields of its outcome to `known`.

        Both count even if this raises an error.
        """

    @abstractmethod
    def share(self, task: Any) -> Share:
        """Return the task's share of the items of all ranks."""

    @abstractmethod
    def name(self, task: Any) -> tuple[Any, ...]:
        """Return values that identify a task on any rank: its position, its size, and more."""

    def leave_out(self, lost: Mapping[int, Exception]) -> None:
        """Skip the records at which other workers were lost, given by their names."""
        leave_out(guarded_in(self.calls), lost)
        if (skip_log := skip_log_of(Chain(self.calls))) is not None:
            skip_log.lose(lost)

    def fresh(self) -> Handler:
        """Return the same handler without open flows."""
        return self

    def close_flows(self) -> None:  # noqa: B027  # some have none
        """Close the open flows, so that the next task opens its own."""

    def without_lookahead(self) -> AbstractContextManager[None]:
        """Return a context in which nothing is computed before it is needed."""
        return nullcontext()

    def stop(self) -> None:  # noqa: B027  # most don't wait
        """Wait for other processes no longer, as the outcome isn't needed. In any thread."""


class Span(NamedTuple):
    """A task: read items.

    Attributes:
        position: Position to start from. None continues a stream.
        size: The number of items.
        in_parts: If True, and if it takes long, do a part of it.
    """

    position: Position
    size: int
    in_parts: bool = True

    def rest(self, position: Position, left: int, most: int) -> Span:
        """Return the task for the last `left` items."""
        return self._replace(position=position, size=left)


class Reader(Handler):
    """Reads items of a pipeline: a task is a `Span`.

    With random access, any worker can do any task. A stream continues from its current
    position: only its first task has a position, later tasks have None.
    """

    def __init__(
        self,
        chain: Chain,
        machine: Machine[Any] | None = None,
        suffices: Callable[[], bool] | None = None,
    ) -> None:
        """Prepare to read.

        Args:
            chain: The pipeline.
            machine: Its machine; None builds it.
            suffices: Whether the items read are enough of a stream, as the next one would have to
                be waited for.
        """
        self.chain, self._suffices = chain, suffices
        self.calls = chain.calls
        self._skip_log = skip_log_of(chain)
        self.machine = machine or chain.machine
        self.is_stream = self.machine.skip is None
        self._flows: dict[Position, tuple[Flow[Any], Iterator[Any]]] = {}
        self._stream: Reading | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        self.machine.check(self.machine.init(0))  # before pickling: the data haven't changed
        return Reader, (self.chain,)

    def fresh(self) -> Reader:
        return Reader(self.chain, self.machine, self._suffices)

    def close_flows(self) -> None:
        self._flows.clear()
        self._stream = None
        closing(self.machine)()

    def share(self, task: Span) -> Share:
        return self.machine.share

    def name(self, task: Span) -> tuple[Any, ...]:
        return task

    def make(self, task: Span, items: list[Any], known: dict[str, Any], /) -> None:
        deadline = perf_counter() + PART_SECONDS if task.in_parts else inf
        try:
            if self.is_stream:
                self._read_on(task, deadline, items, known)
            else:
                self._read_from(task, deadline, items, known)
        finally:
            if self._skip_log is not None:
                known["lost"] = self._skip_log.lost

    def _read_from(
        self, task: Span, deadline: float, items: list[Any], known: dict[str, Any]
    ) -> None:
        """Read items with random access; the flow stays open for the task that continues it."""
        opened = self._flows.pop(task.position, None)
        if opened is None:
            flow = self.machine.flow(task.position)
            opened = flow, iter(flow)
        flow, left = opened
        if _read_some(items, left, task.size, deadline):
            self._flows = {try_snapshot(flow): opened}
            known["left"] = task.size - len(items)

    def _read_on(
        self, task: Span, deadline: float, items: list[Any], known: dict[str, Any]
    ) -> None:
        """Read items of a stream, from where the last task ended if the position is None."""
        reading, self._stream, position = self._stream, None, task.position
        if position is not None:
            if self._skip_log is not None:
                self._skip_log.drain()  # records before an error; they are skipped again
            flow = self.machine.flow(position)
            reading = Reading(flow, self._skip_log, suffices=self._suffices)
        if reading is None:  # a new worker has no stream to continue
            raise TaskLost
        reading.begin_part()
        known.update(positions=reading.positions, skipped=reading.skipped)
        if reading.read(items, task.size, deadline):
            self._stream = reading
        else:
            known["end"] = try_snapshot(reading.flow)


def _read_some(items: list[Any], stream: Iterator[Any], count: int, deadline: float) -> bool:
    """Add items until there are `count`, or until the deadline; return False at the end.

    The clock is read after a few items of a task that has many, as these were quick so far.
    """
    some = count if deadline == inf else min(16, 1 + count // 256)
    while len(items) < count:
        before = len(items)
        items.extend(islice(stream, min(some, count - before)))
        if len(items) == before:
            return False
        if perf_counter() > deadline:
            break
    return True


class MappedItems(NamedTuple):
    """A task: map stages over items.

    Attributes:
        position: Position of the stages before the first item.
        upstream: The epoch and the share of the items.
        items: The items.
        in_parts: If True, and if it takes long, do a part of it.
    """

    position: Position
    upstream: tuple[int, Share]
    items: list[Any]
    in_parts: bool = True

    def rest(self, position: Position, left: int, most: int) -> MappedItems:
        """Return the task for the last `left` items."""
        return self._replace(position=position, items=self.items[-left:])


class Mapper(Handler):
    """Maps pointwise stages over items: a task is `MappedItems`."""

    def __init__(self, calls: tuple[Call, ...]) -> None:
        self.calls = calls

    def __reduce__(self) -> tuple[Any, ...]:
        return Mapper, (self.calls,)

    def share(self, task: MappedItems) -> Share:
        return task.upstream[1]

    def name(self, task: MappedItems) -> tuple[Any, ...]:
        return task.position, len(task.items), task.upstream[0]

    def make(self, task: MappedItems, items: list[Any], known: dict[str, Any], /) -> None:
        known["item_bytes"] = item_bytes(task.items)  # the inputs; the outputs are added later
        upstream, count = items_machine(task.items, *task.upstream), len(task.items)
        mapped = iter(build_machine(self.calls, upstream).flow(task.position))
        deadline = perf_counter() + PART_SECONDS if task.in_parts else inf
        if _read_some(items, mapped, count, deadline):
            known["left"] = count - len(items)


def without_flows(handlers: list[Handler]) -> list[Handler]:
    """Return the same handlers without open flows.

    The open flows close when the old handlers are dropped: immediately, or after a task that
    uses them.
    """
    return [each.fresh() for each in handlers]


def build_machine(calls: tuple[Call, ...], upstream: Machine[Any] | None) -> Machine[Any]:
    """Build the machine of stages on top of `upstream`."""
    for call in calls:
        upstream = call.build(upstream)
    assert upstream is not None
    return upstream


class _Taken(int):
    """The number of items taken, in place of a position."""


def items_machine(
    items: list[Any],
    epoch: int,
    share: Share = ALL,
    positions: Callable[[int], Position] | None = None,
    end: Position | None = None,
) -> Machine[Any]:
    """Return a machine that yields the items of a list, from the first on.

    Args:
        items: The items.
        epoch: The epoch of all items.
        share: Their share of the items of all ranks.
        positions: Function from a number of items to the position after them. None in a
            worker, which doesn't know positions and uses numbers.
        end: Position of the upstream end, if upstream has ended.
    """

    positions = positions or _Taken

    def flow(position: Position) -> Flow[Any]:
        left = iterate(items, position if type(position) is _Taken else 0)
        return Flow(left, lambda: positions(len(items) - remaining(left)))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        return (positions(n), n) if n <= len(items) else (end, len(items))

    source = sourced("items", flow=flow, skip=skip)
    return source._replace(init=lambda _: positions(0), epoch=lambda _: epoch, share=share)
