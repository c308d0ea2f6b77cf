"""Where a run stands: a mark known to be good, and a flow opened from there; what makes both."""

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
from lazyckpt.core.machine import Machine
from lazyckpt.core.ranks import Rank
from lazyckpt.errors import ArgumentError, InvalidState
from lazyckpt.executors.executor import Executor
from lazyckpt.failures.skip_log import SkipLog, Skipped

if TYPE_CHECKING:
    from lazyckpt.executors.session import Session

T = TypeVar("T")

_MARK_INTERVAL = 1e-3  # seconds of work that an error may make a run do again
_MARK_COST = 50  # or this many times what a mark takes, if that is more
_MAX_STRIDE = 1024  # items between two looks at the clock


class Mark(NamedTuple):
    """A position known to be good, and the number of items delivered since.

    Attributes:
        position: The position.
        items: How many items were delivered before it.
        skipped: What was left out before it.
        behind: How many items were delivered after it, where no flow is open.
    """

    position: Position
    items: int
    skipped: Skipped
    behind: int = 0


class _OpenFlow(NamedTuple, Generic[T]):
    """A flow, and how to count what was delivered of it.

    Attributes:
        flow: It.
        before: How many items were delivered before the first of those counted here.
        counted: How many of those were delivered.
        place: The position reached, and that count.
        ticks: Of these one is taken with each item on its way to the consumer: where
            there are none left, that item goes no further.
    """

    flow: Flow[T]
    before: int
    counted: Callable[[], int]
    place: Callable[[], tuple[Position, int]]
    ticks: Iterator[bool]


class Cursor(Generic[T]):
    """A place in a pipeline: a mark, and perhaps a flow that was opened from it.

    While a flow is open its snapshot is the position. After an error the flow is
    closed, and the position is found from the mark: at once with random access, else
    by reading the items behind it again.

    An interrupt may come at any time, so each change is one assignment, of a `Mark`
    or of a flow.

    Attributes:
        mark: A place that is known to be good.
        opened: The flow that was opened from it, if one is open.
    """

    def __init__(
        self,
        machine: Machine[T],
        skip_log: SkipLog,
        again: Callable[[], tuple[Machine[T], SkipLog]],
    ) -> None:
        """A cursor at the beginning.

        Args:
            machine: What it goes through.
            skip_log: What is left out there.
            again: Makes a machine that gives the same items, and a log of its own.
        """
        self.machine = machine
        self.skip_log = skip_log
        self.mark = Mark(machine.init(0), 0, Skipped())
        self._again = again
        self.opened: _OpenFlow[T] | None = None

    @property
    def flow(self) -> Flow[T] | None:
        """The flow that is open."""
        opened = self.opened
        return None if opened is None else opened.flow

    def delivered(self) -> int:
        """How many items were delivered."""
        opened = self.opened
        if opened is None:
            return self.mark.items + self.mark.behind
        found = opened.before + opened.counted()
        return found if self.opened is opened else self.delivered()  # a signal's handler closed it

    def here(self) -> Mark:
        """Where the item delivered last is, if no other is being made; or the mark."""
        opened = self.opened
        if opened is None:
            return self.mark
        skipped = self.skip_log.before_delivered()
        position, counted = opened.place()
        found = Mark(position, opened.before + counted, skipped)
        return found if self.opened is opened else self.mark  # a signal's handler closed it

    def find(self) -> Mark:
        """The same, whatever is being made: by reading items again apart from that."""
        behind = self.delivered() - self.mark.items
        mark = self.mark._replace(behind=behind)
        if behind and (jumped := self._jumped(mark)) is not None:
            mark = jumped
        elif behind:
            machine, skip_log = self._again()
            skip_log.restart(mark.skipped)
            flow = machine.flow(mark.position)
            try:
                pass_over(flow, behind)
                mark = Mark(flow.snapshot(), mark.items + behind, skip_log.before_given())
            finally:
                close_stream(flow)
        self.mark = mark
        return mark

    def go_to(self, mark: Mark, flow: Flow[T]) -> None:
        """Stand at another place, with a flow from there. The last flow is closed already."""
        self.skip_log.restart(mark.skipped)
        self.mark = mark
        self._start(flow)

    def open(self) -> Flow[T]:
        """The flow from here on; opens it if none is open."""
        opened = self.opened
        if opened is not None:
            return opened.flow
        self.jump()
        self.skip_log.restart(self.mark.skipped)
        flow = self.machine.flow(self.mark.position)
        pass_over(flow, self.mark.behind)
        self._start(flow)
        return flow

    def count(self, ticks: Iterator[bool]) -> None:
        """Count items from here on by the ticks that are taken with them, if no flow does it."""
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
            # A signal's handler may have closed it.
            self.opened = begun if self.opened is opened else self.opened

    def close(self) -> None:
        """Close the flow, and remember how far behind the mark it was.

        An item of it that is being made is not delivered.
        """
        opened = self.opened
        if opened is None:
            return
        self.mark = self.mark._replace(behind=self.delivered() - self.mark.items)
        self.opened = None
        deque(opened.ticks, 0)
        close_stream(opened.flow)

    def take_back(self) -> None:
        """Have delivered one item less. The flow is closed already."""
        self.mark = self.mark._replace(behind=max(0, self.mark.behind - 1))

    def pass_over(self, count: int) -> int:
        """Have delivered so many items more, by random access, or as before if there are fewer.

        The flow is closed already.

        Returns:
            How many there are of these.
        """
        assert self.machine.skip is not None, "without random access items are read"
        mark = self._jumped(self.mark) or self.mark
        position, passed = self.machine.skip(mark.position, count)
        if passed == count:
            mark = Mark(position, mark.items + count, mark.skipped)
        self.mark = mark
        return passed

    def set_mark(self) -> None:
        """Mark the place of the flow, unless it is a user's own state that is none."""
        if self.opened is not None:
            with suppress(InvalidState):  # raised when somebody asks for the state
                self.mark = self.here()

    def jump(self) -> None:
        """Mark the place where no flow is open, if that takes no reading."""
        self.mark = self._jumped(self.mark) or self.mark

    def _jumped(self, mark: Mark) -> Mark | None:
        if self.machine.skip is None:
            return None
        position = (
            self.machine.skip(mark.position, mark.behind)[0] if mark.behind else mark.position
        )
        return Mark(position, mark.items + mark.behind, mark.skipped)

    def _start(self, flow: Flow[T]) -> None:
        before, snapshot, taken = self.mark.items + self.mark.behind, flow.snapshot, _nothing
        place = None
        if flow.taken is not None and _is_counting(flow):
            taken, place = flow.taken, flow.place
        place = place or (lambda: (snapshot(), taken()))
        self.opened = _OpenFlow(flow, before - taken(), taken, place, iter(()))


