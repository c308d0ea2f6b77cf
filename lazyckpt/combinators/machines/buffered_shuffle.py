"""`shuffle(buffer_size)`: a random order in which no item moves further than the buffer's size.

`BoundedOrder` computes the item at each index of the output. With random access, that item is
looked up. Over a stream, `Buffer` reads `reach` items ahead and takes each output from these.
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
from lazyckpt.core.machine import MOST, End, Machine, Rate, Reread, machines, within
from lazyckpt.core.prng import Indices, affine, as_array, derive, hashes
from lazyckpt.core.stages import stateful
from lazyckpt.errors import SourceChanged

if TYPE_CHECKING:
    from numpy.typing import NDArray

A = TypeVar("A")

_WIDEST = 1 << 25  # larger buffers mix like this one, so that no key overflows
_INDEX_BITS = 27
_TIE_BITS = 64 - 2 * _INDEX_BITS
_STRIDE = 32  # at least, so that noting positions stays cheap with small buffers
_USES = ("order", "offset")  # the draws per item
_PAGE = 512  # outputs computed in one call, at least


def buffered_shuffle(upstream: Machine[A], size: int, seed: int) -> Machine[A]:
    """Yield items in an order of bounded displacement, holding at most `size` of them.

    A position has two parts: the anchor, which is upstream's position before the oldest item that
    may be held, rounded down to the grid's stride; and the number of items yielded. At the end of
    the epoch they are upstream's position there and 0.

    Args:
        upstream: The machine to shuffle.
        size: Largest number of items held.
        seed: The seed.
    """
    grid = Grid.of(size)
    if upstream.view is not None:  # no position has to be noted
        grid = grid._replace(stride=1, stay=grid.reach - grid.sure)
    ordered = lru_cache(maxsize=2)(partial(BoundedOrder, grid, seed))

    def check(yielded: Any) -> None:
        within("shuffle", yielded, MOST)

    made = partial(stateful, "shuffle", upstream, check=check, length=upstream.length)
    if upstream.skip is not None:
        return _looking_up(made, upstream, grid, ordered)

    def flow(position: Position) -> Flow[A]:
        anchor, yielded = position
        first = grid.anchor(yielded)
        stream = upstream.flow(anchor)
        order = partial(ordered, upstream.epoch(anchor))
        return Buffer(grid, order, position, stream, _Noted(stream, first, grid.stride)).flow()

    def rereads(position: Position) -> list[Reread]:
        anchor, yielded = position
        again = yielded + grid.reach - grid.anchor(yielded) if yielded else 0
        return [Reread(anchor, again if upstream.length is None else min(again, upstream.length))]

    return made(rate=Rate(1, grid.reach), rereads=rereads, flow=flow)


def _looking_up(
    made: Callable[..., Machine[A]],
    upstream: Machine[A],
    grid: Grid,
    ordered: Callable[..., BoundedOrder],
) -> Machine[A]:
    """Build the machine over random access: a resume computes no item twice."""
    jump, below = upstream.skip, upstream.view
    assert jump is not None
    has_overlaps = any(each.rate.more for each in machines(upstream))  # an item alone takes longer

    def seen(position: Position, count: int) -> tuple[int, int | None]:
        """Return the number of the anchor's item, and the length if the end is within reach."""
        anchor, yielded = position
        first = grid.anchor(yielded)
        wanted = yielded - first + count + grid.reach + 1
        passed = jump(anchor, wanted)[1]
        if passed == wanted:
            return first, None
        _check_reached(yielded, first + passed)
        return first, first + passed

    def alone_until(yielded: int) -> int:
        """Return the number of the first item that is read in order; those before are looked up.

        So a flow of few outputs, such as a worker's task, computes no other items.
        """
        return yielded + 2 * grid.reach

    def order(position: Position, length: int | None) -> BoundedOrder:
        return ordered(upstream.epoch(position[0]), length=length)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        anchor, yielded = position
        first, length = seen(position, n)
        reached = yielded + n if length is None else max(yielded, min(yielded + n, length))
        if length == reached > yielded:
            return (jump(anchor, reached - first + 1)[0], 0), reached - yielded
        moved = grid.anchor(reached) - first
        return (jump(anchor, moved)[0], reached), reached - yielded

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
            indices = affine(offsets, position[1])
            return below.ahead(position[0], as_array(order(position, length).at(indices)) - first)

        rate = Rate(1, grid.reach + grid.stay)
        return made(rate=rate, step=step, skip=skip, view=View(below.table, ahead))

    def flow(position: Position) -> Flow[A]:
        anchor, yielded = position
        first, length = seen(position, grid.reach)
        anchors = _Jumped(lambda number: jump(anchor, number - first)[0])
        opened = partial(Buffer, grid, partial(order, position), position, anchors=anchors)
        if has_overlaps and not yielded:
            return opened(stream=upstream.flow(anchor)).flow()
        begin = alone_until(yielded) if length is None else length
        buffer = opened(stream=upstream.flow(anchors.before(begin)))
        return buffer.looking_up(begin, length, upstream)

    def rereads(position: Position) -> list[Reread]:
        anchor, yielded = position
        if not yielded:
            return [Reread(anchor)]
        begin = alone_until(yielded) - grid.anchor(yielded)
        return [Reread(jump(anchor, begin)[0]), Reread(anchor, grid.reach, alone=True)]

    return made(rate=Rate(1, grid.reach), step=step, skip=skip, flow=flow, rereads=rereads)


