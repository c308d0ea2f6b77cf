"""Data with indices as machines: how they are walked through, and looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import chain, islice
from operator import index, length_hint
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.batch import stack
from lazyckpt.core.arrays import picked, read_only
from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Blocks, Flow, Position, Table, View
from lazyckpt.core.frames import Column, frame_columns
from lazyckpt.core.machine import End, Machine
from lazyckpt.core.prng import Indices, affine
from lazyckpt.core.stages import sourced
from lazyckpt.errors import ArgumentError, SourceChanged

T = TypeVar("T", covariant=True)

_FIXED = (tuple, range, bytes)  # whose length stays what it is
_BLOCK = 256  # rows of a frame that are made at once


class Walk(NamedTuple):
    """Items from an index on, and the index reached.

    `is_exact` says that an item which can't be had isn't counted.
    """

    items: Iterator[Any]
    reached: Callable[[], int]
    is_exact: bool


Walks = Callable[[int], Walk]


def indexed(
    name: str,
    length: int,
    table: Table[T],
    walks: Walks,
    look: Callable[[], None] = lambda: None,
    blocks: Blocks | None = None,
) -> Machine[T]:
    """The machine of `length` items that a table has.

    Args:
        name: What errors call the source.
        length: How many items.
        table: The items.
        walks: From an index to the items from there on.
        look: Raises `SourceChanged` where there are more or fewer items now.
        blocks: As of `View`.
    """

    get = table.get

    def step(position: Position) -> tuple[Position, T]:
        epoch, index = position
        if index >= length:
            raise End(position)
        return (epoch, index + 1), get(index)

    def flow(position: Position) -> Flow[T]:
        epoch, index = position
        items, reached, is_exact = walks(index)
        taken = (lambda: reached() - index) if is_exact else None
        return Flow(items, lambda: (epoch, reached()), taken=taken)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        epoch, index = position
        passed = min(n, length - index)
        return (epoch, index + passed), passed

    def ahead(position: Position, offsets: Indices) -> Indices:
        look()
        return affine(offsets, position[1])

    def check() -> None:
        try:
            look()
        except SourceChanged:
            raise
        except Exception:  # the data's own, which reading them tells
            return

    return sourced(
        name,
        most=length,
        check=check,
        step=step,
        flow=flow,
        skip=skip,
        item=lambda position, n: get(position[1] + n),
        length=length,
        view=View(table, ahead, blocks),
    )


def by_index(data: Any, length: int) -> Machine[Any]:
    """The machine of a sequence, an array or a map-style data set."""
    if isinstance(data, np.ndarray):
        values = read_only(np.asarray(data))  # rows of a memory map are plain arrays
        table = Table(values.__getitem__, None, lambda indices: picked(values, indices), True)
        return indexed("source", length, table, looking_up(values.__getitem__, length))
    if type(data) in _FIXED:
        return indexed("source", length, _there(data), _iterating(data, length))
    look = _watching(data, length)
    if is_reader(data):
        walks = _in_blocks(data.iter_blocks, look)
    else:
        walks = (_iterating_list if type(data) is list else _indexing)(data, length, look)
    table = _there(data) if type(data) is list else _table(data)
    return indexed("source", length, table, walks, look, _blocks(data))


def _there(data: Sequence[Any]) -> Table[Any]:
    is_index = type(data) is range and (data.start, data.step) == (0, 1)
    return Table(index if is_index else data.__getitem__, is_there=True)


def is_reader(data: Any) -> bool:
    """Whether data know what and where they are: a `Rows` of `lazyckpt.io`."""
    return hasattr(type(data), "source_identity")


def by_row(data: Any, length: int) -> Machine[Any]:
    """The machine of a data frame, whose rows are dicts, or of a series."""
    found = frame_columns(data)
    table = _values(found) if isinstance(found, Column) else _rows(found)
    look = _watching(data, length)
    return indexed("source", length, table, _in_blocks(_row_blocks(table, length), look), look)


def _watching(data: Sized, length: int) -> Callable[[], None]:
    def look() -> None:
        if len(data) != length:
            raise SourceChanged(
                f"source: its data had {length:,} items when the pipeline was made and has "
                f"{len(data):,} now; make the pipeline anew"
            )

    return look


def _blocks(data: Any) -> Blocks | None:
    """Where the blocks of data begin that say so."""
    starts = getattr(data, "block_starts", None)
    if starts is None:
        return None

    def blocks() -> NDArray[np.int64]:
        found = np.asarray(starts)
        if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
            raise ArgumentError(
                f"source: block_starts must be ints in one dimension, got {brief(starts)}"
            )
        return found.astype(np.int64)

    return blocks


def _table(data: Any) -> Table[Any]:
    if not hasattr(type(data), "__getitems__"):
        return Table(data.__getitem__)
    many = data.__getitems__
    stacked = getattr(data, "read_stacked", None) if is_reader(data) else None
    return Table(data.__getitem__, lambda indices: list(many([int(i) for i in indices])), stacked)


def _values(column: Column) -> Table[Any]:
    return Table(
        column.get,
        lambda indices: list(column.take(indices)),
        lambda indices: _stacked(column, indices),
    )


def _rows(columns: dict[Any, Column]) -> Table[dict[Any, Any]]:
    pairs = tuple(columns.items())

    def rows(indices: Indices) -> list[dict[Any, Any]]:
        values = [column.take(indices) for _, column in pairs]
        return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]

    return Table(
        lambda index: {name: column.get(index) for name, column in pairs},
        rows,
        lambda indices: {name: _stacked(column, indices) for name, column in pairs},
    )


def _stacked(column: Column, indices: Indices) -> Any:
    found = column.take(indices)
    return found if isinstance(found, np.ndarray) else stack(found)


def _iterating(data: Any, length: int) -> Walks:
    def walk(index: int) -> Walk:
        items = iter(data)
        items.__setstate__(index)
        return Walk(items, lambda: length - length_hint(items), True)

    return walk


def _iterating_list(data: list[Any], length: int, look: Callable[[], None]) -> Walks:
    """By a list's own iterator, which would go on into what is appended."""

    def walk(index: int) -> Walk:
        items: Any = iter(data)
        items.__setstate__(index)
        known = index

        def reached() -> int:
            nonlocal known
            if left := length_hint(items):
                known = len(data) - left
            else:  # it has no place after its end, where the list was cut before it
                _, _, *place = items.__reduce__()
                known = place[0] if place else max(known, len(data))
            return known

        def watched() -> Iterator[Iterator[Any]]:
            yield islice(items, length - index)
            look()

        return Walk(chain.from_iterable(watched()), reached, True)

    return walk


