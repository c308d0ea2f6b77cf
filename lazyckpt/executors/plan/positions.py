"""Positions of a stream that is read ahead: all of them, or some and a way to find the others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from lazyckpt.core.flow import Flow, Position, close_stream, pass_over
from lazyckpt.core.machine import Machine
from lazyckpt.errors import InvalidState
from lazyckpt.failures.marks import after_skips


class Positions:
    """The positions before some items and after each item; only some of them are noted.

    If items came in blocks, the other positions follow from the last number of a position,
    which counts the items of a block. For other streams, a `Rereader` finds them.

    Attributes:
        befores: The position just before an item, by the item's number from 1 on, if it isn't
            the position after the previous item because records were dropped in between.
        recorded: The records of joined pipelines, if they were recorded.
    """

    def __init__(self, start: Any) -> None:
        self._counts, self._noted = [0], [start]
        self._numbers: Mapping[int, int] = {}
        self.befores: dict[int, Position] = {}
        self.recorded: Any = None

    def note(self, count: int, position: Any) -> None:
        """Note the position after `count` items, or the error of taking it."""
        self._counts.append(count)
        self._noted.append(position)

    @property
    def last(self) -> Any:
        """The position that was noted last."""
        return self._noted[-1]

    def noted(self, count: int) -> tuple[int, Any]:
        """Return the last position noted after at most `count` items, and its number of items."""
        number = bisect_right(self._counts, count) - 1
        return self._counts[number], self._noted[number]

    def after_skips(self, numbers: Mapping[int, int]) -> Positions:
        """Return the same positions, given the number of records each stage skipped before."""
        found = copy(self)
        found._numbers = numbers
        return found

    def before(self, number: int) -> Position | None:
        """Return the position just before an item if it is in `befores`."""
        found = self.befores.get(number)
        return None if found is None else after_skips(found, self._numbers)

    def __getitem__(self, count: int) -> Any:
        """Return the position after `count` items."""
        number = bisect_left(self._counts, count)
        position, left = self._noted[number], self._counts[number] - count
        if isinstance(position, InvalidState):
            return position
        position = (*position[:-1], position[-1] - left) if left else position
        return after_skips(position, self._numbers)


class ItemPositions:
    """The positions of some items.

    Attributes:
        after: Function from a number of items to the position after them, or to the error of
            taking it.
    """

    def __init__(
        self,
        after: Callable[[int], Any],
        before: Callable[[int], Position | None] = lambda number: None,
    ) -> None:
        """Store how positions are found.

        Args:
            after: The attribute.
            before: Function from an item's number, from 1 on, to the position just before it;
                None if that is the position after the previous item.
        """
        self.after, self._before = after, before

    def before(self, number: int) -> Position:
        """Return the position just before an item, by its number from 1 on."""
        found = self._before(number)
        return raise_or_position(self.after(number - 1)) if found is None else found


def always(position: Position) -> ItemPositions:
    """Return the same position after any number of items."""
    return ItemPositions(lambda count: position)


class Rereader:
    """Finds positions between two known ones, by stepping from the first one on.

    For a later position of the same chunk it continues from its current position. It computes
    no items, and so calls none of the user's functions.

    Attributes:
        is_counting: If True, it finds the positions of any stream; otherwise only positions
            of a stream that was recorded.
    """

    def __init__(
        self,
        counting: Machine[None] | None = None,
        replay: Callable[[Any, Position], Flow[None]] | None = None,
    ) -> None:
        """Prepare to find positions. Without arguments, all positions must be known.

        Args:
            counting: Machine with the same positions, and no items.
            replay: Function that returns such a flow, from the records after a position and
                the position.
        """
        self._counting, self._replay = counting, replay
        self.is_counting = counting is not None
        self._open: tuple[Position, int, Flow[None]] | None = None

    def after(self, positions: Positions, count: int) -> Any:
        """Return the position after `count` items, or the error of taking it."""
        counted, position = positions.noted(count)
        return position if counted == count else try_snapshot(self._at(positions, count))

    def _at(self, positions: Positions, count: int) -> Flow[Any]:
        """Return a flow that has yielded `count` items."""
        counted, found = positions.noted(count)
        start = raise_or_position(found)
        opened, self._open = self._open, None  # so that an interrupt leaves none half read
        if opened is None or opened[0] is not start or opened[1] > count:
            opened = start, counted, self._flow(start, positions.recorded)
        _, passed, flow = opened
        pass_over(flow, count - passed)
        self._open = start, count, flow
        return flow

    def _flow(self, start: Position, recorded: Any) -> Flow[None]:
        if self._counting is not None:
            return self._counting.flow(start)
        assert self._replay is not None, "all positions of a stream that can't be counted are known"
        return self._replay(recorded, start)

    def close(self) -> None:
        """Close the open flow."""
        opened, self._open = self._open, None
        if opened is not None:
            close_stream(opened[2])


def try_snapshot(flow: Flow[Any]) -> Any:
    """Return the flow's position, or the error of taking it, for `raise_or_position` to raise."""
    try:
        return flow.snapshot()
    except InvalidState as error:
        return error


def raise_or_position(found: Any) -> Position:
    """Return a position that `try_snapshot` returned, or raise the error that it returned."""
    if isinstance(found, InvalidState):
        raise found
    return found
