"""`buffered`: items in an order of bounded displacement, under `shuffle(buffer_size)`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeVar

from lazyckpt.combinators.machines.bounded_order import BoundedOrder, Grid
from lazyckpt.combinators.machines.shuffling import Reading, Shuffling, check_reached
from lazyckpt.core.flow import Flow, Position, View
from lazyckpt.core.machine import MOST, End, Machine, Rate, Reread, within
from lazyckpt.core.prng import Indices, affine, as_array
from lazyckpt.core.stages import stateful

A = TypeVar("A")


def buffered(name: str, upstream: Machine[A], size: int, seed: int) -> Machine[A]:
    """Items in an order of bounded displacement, of which at most `size` are held.

    A position is the place before the oldest item that may be held, to the stride
    of the grid, and a count of items given; after the end, the place there and 0.

    Args:
        name: What errors call the stage.
        upstream: What is shuffled.
        size: How many items are held, at most.
        seed: The seed.
    """
    grid = Grid.of(size)
    ordered = lru_cache(maxsize=2)(partial(BoundedOrder, grid, seed))

    def check(given: Any) -> None:
        within(name, given, MOST)

    def rereads(position: Position) -> list[Reread]:
        anchor, given = position
        again = given + grid.reach - grid.anchor(given) if given else 0
        return [Reread(anchor, again if upstream.length is None else min(again, upstream.length))]

    def flow(position: Position) -> Flow[A]:
        anchor, given = position
        order = partial(ordered, upstream.epoch(anchor))
        first = grid.anchor(given)
        reading = Reading(upstream.flow(anchor), first, grid.stride)
        return Shuffling(name, grid, order, position, reading, first).flow()

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
        anchor, given = position
        first = grid.anchor(given)
        wanted = given - first + count + grid.reach + 1
        passed = jump(anchor, wanted)[1]
        if passed == wanted:
            return first, None
        check_reached(name, given, first + passed)
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

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert below is not None
        first, length = seen(position, int(as_array(offsets).max(initial=0)))
        places = affine(offsets, position[1])
        return below.ahead(position[0], as_array(order(position, length).at(places)) - first)

    def flow(position: Position) -> Flow[A]:
        anchor, given = position
        first, length = seen(position, 0)
        begin = first
        if given:
            begin = given + grid.reach if length is None else length

        def place_before(item: int) -> Position:
            return jump(anchor, item - first)[0]

        def look_up(item: int) -> A:
            return upstream.step(place_before(item))[1]

        chosen = partial(order, position)
        reading = Reading(upstream.flow(place_before(begin)), begin, grid.stride, place_before)
        if not given:
            return Shuffling(name, grid, chosen, position, reading, begin).flow()
        return Shuffling(name, grid, chosen, position, reading, begin, length, look_up).flow()

    def rereads(position: Position) -> list[Reread]:
        anchor, given = position
        if not given:
            return [Reread(anchor)]
        read = given + grid.reach - grid.anchor(given)
        return [Reread(jump(anchor, read)[0]), Reread(anchor, grid.reach, alone=True)]

    if below is not None:
        rate = Rate(1, grid.reach + grid.stay)
        return made(rate=rate, step=step, skip=skip, view=View(below.table, ahead))
    return made(rate=Rate(1, grid.reach), step=step, skip=skip, flow=flow, rereads=rereads)