def _check_reached(yielded: int, length: int) -> None:
    """Raise `SourceChanged` if there are fewer items than have been yielded."""
    if yielded > length:
        raise SourceChanged(
            f"shuffle: the state is after item {yielded} of a buffer that now has {length}"
        )


class _Noted:
    """The anchors of a stream, noted as the stream is read."""

    def __init__(self, stream: Flow[Any], first: int, stride: int) -> None:
        self._snapshot, self._stride = stream.snapshot, stride
        self._anchors = deque([(first, stream.snapshot())])

    def note(self, arrived: int) -> None:
        """Note the position after `arrived` items if it is an anchor."""
        if arrived % self._stride == 1:
            self._anchors.append((arrived, self._snapshot()))

    def before(self, number: int) -> Position:
        """Return the anchor before an item, and forget earlier ones."""
        while self._anchors[0][0] < number:
            self._anchors.popleft()
        return self._anchors[0][1]

    def end(self, length: int) -> Position:
        return self._snapshot()


class _Jumped:
    """The anchors of a machine with random access, computed on demand."""

    def __init__(self, before: Callable[[int], Position]) -> None:
        self.before = before

    def note(self, arrived: int) -> None:
        pass

    def end(self, length: int) -> Position:
        return self.before(length + 1)  # past the end, a position that a stage may note


class _Missing(NamedTuple):
    """A placeholder in a slot, for an item to be looked up."""

    number: int


class _Run(NamedTuple):
    """Consecutive outputs with the same anchor: one value, so that an interrupt can't split it.

    Attributes:
        anchor: The anchor.
        yielded: Number of items yielded before these outputs.
        slots: Iterator over the slots of the outputs.
        size: Number of outputs.
    """

    anchor: Position
    yielded: int
    slots: Iterator[int]
    size: int

    def reached(self) -> int:
        return self.yielded + self.size - remaining(self.slots)


