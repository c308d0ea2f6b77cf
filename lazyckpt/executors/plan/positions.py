"""Positions of a stream that is read ahead: all of them, or some and how to find the others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from lazyckpt.core.flow import Flow, Position, close_stream, pass_over
from lazyckpt.core.machine import Machine
from lazyckpt.errors import InvalidState
from lazyckpt.failures.marks import behind_others


class Positions:
    """The positions before some items and after each, of which some were noted.

    Where items came in blocks, the others are found by the last number of a position, which
    counts the items of a block. Of other streams a `Rereader` finds them.

    Attributes:
        befores: By the number of an item, from 1 on, the position just before it, where that is
            not the one after the item before: some were dropped between them.
        recorded: What was recorded of each pipeline that is joined, if it was.
    """

    def __init__(self, start: Any) -> None:
        self._counts, self._noted = [0], [start]
        self._numbers: Mapping[int, int] = {}
        self.befores: dict[int, Position] = {}
        self.recorded: Any = None

    def note(self, count: int, position: Any) -> None:
        """Note the position after so many items, or the error of taking it."""
        self._counts.append(count)
        self._noted.append(position)

    @property
    def last(self) -> Any:
        """The one that was noted last."""
        return self._noted[-1]

    def noted(self, given: int) -> tuple[int, Any]:
        """Of those noted after so many items or fewer the last one, and after how many."""
        number = bisect_right(self._counts, given) - 1
        return self._counts[number], self._noted[number]

    def behind(self, numbers: Mapping[int, int]) -> Positions:
        """The same where each stage has left out so many records before."""
        found = copy(self)
        found._numbers = numbers
        return found

    def before(self, number: int) -> Position | None:
        """The position just before an item, where that is in `befores`."""
        found = self.befores.get(number)
        return None if found is None else behind_others(found, self._numbers)

    def __getitem__(self, given: int) -> Any:
        """The position after so many items."""
        number = bisect_left(self._counts, given)
        position, left = self._noted[number], self._counts[number] - given
        if isinstance(position, InvalidState):
            return position
        position = (*position[:-1], position[-1] - left) if left else position
        return behind_others(position, self._numbers)


class Places:
    """Where some items are.

    Attributes:
        after: Gives the position after so many of them, or the error of taking it.
    """

    def __init__(
        self,
        after: Callable[[int], Any],
        before: Callable[[int], Position | None] = lambda number: None,
    ) -> None:
        """Note how positions are found.

        Args:
            after: As the attribute.
            before: Gives the position just before an item, by its number from 1 on; None if
                that is the one after the item before it.
        """
        self.after, self._before = after, before

    def before(self, number: int) -> Position:
        """The position just before an item, by its number from 1 on."""
        found = self._before(number)
        return raise_or_position(self.after(number - 1)) if found is None else found


def always(position: Position) -> Places:
    """The same position after any number of items."""
    return Places(lambda given: position)


class Rereader:
    """Finds positions between two known ones, by going through those from the first one on.

    For the next position of the same chunk it goes on from where it is. It makes no items,
    and so calls none of the user's functions.

    Attributes:
        is_counting: Whether it finds those of any stream, and not only of what was recorded.
    """

    def __init__(
        self,
        counting: Machine[None] | None = None,
        replay: Callable[[Any, Position], Flow[None]] | None = None,
    ) -> None:
        """Find positions, if any are not known.

        Args:
            counting: Gives the same positions, and no items.
            replay: Gives a flow of that kind, from a position on, by what was recorded behind it.
        """
        self._counting, self._replay = counting, replay
        self.is_counting = counting is not None
        self._open: tuple[Position, int, Flow[None]] | None = None

    def after(self, positions: Positions, given: int) -> Any:
        """The position after so many items, or the error of taking it."""
        place, position = positions.noted(given)
        return position if place == given else try_snapshot(self._at(positions, given))

    def _at(self, positions: Positions, given: int) -> Flow[Any]:
        """A flow that has given so many items."""
        place, found = positions.noted(given)
        start = raise_or_position(found)
        opened, self._open = self._open, None  # so that an interrupt leaves none half read
        if opened is None or opened[0] is not start or opened[1] > given:
            opened = start, place, self._flow(start, positions.recorded)
        _, passed, flow = opened
        pass_over(flow, given - passed)
        self._open = start, given, flow
        return flow

    def _flow(self, start: Position, recorded: Any) -> Flow[None]:
        if self._counting is not None:
            return self._counting.flow(start)
        assert self._replay is not None, "all positions of a stream that can't be counted are known"
        return self._replay(recorded, start)

    def close(self) -> None:
        """Close what it reads from."""
        opened, self._open = self._open, None
        if opened is not None:
            close_stream(opened[2])


def try_snapshot(flow: Flow[Any]) -> Any:
    """The flow's position, or the error of taking it, for `raise_or_position` to raise."""
    try:
        return flow.snapshot()
    except InvalidState as error:
        return error


def raise_or_position(found: Any) -> Position:
    """A position that `try_snapshot` took; raises the error if it is one."""
    if isinstance(found, InvalidState):
        raise found
    return found
