"""`buffered`: items in an order of bounded displacement, under `shuffle(buffer_size)`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import chain, compress, islice
from operator import length_hint
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.bounded_order import BoundedOrder, Grid
from lazyckpt.combinators.reordered import check_branches
from lazyckpt.core.flow import Flow, Position, View
from lazyckpt.core.machine import MOST, End, Machine, Rate, Reread, within
from lazyckpt.core.prng import Indices, affine, as_array
from lazyckpt.core.stages import stateful
from lazyckpt.errors import SourceChanged

A = TypeVar("A")


def buffered(name: str, upstream: Machine[A], size: int, seed: int) -> Machine[A]:
    """Items in an order of bounded displacement, of which at most `size` are held.

    A position is the place before the oldest item that may be held, to the stride
    of the grid, a count of items given, and branches as of `permuted`; after the
    end, the place there and 0.

    Args:
        name: What errors call the stage.
        upstream: What is shuffled.
        size: How many items are held, at most.
        seed: The seed.
    """
    grid = Grid.of(size)
    ordered = lru_cache(maxsize=2)(partial(BoundedOrder, grid, seed))

    def check(given: Any, *branches: Any) -> None:
        check_branches(name, within(name, given, MOST), branches)

    def rereads(position: Position) -> list[Reread]:
        anchor, given, *_ = position
        return [Reread(anchor, given + grid.reach - grid.anchor(given) if given else 0)]

    def flow(position: Position) -> Flow[A]:
        anchor, given, *branches = position
        order = partial(ordered, upstream.epoch(anchor), branches=tuple(branches))
        first = grid.anchor(given)
        reading = _Reading(upstream.flow(anchor), first, grid.stride)
        place_before = reading.forget_before
        return _Shuffling(name, grid, order, position, reading, place_before, first).flow()

    made = partial(stateful, name, upstream, check=check, length=upstream.length)
    if upstream.skip is None:
        return made(rate=Rate(1, grid.reach), rereads=rereads, flow=flow)
    if upstream.view is not None:  # no place has to be noted
        grid = grid._replace(stride=1, stay=grid.reach - grid.sure)
    return _with_access(made, name, upstream, grid, ordered)


def _with_access(
    made: Callable[..., Machine[A]],
    name: str,
    upstream: Machine[A],
    grid: Grid,
    ordered: Callable[..., BoundedOrder],
) -> Machine[A]:
    """The same over random access: an item that was read before a resume is looked up."""
    jump, below = upstream.skip, upstream.view
    assert jump is not None

    def seen(position: Position, count: int) -> tuple[int, int | None]:
        """The number of the anchor's item, and that of the end if it shows so many items on."""
        anchor, given, *_ = position
        first = grid.anchor(given)
        wanted = given - first + count + grid.reach + 1
        passed = jump(anchor, wanted)[1]
        if passed == wanted:
            return first, None
        _check_reached(name, given, first + passed)
        return first, first + passed

    def order(position: Position, length: int | None) -> BoundedOrder:
        anchor, _, *branches = position
        return ordered(upstream.epoch(anchor), length=length, branches=tuple(branches))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        anchor, given, *branches = position
        first, length = seen(position, n)
        reached = given + n if length is None else max(given, min(given + n, length))
        if length == reached > given:
            return (jump(anchor, reached - first + 1)[0], 0), reached - given
        moved = grid.anchor(reached) - first
        return (jump(anchor, moved)[0], reached, *branches), reached - given

    def step(position: Position) -> tuple[Position, A]:
        first, length = seen(position, 1)
        after, passed = skip(position, 1)
        if not passed:
            raise End(position)
        item = order(position, length)[position[1]]
        return after, upstream.step(jump(position[0], item - first)[0])[1]

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert below is not None
        first, length = seen(position, int(as_array(offsets).max(initial=0)))
        places = affine(offsets, position[1])
        return below.ahead(position[0], as_array(order(position, length).at(places)) - first)

    def flow(position: Position) -> Flow[A]:
        anchor, given, *_ = position
        first, length = seen(position, 0)
        begin = first
        if given:
            begin = given + grid.reach if length is None else length

        def place_before(item: int) -> Position:
            return jump(anchor, item - first)[0]

        def look_up(item: int) -> A:
            return upstream.step(place_before(item))[1]

        return _Shuffling(
            name,
            grid,
            partial(order, position),
            position,
            _Reading(upstream.flow(place_before(begin)), begin, grid.stride),
            place_before,
            begin,
            length if given else None,
            look_up if given else None,
        ).flow()

    def rereads(position: Position) -> list[Reread]:
        anchor, given, *_ = position
        if not given:
            return [Reread(anchor)]
        read = given + grid.reach - grid.anchor(given)
        return [Reread(jump(anchor, read)[0]), Reread(anchor, grid.reach, alone=True)]

    if below is not None:
        rate = Rate(1, grid.reach + grid.stay)
        return made(rate=rate, step=step, skip=skip, view=View(below.table, ahead))
    return made(rate=Rate(1, grid.reach), step=step, skip=skip, flow=flow, rereads=rereads)


