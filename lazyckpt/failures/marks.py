"""Marks on positions: the number of the next item that a stage skips there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from lazyckpt.core.flow import Position

Triple: TypeAlias = tuple[int, int, int]


class MarkedPosition(tuple[Any, ...]):
    """A position with marks: for a stage, the number of the next item that it skips.

    It is equal to the position, has the same hash, and pickles with its marks.
    """

    marks: dict[int, int]

    def __new__(cls, position: tuple[Any, ...], marks: dict[int, int]) -> MarkedPosition:
        self = super().__new__(cls, position)
        self.marks = marks
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return MarkedPosition, (tuple(self), self.marks)


def next_number(position: Position, stage: int) -> int:
    """Return the number of the next item that the stage skips."""
    return position.marks.get(stage, 0) if isinstance(position, MarkedPosition) else 0


def behind_others(position: Position, numbers: Mapping[int, int]) -> Position:
    """Return the position after other items were skipped before by each stage."""
    for stage, number in numbers.items():
        position = with_next_number(position, stage, next_number(position, stage) + number)
    return position


def with_next_number(position: Position, stage: int, number: int) -> Position:
    """Return the position, with the number of the next item that the stage skips."""
    marks = marks_of(position)
    if marks.get(stage, 0) == number:
        return position
    kept = {k: n for k, n in marks.items() if k != stage}
    return MarkedPosition(position, {**kept, stage: number} if number else kept)


def marks_of(position: Position) -> dict[int, int]:
    """Return the marks of a position: per stage, the number of the next item that it skips."""
    return position.marks if isinstance(position, MarkedPosition) else {}


def without_marks(position: Position) -> tuple[Position, tuple[Triple, ...]]:
    """Split a position into the plain one and its marks: (which of its tuples, stage, number)."""
    found: list[Triple] = []
    count = 0

    def plain(part: Any) -> Any:
        nonlocal count
        if type(part) is not tuple and type(part) is not MarkedPosition:
            return part
        found.extend((count, stage, n) for stage, n in sorted(marks_of(part).items()))
        count += 1
        return tuple([plain(each) for each in part])

    return plain(position), tuple(found)


def with_marks(position: Position, marks: tuple[Triple, ...]) -> Position:
    """Restore the marks from `without_marks` on a position; those that don't fit are dropped."""
    if not marks:
        return position
    by_part: dict[int, dict[int, int]] = {}
    for part, stage, n in marks:
        by_part.setdefault(part, {})[stage] = n
    parts: Iterator[int] = iter(range(1 << 62))

    def marked(part: Any) -> Any:
        if type(part) is not tuple:
            return part
        mine = by_part.get(next(parts))
        inner = tuple([marked(each) for each in part])
        return MarkedPosition(inner, mine) if mine else inner

    return marked(position)
