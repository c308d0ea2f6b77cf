"""What is left out of a stream, numbered so that what is met again is not counted again.

A stage that leaves items out numbers them from 0 in each epoch of its upstream.
The number of the next one is a mark on the position that the stage gives: so it
is known wherever that position goes, and whoever enters it, and what a stage
behind reads again has the numbers that it had.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Position
from lazyckpt.errors import InvalidState

_FIRST = 8  # of what was left out that are told
_LETTERS = 88  # of the text of one
_ROOM = 704  # of the kilobyte that a state may fill, for its pipeline and the texts
_MOST = 1 << 10  # stages that leave items out, and marks of theirs

Triple: TypeAlias = tuple[int, int, int]


class Skipped(int):
    """How many items were left out, as an int, with texts of the `first` of them.

    These are where each was and why: the stage, the position just behind it, and
    the error. They are at most 8, and fewer where they would fill more of a
    state than there is room for.

    - `following`: for each stage that left some out the epoch and number of its
      next one; (stage, epoch, number)
    - `marks`: of a state, with which numbers a resume begins to read: (which of
      the position's tuples, stage, number). As that decides them, two that
      differ in nothing else are equal
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

    def and_then(self, met: Met, room: int) -> Skipped:
        """These, and those of what was met after them that are new.

        - `room`: characters for the texts of the first
        """
        count, known = int(self), {stage: (epoch, n) for stage, epoch, n in self.following}
        first = list(self.first)
        for stage, epoch, n, text in met.first:
            if known.get(stage, (0, 0)) <= (epoch, n):
                known[stage] = epoch, n + 1
                count += 1
                # Once one has found no room none has, or a resume would tell others.
                if count - 1 == len(first) < _FIRST and _fits([*first, text], room):
                    first.append(text)
        for stage, epoch, begin, end in met.spans:
            since, number = known.get(stage, (0, 0))
            begin = max(begin, number) if since == epoch else begin
            if since <= epoch and begin < end:
                known[stage] = epoch, end
                count += end - begin
        following = tuple([(stage, *known[stage]) for stage in sorted(known)])
        return Skipped(count, tuple(first), following)

    def marked(self, marks: tuple[Triple, ...]) -> Skipped:
        """The same with other marks."""
        return Skipped(self, self.first, self.following, marks)

    def anew(self) -> Skipped:
        """The same, but that the stages number from 0 again, as others stand there now."""
        return Skipped(self, self.first)

    def to_json(self) -> dict[str, Any]:
        """What a state keeps, which `from_json` reads."""
        found = {"count": int(self), "first": self.first, "next": self.following}
        return {**found, "marks": self.marks} if self.marks else found

    @staticmethod
    def from_json(found: Any) -> Skipped:
        """What `to_json` gave; an `InvalidState` for anything else."""
        if not isinstance(found, dict) or {*found} not in (_NAMES, _NAMES | {"marks"}):
            raise InvalidState(f"no account of what was left out: {brief(found)}")
        count, first = found["count"], found["first"]
        following, marks = found["next"], found.get("marks", ())
        if (
            type(count) is int
            and isinstance(first, tuple)
            and all(type(text) is str and text.isprintable() for text in first)
            and all(0 < len(text) <= _LETTERS for text in first)
            and len(first) <= min(_FIRST, count)
            and _are_triples(following, 1)
            and 0 < count >= sum(n for _, _, n in following)
            and _are_triples(marks, 2)
            and ("marks" not in found or marks)
        ):
            return Skipped(count, first, following, marks)
        raise InvalidState(f"no account of what was left out: {brief(found)}")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Skipped):
            return self._told() == other._told()
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(int(self))

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (*self._told(), self.marks)

    def _told(self) -> tuple[Any, ...]:
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


class Met(NamedTuple):
    """Items left out, as they were met: some may have been met before.

    - `spans`: (stage, epoch, number, the number after the last)
    - `first`: of the first 8, (stage, epoch, number, text)
    """

    spans: tuple[tuple[int, int, int, int], ...] = ()
    first: tuple[tuple[int, int, int, str], ...] = ()

    def and_then(self, more: Met) -> Met:
        """These, and those that were met after them."""
        spans = list(self.spans)
        for stage, epoch, begin, end in more.spans:
            latest = next((i for i, span in enumerate(spans[::-1], 1) if span[0] == stage), 0)
            if latest and spans[-latest][1::2] == (epoch, begin):
                spans[-latest] = (*spans[-latest][:3], end)
            else:
                spans.append((stage, epoch, begin, end))
        return Met(tuple(spans), (self.first + more.first)[:_FIRST])


