"""Positions of a stream that is read ahead: all of them, or some and how to find the others."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, overload

from lazyckpt.core.flow import Flow, Position, close_stream, pass_over
from lazyckpt.core.machine import Machine
from lazyckpt.errors import InvalidState


class PositionLog:
    """The positions before the items of a chunk and after each.

    Attributes:
        known: They, as far as items were added; None for those found by counting.
        befores: By the number of an item, from 1 on, the position just before it, where the flow
            tells that and it isn't the one after the item before: some were dropped between them.
    """

    def __init__(self, flow: Flow[Any], *, is_counted: bool = False) -> None:
        """Begin with the position before the first item.

        Args:
            flow: Gives the items.
            is_counted: Whether those between the first and the last are found by counting.
        """
        self._flow, self._is_counted = flow, is_counted
        self.known: list[Any] = [try_snapshot(flow)]
        self.befores: dict[int, Position] = {}

    def add(self) -> None:
        """Note that an item was given."""
        self.known.append(None if self._is_counted else try_snapshot(self._flow))
        last = self.known[-2]
        if self._flow.before is not None and last is not None:
            before = self._flow.before()
            if before != last:
                self.befores[len(self.known) - 1] = before

    def pass_over(self, count: int) -> None:
        """Note that so many items were given, with no position taken."""
        self.known += [None] * count

    def finish(self) -> None:
        """Have the last one too, if that is not the end: the stream has another place there."""
        if self.known[-1] is None:
            self.known[-1] = try_snapshot(self._flow)


class Positions(Sequence[Any]):
    """The positions before some items and after each, found when they are asked for."""

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self._at(each) for each in range(*place.indices(len(self)))]
        return self._at(range(len(self))[place])

    @abstractmethod
    def _at(self, place: int) -> Any:
        """The position after so many items."""


class Found(Positions):
    """What is made of other positions."""

    def __init__(self, positions: Sequence[Any], made: Callable[[Any], Any]) -> None:
        self._positions, self._made = positions, made

    def __len__(self) -> int:
        return len(self._positions)

    def _at(self, place: int) -> Any:
        return self._made(self._positions[place])


class Noted(Positions):
    """Those that were noted behind single items, and behind blocks of items.

    Within a block the last number of a position counts its items.
    """

    def __init__(self, start: Position) -> None:
        self._counts, self._noted = [0], [start]

    def note(self, count: int, position: Position) -> None:
        """Note the position after so many items."""
        self._counts.append(count)
        self._noted.append(position)

    def __len__(self) -> int:
        return self._counts[-1] + 1

    def _at(self, place: int) -> Any:
        number = bisect_left(self._counts, place)
        position, left = self._noted[number], self._counts[number] - place
        return (*position[:-1], position[-1] - left) if left else position


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

    def positions(self, known: Sequence[Any], recorded: Any = None) -> Callable[[int], Any]:
        """The position after so many items, of those that a log has noted, by what was recorded."""
        return partial(self._position, known, recorded)

    def _position(self, known: Sequence[Any], recorded: Any, given: int) -> Any:
        if known[given] is not None:
            return known[given]
        return try_snapshot(self._at(known, recorded, given))

    def before(
        self, known: Sequence[Any], befores: Mapping[int, Position]
    ) -> Callable[[int], Position]:
        """The position just before an item, by its number from 1 on."""

        def find(number: int) -> Position:
            if number in befores or known[number - 1] is not None:
                return befores.get(number, known[number - 1])
            flow = self._at(known, None, number)
            if flow.before is not None:
                return flow.before()
            return raise_or_position(self._position(known, None, number - 1))

        return find

    def _at(self, known: Sequence[Any], recorded: Any, given: int) -> Flow[Any]:
        """A flow that has given so many items."""
        place = next(place for place in range(given, -1, -1) if known[place] is not None)
        start = raise_or_position(known[place])
        opened, self._open = self._open, None  # so that an interrupt leaves none half read
        if opened is None or opened[0] is not start or opened[1] > given:
            opened = start, place, self._flow(start, recorded)
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
