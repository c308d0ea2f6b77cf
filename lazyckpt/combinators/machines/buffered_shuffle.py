"""`shuffle(buffer_size)`: a random order in which no item moves further than the buffer.

`BoundedOrder` computes which item comes at an index. Over random access that item is looked up.
Over a stream, `Buffer` reads `reach` items ahead and picks each item from them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from lazyckpt.combinators.machines.random_access import Order, permuted
from lazyckpt.core.flow import Flow, Position, View
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.machine import MOST, End, Machine, Rate, Reread, within
from lazyckpt.core.prng import Indices, affine, as_array, derive, hashes
from lazyckpt.core.stages import stateful
from lazyckpt.errors import SourceChanged

if TYPE_CHECKING:
    from numpy.typing import NDArray

A = TypeVar("A")

_WIDEST = 1 << 25  # larger buffers mix like this one, so no key overflows
_INDEX_BITS = 27
_TIE_BITS = 64 - 2 * _INDEX_BITS
_STRIDE = 32  # for small buffers, so that noting a position is cheap
_USES = ("order", "offset")  # the draws per item
_PAGE = 512  # outputs computed in one call, at least


def buffered_shuffle(upstream: Machine[A], size: int, seed: int) -> Machine[A]:
    """Yield items in an order of bounded displacement, of which at most `size` are held.

    A position is the position before the oldest item that may be held, rounded down to the stride
    of the grid, and a count of items yielded; after the end, the position there and 0.

    Args:
        upstream: The machine to shuffle.
        size: Largest number of items held.
        seed: The seed.
    """
    grid = Grid.of(size)
    if upstream.view is not None:  # no position has to be noted
        grid = grid._replace(stride=1, stay=grid.reach - grid.sure)
    ordered = lru_cache(maxsize=2)(partial(BoundedOrder, grid, seed))

    def check(given: Any) -> None:
        within("shuffle", given, MOST)

    made = partial(stateful, "shuffle", upstream, check=check, length=upstream.length)
    if upstream.skip is not None:
        return _looking_up(made, upstream, grid, ordered)

    def flow(position: Position) -> Flow[A]:
        anchor, given = position
        first = grid.anchor(given)
        stream = upstream.flow(anchor)
        order = partial(ordered, upstream.epoch(anchor))
        return Buffer(grid, order, position, stream, _Noted(stream, first, grid.stride)).flow()

    def rereads(position: Position) -> list[Reread]:
        anchor, given = position
        again = given + grid.reach - grid.anchor(given) if given else 0
        return [Reread(anchor, again if upstream.length is None else min(again, upstream.length))]

    return made(rate=Rate(1, grid.reach), rereads=rereads, flow=flow)


def _looking_up(
    made: Callable[..., Machine[A]],
    upstream: Machine[A],
    grid: Grid,
    ordered: Callable[..., BoundedOrder],
) -> Machine[A]:
    """Do the same over random access: a resume re-reads no item."""
    jump, below = upstream.skip, upstream.view
    assert jump is not None

    def seen(position: Position, count: int) -> tuple[int, int | None]:
        """Return the number of the anchor's item, and of the end if it is close enough."""
        anchor, given = position
        first = grid.anchor(given)
        wanted = given - first + count + grid.reach + 1
        passed = jump(anchor, wanted)[1]
        if passed == wanted:
            return first, None
        _check_reached(given, first + passed)
        return first, first + passed

    def order(position: Position, length: int | None) -> BoundedOrder:
        return ordered(upstream.epoch(position[0]), length=length)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        anchor, given = position
        first, length = seen(position, n)
        reached = given + n if length is None else max(given, min(given + n, length))
        if length == reached > given:
            return (jump(anchor, reached - first + 1)[0], 0), reached - given
        moved = grid.anchor(reached) - first
        return (jump(anchor, moved)[0], reached), reached - given

    def step(position: Position) -> tuple[Position, A]:
        first, length = seen(position, 1)
        after, passed = skip(position, 1)
        if not passed:
            raise End(position)
        item = order(position, length)[position[1]]
        return after, upstream.step(jump(position[0], item - first)[0])[1]

    if below is not None:

        def ahead(position: Position, offsets: Indices) -> Indices:
            first, length = seen(position, int(as_array(offsets).max(initial=0)))
            places = affine(offsets, position[1])
            return below.ahead(position[0], as_array(order(position, length).at(places)) - first)

        rate = Rate(1, grid.reach + grid.stay)
        return made(rate=rate, step=step, skip=skip, view=View(below.table, ahead))

    def flow(position: Position) -> Flow[A]:
        anchor, given = position
        first, length = seen(position, 0)
        places = _Jumped(lambda number: jump(anchor, number - first)[0])
        begin = first
        if given:
            begin = given + grid.reach if length is None else length
        stream = upstream.flow(places.before(begin))
        buffer = Buffer(grid, partial(order, position), position, stream, places)
        return buffer.looking_up(begin, length, upstream) if given else buffer.flow()

    def rereads(position: Position) -> list[Reread]:
        anchor, given = position
        if not given:
            return [Reread(anchor)]
        read = given + grid.reach - grid.anchor(given)
        return [Reread(jump(anchor, read)[0]), Reread(anchor, grid.reach, alone=True)]

    return made(rate=Rate(1, grid.reach), step=step, skip=skip, flow=flow, rereads=rereads)