def _indexing(data: Any, length: int, look: Callable[[], None]) -> Walks:
    def walk(index: int) -> Walk:
        ticks = iter(range(index, length))

        def items() -> Iterator[Any]:
            try:
                for i in ticks:
                    yield data[i]
            except IndexError:
                look()
                raise
            look()

        return Walk(items(), lambda: length - length_hint(ticks), False)

    return walk


def looking_up(get: Callable[[int], Any], length: int) -> Walks:
    """By an index each, of what doesn't change its length."""

    def walk(index: int) -> Walk:
        ticks = iter(range(index, length))
        return Walk(map(get, ticks), lambda: length - length_hint(ticks), False)

    return walk


def _in_blocks(blocks: Callable[[int], Iterator[list[Any]]], look: Callable[[], None]) -> Walks:
    """Items that are made many at once, which takes less time each."""

    def walk(index: int) -> Walk:
        here: tuple[Iterator[Any], int] = iter(()), index  # a block, and the index behind it

        def each() -> Iterator[Iterator[Any]]:
            nonlocal here
            for block in blocks(index):
                here = iter(block), here[1] + len(block)
                yield here[0]
            look()

        return Walk(chain.from_iterable(each()), lambda: here[1] - length_hint(here[0]), True)

    return walk


def _row_blocks(table: Table[Any], length: int) -> Callable[[int], Iterator[list[Any]]]:
    rows = table.rows
    assert rows is not None

    def blocks(index: int) -> Iterator[list[Any]]:
        for start in range(index, length, _BLOCK):
            yield rows(range(start, min(start + _BLOCK, length)))

    return blocks
