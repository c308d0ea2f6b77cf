"""A log of what is left out of a stream, numbered so that nothing is counted twice.

A stage that leaves items out numbers them from 0 in each epoch of its upstream.
The number of the next one is a mark on the position that the stage gives. So it
goes wherever that position goes, and what a later stage reads again keeps the
numbers that it had.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Position
from lazyckpt.errors import InvalidState

_FIRST = 8  # items left out whose texts are kept
_TEXT_LENGTH = 88  # characters of one
_ROOM = 704  # of the kilobyte that a state may fill, for its pipeline and the texts
_MOST = 1 << 10  # stages that leave items out, and marks of theirs

Triple: TypeAlias = tuple[int, int, int]


class Skipped(int):
    """How many items were left out, as an int, with texts of the `first` of them.

    Attributes:
        first: Where each was and why: the stage, the position just behind it, and
            the error. At most 8, and fewer if they would not fit into a state.
        following: The epoch and number of the next one of each stage that left some
            out: (stage, epoch, number).
        marks: In a state, the numbers with which a resume begins to read: (which of
            the position's tuples, stage, number). The position decides them, so two
            that differ in nothing else are equal.
    """

    first: tuple[str, ...]
    following: tuple[Triple, ...]
    marks: tuple[Triple, ...]

    def __new__(
        cls,
        count: int = 0,
        first: tuple[str, ...] = (),
        following: tuple[Triple, ...] = (),
        marks: tuple[Triple, ...] = (),
    ) -> Skipped:
        self = super().__new__(cls, count)
        self.first, self.following, self.marks = first, following, marks
        return self

    def plus(self, record: SkipRecord, room: int) -> Skipped:
        """These, and those of a later record that are new.

        Args:
            record: What was left out after them, perhaps known in part.
            room: Characters for the texts of the first.
        """
        count, known = int(self), {stage: (epoch, n) for stage, epoch, n in self.following}
        first = list(self.first)
        for stage, epoch, n, text in record.first:
            if known.get(stage, (0, 0)) <= (epoch, n):
                known[stage] = epoch, n + 1
                count += 1
                # Once one has found no room none has, or a resume would keep others.
                if count - 1 == len(first) < _FIRST and _fits([*first, text], room):
                    first.append(text)
        for stage, epoch, begin, end in record.spans:
            since, number = known.get(stage, (0, 0))
            begin = max(begin, number) if since == epoch else begin
            if since <= epoch and begin < end:
                known[stage] = epoch, end
                count += end - begin
        following = tuple([(stage, *known[stage]) for stage in sorted(known)])
        return Skipped(count, tuple(first), following)

    def with_marks(self, marks: tuple[Triple, ...]) -> Skipped:
        """The same with other marks."""
        return Skipped(self, self.first, self.following, marks)

    def renumbered(self) -> Skipped:
        """The same, but stages number from 0 again, as other stages stand there now."""
        return Skipped(self, self.first)

    def to_json(self) -> dict[str, Any]:
        """What a state keeps of it, for `from_json` to read."""
        found = {"count": int(self), "first": self.first, "next": self.following}
        return {**found, "marks": self.marks} if self.marks else found

    @staticmethod
    def from_json(found: Any) -> Skipped:
        """What `to_json` gave; an `InvalidState` for anything else."""
        if not isinstance(found, dict) or {*found} not in (_NAMES, _NAMES | {"marks"}):
            raise InvalidState(f"not a record of skipped items: {brief(found)}")
        count, first = found["count"], found["first"]
        following, marks = found["next"], found.get("marks", ())
        if (
            type(count) is int
            and isinstance(first, tuple)
            and all(type(text) is str and text.isprintable() for text in first)
            and all(0 < len(text) <= _TEXT_LENGTH for text in first)
            and len(first) <= min(_FIRST, count)
            and _are_triples(following, 1)
            and 0 < count >= sum(n for _, _, n in following)
            and _are_triples(marks, 2)
            and ("marks" not in found or marks)
        ):
            return Skipped(count, first, following, marks)
        raise InvalidState(f"not a record of skipped items: {brief(found)}")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Skipped):
            return self._values() == other._values()
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(int(self))

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (*self._values(), self.marks)

    def _values(self) -> tuple[Any, ...]:
        return int(self), self.first, self.following


_NAMES = {"count", "first", "next"}


def _are_triples(found: Any, key: int) -> bool:
    """Whether these are triples of ints in the order of their first `key`, the last above 0."""
    if not isinstance(found, tuple) or len(found) > _MOST:
        return False
    for triple in found:
        if not isinstance(triple, tuple) or [type(n) for n in triple] != [int] * 3:
            return False
        if min(triple) < 0 or not triple[2]:
            return False
    keys = [triple[:key] for triple in found]
    return all(a < b for a, b in pairwise(keys))


def _fits(texts: list[str], room: int) -> bool:
    return len(json.dumps(texts)) <= room


class SkipRecord(NamedTuple):
    """Items left out, as a stage met them: some may be known already.

    Attributes:
        spans: (stage, epoch, number, the number after the last).
        first: Of the first 8, (stage, epoch, number, text).
    """

    spans: tuple[tuple[int, int, int, int], ...] = ()
    first: tuple[tuple[int, int, int, str], ...] = ()

    def plus(self, more: SkipRecord) -> SkipRecord:
        """These, and those of a later record."""
        spans = list(self.spans)
        for stage, epoch, begin, end in more.spans:
            latest = next((i for i, span in enumerate(spans[::-1], 1) if span[0] == stage), 0)
            if latest and spans[-latest][1::2] == (epoch, begin):
                spans[-latest] = (*spans[-latest][:3], end)
            else:
                spans.append((stage, epoch, begin, end))
        return SkipRecord(tuple(spans), (self.first + more.first)[:_FIRST])

    def behind(self, numbers: Mapping[int, int]) -> SkipRecord:
        """The same behind so many others of each stage."""
        spans = [
            (stage, epoch, begin + numbers.get(stage, 0), end + numbers.get(stage, 0))
            for stage, epoch, begin, end in self.spans
        ]
        first = [
            (stage, epoch, n + numbers.get(stage, 0), text) for stage, epoch, n, text in self.first
        ]
        return SkipRecord(tuple(spans), tuple(first))


class SkipLog:
    """What was left out before the item delivered last, wherever that was noticed.

    A pickled copy begins empty; what it records comes back with its chunks.

    Attributes:
        is_direct: Whether nothing is made ahead, so that all is of items delivered.
        known: What was left out before the chunk at hand.
        of_chunk: Gives what was left out before the items of it that were given.
        delivered: What was left out before the item delivered last, where items
            wait between being given and being delivered; else None.
    """

    def __init__(self, identity_length: int = 0) -> None:
        self.is_direct = False
        self.known = Skipped()
        self.of_chunk: Callable[[], SkipRecord] = SkipRecord
        self.delivered: Skipped | None = None
        self._room = _ROOM - identity_length
        self._new = SkipRecord()

    def restart(self, known: Skipped) -> None:
        """Go on from what is known at a position."""
        self.known, self.of_chunk, self.delivered = known, SkipRecord, None

    def before_delivered(self) -> Skipped:
        """What was left out before the item delivered last."""
        if self.of_chunk is SkipRecord and self.delivered is None:
            return self.known
        return self.before_given() if self.delivered is None else self.delivered

    def before_given(self) -> Skipped:
        """What was left out before the item given last."""
        record = self.of_chunk()
        return self.known.plus(record, self._room) if record.spans else self.known

    def including(self, records: Iterable[SkipRecord]) -> Skipped:
        """What is known, with these records."""
        known = self.known
        for record in records:
            known = known.plus(record, self._room)
        return known

    def add(self, stage: int, epoch: int, number: int, text: str) -> None:
        """Record one item."""
        text = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
        first = (stage, epoch, number, text[:_TEXT_LENGTH])
        self.record(SkipRecord(((stage, epoch, number, number + 1),), (first,)))

    def record(self, record: SkipRecord) -> None:
        """Record items."""
        if self.is_direct:
            self.known = self.including([record])
        else:
            self._new = self._new.plus(record)

    def drain(self) -> SkipRecord:
        """What was recorded since the last call."""
        new, self._new = self._new, SkipRecord()
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        return SkipLog, ()


class MarkedPosition(tuple[Any, ...]):
    """A position with marks: for a stage, the number of the next item that it leaves out.

    It is equal to the position, has its hash, and pickles with its marks.
    """

    marks: dict[int, int]

    def __new__(cls, position: tuple[Any, ...], marks: dict[int, int]) -> MarkedPosition:
        self = super().__new__(cls, position)
        self.marks = marks
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return MarkedPosition, (tuple(self), self.marks)


def next_number(position: Position, stage: int) -> int:
    """The number of the next item that the stage leaves out."""
    return position.marks.get(stage, 0) if isinstance(position, MarkedPosition) else 0


def behind_others(position: Position, numbers: Mapping[int, int]) -> Position:
    """The position where so many others were left out before by each stage."""
    for stage, number in numbers.items():
        position = with_next_number(position, stage, next_number(position, stage) + number)
    return position


def with_next_number(position: Position, stage: int, number: int) -> Position:
    """The position, with the number of the next item that the stage leaves out."""
    marks = _marks(position)
    if marks.get(stage, 0) == number:
        return position
    kept = {k: n for k, n in marks.items() if k != stage}
    return MarkedPosition(position, {**kept, stage: number} if number else kept)


def _marks(position: Position) -> dict[int, int]:
    return position.marks if isinstance(position, MarkedPosition) else {}


def without_marks(position: Position) -> tuple[Position, tuple[Triple, ...]]:
    """The plain position, and its marks: (which of its tuples, stage, number)."""
    found: list[Triple] = []
    count = 0

    def plain(part: Any) -> Any:
        nonlocal count
        if type(part) is not tuple and type(part) is not MarkedPosition:
            return part
        found.extend((count, stage, n) for stage, n in sorted(_marks(part).items()))
        count += 1
        return tuple([plain(each) for each in part])

    return plain(position), tuple(found)


def with_marks(position: Position, marks: tuple[Triple, ...]) -> Position:
    """The position with marks, as `without_marks` gives them. It drops those that don't fit."""
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
