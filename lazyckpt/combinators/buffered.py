"""`buffered`: items in an order of bounded displacement, under `shuffle(buffer_size)`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import chain, count, islice
from operator import length_hint
from typing import Any, NamedTuple, TypeVar

from lazyckpt.combinators.bounded_order import BoundedOrder, Grid
from lazyckpt.combinators.reordered import check_branches, reordered
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine, Rate, Reread, within
from lazyckpt.core.stages import stateful
from lazyckpt.errors import SourceChanged

A = TypeVar("A")

_MOST = 1 << 62  # items


def buffered(name: str, upstream: Machine[A], size: int, seed: int) -> Machine[A]:
    """Items in an order of bounded displacement, of which at most `size` are held.

    Items are read and given in blocks. Over a stream a position is the place
    before the oldest item that may be held when the block at hand begins, a count of
    items given, and branches as of `permuted`; after the end, the place there and 0.
    With random access it is the place where the epoch begins, and an item that
    was read before a resume is looked up.

    Args:
        name: What errors call the stage.
        upstream: What is shuffled.
        size: How many items are held, at most.
        seed: The seed.
    """
    grid, jump, length = Grid.of(size), upstream.skip, upstream.length
    ordered = partial(BoundedOrder, grid, seed)

    def check(given: Any, *branches: Any) -> None:
        check_branches(name, within(name, given, _MOST), branches)

    def rereads(position: Position) -> list[Reread]:
        block, rest = divmod(position[1], grid.block)
        if not position[1]:
            return [Reread(position[0])]
        end = grid.held(block if rest else block - 1)[1]
        return [Reread(position[0], end - grid.held(block)[0])]

    def flow(position: Position) -> Flow[A]:
        anchor, given, *branches = position
        first = grid.held(given // grid.block)[0]
        order = partial(ordered, upstream.epoch(anchor), branches=tuple(branches))
        before = upstream.flow(anchor)
        return _flow(name, grid, order, _Reading(before, first, grid.block), position)

    if jump is None or length is None:
        return stateful(
            name,
            upstream,
            check=check,
            rate=Rate(1, grid.reach),
            rereads=rereads,
            flow=flow,
            length=length,
        )

    @lru_cache(maxsize=2)
    def order(epoch: int, *branches: int) -> BoundedOrder:
        return ordered(epoch, length, branches)

    def flow_with_lookups(position: Position) -> Flow[A]:
        begin, given, *branches = position
        chosen = order(upstream.epoch(begin), *branches)
        first = grid.held(given // grid.block)[1] if given else 0
        before = upstream.flow(jump(begin, first)[0])

        def look_up(item: int) -> A:
            return upstream.step(jump(begin, item)[0])[1]

        reading = _Reading(before, first, grid.block)
        return _flow(name, grid, lambda _: chosen, reading, position, look_up)

    def lookups(position: Position) -> list[Reread]:
        begin, given, *_ = position
        if not given:
            return [Reread(begin)]
        end = jump(begin, grid.held(given // grid.block)[1])[0]
        return [Reread(end), Reread(begin, min(grid.reach, length), alone=True)]

    machine = reordered(name, upstream, length, order, check=check)
    if machine.view is not None:
        return machine
    return machine._replace(flow=flow_with_lookups, rereads=lookups)


def _flow(
    name: str,
    grid: Grid,
    order: Callable[[int | None], BoundedOrder],
    reading: _Reading,
    position: Position,
    look_up: Callable[[int], Any] | None = None,
) -> Flow[Any]:
    begin, given, *branches = position
    current, rest = divmod(given, grid.block)
    at = _Given(position, iter(()), 0, 0, position)

    def blocks() -> Iterator[Iterator[Any]]:
        nonlocal at
        first = current if look_up else max(0, current - 2 * (grid.reach // grid.block) + 1)
        items, length = reading.items, None
        places = order(None).since(first * grid.block)
        for block in count(first):
            oldest, newest = grid.held(block)
            reading.read_to(newest)
            if reading.is_over and length is None and look_up is None:
                length = reading.arrived
                if given > length:
                    raise SourceChanged(
                        f"{name}: the state stands after item {given} of what now has {length}"
                    )
                places = order(length).since(block * grid.block)
            some = list(islice(places, grid.block))
            passed = len(some) if block < current else rest if block == current else 0
            for place in some[:passed]:
                items.pop(place, None)
            if not some:
                return
            if passed == len(some):
                continue
            before = at.passed + at.size
            if look_up is None:
                ticks: Iterator[Any] = iter(list(map(items.pop, some[passed:])))
                outputs, anchor = ticks, reading.place_before(oldest)
            else:
                ticks = iter(some[passed:])
                outputs, anchor = _looked_up(items, ticks, look_up), begin
            start = block * grid.block
            here = (anchor, start + passed, *branches)
            total = start + len(some)
            if total == length:
                after = (reading.end(), 0)
            elif look_up is None:
                after = (reading.place_before(grid.held(block + 1)[0]), total, *branches)
            else:
                after = (begin, total, *branches)
            at = _Given(here, ticks, len(some) - passed, before, after)
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
