"""`buffered`: items in an order of bounded displacement, under `shuffle(buffer_size)`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import chain, count, islice
from operator import length_hint
from typing import Any, NamedTuple, TypeVar

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

    Items are read and given in blocks. A position is the place before the oldest
    item that may be held when the block at hand begins, a count of items given, and
    branches as of `permuted`; after the end, the place there and 0.

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
        last = grid.held(-(-given // grid.block) - 1)[1]
        return [Reread(anchor, last - grid.held(given // grid.block)[0] if given else 0)]

    def flow(position: Position) -> Flow[A]:
        anchor, given, *branches = position
        first = grid.held(given // grid.block)[0]
        order = partial(ordered, upstream.epoch(anchor), branches=tuple(branches))
        reading = _Reading(upstream.flow(anchor), first, grid.block)
        return _flow(name, grid, order, reading, position, reading.place_before)

    made = partial(
        stateful, name, upstream, check=check, rate=Rate(1, grid.reach), length=upstream.length
    )
    if upstream.skip is None:
        return made(rereads=rereads, flow=flow)
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
        first = grid.held(given // grid.block)[0]
        wanted = given - first + count + grid.reach
        passed = jump(anchor, wanted)[1]
        return first, first + passed if passed < wanted else None

    def order(position: Position, length: int | None) -> BoundedOrder:
        anchor, _, *branches = position
        return ordered(upstream.epoch(anchor), length=length, branches=tuple(branches))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        anchor, given, *branches = position
        first, length = seen(position, n)
        reached = given + n if length is None else max(given, min(given + n, length))
        if length == reached > given and grid.held((reached - 1) // grid.block)[1] > reached:
            return (jump(anchor, reached - first + 1)[0], 0), reached - given
        moved = grid.held(reached // grid.block)[0] - first
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
        begin = grid.held(given // grid.block)[1] if given else first
        begin = begin if length is None else min(begin, length)

        def place_before(item: int) -> Position:
            return jump(anchor, item - first)[0]

        def look_up(item: int) -> A:
            return upstream.step(place_before(item))[1]

        return _flow(
            name,
            grid,
            partial(order, position),
            _Reading(upstream.flow(place_before(begin)), begin, grid.block),
            position,
            place_before,
            look_up if given else None,
        )

    def rereads(position: Position) -> list[Reread]:
        anchor, given, *_ = position
        if not given:
            return [Reread(anchor)]
        first, newest = grid.held(given // grid.block)
        return [Reread(jump(anchor, newest - first)[0]), Reread(anchor, grid.reach, alone=True)]

    if below is not None:
        return made(step=step, skip=skip, view=View(below.table, ahead))
    return made(step=step, skip=skip, flow=flow, rereads=rereads)


def _flow(
    name: str,
    grid: Grid,
    order: Callable[[int | None], BoundedOrder],
    reading: _Reading,
    position: Position,
    place_before: Callable[[int], Position],
    look_up: Callable[[int], Any] | None = None,
) -> Flow[Any]:
    given, *branches = position[1:]
    current, rest = divmod(given, grid.block)
    at = _Given(position, iter(()), 0, 0, position)

    def blocks() -> Iterator[Iterator[Any]]:
        nonlocal at
        first = current if look_up else max(0, current - 2 * (grid.reach // grid.block) + 1)
        items, length = reading.items, None
        places = order(None).since(first * grid.block)
        for block in count(first):
            begin = block * grid.block
            oldest, newest = grid.held(block)
            reading.read_to(newest)
            if reading.is_over and length is None:
                length = reading.arrived
                if given > length:
                    raise SourceChanged(
                        f"{name}: the state stands after item {given} of what now has {length}"
                    )
                places = order(length).since(begin)
            some = list(islice(places, grid.block))
            passed = len(some) if block < current else rest if block == current else 0
            for place in some[:passed]:
                items.pop(place, None)
            if not some:
                return
            if passed == len(some):
                continue
            anchor = place_before(oldest)
            if begin + len(some) == length:
                after = (reading.end(), 0)
            else:
                oldest = grid.held((begin + len(some)) // grid.block)[0]
                after = (place_before(oldest), begin + len(some), *branches)
            if look_up is None:
                ticks: Iterator[Any] = iter(list(map(items.pop, some[passed:])))
                outputs = ticks
            else:
                ticks = iter(some[passed:])
                outputs = _looked_up(items, ticks, look_up)
            here = (anchor, begin + passed, *branches)
            at = _Given(here, ticks, len(some) - passed, at.passed + at.size, after)
            yield outputs

    def snapshot() -> Position:
        given = at.given()
        if given and given == at.size:
            return at.after
        before, number, *branches = at.position
        return before, number + given, *branches

    return Flow(chain.from_iterable(blocks()), snapshot, taken=lambda: at.passed + at.given())


def _looked_up(
    items: dict[int, Any], places: Iterator[int], look_up: Callable[[int], Any]
) -> Iterator[Any]:
    for place in places:
        yield items.pop(place) if place in items else look_up(place)


class _Reading:
    """A stream that is read in blocks, and the places where they begin.

    Attributes:
        items: What is held, by number.
        arrived: How many have been read.
        is_over: Whether the end has been seen.
    """

    def __init__(self, flow: Flow[Any], first: int, block: int) -> None:
        self.items: dict[int, Any] = {}
        self.arrived, self.is_over = first, False
        self._flow, self._stream, self._block = flow, iter(flow), block
        self._places = deque([(first, flow.snapshot())])

    def read_to(self, number: int) -> None:
        """Read as many items as come before a number."""
        items = self.items
        while self.arrived < number and not self.is_over:
            before = len(items)
            numbers = range(self.arrived, self.arrived + self._block)
            items.update(zip(numbers, self._stream, strict=False))
            passed = len(items) - before
            self.arrived += passed
            self.is_over = passed < self._block
            self._places.append((self.arrived, self._flow.snapshot()))

    def place_before(self, number: int) -> Position:
        """The place before an item. Those before it are forgotten."""
        places = self._places
        while places[0][0] < number:
            places.popleft()
        return places[0][1]

    def end(self) -> Position:
        return self._places[-1][1]


class _Given(NamedTuple):
    """The block at hand: one value, so that an interrupt finds all of it.

    Attributes:
        position: Where it begins.
        items: The iterator over what is left of it.
        size: How many items it has.
        passed: How many this flow had given when it began.
        after: The position behind it.
    """

    position: Position
    items: Iterator[Any]
    size: int
    passed: int
    after: Position

    def given(self) -> int:
        """How many of its items have been given."""
        return self.size - length_hint(self.items)
