"""Whole sequences of tokens in rows of one length: `pack_first_fit`, `pack_best_fit`."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeAlias

from toolz import concat

from lazyckpt.combinators.machines.packing import (
    Placed,
    Read,
    fixed_length,
    length_after,
    packed,
    recounted,
    traced_rows,
)
from lazyckpt.combinators.machines.token_rows import (
    Features,
    Overflow,
    Pad,
    as_sequence,
    cut_to_fit,
    dropped,
    filled_row,
    overflow_policy,
    padding,
)
from lazyckpt.combinators.schedule import Schedule, scheduled
from lazyckpt.core.checks import Unfit, optional, positive
from lazyckpt.core.content import Entry, decode
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Machine, Reread, begun, within
from lazyckpt.core.registry import Elastic
from lazyckpt.decorators import combinator
from lazyckpt.errors import ArgumentError, SourceChanged

_CHECKS = {
    "length": scheduled,
    "num_bins": positive,
    "overflow": overflow_policy,
    "pad": optional(padding),
}


def _fits(stage: str, length: Any, overflow: str, **_: Any) -> None:
    if overflow == "drop" and isinstance(length, Schedule):
        raise ArgumentError(
            f'{stage}: overflow="drop" wants a fixed length, got {length!r}: what is too long '
            "would depend on the row; filter before it"
        )


def _rebased(
    own: tuple[Any, ...],
    before: Entry,
    length: int | Schedule[int],
    num_bins: int,
    overflow: Overflow,
    **_: Any,
) -> tuple[Any, ...]:
    """The own part where rows get another length or number: those that were given keep theirs."""
    count, given, *past = recounted(own, before, length)
    size, most = fixed_length(before), decode(before.known["num_bins"])
    if given:
        if size is None:
            size, *past = past
        if (size, most) != (length_after(before.name, length, count), num_bins):
            given, past = 0, [*past, (size, most, given)]
    if overflow == "drop" and any(length < was for was, _, _ in past):
        raise Unfit("rows that are begun have sequences that are longer; change between epochs")
    if isinstance(length, Schedule):
        return (count, given, *[size] * bool(given), *past)
    return (given, *past)


REPACKED = Elastic(changes={"length": "here", "num_bins": "here", "pad": "blind"}, rebase=_rebased)


@combinator(
    checks=_CHECKS,
    validate=partial(_fits, "pack_first_fit"),
    elastic=REPACKED,
    trace=traced_rows,
    dropped=dropped,
)
def pack_first_fit(
    upstream: Machine[Any],
    length: int | Schedule[int],
    *,
    num_bins: int,
    overflow: Overflow = "error",
    pad: Pad | None = None,
) -> Machine[Features]:
    """Rows of `length` tokens, each of several whole sequences and filled up with zeros.

    An item is a sequence of tokens, as a list or an array of shape `(n, ...)`,
    or a mapping of several features of one length n, such as a loss mask beside the tokens. A
    feature that is one number or text belongs to each token of its sequence.

    A sequence goes into the first of the rows that has room for it. When none
    has, all of them are given, in order, and new ones begun with it.
    `pack_best_fit` leaves less room empty.

    A row is a dict of arrays of shape `(length, ...)`: the features, or `tokens`;
    `segment_ids`, int32, which number the sequences in the row from 1, with 0
    where it is filled up; and `positions`, int32, which count from 0 in each
    segment. An empty sequence leaves no trace.

    Args:
        length: Tokens per row, an int >= 1; or a `schedule` of such, by the number of rows so
            far in the epoch.
        num_bins: Rows that are filled at once, an int >= 1; more leave less room empty.
        overflow: What becomes of a sequence longer than `length`: "error"; "split", cut into
            segments of `length` tokens and the rest; "truncate", its first `length` tokens;
            or "drop", which `run(..., on_error="skip")` counts and names in `Run.skipped`.
        pad: What fills up a row, by features, as `{"labels": -100}`; zeros for the others.

    Raises:
        ValueError: For such a sequence, with "error". Also for features of unequal lengths, of
            other names than before in the row, or named as those that are added; for a `pad`
            that doesn't fit them.
        TypeError: For an item that is no such sequence.

    State:
        The place before the first sequence in these rows, and a count of rows given. If their
        length changed amid them, the length and number of rows that were, and how many of them
        were given. With a schedule, a count of rows and the length of the open ones.

    Resume:
        Re-reads the sequences of at most `num_bins` rows, also with another `length` or
        `num_bins` (`rebase`): what stands in rows that were not given is packed anew.

    Random access:
        No.

    Rank-free:
        With sequences of one length.

    Memory:
        `num_bins` rows; with "split", those of one sequence if they are more.

    Source:
        Johnson, "Near-optimal bin packing algorithms", 1973.

    >>> import lazyckpt as lz
    >>> for row in [[1, 1, 1], [2, 2], [3], [4]] | lz.pack_first_fit(4, num_bins=2):
    ...     print(row["tokens"], row["segment_ids"], row["positions"])
    [1 1 1 3] [1 1 1 2] [0 1 2 0]
    [2 2 4 0] [1 1 2 0] [0 1 0 0]
    """
    return _binned("pack_first_fit", upstream, length, num_bins, overflow, pad, _FirstFit)


@combinator(
    checks=_CHECKS,
    validate=partial(_fits, "pack_best_fit"),
    elastic=REPACKED,
    trace=traced_rows,
    dropped=dropped,
)
def pack_best_fit(
    upstream: Machine[Any],
    length: int | Schedule[int],
    *,
    num_bins: int,
    overflow: Overflow = "error",
    pad: Pad | None = None,
) -> Machine[Features]:
    """Rows of `length` tokens, as of `pack_first_fit`, each filled as far as it can be.

    A sequence goes into that of the rows which it leaves the least room in, the first of
    several. When none has room, all of them are given, in order, and new ones begun with it.
    Where lengths are known, `plan_packing` leaves almost no room empty: of rows of 2,048
    tokens, out of the files of Python's standard library, 0.16 %, where no packing has less
    than 0.07 %. As they come, of those that are filled at once,

        num_bins            8       64      512
        pack_first_fit   7.2 %    3.1 %    1.4 %
        pack_best_fit    7.1 %    2.6 %    1.3 %

    Args:
        length: Tokens per row, an int >= 1; or a `schedule` of such, by the number of rows so
            far in the epoch.
        num_bins: Rows that are filled at once, an int >= 1; more leave less room empty.
        overflow: As of `pack_first_fit`.
        pad: As of `pack_first_fit`.

    Raises:
        ValueError: As `pack_first_fit`.
        TypeError: For an item that is no sequence of tokens, or dict of such.

    State:
        The place before the first sequence in these rows, and a count of rows given. If their
        length changed amid them, the length and number of rows that were, and how many of them
        were given. With a schedule, a count of rows and the length of the open ones.

    Resume:
        Re-reads the sequences of at most `num_bins` rows, also with another `length` or
        `num_bins` (`rebase`): what stands in rows that were not given is packed anew.

    Random access:
        No.

    Rank-free:
        With sequences of one length.

    Memory:
        `num_bins` rows; with "split", those of one sequence if they are more.

    Source:
        Johnson, "Near-optimal bin packing algorithms", 1973.

    >>> import lazyckpt as lz
    >>> for row in [[1], [2, 2], [3, 3, 3], [4, 4]] | lz.pack_best_fit(4, num_bins=2):
    ...     print(row["tokens"], row["segment_ids"])
    [1 2 2 0] [1 2 2 0]
    [3 3 3 0] [1 1 1 0]
    [4 4 0 0] [1 1 0 0]
    """
    return _binned("pack_best_fit", upstream, length, num_bins, overflow, pad, _BestFit)


class _Rooms(Protocol):
    """How many tokens there is room for in each of the rows that are being filled."""

    def place(self, size: int) -> int:
        """Put so many tokens into a row; gives its number, or -1 if none has room."""

    def add(self, room: int) -> None:
        """Begin a row."""


class _FirstFit:
    def __init__(self) -> None:
        self._rooms: list[int] = []

    def place(self, size: int) -> int:
        rooms = self._rooms
        for number, room in enumerate(rooms):
            if room >= size:
                rooms[number] = room - size
                return number
        return -1

    def add(self, room: int) -> None:
        self._rooms.append(room)


class _BestFit:
    def __init__(self) -> None:
        self._rising: list[tuple[int, int]] = []  # a room, and the number of its row

    def place(self, size: int) -> int:
        rising = self._rising
        place = bisect_left(rising, (size, 0))
        if place == len(rising):
            return -1
        room, number = rising.pop(place)
        insort(rising, (room - size, number))
        return number

    def add(self, room: int) -> None:
        insort(self._rising, (room, len(self._rising)))


_Sized: TypeAlias = tuple[int, Features]  # a sequence, and how long it is


class _Bins:
    """Rows that are filled at once."""

    def __init__(self, name: str, length: int, overflow: Overflow, rooms: _Rooms) -> None:
        self.name, self.length, self.overflow = name, length, overflow
        self.rows: list[list[Features]] = []
        self._rooms = rooms

    def fill(self, sequences: Iterable[_Sized], most: float) -> _Sized | None:
        """Put sequences into rows; return the first without room in so many, or None."""
        rows, rooms, length = self.rows, self._rooms, self.length
        for sequence in sequences:
            size, features = sequence
            whole: list[Features] = []
            if size > length:
                whole = cut_to_fit(self.name, size, features, length, self.overflow)
                features = whole.pop() if whole else {}
                size = _size(features)
            if not size:
                continue
            chosen = rooms.place(size)
            if whole or chosen < 0:
                if rows and len(rows) + len(whole) + (chosen < 0) > most:
                    return sequence
                for part in whole:
                    rows.append([part])
                    rooms.add(0)
                if chosen < 0:
                    chosen = len(rows)
                    rows.append([])
                    rooms.add(length - size)
            rows[chosen].append(features)
        return None

    def after(self, given: int) -> list[list[Features]]:
        """The rows after so many."""
        if given >= max(1, len(self.rows)):
            raise SourceChanged(
                f"{self.name}: the state stands after row {given} of {len(self.rows)}"
            )
        return self.rows[given:]


def _size(features: Features) -> int:
    return len(next(iter(features.values()))) if features else 0


def _binned(
    name: str,
    upstream: Machine[Any],
    length: int | Schedule[int],
    num_bins: int,
    overflow: Overflow,
    pad: Pad | None,
    begin: Callable[[], _Rooms],
) -> Machine[Features]:
    """Rows that are filled at once, and given at once when there is no room for a sequence.

    If the length changes before all of them are given, the sequences of the others go into rows
    of the new length, before any that is read. The position has for each such change the
    length that was, the number of rows, and how many of these were given.
    """
    is_scheduled = isinstance(length, Schedule)

    def rows(
        before: Read, anchor: Position, number: int, given: int, *own: Any
    ) -> Iterator[Placed]:
        stream: Iterator[_Sized] = map(partial(as_sequence, name), before.items)
        held: list[Features] = []

        def filled(size: int, most: int) -> tuple[_Bins, bool]:
            """Rows of what is held and read, and whether there is more than they have room for."""
            nonlocal stream
            bins = _Bins(name, size, overflow, begin())
            bins.fill(zip(map(_size, held), held, strict=True), math.inf)
            left = bins.fill(stream, most)
            if left is not None:
                stream = chain([left], stream)
            return bins, left is not None

        size = length_after(name, length, number)
        past = [*own]
        if is_scheduled and given:
            size = past.pop(0)
        for was, most, count in past:
            held = [*concat(filled(was, most)[0].after(count))]
        is_more = True
        while held or is_more:
            bins, is_more = filled(size, num_bins)
            following = before.last() if is_more else before.reached()
            held = []
            for parts in bins.after(given):
                row = filled_row(name, parts, size, pad)
                given, number = given + 1, number + 1
                upcoming = length_after(name, length, number)
                if given == len(bins.rows):
                    anchor, given, past = following, 0, []
                elif upcoming != size:
                    held = [*concat(bins.after(given))]
                    given, past = 0, [*past, (size, num_bins, given)]
                open_length = [size] if is_scheduled and given else []
                yield (anchor, given, *open_length, *past), row
                if not given:
                    size = upcoming
                    break

    def rereads(anchor: Position, given: int, *past: Any) -> Reread:
        return Reread(anchor, math.inf if given or past else begun(upstream, anchor))

    def check(given: int, *own: Any) -> None:
        within(name, given)
        past = [*own]
        if is_scheduled and given:
            within(name, past.pop(0) - 1)
        for each in past:
            check_change(*each)

    def check_change(was: int, most: int, count: int) -> None:
        within(name, was - 1), within(name, most - 1), within(name, count - 1)

    return packed(name, upstream, length, rows, rereads, check)
