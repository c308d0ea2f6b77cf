"""The position of a run: a mark known to be valid, and a flow opened from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from lazyckpt.core.call import Chain
from lazyckpt.core.content import room_for_texts
from lazyckpt.core.flow import Flow, Position, close_stream, pass_over
from lazyckpt.core.iterators import remaining
from lazyckpt.core.machine import Machine, Rank
from lazyckpt.errors import ArgumentError, InvalidState
from lazyckpt.executors.executor import Executor
from lazyckpt.failures.skip_log import SkipLog, Skipped

if TYPE_CHECKING:
    from lazyckpt.executors.session import Session

T = TypeVar("T")

_MARK_INTERVAL = 1e-3  # seconds of work that a run may have to repeat after an error
_MARK_COST = 50  # or this multiple of the time for a mark, if that is more
_MAX_STRIDE = 1024  # items between two looks at the clock


class Mark(NamedTuple):
    """A position known to be valid, and the number of items delivered before it.

    Attributes:
        position: The position.
        items: Number of items delivered before it.
        skipped: The skipped items before it.
        since: Number of items delivered after it, if no flow is open.
    """

    position: Position
    items: int
    skipped: Skipped
    since: int = 0


class _OpenFlow(NamedTuple, Generic[T]):
    """A flow, and how to count the items delivered from it.

    Attributes:
        flow: The flow.
        before: Number of items delivered before the first one counted here.
        counted: Function that returns the number of items delivered from the flow.
        reached: Function that returns the position reached, and that number.
        ticks: One tick is consumed with each item on its way to the consumer; without ticks
            left, the item goes no further.
    """

    flow: Flow[T]
    before: int
    counted: Callable[[], int]
    reached: Callable[[], tuple[Position, int]]
    ticks: Iterator[bool]


class Cursor(Generic[T]):
    """A position in a pipeline: a mark, and possibly a flow opened from it.

    While a flow is open, its snapshot is the position. After an error the flow is closed, and the
    position is found from the mark: immediately with random access, otherwise by re-reading the
    items after the mark.

    An interrupt may come at any time, so each change is a single assignment, of a `Mark` or of a
    flow.

    Attributes:
        mark: A position known to be valid.
        opened: The flow opened from it, if one is open.
    """

    def __init__(
        self,
        machine: Machine[T],
        skip_log: SkipLog,
        again: Callable[[], tuple[Machine[T], SkipLog]],
    ) -> None:
        """Create a cursor at the beginning.

        Args:
            machine: The machine that the cursor moves through.
            skip_log: The log of the items skipped there.
            again: Function that builds a machine with the same items, and a log of its own.
        """
        self.machine = machine
        self.skip_log = skip_log
        self.mark = Mark(machine.init(0), 0, Skipped())
        self._again = again
        self.opened: _OpenFlow[T] | None = None

    @property
    def flow(self) -> Flow[T] | None:
        """The open flow."""
        opened = self.opened
        return None if opened is None else opened.flow

    def delivered(self) -> int:
        """Return the number of items delivered."""
        opened = self.opened
        if opened is None:
            return self.mark.items + self.mark.since
        found = opened.before + opened.counted()
        return found if self.opened is opened else self.delivered()  # a signal handler closed it

    def here(self) -> Mark:
        """Return the last delivered item's mark; the old one if another item is being computed."""
        opened = self.opened
        if opened is None:
            return self.mark
        skipped = self.skip_log.before_delivered()
        position, counted = opened.reached()
        found = Mark(position, opened.before + counted, skipped)
        return found if self.opened is opened else self.mark  # a signal handler closed it

    def find(self) -> Mark:
        """Return the last delivered item's mark in any case, by re-reading on a second machine."""
        since = self.delivered() - self.mark.items
        mark = self.mark._replace(since=since)
        if since and (jumped := self._jumped(mark)) is not None:
            mark = jumped
        elif since:
            machine, skip_log = self._again()
            skip_log.restart(mark.skipped)
            flow = machine.flow(mark.position)
            try:
                pass_over(flow, since)
                mark = Mark(flow.snapshot(), mark.items + since, skip_log.before_yielded())
            finally:
                close_stream(flow)
        self.mark = mark
        return mark

    def go_to(self, mark: Mark, flow: Flow[T]) -> None:
        """Move to a different position, with a flow from there. The last flow must be closed."""
        self.skip_log.restart(mark.skipped)
        self.mark = mark
        self._start(flow)

    def open(self) -> Flow[T]:
        """Return the flow from here on; open it if none is open."""
        opened = self.opened
        if opened is not None:
            return opened.flow
        self.jump()
        self.skip_log.restart(self.mark.skipped)
        flow = self.machine.flow(self.mark.position)
        pass_over(flow, self.mark.since)
        self._start(flow)
        return flow

    def count(self, ticks: Iterator[bool]) -> None:
        """Count items from here on by the consumed ticks, unless the flow counts them itself."""
        opened, size = self.opened, remaining(ticks)
        if opened is not None and not _is_counting(opened.flow):
            snapshot = opened.flow.snapshot
            begun = _OpenFlow(
                opened.flow,
                self.delivered(),
                lambda: size - remaining(ticks),
                lambda: (snapshot(), size - remaining(ticks)),
                ticks,
            )
            # A signal handler may have closed it.
            self.opened = begun if self.opened is opened else self.opened

    def close(self) -> None:
        """Close the flow, and remember how many items after the mark were delivered.

        An item that is being computed is not delivered.
        """
        opened = self.opened
        if opened is None:
            return
        self.mark = self.mark._replace(since=self.delivered() - self.mark.items)
        self.opened = None
        deque(opened.ticks, 0)
        close_stream(opened.flow)

    def take_back(self) -> None:
        """Count one item less as delivered. The flow must be closed."""
        self.mark = self.mark._replace(since=max(0, self.mark.since - 1))

    def pass_over(self, count: int) -> int:
        """Skip items by random access, or stay if there are fewer. The flow must be closed.

        Returns:
            How many of them exist.
        """
        assert self.machine.skip is not None, "without random access, items are read"
        mark = self._jumped(self.mark) or self.mark
        position, passed = self.machine.skip(mark.position, count)
        if passed == count:
            mark = Mark(position, mark.items + count, mark.skipped)
        self.mark = mark
        return passed

    def set_mark(self) -> None:
        """Mark the flow's position, unless it contains a user's own state that can't be stored."""
        if self.opened is not None:
            with suppress(InvalidState):  # raised when the state is read
                self.mark = self.here()

    def jump(self) -> None:
        """Mark the position while no flow is open, if that takes no reading."""
        self.mark = self._jumped(self.mark) or self.mark

    def _jumped(self, mark: Mark) -> Mark | None:
        if self.machine.skip is None:
            return None
        position = self.machine.skip(mark.position, mark.since)[0] if mark.since else mark.position
        return Mark(position, mark.items + mark.since, mark.skipped)

    def _start(self, flow: Flow[T]) -> None:
        before, snapshot, taken = self.mark.items + self.mark.since, flow.snapshot, _nothing
        reached = None
        if flow.taken is not None and _is_counting(flow):
            taken, reached = flow.taken, flow.reached
        reached = reached or (lambda: (snapshot(), taken()))
        self.opened = _OpenFlow(flow, before - taken(), taken, reached, iter(()))


