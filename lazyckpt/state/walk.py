"""Iteration from one state of a pipeline to another, across the ends of epochs, in chunks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.flow import Flow, Position, close_stream
from lazyckpt.core.machine import Machine
from lazyckpt.core.prng import as_array
from lazyckpt.errors import InvalidState
from lazyckpt.failures.marks import with_marks, without_marks
from lazyckpt.state.state import State

ROWS = 1 << 16  # approximate number of origins at a time


class Reader(Protocol):
    """Reads items of an epoch in chunks."""

    def open(self, position: Position) -> None:
        """Go to a position."""

    def take(self, count: int) -> Sequence[Any] | NDArray[np.int64]:
        """Return up to `n` items; none at the end."""

    def place(self) -> Position:
        """Return the position after the last item taken."""

    def close(self) -> None:
        """Release what the items are read from."""


class Skipped:
    """Random access: counts items without reading them."""

    def __init__(self, machine: Machine[Any]) -> None:
        assert machine.skip is not None
        self._skip = machine.skip

    def open(self, position: Position) -> None:
        self._position = without_marks(position)[0]

    def take(self, count: int) -> Sequence[Any] | NDArray[np.int64]:
        self._position, passed = self._skip(self._position, count)
        return range(passed)

    def place(self) -> Position:
        return self._position

    def close(self) -> None:
        pass


class Viewed(Skipped):
    """The vectorized mode, with the indices themselves as items."""

    def __init__(self, machine: Machine[Any]) -> None:
        super().__init__(machine)
        assert machine.view is not None
        self._ahead = machine.view.ahead

    def take(self, count: int) -> NDArray[np.int64]:
        before = self._position
        return as_array(self._ahead(before, super().take(count)))  # type: ignore[arg-type]  # a range


class Flowing:
    """Reads one item after another."""

    def __init__(self, machine: Machine[Any]) -> None:
        self._machine = machine
        self._flow: Flow[Any] = Flow(iter(()), lambda: None)

    def open(self, position: Position) -> None:
        self.close()
        self._flow = self._machine.flow(position)
        self._items = iter(self._flow)

    def take(self, count: int) -> list[Any]:
        return list(islice(self._items, count))

    def place(self) -> Position:
        return without_marks(self._flow.snapshot())[0]

    def close(self) -> None:
        close_stream(self._flow)


class Walk:
    """The items between two states.

    Attributes:
        size: Number of items read at a time.
    """

    def __init__(self, machine: Machine[Any], reader: Reader, size: float = 1 << 10) -> None:
        self.machine, self.reader, self.size = machine, reader, size

    def between(self, first: State, last: State) -> Iterator[Any]:
        """Yield the items between two states; `InvalidState` if they lead elsewhere."""
        begin = with_marks(first.position, first.skipped.marks)
        try:
            yield from self._between(begin, last.items - first.items, last.position)
        finally:
            self.reader.close()

    def _between(self, begin: Position, count: int, end: Position) -> Iterator[Any]:
        left, place, epoch = count, begin, self.machine.epoch
        while True:
            self.reader.open(place)
            while left:
                items = self.reader.take(int(min(left, self.size)))
                if not len(items):
                    break
                left -= len(items)
                yield items
            is_there = not left and self.reader.place() == end
            if not is_there and len(self.reader.take(1)):
                raise _elsewhere(count)
            if is_there or (not left and self.reader.place() == end):  # once its end is found
                return
            place = self.machine.init(epoch(self.reader.place()) + 1)
            if epoch(place) > epoch(end):
                raise _elsewhere(count)
            if not left and place == end:
                return

    def fit(self, items: int, rows: int) -> None:
        """Choose the number of items per chunk so that a chunk has about `ROWS` origins."""
        self.size = max(1, min(ROWS, self.size * 8, items * ROWS // max(rows, 1)))


def _elsewhere(count: int) -> InvalidState:
    return InvalidState(
        f"{count:,} items don't lead to the state's position, so others came in between: a "
        "run that began in a different epoch, or left one early; pass since=, or a first state, "
        "from which on every item was delivered"
    )


def check(machine: Machine[Any], first: State, last: State) -> None:
    """Raise `InvalidState` if the items lead elsewhere, as far as random access shows."""
    if machine.skip is not None:
        for _ in Walk(machine, Skipped(machine), math.inf).between(first, last):
            pass
