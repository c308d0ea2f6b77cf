"""`Shuffling`: a buffer whose items are given in a bounded order, over a stream or lookups."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, compress, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lazyckpt.combinators.machines.bounded_order import BoundedOrder, Grid
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.prng import as_array
from lazyckpt.errors import SourceChanged

if TYPE_CHECKING:
    from numpy.typing import NDArray


def check_reached(name: str, given: int, length: int) -> None:
    """Raise `SourceChanged` if there are fewer items than have been given."""
    if given > length:
        raise SourceChanged(f"{name}: the state stands after item {given} of what now has {length}")


class Reading:
    """A stream, and the places that a resume may begin at.

    Args:
        flow: The stream.
        first: How many items come before it.
        stride: Items from one place to the next.
        jump: From the number of an item to the place before it; by default places are
            noted while the stream is read.

    Attributes:
        items: What is left of it.
        place: Where it is.
    """

    def __init__(
        self,
        flow: Flow[Any],
        first: int,
        stride: int,
        jump: Callable[[int], Position] | None = None,
    ) -> None:
        self.items, self.place = iter(flow), flow.snapshot
        self._stride, self._jump = stride, jump
        self._places = deque([(first, flow.snapshot())])

    def end(self, length: int) -> Position:
        """Where it ends, which it has not asked for itself where the length was known."""
        return self.place() if self._jump is None else self._jump(length + 1)

    def next_place(self, arrived: int) -> int:
        """After how many items the next place is."""
        return arrived + self._stride - (arrived - 1) % self._stride

    def note(self, arrived: int) -> None:
        """Note the place after so many items, if one may begin there."""
        if self._jump is None and arrived % self._stride == 1:
            self._places.append((arrived, self.place()))

    def place_before(self, item: int) -> Position:
        """The place before an item; the earlier ones are forgotten."""
        if self._jump is not None:
            return self._jump(item)
        while self._places[0][0] < item:
            self._places.popleft()
        return self._places[0][1]


class _Given(NamedTuple):
    """The items at hand: one value, so that an interrupt finds all of it.

    Attributes:
        anchor: Where a resume amid them begins.
        given: How many items came before them.
        slots: The iterator over what holds them.
        size: How many they are.
    """

    anchor: Position
    given: int
    slots: Iterator[int]
    size: int

    def reached(self) -> int:
        return self.given + self.size - remaining(self.slots)


class Shuffling:
    """Items in order, each of which leaves its slot to the next one that is read.

    Args:
        name: What errors call it.
        grid: How many are held.
        order: From the number of items, or None before the end is seen, to their order.
        position: Where to begin.
        reading: The stream from the anchor on, or from behind what `look_up` gives.
        arrived: How many items come before the stream.
        length: How many there are, where the end has been seen.
        look_up: From the number of an item to it, where held ones aren't read again.
    """

    def __init__(
        self,
        name: str,
        grid: Grid,
        order: Callable[[int | None], BoundedOrder],
        position: Position,
        reading: Reading,
        arrived: int,
        length: int | None = None,
        look_up: Callable[[int], Any] | None = None,
    ) -> None:
        self.name, self.grid, self.order, self.reading = name, grid, order, reading
        self.begin, self.given = position, position[1]
        self.look_up, self.arrived, self.length = look_up, arrived, length
        self.at = _Given(position[0], self.given, iterate(()), 0)
        self.buffer: list[Any] = []
        self.missing: dict[int, int] = {}  # numbers of items to look up, by slot
        self.base = grid.anchor(self.given)
        self.slots = np.empty(0, np.int64)  # which holds item `base`, and so on

    def flow(self) -> Flow[Any]:
        taken = None if self.look_up else lambda: self.at.reached() - self.given
        return Flow(self._items(), self._snapshot, taken=taken)

    def _snapshot(self) -> Position:
        reached = self.at.reached()
        if reached == self.given:
            return self.begin
        if reached == self.length:
            return self.reading.end(reached), 0
        return self.at.anchor, reached

    def _items(self) -> Iterator[Any]:
        if self.look_up is None:
            self._fill()
        else:
            held = np.arange(self.base, self.arrived)
            begin = max(0, self.base - self.grid.reach)
            held = held[self._kept(held, begin, self.given)]
            self.buffer = [None] * len(held)
            self.missing = dict(enumerate(held.tolist()))
            self._assign(held)
        buffer, missing = self.buffer, self.missing
        if self.length is None:
            pairs = zip(self.reading.items, chain.from_iterable(self._pages()), strict=False)
            for item, slot in pairs if missing else ():
                yield self._looked_up(slot) if slot in missing else buffer[slot]
                buffer[slot] = item
                if not missing:
                    break
            for item, slot in () if missing else pairs:
                yield buffer[slot]
                buffer[slot] = item
            self.length = self.arrived + self.at.reached() - self.given
        given = self.at.reached()
        left = np.concatenate([*self.order(self.length).since(given), np.empty(0, np.int64)])
        for slot in chain.from_iterable(self._runs(given, self.slots[left - self.base])):
            yield self._looked_up(slot) if slot in missing else buffer[slot]

    def _fill(self) -> None:
        """Read what is held, and drop on the way what was given before."""
        held, dropped = np.arange(0), max(0, self.base - self.grid.reach)
        full = self.given + self.grid.reach
        while self.arrived < full and self.length is None:
            stop = min(full, self.reading.next_place(self.arrived))
            sure = dropped
            if self.arrived >= self.grid.reach:
                stop = min(stop, self.arrived + self.grid.sure)
                sure = max(dropped, min(self.given, stop - self.grid.reach))
            held, dropped = self._dropped(held, dropped, sure), sure
            some = list(islice(self.reading.items, stop - self.arrived))
            held = np.concatenate([held, np.arange(self.arrived, self.arrived + len(some))])
            self.buffer += some
            self.arrived += len(some)
            if self.arrived < stop:
                self.length = self.arrived
                check_reached(self.name, self.given, self.length)
            self.reading.note(self.arrived)
        self._assign(self._dropped(held, dropped, self.given))

    def _dropped(self, held: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
        """What is left in the buffer when the outputs between two numbers are gone."""
        if start == stop:
            return held
        kept = self._kept(held, start, stop)
        self.buffer[:] = compress(self.buffer, kept.tolist())
        return held[kept]

    def _kept(self, held: NDArray[np.int64], start: int, stop: int) -> NDArray[np.bool_]:
        given = as_array(self.order(self.length).at(range(start, stop)))
        return ~np.isin(held, given)

    def _assign(self, held: NDArray[np.int64]) -> None:
        """Have the buffer's slots hold items of these numbers."""
        self.slots = np.full(self.arrived - self.base, -1)
        self.slots[held - self.base] = np.arange(len(held))

    def _pages(self) -> Iterator[Iterator[int]]:
        """Slots in the order in which they are given, while there are items to fill them."""
        given, grid = self.given, self.grid
        for items in self.order(None).since(given):
            source = np.arange(len(items))
            later = items - (given + grid.reach)  # the output whose slot it gets
            is_later = later >= 0
            source[is_later] = later[is_later]
            while not (source == (earlier := source[source])).all():
                source = earlier
            slots = self.slots[items[source] - self.base]
            base = grid.anchor(given)
            self.slots = np.concatenate([self.slots[base - self.base :], slots])
            self.base = base
            yield from self._runs(given, slots)
            given += len(items)

    def _runs(self, given: int, slots: NDArray[np.int64]) -> Iterator[Iterator[int]]:
        """The slots of as many outputs as have one anchor."""
        grid, first = self.grid, 0
        while first < len(slots):
            start = given + first
            if self.length is None:
                self.reading.note(start + grid.reach + 1)
            last = first + grid.stride - (start + grid.reach) % grid.stride
            some = slots[first:last].tolist()
            ticks = iterate(some)
            anchor = self.reading.place_before(grid.anchor(start + 1))
            self.at = _Given(anchor, start, ticks, len(some))
            yield ticks
            first = last

    def _looked_up(self, slot: int) -> Any:
        assert self.look_up is not None
        item = self.look_up(self.missing[slot])
        del self.missing[slot]
        return item
