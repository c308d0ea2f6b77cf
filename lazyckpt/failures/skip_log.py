"""A log of the items skipped in a stream, numbered so that nothing is counted twice.

A stage that skips items numbers them from 0 in each epoch of its upstream. The number of the
next one is a mark on the stage's position. The mark goes wherever the position goes, so items
that a later stage re-reads keep their numbers.

A record at which a worker was lost has a name, see `watching`. The log keeps the latest names,
and so does a state: a resume skips those records without another try.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from lazyckpt.core.checks import brief
from lazyckpt.core.content import ROOM_WITH_TEXTS
from lazyckpt.core.secrets import masked
from lazyckpt.errors import InvalidState, WorkerDied
from lazyckpt.failures.marks import Triple

_FIRST = 8  # skipped items whose descriptions are kept
_TEXT_LENGTH = 88  # characters per description
_MOST_LOST = 8  # records whose names are kept
LEFT_OUT = WorkerDied("skipped again")  # for errors that a state doesn't keep
LOST_NAMES = 1 << 40  # number of possible names
_MOST = 1 << 10  # stages that skip items, and their marks


class Skipped(int):
    """The number of skipped items, as an int, with descriptions of the `first` ones.

    Attributes:
        first: A description of each: the stage, the position just after the item, and
            the error. At most 8, and fewer if they would not fit into a state.
        following: The epoch and number of the next one of each stage that skipped some:
            (stage, epoch, number).
        marks: In a state, the numbers with which a resume begins to read: (which of the position's
            tuples, stage, number). They follow from the position, so they don't count for equality.
        lost: In a state, the names of the records at which workers were lost, which a resume must
            not try again: the latest 8, possibly some after the state. They don't count for
            equality either.
    """

    first: tuple[str, ...]
    following: tuple[Triple, ...]
    marks: tuple[Triple, ...]
    lost: tuple[int, ...]

    def __new__(
        cls,
        count: int = 0,
        first: tuple[str, ...] = (),
        following: tuple[Triple, ...] = (),
        marks: tuple[Triple, ...] = (),
        lost: tuple[int, ...] = (),
    ) -> Skipped:
        self = super().__new__(cls, count)
        self.first, self.following, self.marks, self.lost = first, following, marks, lost
        return self

    def plus(self, record: SkipRecord, room: int) -> Skipped:
        """Return these items and the new ones of a later record.

        Args:
            record: The items skipped after them, some possibly known.
            room: Number of characters for the descriptions.
        """
        count, known = int(self), {stage: (epoch, n) for stage, epoch, n in self.following}
        first = list(self.first)
        for stage, epoch, n, text in record.first:
            if known.get(stage, (0, 0)) <= (epoch, n):
                known[stage] = epoch, n + 1
                count += 1
                # After one without room, none is kept, or a resume would keep different ones.
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

    def at(self, marks: tuple[Triple, ...], lost: tuple[int, ...] = ()) -> Skipped:
        """Return the same with other marks and names of lost records."""
        return Skipped(self, self.first, self.following, marks, lost)

    def renumbered(self) -> Skipped:
        """Return the same, with stages numbering from 0 again, as they are at new positions."""
        return Skipped(self, self.first)

    def to_json(self) -> dict[str, Any]:
        """Return the part that a state keeps, for `from_json`."""
        found = {"count": int(self), "first": self.first, "next": self.following}
        more = {"marks": self.marks, "lost": self.lost}
        return {**found, **{name: value for name, value in more.items() if value}}

    @staticmethod
    def from_json(found: Any) -> Skipped:
        """Parse the result of `to_json`; raise an `InvalidState` for anything else."""
        if not isinstance(found, dict) or not _NAMES <= {*found} <= _NAMES | _MORE:
            raise InvalidState(f"not a record of skipped items: {brief(found)}")
        count, first = found["count"], found["first"]
        following, marks, lost = found["next"], found.get("marks", ()), found.get("lost", ())
        if (
            type(count) is int
            and isinstance(first, tuple)
            and all(type(text) is str and text.isprintable() for text in first)
            and all(0 < len(text) <= _TEXT_LENGTH for text in first)
            and len(first) <= min(_FIRST, count)
            and _are_triples(following, 1)
            and (count or lost)
            and count >= sum(n for _, _, n in following)
            and _are_triples(marks, 2)
            and _are_lost(lost)
            and all(found[name] for name in _MORE & {*found})
        ):
            return Skipped(count, first, following, marks, lost)
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
        return (*self._values(), self.marks, self.lost)

    def _values(self) -> tuple[Any, ...]:
        return int(self), self.first, self.following


_NAMES = {"count", "first", "next"}
_MORE = {"marks", "lost"}  # only if there are some


def _are_lost(found: Any) -> bool:
    """Return whether these are names of lost records."""
    if not isinstance(found, tuple) or len(found) > _MOST_LOST:
        return False
    return all(type(name) is int and 0 <= name < LOST_NAMES for name in found)


def _are_triples(found: Any, key: int) -> bool:
    """Return whether these are triples of ints, ordered by their first `key`, the last above 0."""
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
    """Items skipped by a stage; some may be known already.

    Attributes:
        spans: (stage, epoch, number, the number after the last).
        first: Of the first 8, (stage, epoch, number, description).
    """

    spans: tuple[tuple[int, int, int, int], ...] = ()
    first: tuple[tuple[int, int, int, str], ...] = ()

    def plus(self, more: SkipRecord) -> SkipRecord:
        """Return these items and those of a later record."""
        spans = list(self.spans)
        for stage, epoch, begin, end in more.spans:
            latest = next((i for i, span in enumerate(spans[::-1], 1) if span[0] == stage), 0)
            if latest and spans[-latest][1::2] == (epoch, begin):
                spans[-latest] = (*spans[-latest][:3], end)
            else:
                spans.append((stage, epoch, begin, end))
        return SkipRecord(tuple(spans), (self.first + more.first)[:_FIRST])

    def after_skips(self, numbers: Mapping[int, int]) -> SkipRecord:
        """Return the same items, numbered after a number of earlier skips per stage."""
        spans = [
            (stage, epoch, begin + numbers.get(stage, 0), end + numbers.get(stage, 0))
            for stage, epoch, begin, end in self.spans
        ]
        first = [
            (stage, epoch, n + numbers.get(stage, 0), text) for stage, epoch, n, text in self.first
        ]
        return SkipRecord(tuple(spans), tuple(first))


class SkipLog:
    """The items skipped before the last delivered item, wherever they were found.

    A pickled copy begins empty; its records come back with its chunks.

    Args:
        room: Number of characters that a state has for descriptions.

    Attributes:
        is_direct: Whether nothing is computed ahead, so that every record is of delivered items.
        known: The items skipped before the current chunk.
        of_chunk: Function that returns the items skipped before those yielded from the chunk.
        delivered: The items skipped before the last delivered item, if items wait between being
            yielded and being delivered; otherwise None.
        lost: The records at which workers were lost last, by name, with the errors to raise in
            their place.
        leave_out: Function that has these records skipped.
    """

    def __init__(self, room: int = ROOM_WITH_TEXTS) -> None:
        self.is_direct = False
        self.known = Skipped()
        self.of_chunk: Callable[[], SkipRecord] = SkipRecord
        self.delivered: Skipped | None = None
        self.lost: dict[int, Exception] = {}
        self.leave_out: Callable[[Mapping[int, Exception]], None] = lambda lost: None
        self._room = room
        self._new = SkipRecord()

    def restart(self, known: Skipped) -> None:
        """Continue from the items known at a position."""
        self.known, self.of_chunk, self.delivered = known, SkipRecord, None
        self.lose({name: LEFT_OUT for name in known.lost if name not in self.lost})
        self.leave_out(self.lost)

    def lose(self, lost: Mapping[int, Exception]) -> None:
        """Note records at which workers were lost."""
        self.lost = dict([*(self.lost | dict(lost)).items()][-_MOST_LOST:])

    def before_delivered(self) -> Skipped:
        """Return the items skipped before the last delivered item."""
        if self.of_chunk is SkipRecord and self.delivered is None:
            return self.known
        return self.before_yielded() if self.delivered is None else self.delivered

    def before_yielded(self) -> Skipped:
        """Return the items skipped before the last yielded item."""
        record = self.of_chunk()
        return self.known.plus(record, self._room) if record.spans else self.known

    def including(self, records: Iterable[SkipRecord]) -> Skipped:
        """Return the known items, with these records."""
        known = self.known
        for record in records:
            known = known.plus(record, self._room)
        return known

    def add(self, stage: int, epoch: int, number: int, text: str) -> None:
        line = " ".join(masked(text).split())[:_TEXT_LENGTH]
        first = (stage, epoch, number, "".join(c if c.isprintable() else "?" for c in line))
        self.record(SkipRecord(((stage, epoch, number, number + 1),), (first,)))

    def record(self, record: SkipRecord) -> None:
        if self.is_direct:
            self.known = self.including([record])
        else:
            self._new = self._new.plus(record)

    def drain(self) -> SkipRecord:
        """Return the items recorded since the last call."""
        new, self._new = self._new, SkipRecord()
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        return SkipLog, ()