class Tally:
    """What was left out before the item delivered last, wherever that was noticed.

    Where it's pickled, its copy begins anew; what that meets comes back with its lots.

    - `taken`: characters of a state that its pipeline takes, so that there is room for the rest
    """

    def __init__(self, taken: int = 0) -> None:
        self.is_here = False  # whether nothing is made ahead, so that all is of items delivered
        self.known = Skipped()  # up to the lot at hand
        self.of_lot: Callable[[], Met] = Met  # of the items of it that were delivered
        self.told_of: Skipped | None = None  # where items are held back, of those delivered
        self._room = _ROOM - taken
        self._new = Met()

    def begin(self, known: Skipped) -> None:
        """Go on from what is known, as a walk does that begins where that was so."""
        self.known, self.of_lot, self.told_of = known, Met, None

    def now(self) -> Skipped:
        """What was left out before the item that was delivered last."""
        return self.met() if self.told_of is None else self.told_of

    def met(self) -> Skipped:
        """What was left out before the item that was given last."""
        met = self.of_lot()
        return self.known.and_then(met, self._room) if met.spans else self.known

    def after(self, some: Iterable[Met]) -> Skipped:
        """What is known once these are counted too."""
        known = self.known
        for met in some:
            known = known.and_then(met, self._room)
        return known

    def add(self, stage: int, epoch: int, number: int, text: str) -> None:
        text = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))[:_LETTERS]
        self.more(Met(((stage, epoch, number, number + 1),), ((stage, epoch, number, text),)))

    def more(self, met: Met) -> None:
        if self.is_here:
            self.known = self.after([met])
        else:
            self._new = self._new.and_then(met)

    def told(self) -> Met:
        """What has been met since this was last asked."""
        new, self._new = self._new, Met()
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        return Tally, ()


class Marked(tuple[Any, ...]):
    """A position with the number of the next item that a stage will leave out, by stage.

    It is equal to the position, hashed as it is, and pickles with its marks.
    """

    marks: dict[int, int]

    def __new__(cls, position: tuple[Any, ...], marks: dict[int, int]) -> Marked:
        self = super().__new__(cls, position)
        self.marks = marks
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Marked, (tuple(self), self.marks)


def number_at(position: Position, stage: int) -> int:
    """The number of the next item that the stage leaves out."""
    return position.marks.get(stage, 0) if isinstance(position, Marked) else 0


def marking(position: Position, stage: int, number: int) -> Position:
    """The position, with the number of the next item that the stage leaves out."""
    kept = {k: n for k, n in _marks(position).items() if k != stage}
    return Marked(position, {**kept, stage: number} if number else kept)


def _marks(position: Position) -> dict[int, int]:
    return position.marks if isinstance(position, Marked) else {}


def unmarked(position: Position) -> tuple[Position, tuple[Triple, ...]]:
    """The plain position, and the marks on it: of which of its tuples, the stage, the number."""
    found: list[Triple] = []
    count = 0

    def plain(part: Any) -> Any:
        nonlocal count
        if type(part) is not tuple and type(part) is not Marked:
            return part
        found.extend((count, stage, n) for stage, n in sorted(_marks(part).items()))
        count += 1
        return tuple([plain(each) for each in part])

    return plain(position), tuple(found)


def marked(position: Position, marks: tuple[Triple, ...]) -> Position:
    """The position with the marks on it. Such as don't fit it are left out."""
    if not marks:
        return position
    by_part: dict[int, dict[int, int]] = {}
    for part, stage, n in marks:
        by_part.setdefault(part, {})[stage] = n
    parts: Iterator[int] = iter(range(1 << 62))

    def again(part: Any) -> Any:
        if type(part) is not tuple:
            return part
        mine = by_part.get(next(parts))
        inner = tuple([again(each) for each in part])
        return Marked(inner, mine) if mine else inner

    return again(position)