def _check_reached(given: int, length: int) -> None:
    """Raise `SourceChanged` if there are fewer items than have been yielded."""
    if given > length:
        raise SourceChanged(
            f"shuffle: the state is after item {given} of a buffer that now has {length}"
        )


class _Noted:
    """The positions of a stream at which a resume may start, noted as it is read."""

    def __init__(self, stream: Flow[Any], first: int, stride: int) -> None:
        self._snapshot, self._stride = stream.snapshot, stride
        self._places = deque([(first, stream.snapshot())])

    def note(self, arrived: int) -> None:
        """Note the position after a number of items, if a resume may start there."""
        if arrived % self._stride == 1:
            self._places.append((arrived, self._snapshot()))

    def before(self, number: int) -> Position:
        """Return the position before an item, and forget earlier ones."""
        while self._places[0][0] < number:
            self._places.popleft()
        return self._places[0][1]

    def end(self, length: int) -> Position:
        return self._snapshot()


class _Jumped:
    """The same over random access, which computes each position."""

    def __init__(self, before: Callable[[int], Position]) -> None:
        self.before = before

    def note(self, arrived: int) -> None:
        pass

    def end(self, length: int) -> Position:
        return self.before(length + 1)  # past the end, a position that a stage may note


class _Missing(NamedTuple):
    """Stands in a slot for an item that has to be looked up."""

    number: int


class _Run(NamedTuple):
    """The current outputs: one value, so that an interrupt finds all of it.

    Attributes:
        anchor: The item at which a resume among them starts.
        given: Number of items before them.
        slots: The iterator over their slots.
        size: Number of outputs.
    """

    anchor: Position
    given: int
    slots: Iterator[int]
    size: int

    def reached(self) -> int:
        return self.given + self.size - remaining(self.slots)


class Buffer:
    """The last `reach` items read, from which each output is taken.

    Item `n` is in slot `n - first`, modulo the number of slots. It arrives before output
    `n - reach + 1`, and is gone after output `n + stay`, so no two items share a slot.

    A resume reads from item `first` on, and drops the outputs already yielded.

    Args:
        grid: The size of the buffer, and how it mixes.
        order: Function from the number of items, or None before the end is seen, to their order.
        position: The position to start at.
        stream: The items from the anchor on.
        places: The positions at which a resume may start.
    """

    def __init__(
        self,
        grid: Grid,
        order: Callable[[int | None], BoundedOrder],
        position: Position,
        stream: Flow[Any],
        places: _Noted | _Jumped,
    ) -> None:
        self.grid, self.order, self.places = grid, order, places
        self.begin = position
        self.given: int = position[1]
        self.first = self.arrived = grid.anchor(self.given)
        self.items = iter(stream)
        self.length: int | None = None
        self.size = grid.reach + grid.stay + 1
        self.slots: list[Any] = []
        start = max(0, self.first - grid.reach)
        self.run = _Run(position[0], start, iterate(()), 0)

    def flow(self) -> Flow[Any]:
        def taken() -> int:
            return max(0, self.run.reached() - self.given)

        return Flow(self._outputs(), self._snapshot, taken=taken)

    def looking_up(self, arrived: int, length: int | None, upstream: Machine[Any]) -> Flow[Any]:
        """Return the flow over a stream from item `arrived` on; earlier items are looked up.

        Args:
            arrived: Number of items before the stream.
            length: Number of items, if the end has been seen.
            upstream: The machine to shuffle.
        """
        self.slots = [None] * min(arrived - self.first, self.size)
        for number in range(max(self.first, arrived - self.size), arrived):
            self.slots[(number - self.first) % self.size] = _Missing(number)
        self.arrived, self.length = arrived, length
        self.run = self.run._replace(given=self.given)

        def found(item: Any) -> Any:
            if type(item) is _Missing:
                return upstream.step(self.places.before(item.number))[1]
            return item

        return Flow((found(item) for item in self._outputs()), self._snapshot)

    def _snapshot(self) -> Position:
        run = self.run
        reached = run.reached()
        if reached <= self.given:
            return self.begin
        if reached == self.length:
            return self.places.end(reached), 0
        return run.anchor, reached

    def _outputs(self) -> Iterator[Any]:
        self._fill()
        slots, size = self.slots, self.size
        if self.length is None:
            begin, arrived = self.run.given, self.arrived
            next_slot = (arrived - self.first) % size
            free = chain(range(next_slot, size), chain.from_iterable(repeat(range(size))))
            slots += [None] * (size - len(slots))
            taken = chain.from_iterable(self._runs(self.order(None), begin))
            arriving = zip(self.items, free, taken, strict=False)
            for item, slot, place in islice(arriving, self.given - begin):
                slots[slot], slots[place] = item, None
            for item, slot, place in arriving:
                slots[slot] = item
                found, slots[place] = slots[place], None
                yield found
            self.length = arrived + self.run.reached() - begin
        _check_reached(self.given, self.length)
        reached = self.run.reached()
        taken = chain.from_iterable(self._runs(self.order(self.length), reached))
        for place in islice(taken, max(0, self.given - reached)):
            slots[place] = None
        for place in taken:
            found, slots[place] = slots[place], None
            yield found

    def _fill(self) -> None:
        """Read the items held before the first output."""
        full = self.run.given + self.grid.reach
        while self.arrived < full and self.length is None:
            stride = self.grid.stride
            stop = min(full, self.arrived + stride - (self.arrived - 1) % stride)
            held = len(self.slots)
            self.slots += islice(self.items, stop - self.arrived)
            self.arrived += len(self.slots) - held
            if self.arrived < stop:
                self.length = self.arrived
            self.places.note(self.arrived)

    def _runs(self, order: BoundedOrder, given: int) -> Iterator[Iterator[int]]:
        """Yield the slots of the outputs from one on, as many at a time as share an anchor."""
        grid = self.grid
        for items in order.since(given):
            slots, first = (items - self.first) % self.size, 0
            while first < len(slots):
                if self.length is None:
                    self.places.note(given + grid.reach + 1)
                stop = first + grid.stride - (given + grid.reach) % grid.stride
                some = slots[first:stop].tolist()
                ticks = iterate(some)
                anchor = self.places.before(grid.anchor(given + 1))
                self.run = _Run(anchor, given, ticks, len(some))
                yield ticks
                given, first = given + len(some), stop


