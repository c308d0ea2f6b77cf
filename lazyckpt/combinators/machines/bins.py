"""Rows of several whole sequences, some open at the same time, for `pack`."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Protocol

from toolz import concat

from lazyckpt.combinators.machines.packing import Placed, Read, length_after, packed
from lazyckpt.combinators.machines.schedules import Schedule
from lazyckpt.combinators.machines.token_rows import (
    Features,
    Overflow,
    Pad,
    cut_to_fit,
    size_of,
)
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Machine, Reread, begun, within
from lazyckpt.errors import SourceChanged


class Rooms(Protocol):
    """The remaining room of each open row."""

    def place(self, size: int) -> int:
        """Put tokens into a row; return its number, or -1 if none has room."""

    def add(self, room: int) -> None:
        """Open a row."""


class FirstFit:
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


class BestFit:
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


class Bins:
    """The open rows."""

    def __init__(self, name: str, length: int, overflow: Overflow, rooms: Rooms) -> None:
        self.name, self.length, self.overflow = name, length, overflow
        self.rows: list[list[Any]] = []
        self._rooms = rooms

    def place(self, items: Iterable[Any], most: float) -> list[Any]:
        """Put sequences into rows, up to the first one without room; return that one, if any."""
        rows, rooms, length = self.rows, self._rooms, self.length
        for item in items:
            size, last, whole = size_of(self.name, item), item, list[Any]()
            if size > length:
                whole = cut_to_fit(self.name, item, size, length, self.overflow)
                if not whole:
                    continue
                last = whole.pop()
                size = size_of(self.name, last)
            if not size:
                continue
            chosen = rooms.place(size)
            if whole or chosen < 0:
                if rows and len(rows) + len(whole) + (chosen < 0) > most:
                    return [item]
                for part in whole:
                    rows.append([part])
                    rooms.add(0)
                if chosen < 0:
                    chosen = len(rows)
                    rows.append([])
                    rooms.add(length - size)
            rows[chosen].append(last)
        return []

    def after(self, given: int) -> list[list[Any]]:
        """Return the rows after the first `given` ones."""
        if given >= max(1, len(self.rows)):
            raise SourceChanged(f"{self.name}: the state is after row {given} of {len(self.rows)}")
        return self.rows[given:]


def binned(
    name: str,
    upstream: Machine[Any],
    length: int | Schedule[int],
    num_bins: int,
    overflow: Overflow,
    pad: Pad | None,
    begin: Callable[[], Rooms],
) -> Machine[Features]:
    """Build a machine with several open rows, all yielded when a sequence fits into none.

    If the length changes before all of them are yielded, the sequences of the remaining rows go
    into rows of the new length, before any new sequence. For each such change, the position
    contains the old length, the number of rows, and how many of these were yielded.
    """
    is_scheduled = isinstance(length, Schedule)

    def rows(
        before: Read, anchor: Position, number: int, given: int, *own: Any
    ) -> Iterator[Placed]:
        held: list[Any] = []
        left: list[Any] = []  # read, and without room in the earlier rows

        def placed(size: int, most: int) -> Bins:
            """Yield rows of sequences held, left over and read, up to one that fits into none."""
            nonlocal left
            bins = Bins(name, size, overflow, begin())
            bins.place(held, math.inf)
            left = bins.place(chain(left, before.items), most)
            return bins

        size = length_after(name, length, number)
        past = [*own]
        if is_scheduled and given:
            size = past.pop(0)
        for was, most, count in past:
            held = [*concat(placed(was, most).after(count))]
        while True:
            bins = placed(size, num_bins)
            following = before.last() if left else before.reached()
            held = []
            for row in bins.after(given):
                given, number = given + 1, number + 1
                upcoming = length_after(name, length, number)
                if given == len(bins.rows):
                    anchor, given, past = following, 0, []
                elif upcoming != size:
                    held = [*concat(bins.after(given))]
                    given, past = 0, [*past, (size, num_bins, given)]
                open_length = [size] if is_scheduled and given else []
                yield (anchor, given, *open_length, *past), (row, size)
                if not given:
                    size = upcoming
                    break
            if not (held or left):
                return

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

    return packed(name, upstream, length, pad, rows, rereads, check)
