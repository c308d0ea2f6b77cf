"""What `Run.set` has changed: a journal, within a state or in a file of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

from lazyckpt.core.checks import brief
from lazyckpt.core.entries import dumps
from lazyckpt.core.prng import derive
from lazyckpt.core.user_state import Own, thaw
from lazyckpt.errors import InvalidState
from lazyckpt.state.codec import decode, encode, is_count, parsed


class Change(NamedTuple):
    """That a control was changed.

    Attributes:
        items: How many items the run had delivered before.
        name: The control's.
        frozen: The value, immutable; `value` is it as it was given.
        places: For each stage that takes the control its number, and the epoch and the item
            of its own from which on the value holds there.
    """

    items: int
    name: str
    frozen: Own
    places: tuple[tuple[str, int, int], ...]

    @property
    def value(self) -> Any:
        return thaw(self.frozen)

    def __repr__(self) -> str:
        return (
            f"Change(items={self.items}, name={self.name!r}, value={brief(self.value, self.name)})"
        )

    def to_json(self) -> list[Any]:
        """It as JSON values, for `from_json` to read."""
        return [encode(self.items), self.name, encode(self.frozen[0]), encode(self.places)]

    @staticmethod
    def from_json(found: Any) -> Change:
        """What `to_json` gave; an `InvalidState` for anything else."""
        if isinstance(found, list) and len(found) == 4 and isinstance(found[1], str):
            items, value, places = (decode(found[number]) for number in (0, 2, 3))
            if is_count(items) and type(places) is tuple and all(map(_is_place, places)):
                return Change(items, found[1], Own((value,)), places)
        raise InvalidState(f"no change of a control: {brief(found)}")


def _is_place(found: Any) -> bool:
    return (
        type(found) is tuple
        and len(found) == 3
        and type(found[0]) is str
        and all(map(is_count, found[1:]))
    )


class Changes(Sequence[Change]):
    """The changes before a state, in their order; immutable.

    Attributes:
        digest: Sixteen hexadecimal digits that stand for all of them, "" for none: ranks
            that have made the same changes at the same items have the same.
        file: The journal that has them, if not the state.
    """

    __slots__ = ("_count", "_entries", "_values_digest", "digest", "file")

    def __init__(
        self,
        entries: Sequence[Change] = (),
        *,
        file: str | None = None,
        count: int | None = None,
        digest: str | None = None,
    ) -> None:
        self._entries: tuple[Change, ...] | None = tuple(entries)
        self.file = file
        self._values_digest: str | None = None
        if digest is not None and count is not None:  # of a file that nobody has read yet
            self._entries = None if count else ()
            self._count, self.digest = count, digest
            return
        self._count, self.digest = len(entries), ""
        for each in entries:
            self.digest = digest_of(self.digest, each)

    @property
    def entries(self) -> tuple[Change, ...]:
        """All of them; an `InvalidState` that names the file if that hasn't got them."""
        if self._entries is None:
            assert self.file is not None
            self._entries = read(self.file, self._count, self.digest)
        return self._entries

    @property
    def values_digest(self) -> str:
        """A digest of the names and values alone, in their order, wherever they hold."""
        if self._values_digest is None:
            found = ""
            for each in self.entries:
                found = _value_digest(found, each)
            self._values_digest = found
        return self._values_digest

    @overload
    def __getitem__(self, index: int) -> Change: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Change, ...]: ...
    def __getitem__(self, index: int | slice) -> Change | tuple[Change, ...]:
        return self.entries[index]

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Changes):
            return NotImplemented
        return (self._count, self.digest) == (other._count, other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Changes({list(self.entries)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _changes, (self.to_json(),)

    def plus(self, change: Change) -> Changes:
        """These and another one, which is written to the file if there is one."""
        entries = self.entries
        if self.file is not None:
            append(self.file, [line(self.digest, change)])
        found = Changes((), file=self.file)
        found._entries, found._count = (*entries, change), len(entries) + 1
        found.digest = digest_of(self.digest, change)
        found._values_digest = _value_digest(self.values_digest, change)
        return found

    def kept_in(self, file: str) -> Changes:
        """The same in a journal, to which those that it lacks are written."""
        moved = Changes(file=file, count=self._count, digest=self.digest)
        if self._entries is not None or self.file is None:
            known = lines(file)[0] if os.path.exists(file) else {}
            before, missing = "", []
            for each in self.entries:
                text, before = line(before, each), digest_of(before, each)
                if before not in known:
                    missing.append(text)
            append(file, missing)
        _ = moved.entries
        return moved

    def to_json(self) -> Any:
        """What a state has of them, for `from_json` to read."""
        if self.file is not None:
            return {"file": self.file, "count": self._count, "digest": self.digest}
        return [each.to_json() for each in self.entries]

    @staticmethod
    def from_json(found: Any) -> Changes:
        """What `to_json` gave; an `InvalidState` for anything else."""
        if isinstance(found, list) and found:
            return Changes([Change.from_json(each) for each in found])
        if isinstance(found, dict) and {*found} == {"file", "count", "digest"}:
            file, count, digest = found["file"], found["count"], found["digest"]
            if isinstance(file, str) and isinstance(digest, str) and is_count(count) and count:
                return Changes(file=file, count=count, digest=digest)
        raise InvalidState(f"no journal of changes: {brief(found)}")


NO_CHANGES = Changes()


def _changes(found: Any) -> Changes:
    return Changes.from_json(found) if found else NO_CHANGES


def _value_digest(before: str, change: Change) -> str:
    return digest_of(before, change._replace(items=0, places=()))


def digest_of(before: str, change: Change) -> str:
    """The digest of changes, from that of all but the last one."""
    return f"{derive(0, before, dumps(change.to_json())):016x}"


def line(before: str, change: Change) -> str:
    """A line of a journal: a change, behind those of some digest.

    So runs that go on from one state in several ways can share a file, and ranks, which
    write the same lines.
    """
    return dumps({"before": before, "change": change.to_json()})


def lines(file: str) -> tuple[dict[str, tuple[str, Change]], list[int]]:
    """The changes of a journal by digest, with the digest before each; and the damaged lines.

    Such a line may have been half written, by a process that was killed.
    """
    try:
        with open(file, "rb") as opened:
            texts = opened.read().split(b"\n")
    except OSError as error:
        raise InvalidState(f"the journal {file} can't be read: {error}") from None
    found: dict[str, tuple[str, Change]] = {}
    damaged = []
    for number, text in enumerate(texts, 1):
        try:
            if not text:
                continue
            value = parsed(text)
            before, change = value["before"], Change.from_json(value["change"])
            found[digest_of(before, change)] = before, change
        except (InvalidState, ValueError, TypeError, KeyError, RecursionError):
            damaged.append(number)
    if damaged and not found:
        raise InvalidState(f"{file} is no journal of changes, its line {damaged[0]} is none of one")
    return found, damaged


def read(file: str, count: int, digest: str) -> tuple[Change, ...]:
    """So many changes of a journal, up to that of a digest."""
    known, damaged = lines(file)
    entries: list[Change] = []
    here = digest
    while here and len(entries) <= count:
        if here not in known:
            reason = f"line {damaged[0]} is damaged" if damaged else "it is another, or was cut off"
            raise InvalidState(
                f"the journal {file} lacks change {count - len(entries)} of the {count} before "
                f"the state: {reason}"
            )
        here, change = known[here]
        entries.append(change)
    if len(entries) != count:
        raise InvalidState(f"the journal {file} has not the {count} changes before the state")
    return tuple(entries[::-1])


def append(file: str, texts: Sequence[str]) -> None:
    """Write lines behind those of a journal, and have them stored before it returns."""
    if not texts:
        return
    with open(file, "a+b") as opened:
        opened.seek(0, os.SEEK_END)
        if opened.tell():
            opened.seek(-1, os.SEEK_END)
            if opened.read(1) != b"\n":  # of a line that was half written
                texts = ["", *texts]
        opened.write("".join(f"{text}\n" for text in texts).encode())
        opened.flush()
        os.fsync(opened.fileno())
