"""Positions of items that are read ahead."""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

from lazyckpt.core.flow import Flow, Position
from lazyckpt.errors import InvalidState
from lazyckpt.failures.marks import after_skips


class Positions:
    """The positions before some items and after each item.

    If items came in blocks, one position per block is noted. The others follow from its last
    number, which counts the items of the block.

    Attributes:
        last: The position that was noted last.
        befores: The position just before an item, by the item's number from 1 on, if it isn't
            the position after the previous item because records were dropped in between.
    """

    def __init__(self, start: Any) -> None:
        self.last = start
        self._counts = [0]
        self._noted: Any = [start]  # or, in the consumer, its pickle
        self._numbers: Mapping[int, int] = {}
        self.befores: dict[int, Position] = {}

    def __getstate__(self) -> dict[str, Any]:
        # The consumer asks for few of them, and only then unpickles the list.
        return {**self.__dict__, "_noted": pickle.dumps(self._known(), pickle.HIGHEST_PROTOCOL)}

    def _known(self) -> list[Any]:
        if isinstance(self._noted, bytes):
            self._noted = pickle.loads(self._noted)
        found: list[Any] = self._noted
        return found

    def note(self, count: int, position: Any) -> None:
        """Note the position after `count` items, or the error of taking it."""
        self._counts.append(count)
        self._noted.append(position)
        self.last = position

    def after_skips(self, numbers: Mapping[int, int]) -> Positions:
        """Return the same positions, given the number of records each stage skipped before."""
        found = Positions(self.last)
        found._counts, found._noted, found.befores = self._counts, self._noted, self.befores
        found._numbers = numbers
        return found

    def before(self, number: int) -> Position | None:
        """Return the position just before an item if it is in `befores`."""
        found = self.befores.get(number)
        return None if found is None else after_skips(found, self._numbers)

    def __getitem__(self, count: int) -> Any:
        """Return the position after `count` items."""
        number = bisect_left(self._counts, count)
        position, left = self._known()[number], self._counts[number] - count
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

    def since(self, count: int) -> ItemPositions:
        """Return the positions of the items after the first `count` ones."""
        return ItemPositions(lambda n: self.after(count + n), lambda n: self._before(count + n))

    def before(self, number: int) -> Position:
        """Return the position just before an item, by its number from 1 on."""
        found = self._before(number)
        return raise_or_position(self.after(number - 1)) if found is None else found


def always(position: Position) -> ItemPositions:
    """Return the same position after any number of items."""
    return ItemPositions(lambda count: position)


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