def _nothing() -> int:
    return 0


def _is_counting(flow: Flow[Any]) -> bool:
    """Return whether an item taken from a flow counts as delivered, whatever interrupts."""
    return flow.chunks is not None or flow.has_blocks


class MarkTimer:
    """Decides when to set a mark: about every millisecond, but seldom enough to be cheap.

    Attributes:
        stride: Number of items to deliver until the next look at the clock.
    """

    def __init__(self) -> None:
        self.stride = 1
        self._marked_at = 0.0
        self._interval = 0.0

    def finish_block(self, begun: float, set_mark: Callable[[], None]) -> None:
        """Look at the clock after a block of `stride` items that began at a given time."""
        now = perf_counter()
        is_quick = now - begun < _MARK_INTERVAL
        self.stride = min(2 * self.stride, _MAX_STRIDE) if is_quick else max(self.stride // 2, 1)
        self.look(now, set_mark)

    def look(self, now: float, set_mark: Callable[[], None]) -> None:
        """Set a mark, if it is time."""
        if now - self._marked_at > self._interval:
            set_mark()
            self._marked_at = perf_counter()
            self._interval = max(_MARK_INTERVAL, _MARK_COST * (self._marked_at - now))


class Execution(NamedTuple, Generic[T]):
    """A pipeline under execution: its workers, its machine and its position.

    Attributes:
        pipeline: The pipeline.
        session: The executor's workers.
        machine: The machine that the cursor moves through.
        cursor: The position of the last delivered item.
        own_rank: The rank that the positions belong to; None if they are equal on all ranks.
    """

    pipeline: Chain
    session: Session | None
    machine: Machine[T]
    cursor: Cursor[T]
    own_rank: Rank | None


def prepared(pipeline: Chain, executor: Executor | None, *, skips: bool) -> Execution[T]:
    """Prepare the execution of a pipeline."""
    skip_log = SkipLog(room_for_texts(pipeline.entries))
    made = _skipping(pipeline, skip_log) if skips else pipeline
    session = None if executor is None else executor.open(made)
    machine = made.machine if session is None else session.machine
    if machine is not pipeline.machine:  # the data may have changed since
        pipeline.machine.check(pipeline.machine.init(0))
    skip_log.is_direct = skip_log.is_direct or session is None
    cursor: Cursor[T] = Cursor(machine, skip_log, partial(_again, pipeline, skips=skips))
    return Execution(pipeline, session, machine, cursor, made.own_rank)


def with_skip_log(pipeline: Chain, *, skips: bool) -> tuple[Chain, SkipLog]:
    """Return the pipeline to execute, with a skip log of its own."""
    skip_log = SkipLog(room_for_texts(pipeline.entries))
    skip_log.is_direct = True
    return _skipping(pipeline, skip_log) if skips else pipeline, skip_log


def _again(pipeline: Chain, *, skips: bool) -> tuple[Machine[Any], SkipLog]:
    """Build the pipeline's machine with a skip log of its own, to re-read items."""
    chain, skip_log = with_skip_log(pipeline, skips=skips)
    return chain.machine, skip_log


def _skipping(pipeline: Chain, skip_log: SkipLog) -> Chain:
    """Return the pipeline that skips failing items."""
    module = import_module("lazyckpt.failures.skipping")  # only needed with on_error="skip"
    try:
        found: Chain = module.skipping(pipeline, skip_log)
        found.machine  # noqa: B018  # built here, where the cause of an error is known
    except ArgumentError as error:
        raise ArgumentError(
            f'{error}; on_error="skip" removes random access where items may be skipped, so put it '
            "before the stages that may fail"
        ) from None
    return found
