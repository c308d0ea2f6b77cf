"""What a worker does with a task: read a chunk of a pipeline, or map stages over items."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.machine import ALL, Machine, Share
from lazyckpt.core.sizes import item_bytes
from lazyckpt.core.stages import sourced
from lazyckpt.executors.plan.counting import Recorders, counting, recorded, recorders_of
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.positions import PositionLog, try_snapshot
from lazyckpt.executors.plan.recording import Recorded
from lazyckpt.failures.notes import Failure, as_failure
from lazyckpt.failures.skip_log import SkipRecord
from lazyckpt.failures.skipping import skip_log_of
from lazyckpt.timers.timings import Timings, taken


class Outcome(NamedTuple):
    """The result of a task: items, and then perhaps an error or the end.

    Attributes:
        items: What was made, up to an error or the end.
        failure: The error that came next.
        positions: Of a stream, the position before the items and after each, or None.
        end: The position of the end, if the stream has ended.
        seconds: How long it took.
        item_bytes: About how large an item is.
        skipped: Of a stream, what was left out, and after how many items.
        befores: Of a run, as of `PositionLog`.
        left: Of a run of upstream items, how many are left to another part of it.
        recorded: Of a stream that joins pipelines, what was recorded of each, if it was.
        lost: The names of the records that were left out as workers were lost at them.
        timings: What its stages have taken, where that is measured.
        is_transfer_error: Whether `failure` is of sending the task or this. No
            items came through, though some may have been good.
    """

    items: list[Any]
    failure: Failure | None = None
    positions: Sequence[Any] | None = None
    end: Position | None = None
    seconds: float = 0.0
    item_bytes: float = 0.0
    skipped: tuple[tuple[int, SkipRecord], ...] = ()
    befores: Mapping[int, Position] = {}  # nobody writes to it
    left: int = 0
    recorded: list[list[Recorded]] | None = None
    is_transfer_error: bool = False
    lost: tuple[int, ...] = ()
    timings: list[Timings] | None = None


class Handler(ABC):
    """Does one kind of task.

    Attributes:
        calls: The stages that it runs.
    """

    calls: tuple[Call, ...] = ()

    @abstractmethod
    def __call__(self, task: Any, items: list[Any] | None = None, /) -> Outcome:
        """What comes of a task. Its items go into the list, if there is one, as they are made."""

    def fresh(self) -> Handler:
        """The same, without the flows that this one has open."""
        return self

    def close_flows(self) -> None:  # noqa: B027  # some have none
        """Close the flows that it has open, so that the next task begins by itself."""

    def without_lookahead(self) -> AbstractContextManager[None]:
        """A context in which it has nothing made before that is needed."""
        return nullcontext()


class Reader(Handler):
    """Reads items of a pipeline: a task is (position, count).

    With random access any worker can do any task. A stream goes on from where it
    is: only its first task has a position, the next ones have None.
    """

    def __init__(
        self,
        chain: Chain,
        machine: Machine[Any] | None = None,
        recorders: Recorders | None = None,
    ) -> None:
        self.chain = chain
        self.calls = chain.calls
        self._skip_log = skip_log_of(chain)
        if machine is None and (recorders := recorders_of(chain)) is not None:
            machine = recorded(chain, recorders)
        self.machine = machine or chain.machine
        self.is_stream = self.machine.skip is None
        self._recorders = [each for each in recorders or () if each is not None]
        self._is_counted = bool(self._recorders) or (self.is_stream and counting(chain) is not None)
        self._open: dict[Position, tuple[Flow[Any], Iterator[Any]] | None] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        self.machine.check(self.machine.init(0))  # that the data are those it will be made of
        return Reader, (self.chain,)

    def fresh(self) -> Reader:
        """The same reader, without the flow that this one has open."""
        return Reader(self.chain, None if self._recorders else self.machine)

    def close_flows(self) -> None:
        self._open.clear()

    def __call__(self, task: tuple[Position, int], items: list[Any] | None = None, /) -> Outcome:
        begun = perf_counter()
        position, count = task
        items = [] if items is None else items
        skipped: list[tuple[int, SkipRecord]] = []
        positions: list[Any] | None = [] if self.is_stream else None
        end = failure = None
        try:
            opened = self._open.pop(self._key(position), None)
            if opened is None and position is None:  # a new worker, which goes on from nowhere
                raise TaskLost
            flow, stream = opened or self._flow_from(position)
            if positions is None:
                items.extend(islice(stream, count))  # keeps what comes before an error
            else:
                log = PositionLog(flow, is_counted=self._is_counted)
                positions = log.known
                if self._is_counted:
                    try:
                        items.extend(islice(stream, count))
                    finally:
                        log.pass_over(len(items))
                else:
                    for item in islice(stream, count):
                        self._add_skipped(skipped, len(items))
                        items.append(item)
                        log.add()
                if len(items) == count:
                    log.finish()
            if len(items) == count:
                self._open.clear()
                self._open[None if self.is_stream else flow.snapshot()] = flow, stream
            else:
                self._add_skipped(skipped, len(items))
                end = try_snapshot(flow)
        except TaskLost:  # without its traceback, which holds open files
            failure = Failure(TaskLost(), "")
        except BaseException as error:
            failure = as_failure(error, self.calls)
        seconds = perf_counter() - begun
        try:
            size = item_bytes(items)
            tables = [each.take() for each in self._recorders] if self._recorders else None
            return Outcome(
                items,
                failure,
                positions,
                end,
                seconds,
                size,
                tuple(skipped),
                recorded=tables,
                lost=() if self._skip_log is None else self._skip_log.lost,
                timings=taken(),
            )
        finally:
            del failure  # its traceback has this frame, which would be a cycle

    def _add_skipped(self, skipped: list[tuple[int, SkipRecord]], place: int) -> None:
        """Note what was left out since the last call."""
        if self._skip_log is not None and (found := self._skip_log.drain()).spans:
            skipped.append((place, found))

    def _key(self, position: Position) -> Position:
        """The key of the flow that is open at a position: None for that of a stream."""
        if position is None:
            return None
        stream = self._open.get(None)
        is_there = stream is not None and try_snapshot(stream[0]) == position
        return None if is_there else position

    def _flow_from(self, position: Position) -> tuple[Flow[Any], Iterator[Any]]:
        if self._skip_log is not None:
            self._skip_log.drain()  # before an error; it comes again
        for recorder in self._recorders:
            recorder.forget()
        flow = self.machine.flow(position)
        return flow, iter(flow)


class Mapper(Handler):
    """Maps pointwise stages over items: a task is (position, epoch and share upstream, items)."""

    def __init__(self, calls: tuple[Call, ...]) -> None:
        self.calls = calls
        # Machines that no thread is using, each with its epoch and share, and the list it reads.
        self._idle: list[tuple[tuple[int, Share], list[Any], Machine[Any]]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return Mapper, (self.calls,)

    def __call__(
        self,
        task: tuple[Position, tuple[int, Share], list[Any]],
        made: list[Any] | None = None,
        /,
    ) -> Outcome:
        begun = perf_counter()
        position, upstream, items = task
        made = [] if made is None else made
        failure = None
        try:
            at_hand, machine = self._machine(upstream)
            at_hand += items
            made.extend(machine.flow(position))
            at_hand.clear()
            self._idle.append((upstream, at_hand, machine))
        except BaseException as error:
            failure = as_failure(error, self.calls)
        size = item_bytes(made) + item_bytes(items)
        try:
            seconds = perf_counter() - begun
            return Outcome(made, failure, None, None, seconds, size, timings=taken())
        finally:
            del failure

    def _machine(self, upstream: tuple[int, Share]) -> tuple[list[Any], Machine[Any]]:
        """A machine that no other thread has, behind the empty list that it reads."""
        with suppress(IndexError):
            known, at_hand, machine = self._idle.pop()
            if known == upstream:
                return at_hand, machine
        at_hand = []
        return at_hand, build_machine(self.calls, items_machine(at_hand, *upstream))


def without_flows(handlers: list[Handler]) -> list[Handler]:
    """The same handlers, without the flows that these have open.

    Those are closed where nobody holds these any more: at once, or once a task is done.
    """
    return [each.fresh() for each in handlers]


def build_machine(calls: tuple[Call, ...], upstream: Machine[Any] | None) -> Machine[Any]:
    """The machine of stages on top of another machine."""
    for call in calls:
        upstream = call.build(upstream)
    assert upstream is not None
    return upstream


class _Taken(int):
    """How many of the items at hand were taken, in place of a position."""


def items_machine(
    items: list[Any],
    epoch: int,
    share: Share = ALL,
    positions: Callable[[int], Position] | None = None,
    end: Position | None = None,
) -> Machine[Any]:
    """A machine of items at hand, entered at the first of them.

    Args:
        items: The items.
        epoch: The epoch of all of them.
        share: Where they stand among those of all ranks.
        positions: After so many of the items; a worker doesn't know them, and has numbers.
        end: Where upstream has ended, if it has.
    """

    positions = positions or _Taken

    def flow(position: Position) -> Flow[Any]:
        left = iterate(items, position if type(position) is _Taken else 0)
        return Flow(left, lambda: positions(len(items) - remaining(left)))

    source = sourced("items", flow=flow, skip=skip_of_items(items, positions, end))
    return source._replace(init=lambda _: positions(0), epoch=lambda _: epoch, share=share)


def skip_of_items(
    items: list[Any], positions: Callable[[int], Position], end: Position | None
) -> Callable[[Position, int], tuple[Position, int]]:
    """How to skip items at hand, from the first of them on; see `items_machine`."""

    def skip(position: Position, n: int) -> tuple[Position, int]:
        if n > len(items):
            return end, len(items)
        return positions(n), n

    return skip
