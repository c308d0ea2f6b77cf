"""Flows over views: items looked up in their order, many at once where they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import index, length_hint
from typing import Any, TypeVar

from lazyckpt.core.flow import Flow, Position, View, in_blocks

U = TypeVar("U")

AT_ONCE = 2048  # items that are there
_LARGEST = 1 << 16  # indices worked out at once


def viewing(
    skip: Callable[[Position, int], tuple[Position, int]], view: View[U]
) -> Callable[[Position], Flow[U]]:
    """The flow of a machine that has this `skip` and this view."""
    get = view.table.get

    def flow(position: Position) -> Flow[U]:
        if view.table.is_there:
            return at_once(skip, position, _looked_up(skip, view, position))
        ticks: Iterator[int] = iter(range(0))
        total = 0

        def items() -> Iterator[U]:
            nonlocal position, ticks, total
            size = 64
            while True:
                after, count = skip(position, size)
                if not count:
                    position = after
                    return
                indices = view.ahead(position, range(count))
                ticks = iter(indices if isinstance(indices, range) else indices.tolist())
                total = count
                try:
                    for index in ticks:
                        yield get(index)
                except IndexError:
                    view.ahead(position, range(0))  # which says so if the data have changed
                    raise
                position, ticks, total = after, iter(range(0)), 0
                size = min(size * 8, _LARGEST)

        def snapshot() -> Position:
            taken = total - length_hint(ticks)
            return skip(position, taken)[0] if taken else position

        return Flow(items(), snapshot)

    return flow


def _looked_up(
    skip: Callable[[Position, int], tuple[Position, int]], view: View[U], position: Position
) -> Iterator[list[U]]:
    get, size = view.table.get, 64
    while True:
        after, count = skip(position, size)
        if not count:
            return
        indices = view.ahead(position, range(count))
        for first in range(0, count, AT_ONCE):
            some = indices[first : first + AT_ONCE]
            items: list[Any] = [*some] if isinstance(some, range) else some.tolist()
            try:
                items = items if get is index else [*map(get, items)]
            except IndexError:
                view.ahead(position, range(0))  # which says so if the data have changed
                raise
            yield items
        position, size = after, min(size * 8, _LARGEST)


def at_once(
    skip: Callable[[Position, int], tuple[Position, int]],
    position: Position,
    lists: Iterator[list[U]],
) -> Flow[U]:
    """The items of one list after another, as no code but ours runs to make them.

    Args:
        skip: The places amid them, as of a machine.
        position: Where they begin.
        lists: Of up to `AT_ONCE` items; an error is that of the next item.
    """
    # The place before a list, its size, what is left of it, and how many were given before.
    at: tuple[Position, int, Iterator[U], int] = position, 0, iter(()), 0

    def blocks() -> Iterator[Iterator[U]]:
        nonlocal at
        begin, given, size = position, 0, 0
        for items in lists:
            begin, given, size = skip(begin, size)[0] if size else begin, given + size, len(items)
            at = begin, size, iter(items), given
            yield at[2]
        at = skip(begin, size + 1)[0], 0, iter(()), given + size

    def place() -> tuple[Position, int]:
        begin, size, items, given = at
        passed = size - length_hint(items)
        return skip(begin, passed)[0] if passed else begin, given + passed

    def taken() -> int:
        _, size, items, given = at
        return given + size - length_hint(items)

    return in_blocks(blocks(), lambda: place()[0], taken, place)
