"""Whole sequences of tokens in rows of one length: `pack_first_fit`, `pack_best_fit`."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from lazyckpt.combinators.machines.packing import Placed, Read, packed, traced_rows
from lazyckpt.combinators.machines.token_rows import (
    REPADDED,
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
from lazyckpt.core.checks import optional, positive
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Machine, Reread, begun
from lazyckpt.decorators import combinator
from lazyckpt.errors import SourceChanged

_CHECKS = {
    "length": positive,
    "num_bins": positive,
    "overflow": overflow_policy,
    "pad": optional(padding),
}


@combinator(checks=_CHECKS, elastic=REPADDED, trace=traced_rows, dropped=dropped)
def pack_first_fit(
    upstream: Machine[Any],
    length: int,
    *,
    num_bins: int,
    overflow: Overflow = "error",
    pad: Pad | None = None,
) -> Machine[Features]:
    """Rows of `length` tokens, each of several whole sequences and filled up with zeros.

    An item is a sequence of tokens, as a list or an array of shape `(n, ...)`,
    or a mapping of several features of one length n, such as a loss mask beside the tokens.

    A sequence goes into the first of the rows that has room for it. When none
    has, all of them are given, in order, and new ones begun with it.
    `pack_best_fit` leaves less room empty.

    A row is a dict of arrays of shape `(length, ...)`: the features, or `tokens`;
    `segment_ids`, int32, which number the sequences in the row from 1, with 0
    where it is filled up; and `positions`, int32, which count from 0 in each
    segment. An empty sequence leaves no trace.

    Args:
        length: Tokens a row, an int >= 1.
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
        The place before the first sequence in these rows, and a count of rows given.

    Resume:
        Re-reads the sequences of at most `num_bins` rows.

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


@combinator(checks=_CHECKS, elastic=REPADDED, trace=traced_rows, dropped=dropped)
def pack_best_fit(
    upstream: Machine[Any],
    length: int,
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
        length: Tokens a row, an int >= 1.
        num_bins: Rows that are filled at once, an int >= 1; more leave less room empty.
        overflow: As of `pack_first_fit`.
        pad: As of `pack_first_fit`.

    Raises:
        ValueError: As `pack_first_fit`.
        TypeError: For an item that is no sequence of tokens, or dict of such.

    State:
        The place before the first sequence in these rows, and a count of rows given.

    Resume:
        Re-reads the sequences of at most `num_bins` rows.

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


def _binned(
    name: str,
    upstream: Machine[Any],
    length: int,
    num_bins: int,
    overflow: Overflow,
    pad: Pad | None,
    begin: Callable[[], _Rooms],
) -> Machine[Features]:
    """Rows that are filled at once, and given at once when there is no room for a sequence."""

    def rows(before: Read, anchor: Position, given: int) -> Iterator[Placed]:
        bins: list[list[Features]] = []
        rooms = begin()

        def emptied(after: Position) -> Iterator[Placed]:
            if given and given >= len(bins):
                raise SourceChanged(f"{name}: the state stands after row {given} of {len(bins)}")
            for number, parts in enumerate(bins[given:], given + 1):
                row = filled_row(name, parts, length, pad)
                yield ((anchor, number) if number < len(bins) else (after, 0)), row

        for item in before.items:
            size, last = as_sequence(name, item)
            whole: list[Features] = []
            if size > length:
                whole = cut_to_fit(name, size, last, length, overflow)
                last = whole.pop() if whole else {}
                size = len(next(iter(last.values()))) if last else 0
            if not size:
                continue
            chosen = rooms.place(size)
            if whole or chosen < 0:
                if bins and len(bins) + len(whole) + (chosen < 0) > num_bins:
                    here = before.last()
                    yield from emptied(here)
                    anchor, given = here, 0
                    bins, rooms, chosen = [], begin(), -1
                for part in whole:
                    bins.append([part])
                    rooms.add(0)
                if chosen < 0:
                    chosen = len(bins)
                    bins.append([])
                    rooms.add(length - size)
            bins[chosen].append(last)
        yield from emptied(before.reached())

    def rereads(position: Position) -> list[Reread]:
        anchor, given = position
        return [Reread(anchor, math.inf if given else begun(upstream, anchor))]

    return packed(name, upstream, rows, rereads)