def _nothing() -> int:
    return 0


def _is_counting(flow: Flow[Any]) -> bool:
    """Whether what was taken of a flow was delivered, whatever interrupts."""
    return flow.chunks is not None or flow.has_blocks


class MarkTimer:
    """When to set a mark: about every millisecond, and seldom enough to be little work.

    Attributes:
        stride: How many items to deliver until the next look at the clock.
    """

    def __init__(self) -> None:
        self.stride = 1
        self._marked_at = 0.0
        self._interval = 0.0

    def finish_block(self, begun: float, set_mark: Callable[[], None]) -> None:
        """Look at the clock after a block of `stride` items that begun at some time."""
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
    """What makes a pipeline's items, and where it is in them.

    Attributes:
        pipeline: It.
        session: The executor's workers.
        machine: What the cursor goes through.
        cursor: Where the item delivered last is.
        own_rank: The rank whose its positions are; None where those of all ranks are equal.
    """

    pipeline: Chain
    session: Session | None
    machine: Machine[T]
    cursor: Cursor[T]
    own_rank: Rank | None


def prepared(pipeline: Chain, executor: Executor | None, *, skips: bool) -> Execution[T]:
    """What makes the items of a pipeline."""
    skip_log = SkipLog(room_for_texts(pipeline.entries))
    made = _skipping(pipeline, skip_log) if skips else pipeline
    session = None if executor is None else executor.open(made)
    machine = made.machine if session is None else session.machine
    if machine is not pipeline.machine:  # made of data that may have changed since
        pipeline.machine.check(pipeline.machine.init(0))
    skip_log.is_direct = skip_log.is_direct or session is None
    cursor: Cursor[T] = Cursor(machine, skip_log, partial(_again, pipeline, skips=skips))
    return Execution(pipeline, session, machine, cursor, made.own_rank)


def with_skip_log(pipeline: Chain, *, skips: bool) -> tuple[Chain, SkipLog]:
    """The pipeline whose items are made, with a skip log of its own."""
    skip_log = SkipLog(room_for_texts(pipeline.entries))
    skip_log.is_direct = True
    return _skipping(pipeline, skip_log) if skips else pipeline, skip_log


def _again(pipeline: Chain, *, skips: bool) -> tuple[Machine[Any], SkipLog]:
    """The pipeline's machine with a skip log of its own, to read items again."""
    chain, skip_log = with_skip_log(pipeline, skips=skips)
    return chain.machine, skip_log


def _skipping(pipeline: Chain, skip_log: SkipLog) -> Chain:
    """The pipeline that leaves out what fails."""
    module = import_module("lazyckpt.failures.skipping")  # when something is to be
    found: Chain = module.skipping(pipeline, skip_log)
    try:
        found.machine  # noqa: B018  # built here, where it is known what an error comes of
    except ArgumentError as error:
        raise ArgumentError(
            f'{error}; with on_error="skip" that is so wherever items may be left out, so put it '
            "before the stages that may fail"
        ) from None
    return found
