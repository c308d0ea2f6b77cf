"""Marks on positions: the number of the next item that a stage skips there."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, TypeAlias

import toolz

from lazyckpt.core.flow import Position

Triple: TypeAlias = tuple[int, int, int]


class MarkedPosition(tuple[Any, ...]):
    """A position with marks: for a stage, the number of the next item that it skips.

    It equals only a position with the same marks. Stages that skip no items don't see them.
    """

    marks: Mapping[int, int]

    def __new__(cls, position: tuple[Any, ...], marks: Mapping[int, int]) -> MarkedPosition:
        self = super().__new__(cls, position)
        self.marks = marks
        return self

    def __eq__(self, other: object) -> bool:
        return type(other) is MarkedPosition and self._parts() == other._parts()

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        return f"MarkedPosition{self._parts()}"

    def __reduce__(self) -> tuple[Any, ...]:
        return MarkedPosition, self._parts()

    def _parts(self) -> tuple[tuple[Any, ...], Mapping[int, int]]:
        return tuple(self), self.marks


def marks_of(position: Position) -> Mapping[int, int]:
    """Return the marks of a position: per stage, the number of the next item that it skips."""
    return position.marks if isinstance(position, MarkedPosition) else {}


def marked(position: Position, marks: Mapping[int, int]) -> Position:
    """Return a position with these marks in place of its own; a mark of 0 is none."""
    kept = {stage: marks[stage] for stage in sorted(marks) if marks[stage]}
    if kept == marks_of(position):
        return position
    return MarkedPosition(position, kept) if kept else tuple(position)


def after_skips(position: Position, numbers: Mapping[int, int]) -> Position:
    """Return the position with its marks increased by the earlier skips of each stage."""
    if not numbers:
        return position
    return marked(position, toolz.merge_with(sum, marks_of(position), numbers))


def without_marks(position: Position) -> tuple[Position, tuple[Triple, ...]]:
    """Split a position into the plain one and its marks: (which of its tuples, stage, number)."""
    found: list[Triple] = []
    numbers = count()

    def plain(part: Any) -> Any:
        if type(part) is not tuple and type(part) is not MarkedPosition:
            return part
        number = next(numbers)
        found.extend((number, stage, n) for stage, n in marks_of(part).items())
        return tuple([plain(each) for each in part])

    return plain(position), tuple(found)


def with_marks(position: Position, marks: tuple[Triple, ...]) -> Position:
    """Restore the marks from `without_marks` on a position; those that don't fit are dropped."""
    if not marks:
        return position
    found, numbers = toolz.groupby(0, marks), count()

    def restored(part: Any) -> Any:
        if type(part) is not tuple:
            return part
        mine = {stage: n for _, stage, n in found.get(next(numbers), ())}
        return marked(tuple([restored(each) for each in part]), mine)

    return restored(position)