class Buffer:
    """A buffer of the last items read, from which each output is taken.

    Item `n` is in slot `n - first`, modulo the number of slots. It arrives before output
    `n - reach + 1` and has left after output `n + stay`, so no two items share a slot.

    A resume reads from item `first` on, and drops the outputs already yielded.

    Args:
        grid: The size of the buffer and of displacements.
        order: Function from upstream's length, or None before its end is seen, to the order.
        position: The position to start from.
        stream: The items from the anchor on.
        anchors: The positions from which a resume may read.
    """

    def __init__(
        self,
        grid: Grid,
        order: Callable[[int | None], BoundedOrder],
        position: Position,
        stream: Flow[Any],
        anchors: _Noted | _Jumped,
    ) -> None:
        self.grid, self.order, self.anchors = grid, order, anchors
        self.begin = position
        self.yielded: int = position[1]
        self.first = self.arrived = grid.anchor(self.yielded)
        self.items = iter(stream)
        self.length: int | None = None
        self.size = grid.reach + grid.stay + 1
        self.slots: list[Any] = []
        start = max(0, self.first - grid.reach)
        self.run = _Run(position[0], start, iterate(()), 0)

    def flow(self) -> Flow[Any]:
        def taken() -> int:
            return max(0, self.run.reached() - self.yielded)

        return Flow(self._outputs(), self._snapshot, taken=taken)

    def looking_up(self, begin: int, length: int | None, upstream: Machine[Any]) -> Flow[Any]:
        """Return the flow for a stream that starts at item `begin`; earlier items are looked up.

        Args:
            begin: Number of items before the stream.
            length: Upstream's length if its end has been seen, otherwise None.
            upstream: The machine to shuffle.
        """
        arrived = min(begin, self.yielded + self.grid.reach)
        if arrived < begin:
            self.items = chain(map(_Missing, range(arrived, begin)), self.items)
            length = None  # until the last of these has arrived
        self.slots = [None] * min(arrived - self.first, self.size)
        for number in range(max(self.first, arrived - self.size), arrived):
            self.slots[(number - self.first) % self.size] = _Missing(number)
        self.arrived, self.length = arrived, length
        self.run = self.run._replace(yielded=self.yielded)

        def found(item: Any) -> Any:
            if type(item) is _Missing:
                return upstream.step(self.anchors.before(item.number))[1]
            return item

        return Flow((found(item) for item in self._outputs()), self._snapshot)

    def _snapshot(self) -> Position:
        run = self.run
        reached = run.reached()
        if reached <= self.yielded:
            return self.begin
        if reached == self.length:
            return self.anchors.end(reached), 0
        return run.anchor, reached

    def _outputs(self) -> Iterator[Any]:
        self._fill()
        slots, size = self.slots, self.size
        if self.length is None:
            begin, arrived = self.run.yielded, self.arrived
            next_slot = (arrived - self.first) % size
            free = chain(range(next_slot, size), chain.from_iterable(repeat(range(size))))
            slots += [None] * (size - len(slots))
            taken = chain.from_iterable(self._runs(self.order(None), begin))
            arriving = zip(self.items, free, taken, strict=False)
            for item, slot, chosen in islice(arriving, self.yielded - begin):
                slots[slot], slots[chosen] = item, None
            for item, slot, chosen in arriving:
                slots[slot] = item
                found, slots[chosen] = slots[chosen], None
                yield found
            self.length = arrived + self.run.reached() - begin
        _check_reached(self.yielded, self.length)
        reached = self.run.reached()
        taken = chain.from_iterable(self._runs(self.order(self.length), reached))
        for chosen in islice(taken, max(0, self.yielded - reached)):
            slots[chosen] = None
        for chosen in taken:
            found, slots[chosen] = slots[chosen], None
            yield found

    def _fill(self) -> None:
        """Read the items that the buffer holds before the first output."""
        full = self.run.yielded + self.grid.reach
        while self.arrived < full and self.length is None:
            stride = self.grid.stride
            stop = min(full, self.arrived + stride - (self.arrived - 1) % stride)
            held = len(self.slots)
            self.slots += islice(self.items, stop - self.arrived)
            self.arrived += len(self.slots) - held
            if self.arrived < stop:
                self.length = self.arrived
            self.anchors.note(self.arrived)

    def _runs(self, order: BoundedOrder, yielded: int) -> Iterator[Iterator[int]]:
        """Yield the slots of the outputs after some, in runs that share an anchor."""
        grid = self.grid
        for items in order.since(yielded):
            slots, first = (items - self.first) % self.size, 0
            while first < len(slots):
                if self.length is None:
                    self.anchors.note(yielded + grid.reach + 1)
                stop = first + grid.stride - (yielded + grid.reach) % grid.stride
                some = slots[first:stop].tolist()
                ticks = iterate(some)
                anchor = self.anchors.before(grid.anchor(yielded + 1))
                self.run = _Run(anchor, yielded, ticks, len(some))
                yield ticks
                yielded, first = yielded + len(some), stop