class Grid(NamedTuple):
    """How items are held and mixed, for a buffer of a given size.

    Attributes:
        reach: Number of items held. An item moves forwards by less than that.
        stride: Number of items between positions at which a resume may start.
        stay: The farthest that an item moves backwards.
        sure: The end only changes outputs less than `reach - sure` items before it, if there are
            `reach` items.
        chunk: Number of items whose displacements are drawn together.
        width: Number of possible displacements: from `-width // 2` on.
    """

    reach: int
    stride: int
    stay: int
    sure: int
    chunk: int
    width: int

    @classmethod
    def of(cls, size: int) -> Grid:
        """Return the widest displacements for a buffer of at most `size` items.

        A chunk's displacements are one from each of its strata, of size `width // chunk`. So the
        number of keys below any value is the average, give or take one for each of the `width //
        chunk` chunks that reach beyond it.
        """
        size = min(size, _WIDEST)
        stride = max(_STRIDE, size // 16)
        sure = stride if size >= 16 * _STRIDE else 1
        reach = size - size % sure
        most = reach - sure
        stay = most + -(most + reach) % stride
        chunk = math.isqrt(2 * reach)
        strata = (2 * most - 2 * chunk - 6) // (chunk + 2)
        if strata * chunk <= most:
            chunk, strata = 1, most + 1
        return cls(reach, stride, stay, sure, chunk, strata * chunk)

    def anchor(self, given: int) -> int:
        """Return the first item that a resume re-reads after a number of outputs.

        It is the same for all outputs of a stride. Fewer than `reach` items form one permutation,
        in which the first may come last.
        """
        strides = (given - self.stay - 1) // self.stride
        first = strides * self.stride + 1
        return first if strides >= 0 and first + self.stay >= self.reach else 0


class BoundedOrder:
    """The order of items by a key: an item's number plus a random displacement.

    Displacements are uniform: an item is as likely to move by any distance up to about the buffer's
    size as by any other, forwards or backwards, and no boundary stops it. A key below 0, or after
    the last item, is reflected, so that beginning and end are mixed as well as the middle. Fewer
    than `reach` items are permuted uniformly.

    Args:
        grid: The result of `Grid.of`.
        seed: The seed.
        epoch: The epoch.
        length: Number of items; None before the end has been seen, for outputs more than `reach`
            items before it.
    """

    def __init__(
        self,
        grid: Grid,
        seed: int,
        epoch: int,
        length: int | float | None,
    ) -> None:
        self._grid = grid
        self._length = None if length == math.inf else length
        self._keys = [derive(seed, "shuffle", use, epoch) for use in _USES]
        self._short: Order | None = None
        if self._length is not None and self._length < grid.reach:
            self._short = permuted(int(self._length), seed, "shuffle", "buffer", epoch)
        self._size = grid.chunk * -(-max(_PAGE, grid.width // 4) // grid.chunk)  # keys per page
        self._page = lru_cache(maxsize=4)(self._sorted)
        self._next = _Waiting(-1, 0, np.empty(0, np.uint64), 0)

    def __getitem__(self, index: int) -> int:
        if self._short is not None:
            return self._short[index]
        first, items = self._page(self._find(index))
        return int(items[index - first])

    def at(self, indices: Indices) -> Indices:
        if self._short is not None:
            return self._short.at(indices)
        places = as_array(indices)
        found = np.full(len(places), -1)
        while (left := places[found < 0]).size:
            first, items = self._page(self._find(int(left.min())))
            mine = (places >= first) & (places < first + len(items))
            found[mine] = items[places[mine] - first]
        return found

    def since(self, index: int) -> Iterator[NDArray[np.int64]]:
        """Return the items from an index on, many in one call."""
        if self._short is not None:
            yield as_array(self._short.at(range(index, int(self._length or 0))))
            return
        length = math.inf if self._length is None else self._length
        page = self._find(index) if index < length else 0
        while index < length:
            first, items = self._page(page)
            yield items[index - first :]
            index, page = first + len(items), page + 1

    def _find(self, index: int) -> int:
        """Return the page of an index: that of the key equal to it, or a neighbour."""
        page = index // self._size
        while True:
            first, items = self._page(page)
            if first <= index < first + len(items):
                return page
            page += 1 if index >= first else -1

    def _sorted(self, page: int) -> tuple[int, NDArray[np.int64]]:
        """Return how many items have a key below those of a page, and the page's items in order."""
        chunk, width, size = self._grid.chunk, self._grid.width, self._size
        begin = page * size
        waiting = self._next
        if waiting.page != page:
            lowest = max(0, (begin - width + width // 2) // chunk + 1)
            waiting = _Waiting(page, lowest * chunk, np.empty(0, np.uint64), lowest)
        stop = -(-(begin + size + width // 2) // chunk)
        keys, ties, items = self._drawn(waiting.chunk, stop)
        is_early = keys < begin
        first = waiting.first + int(np.count_nonzero(is_early))
        offsets = (keys - begin).astype(np.uint64) << np.uint64(_TIE_BITS + _INDEX_BITS)
        offsets |= ties << np.uint64(_INDEX_BITS)
        offsets |= (items - (begin - width)).astype(np.uint64)
        packed = np.concatenate([waiting.packed, offsets[~is_early]])
        is_late = packed >= np.uint64(size << _TIE_BITS + _INDEX_BITS)
        here = packed[~is_late]
        here.sort()
        found = (here & np.uint64((1 << _INDEX_BITS) - 1)).astype(np.int64) + (begin - width)
        later = packed[is_late] - np.uint64((size << _TIE_BITS + _INDEX_BITS) + size)
        self._next = _Waiting(page + 1, first + len(found), later, stop)
        return first, found

    def _drawn(
        self, start: int, stop: int
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
        """Return the keys of some chunks' items, the tie-breakers of equal keys, and the items."""
        chunk, width, length = self._grid.chunk, self._grid.width, self._length
        if length is not None:
            stop = min(stop, -(-int(length) // chunk))
        tag = np.uint64((1 << chunk.bit_length()) - 1)
        shuffled, random = self._hashed(start, stop)
        shuffled = (shuffled & ~tag) | np.arange(chunk, dtype=np.uint64)
        shuffled.sort(axis=1)
        begins = np.arange(start, stop)[:, None] * chunk
        items = begins + (shuffled & tag).astype(np.int64)
        offsets = (random >> np.uint64(32)) * np.uint64(width // chunk) >> np.uint64(32)
        strata = np.arange(chunk) * (width // chunk) - width // 2
        keys = begins + strata + offsets.astype(np.int64)
        ties = random & np.uint64((1 << _TIE_BITS) - 1)
        keys = np.where(keys < 0, -1 - keys, keys)
        if length is None:
            return keys.ravel(), ties.ravel(), items.ravel()
        keys = np.where(keys < length, keys, 2 * int(length) - 1 - keys)
        is_there = items < length
        return keys[is_there], ties[is_there], items[is_there]

    def _hashed(self, start: int, stop: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return two random numbers per item of some chunks, one row per item."""
        chunk = self._grid.chunk
        order, offset = (
            hashes(key, start * chunk, stop * chunk).reshape(-1, chunk) for key in self._keys
        )
        return order, offset


class _Waiting(NamedTuple):
    """Items whose keys belong to a page or a later one, of all chunks before `chunk`."""

    page: int
    first: int
    packed: NDArray[np.uint64]
    chunk: int