def _check_reached(name: str, given: int, length: int) -> None:
    if given > length:
        raise SourceChanged(f"{name}: the state stands after item {given} of what now has {length}")


class _Reading:
    """A stream, and the places that a resume may begin at.

    Attributes:
        items: What is left of it.
        place: Where it is.
    """

    def __init__(self, flow: Flow[Any], first: int, stride: int) -> None:
        self.items, self.place, self._stride = iter(flow), flow.snapshot, stride
        self._places = deque([(first, flow.snapshot())])

    def next_place(self, arrived: int) -> int:
        """After how many items the next one is."""
        return arrived + self._stride - (arrived - 1) % self._stride

    def note(self, arrived: int) -> None:
        """Note the place after so many items, if one may begin there."""
        if arrived % self._stride == 1 and self._places[-1][0] != arrived:
            self._places.append((arrived, self.place()))

    def forget_before(self, item: int) -> Position:
        """The place before an item; the earlier ones are forgotten."""
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
        return self.given + self.size - length_hint(self.slots)


class _Shuffling:
    """Items in order, each of which leaves its slot to the next one that is read.

    Args:
        name: What errors call it.
        grid: How many are held.
        order: From the number of items, or None before the end is seen, to their order.
        position: Where to begin.
        reading: The stream from the anchor on, or from behind what `look_up` gives.
        place_before: From the number of an item to the place before it.
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
        reading: _Reading,
        place_before: Callable[[int], Position],
        arrived: int,
        length: int | None = None,
        look_up: Callable[[int], Any] | None = None,
    ) -> None:
        self.name, self.grid, self.order, self.reading = name, grid, order, reading
        self.begin, self.given, self.branches = position, position[1], position[2:]
        self.place_before, self.look_up, self.arrived = place_before, look_up, arrived
        self.length = length
        self.at = _Given(position[0], self.given, iter(()), 0)
        self.buffer: list[Any] = []
        self.missing: dict[int, int] = {}  # numbers of items to look up, by slot
        self.base, self.slots = (
            grid.anchor(self.given),
            np.empty(0, np.int64),
        )  # of items from there

    def flow(self) -> Flow[Any]:
        taken = None if self.look_up else lambda: self.at.reached() - self.given
        return Flow(self._items(), self._snapshot, taken=taken)

    def _snapshot(self) -> Position:
        reached = self.at.reached()
        if reached == self.given:
            return self.begin
        if reached == self.length:
            return self.reading.place(), 0
        return self.at.anchor, reached, *self.branches

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
                _check_reached(self.name, self.given, self.length)
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
            ticks = iter(some)
            self.at = _Given(self.place_before(grid.anchor(start + 1)), start, ticks, len(some))
            yield ticks
            first = last

    def _looked_up(self, slot: int) -> Any:
        assert self.look_up is not None
        item = self.look_up(self.missing[slot])
        del self.missing[slot]
        return item