class Grid(NamedTuple):
    """The sizes that follow from `buffer_size`.

    Attributes:
        reach: Number of items held. An item moves forwards (earlier) by less than that.
        stride: Number of items between anchors.
        stay: The most outputs by which an item moves backwards (later).
        sure: Only outputs less than `reach - sure` items before upstream's end depend on it, if
            upstream has at least `reach` items.
        chunk: Number of items whose displacements are drawn together.
        width: Number of possible displacements, which start at `-width // 2`.
    """

    reach: int
    stride: int
    stay: int
    sure: int
    chunk: int
    width: int

    @classmethod
    def of(cls, size: int) -> Grid:
        """Return the grid with the widest displacements for a buffer of `size` items.

        The displacements are divided into `chunk` strata of size `width // chunk`, and each item
        of a chunk has a displacement from a different stratum. So the number of keys below a value
        differs from its average by at most one per chunk that reaches beyond the value, and there
        are `width // chunk` of those.
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

    def anchor(self, yielded: int) -> int:
        """Return the number of the item at the anchor, after `yielded` outputs.

        It is the same for all outputs of a stride. Early in the stream it is 0, since fewer than
        `reach` items form one permutation, in which the first item may come last.
        """
        strides = (yielded - self.stay - 1) // self.stride
        first = strides * self.stride + 1
        return first if strides >= 0 and first + self.stay >= self.reach else 0


class BoundedOrder:
    """The order of items by their keys: an item's key is its number plus a random displacement.

    Displacements are uniform: all distances up to about the buffer's size are equally likely, in
    both directions. A key below 0 or after the last item is reflected, so that the beginning and
    the end are mixed as well as the middle. Fewer than `reach` items are permuted uniformly.

    Args:
        grid: The result of `Grid.of`.
        seed: The seed.
        epoch: The epoch.
        length: Number of items; None before upstream's end has been seen, which is enough for
            outputs more than `reach` items before it.
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
        wanted = as_array(indices)
        found = np.full(len(wanted), -1)
        while (left := wanted[found < 0]).size:
            first, items = self._page(self._find(int(left.min())))
            mine = (wanted >= first) & (wanted < first + len(items))
            found[mine] = items[wanted[mine] - first]
        return found

    def since(self, index: int) -> Iterator[NDArray[np.int64]]:
        """Yield the numbers of the items from an index on, in arrays."""
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
        """Return the page that contains an output: the page of the key `index`, or a neighbour."""
        page = index // self._size
        while True:
            first, items = self._page(page)
            if first <= index < first + len(items):
                return page
            page += 1 if index >= first else -1

    def _sorted(self, page: int) -> tuple[int, NDArray[np.int64]]:
        """Return the number of items before a page, and the items of the page in order."""
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
        """Return keys of the items of some chunks, tie-breakers for equal keys, and the items."""
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
        exists = items < length
        return keys[exists], ties[exists], items[exists]

    def _hashed(self, start: int, stop: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return two arrays of random numbers, with one row per chunk and one number per item."""
        chunk = self._grid.chunk
        order, offset = (
            hashes(key, start * chunk, stop * chunk).reshape(-1, chunk) for key in self._keys
        )
        return order, offset


class _Waiting(NamedTuple):
    """The items of the chunks before `chunk` whose keys are in `page` or a later one."""

    page: int
    first: int
    packed: NDArray[np.uint64]
    chunk: int
