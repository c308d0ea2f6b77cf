"""`Chunk`: items that workers have made, at hand of the consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lazyckpt.core.flow import Position
from lazyckpt.core.iterators import remaining
from lazyckpt.executors.plan.positions import raise_or_position
from lazyckpt.failures.skip_log import SkipRecord


class Chunk(NamedTuple):
    """Items at hand, and what is known of them: one value, so that an interrupt finds all of it.

    Attributes:
        position_after: The position after so many of them.
        items: What is left of them.
        size: How many there were.
        before: How many were given before them.
        position_before: The position just before one of them, by its number from 1 on; None where
            that is always the one after the item before it.
        skipped: What was left out, and after how many of them.
        error: What comes after them.
        is_last: Whether the end does.
        after: The position from which tasks go on: of the end of a run, after the records
            that it left out after its last item. None if that is the position after them.
    """

    position_after: Callable[[int], Position]
    items: Iterator[Any]
    size: int = 0
    before: int = 0
    position_before: Callable[[int], Position] | None = None
    skipped: tuple[tuple[int, SkipRecord], ...] = ()
    error: Exception | None = None
    is_last: bool = False
    after: Position = None

    def given(self) -> int:
        return self.size - remaining(self.items)

    def end(self) -> Position:
        """Return the position from which tasks go on."""
        if self.after is not None:
            return self.after
        return raise_or_position(self.position_after(self.size))


def skipped_before(
    skipped: tuple[tuple[int, SkipRecord], ...], size: int, items: Iterator[Any]
) -> SkipRecord:
    """What was left out before those items of a chunk that are delivered."""
    given, found = size - remaining(items), SkipRecord()
    for place, some in skipped:
        if place < given:
            found = found.plus(some)
    return found
