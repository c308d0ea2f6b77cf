"""Flows over views: items looked up in order, many in one call if they are in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import index
from time import perf_counter
from typing import Any, TypeVar

from lazyckpt.core.flow import Flow, Position, Table, View, in_blocks
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.prng import Indices, as_array

U = TypeVar("U")

AT_ONCE = 2048  # items in memory per list
_LARGEST = 1 << 16  # indices computed in one call
_ROWS = 256  # rows read ahead, at most
_ROWS_SECONDS = 1e-3  # the time that may take
_ROWS_SHARE = 4  # rows before a list, at least, per row in it


def viewing(
    skip: Callable[[Position, int], tuple[Position, int]], view: View[U]
) -> Callable[[Position], Flow[U]]:
    """Return the flow of a machine that has this `skip` and this view."""
    get = view.table.get

    def flow(position: Position) -> Flow[U]:
        if view.table.is_there:
            return at_once(skip, position, looked_up(skip, view, position))
        if view.table.is_ours:
            return at_once(skip, position, read_ahead(skip, view, position))
        ticks: Iterator[int] = iterate(range(0))
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
                ticks = iterate(indices if isinstance(indices, range) else indices.tolist())
                total = count
                try:
                    for index in ticks:
                        yield get(index)
                except IndexError:
                    view.ahead(position, range(0))  # raises if the data have changed
                    raise
                position, ticks, total = after, iterate(range(0)), 0
                size = min(size * 8, _LARGEST)

        def snapshot() -> Position:
            taken = total - remaining(ticks)
            return skip(position, taken)[0] if taken else position

        return Flow(items(), snapshot)

    return flow


def looked_up(
    skip: Callable[[Position, int], tuple[Position, int]], view: View[U], position: Position
) -> Iterator[Sequence[U]]:
    """Yield a view's items from a position on, in lists of 64, 512 and then `AT_ONCE` items."""
    table, size = view.table, 64
    while True:
        after, count = skip(position, size)
        if not count:
            return
        indices = view.ahead(position, range(count))
        for first in range(0, count, AT_ONCE):
            some = indices[first : first + AT_ONCE]
            try:
                items = items_at(table, some)
            except IndexError:
                view.ahead(position, range(0))  # raises if the data have changed
                raise
            yield items
        position, size = after, min(size * 8, _LARGEST)


def read_ahead(
    skip: Callable[[Position, int], tuple[Position, int]], view: View[U], position: Position
) -> Iterator[Sequence[U]]:
    """Yield a view's items from a position on, in lists of one row at first, and more if quick.

    A list has at most a quarter as many rows as came before it, so that a reader of few rows
    causes few unneeded reads.
    """
    rows, total, most, size = view.table.rows, 0, 1, 64
    assert rows is not None
    while True:
        after, count = skip(position, size)
        if not count:
            return
        indices = as_array(view.ahead(position, range(count)))
        first = 0
        while first < count:
            some, begun = indices[first : first + most], perf_counter()
            try:
                items = rows(some)
            except Exception:  # from one of them: the items before it come first
                yield from _one_by_one(view, position, some.tolist())
            else:
                yield items
            first += len(some)
            total += len(some)
            is_quick = perf_counter() - begun < _ROWS_SECONDS
            wanted = min(2 * most, total // _ROWS_SHARE, _ROWS) if is_quick else most // 2
            most = max(1, wanted)
        position, size = after, min(size * 8, _LARGEST)


def _one_by_one(view: View[U], position: Position, indices: list[int]) -> Iterator[list[U]]:
    try:
        for each in indices:
            yield [view.table.get(each)]
    except IndexError:
        view.ahead(position, range(0))  # raises if the data have changed
        raise


def items_at(table: Table[U], indices: Indices) -> Sequence[U]:
    """Return the items at indices, one by one or evenly spaced; `IndexError` if one is missing."""
    if isinstance(indices, range) and indices.step > 0 and table.spaced is not None:
        items = table.spaced(indices)
        if len(items) < len(indices):
            raise IndexError(f"index {indices[len(items)]} is out of range")
        return items
    numbers: Any = indices if isinstance(indices, range) else indices.tolist()
    return numbers if table.get is index else [*map(table.get, numbers)]


def at_once(
    skip: Callable[[Position, int], tuple[Position, int]],
    position: Position,
    lists: Iterator[Sequence[U]],
) -> Flow[U]:
    """Yield the items of one list after another, with no user code running in between.

    Args:
        skip: Function that computes the positions between them, as for a machine.
        position: The position at which they begin.
        lists: Lists of up to `AT_ONCE` items; an error belongs to the next item.
    """
    # Items up to the end of this list, the rest of it, and whether it is the last.
    at: tuple[int, Iterator[U], bool] = 0, iterate(()), False

    def blocks() -> Iterator[Iterator[U]]:
        nonlocal at
        count = 0
        for items in lists:
            count += len(items)
            at = count, iterate(items), False
            yield at[1]
        at = count, iterate(()), True

    def place() -> tuple[Position, int]:
        count, items, is_over = at
        passed = count - remaining(items)
        steps = passed + is_over
        return skip(position, steps)[0] if steps else position, passed

    def taken() -> int:
        count, items, _ = at
        return count - remaining(items)

    return in_blocks(blocks(), lambda: place()[0], taken, place)
