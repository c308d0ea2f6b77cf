"""Where a run stands: a mark known to be good, and a flow opened from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from time import perf_counter
from types import GeneratorType
from typing import Any, Generic, NamedTuple, TypeVar

from lazyckpt.core.machine import Flow, Machine, Position, counted
from lazyckpt.errors import InvalidState, SourceChanged
from lazyckpt.failures.skip_log import SkipLog, Skipped

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
    """A flow, and how to count what it has given."""

    flow: Flow[T]
    items: Iterator[Any]
    taken: Callable[[], int]
    opened_at: int  # items delivered when `taken` was 0


class Cursor(Generic[T]):
    """A place in a pipeline: a mark, and perhaps a flow that was opened from it.

    While a flow is open its snapshot is the position. After an error the flow is
    closed, and the position is found from the mark: at once with random access, else
    by reading the items behind it again.

    An interrupt may come at any time, so each change is one assignment, of a `Mark`
    or of a flow.
    """

    def __init__(self, machine: Machine[T], skip_log: SkipLog) -> None:
        self.machine = machine
        self.skip_log = skip_log
        self.mark = Mark(machine.init(0), 0, Skipped())
        self._open: _OpenFlow[T] | None = None

    @property
    def flow(self) -> Flow[T] | None:
        """The flow that is open."""
        return None if self._open is None else self._open.flow

    @property
    def is_known(self) -> bool:
        """Whether the position is known without opening a flow."""
        return self._open is not None or not self.mark.behind

    def position(self) -> Position:
        return self.mark.position if self._open is None else self._open.flow.snapshot()

    def delivered(self) -> int:
        """How many items were delivered."""
        if self._open is None:
            return self.mark.items + self.mark.behind
        return self._open.opened_at + self._open.taken()

    def skipped(self) -> Skipped:
        """What was left out before the item delivered last."""
        return self.mark.skipped if self._open is None else self.skip_log.before_delivered()

    def go_to(self, mark: Mark, flow: Flow[T]) -> None:
        """Stand at another place, with a flow from there. The last flow is closed already."""
        self.skip_log.restart(mark.skipped)
        self.mark = mark
        self._start(flow)

    def open(self) -> Iterator[Any]:
        """The items from here on, before the flow's function; opens a flow if none is open."""
        if self._open is None:
            self.jump()
            self.skip_log.restart(self.mark.skipped)
            flow = self.machine.flow(self.mark.position)
            behind = self.mark.behind
            found = sum(1 for _ in islice(flow.pull, behind))
            if found < behind:
                raise SourceChanged(
                    f"going over {behind} items again gave {found}: "
                    "a source or function does not repeat itself"
                )
            return self._start(flow)
        return self._open.items

    def is_open(self, items: Iterator[Any]) -> bool:
        """Whether the flow that is open gives these items."""
        return self._open is not None and self._open.items is items

    def undo_take(self, items: Iterator[Any]) -> None:
        """Count the item taken last as not delivered: it will be taken again."""
        if self._open is not None and self._open.items is items:
            self._open = self._open._replace(opened_at=self._open.opened_at - 1)

    def close(self) -> None:
        """Close the flow, and remember how far behind the mark it was."""
        opened = self._open
        if opened is None:
            return
        self.mark = self.mark._replace(behind=self.delivered() - self.mark.items)
        self._open = None
        stream = opened.flow.pull
        if isinstance(stream, GeneratorType) and not stream.gi_running:
            stream.close()

    def set_mark(self) -> None:
        """Mark the place of the flow, unless it is a user's own state that is none."""
        if self._open is not None:
            with suppress(InvalidState):  # raised when somebody asks for the state
                position = self._open.flow.snapshot()
                self.mark = Mark(position, self.delivered(), self.skip_log.before_delivered())

    def jump(self) -> None:
        """Mark the place where no flow is open, if that takes no reading."""
        mark = self.mark
        if self.machine.skip is not None and mark.behind:
            position = self.machine.skip(mark.position, mark.behind)[0]
            self.mark = Mark(position, self.delivered(), mark.skipped)

    def _start(self, flow: Flow[T]) -> Iterator[Any]:
        items, taken = counted(flow.pull) if flow.taken is None else (flow.pull, flow.taken)
        opened_at = self.mark.items + self.mark.behind - taken()
        self._open = _OpenFlow(flow, items, taken, opened_at)
        return items


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
        done = perf_counter()
        is_quick = done - begun < _MARK_INTERVAL
        self.stride = min(2 * self.stride, _MAX_STRIDE) if is_quick else max(self.stride // 2, 1)
        if done - self._marked_at > self._interval:
            set_mark()
            self._marked_at = perf_counter()
            self._interval = max(_MARK_INTERVAL, _MARK_COST * (self._marked_at - done))
