"""Machines with random access: of indexable data, and of items in a different order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence, Sized
from operator import index
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from lazyckpt.combinators.machines.stacking import restacked
from lazyckpt.core.arrays import picked, read_only
from lazyckpt.core.checks import brief
from lazyckpt.core.content import is_reader
from lazyckpt.core.flow import BlockStarts, FirstItems, Flow, Position, Table, View, in_blocks
from lazyckpt.core.frames import Column, frame_columns
from lazyckpt.core.iterators import end, index_reached, iterate, remaining
from lazyckpt.core.machine import End, Machine, Rate, begun, within
from lazyckpt.core.prng import Indices, Permutation, affine, as_array, derive
from lazyckpt.core.stages import sourced, stateful
from lazyckpt.errors import ArgumentError, InvalidState, SourceChanged

if TYPE_CHECKING:
    from numpy.typing import NDArray

A = TypeVar("A")
T = TypeVar("T", covariant=True)

_OWN = (list, tuple, range, bytes)  # their iterators can be positioned, and know their position
_BLOCK = 512  # items per block
_ROWS = 256  # rows of a frame computed in one call
_WINDOW = 1024  # indices of an order computed in one call
_NONE: Iterator[Any] = iterate(())


# Functions from an epoch and an index to the items from there on.
Walks = Callable[[int, int], Flow[Any]]


def indexed(
    name: str,
    length: int,
    table: Table[T],
    walks: Walks,
    look: Callable[[], None] = lambda: None,
    block_starts: BlockStarts | None = None,
) -> Machine[T]:
    """Build the machine of the `length` items of a table.

    Args:
        name: Name for errors.
        length: Number of items.
        table: The items.
        walks: Function from an epoch and an index to the items from there on.
        look: Function that raises `SourceChanged` if the number of items has changed.
        block_starts: As for `View`.
    """

    get = table.get

    def step(position: Position) -> tuple[Position, T]:
        epoch, index = position
        if index >= length:
            raise End(position)
        return (epoch, index + 1), get(index)

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
        except Exception:  # the data's own error: raised again when they are read
            return

    return sourced(
        name,
        most=length,
        check=check,
        step=step,
        flow=lambda position: walks(*position),
        skip=skip,
        item=lambda position, n: get(position[1] + n),
        length=length,
        view=View(table, ahead, block_starts),
    )


def by_index(data: Any, length: int) -> Machine[Any]:
    """Build the machine of a sequence, an array or a map-style dataset."""
    if isinstance(data, np.ndarray):
        values = read_only(np.asarray(data))  # rows of a memory map are plain arrays
        table = Table(
            values.__getitem__,
            stacked=lambda indices: restacked(picked(values, indices)),
            is_ours=True,
            spaced=lambda some: list(values[_slice(some)]),
        )
        walks = _in_blocks(_sliced(lambda start, stop: list(values[start:stop]), length))
        return indexed("source", length, table, walks)
    look = _watching(data, length)
    if type(data) in _OWN:
        is_index = type(data) is range and (data.start, data.step) == (0, 1)
        get = index if is_index else data.__getitem__
        table = Table(get, is_ours=True, spaced=lambda some: data[_slice(some)])
        return indexed("source", length, table, _iterating(data, length, look), look)
    walks = _in_blocks(data.iter_blocks, look) if is_reader(data) else _indexing(data, length, look)
    return indexed("source", length, _table(data), walks, look, _block_starts(data))


def _slice(indices: range) -> slice:
    return slice(indices.start, indices.stop, indices.step)


def by_row(data: Any, length: int) -> Machine[Any]:
    """Build the machine of a data frame, whose rows are dicts, or of a series."""
    found = frame_columns(data)
    table = _values(found) if isinstance(found, Column) else _rows(found)
    look = _watching(data, length)
    rows = table.rows
    assert rows is not None
    blocks = _sliced(lambda start, stop: rows(range(start, stop)), length, _ROWS)
    return indexed("source", length, table, _in_blocks(blocks, look), look)


def _watching(data: Sized, length: int) -> Callable[[], None]:
    def look() -> None:
        if len(data) != length:
            raise SourceChanged(
                f"source: the data had {length:,} items when the pipeline was built and have "
                f"{len(data):,} now; build the pipeline again"
            )

    return look


def _block_starts(data: Any) -> BlockStarts | None:
    """Return a function for the block starts of data that have them."""
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
    if is_reader(data):
        stacked = getattr(data, "read_stacked", None)
        return Table(data.__getitem__, many, stacked, is_ours=True)

    def rows(indices: Indices) -> list[Any]:
        found = list(many([int(i) for i in indices]))
        if len(found) != len(indices):
            raise ValueError(
                f"source: __getitems__ returned {len(found)} items for {len(indices)} indices; "
                "return one for each, in their order"
            )
        return found

    return Table(data.__getitem__, rows)


def _values(column: Column) -> Table[Any]:
    return Table(
        column.get,
        lambda indices: list(column.take(indices)),
        lambda indices: restacked(column.take(indices)),
        is_ours=True,
    )


def _rows(columns: dict[Any, Column]) -> Table[dict[Any, Any]]:
    pairs = tuple(columns.items())

    def rows(indices: Indices) -> list[dict[Any, Any]]:
        values = [column.take(indices) for _, column in pairs]
        return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]

    return Table(
        lambda index: {name: column.get(index) for name, column in pairs},
        rows,
        lambda indices: restacked({name: column.take(indices) for name, column in pairs}),
        is_ours=True,
    )


def _iterating(data: Any, length: int, look: Callable[[], None]) -> Walks:
    """Iterate by a sequence's own iterator; a list's would continue into appended items."""

    def walk(epoch: int, index: int) -> Flow[Any]:
        items = iterate(data, index)
        known = index

        def reached() -> tuple[Position, int]:
            nonlocal known
            if left := remaining(items):
                known = len(data) - left
            else:  # after the last item, or within a list that was cut before it
                found = index_reached(items) if isinstance(data, list) else None
                known = max(known, len(data)) if found is None else found
            return (epoch, known), known - index

        return in_blocks(
            _whole(items, FirstItems(items, length - index), look),
            lambda: reached()[0],
            lambda: reached()[1],
            reached,
        )

    return walk


def _whole(items: Any, block: Iterator[Any], look: Callable[[], None]) -> Iterator[Iterator[Any]]:
    """Yield one block, a sequence's own iterator; closing this ends both."""
    stop = end  # at the interpreter's end, the module's names may be gone
    try:
        yield block
    except GeneratorExit:
        stop(items)
        raise
    look()


def _indexing(data: Any, length: int, look: Callable[[], None]) -> Walks:
    def walk(epoch: int, index: int) -> Flow[Any]:
        ticks = iterate(range(index, length))

        def items() -> Iterator[Any]:
            try:
                for i in ticks:
                    yield data[i]
            except IndexError:
                look()
                raise
            look()

        return Flow(items(), lambda: (epoch, length - remaining(ticks)))

    return walk


def looking_up(get: Callable[[int], Any], length: int) -> Walks:
    """Iterate by index, over data that don't change their length."""

    def walk(epoch: int, index: int) -> Flow[Any]:
        ticks = iterate(range(index, length))
        return Flow(map(get, ticks), lambda: (epoch, length - remaining(ticks)))

    return walk


def _sliced(
    rows: Callable[[int, int], Sequence[Any]], length: int, size: int = _BLOCK
) -> Callable[[int], Iterator[Sequence[Any]]]:
    """Yield blocks of a given number of rows, from an index on."""

    def blocks(index: int) -> Iterator[Sequence[Any]]:
        while index < length and (some := rows(index, min(index + size, length))):
            yield some
            index += len(some)

    return blocks


def _in_blocks(
    blocks: Callable[[int], Iterator[Sequence[Any]]], look: Callable[[], None] = lambda: None
) -> Walks:
    """Read many items in one call; all exist when the first is yielded."""

    def walk(epoch: int, index: int) -> Flow[Any]:
        here: tuple[Iterator[Any], int] = _NONE, index  # a block, and the index after it

        def each() -> Iterator[Iterator[Any]]:
            nonlocal here
            for block in blocks(index):
                here = iterate(block), here[1] + len(block)
                yield here[0]
            look()

        return in_blocks(
            each(),
            lambda: (epoch, here[1] - remaining(here[0])),
            lambda: here[1] - remaining(here[0]) - index,
        )

    return walk


class Order(Protocol):
    """The number of upstream's item at index i, for one i and for many."""

    def __getitem__(self, index: int, /) -> int: ...
    def at(self, indices: Indices, /) -> Indices: ...


class Listed:
    """An order stored as an array."""

    def __init__(self, numbers: NDArray[Any]) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> int:
        return int(self._numbers[index])

    def at(self, indices: Indices) -> Indices:
        found: NDArray[Any] = self._numbers[as_array(indices)]
        return found


def permuted(size: int, seed: int, *parts: int | str) -> Order:
    """Return a permutation that is a function of the seed and of `parts`."""
    return Permutation(derive(seed, *parts), size)


def table_length(name: str, upstream: Machine[Any], remedy: str) -> int:
    """Return upstream's length, if it has random access; otherwise raise an `ArgumentError`."""
    length = upstream.length
    if upstream.skip is None or not isinstance(length, int):
        why = "is endless" if length == math.inf else "has no random access"
        raise ArgumentError(f"{name}: the pipeline before it {why}{remedy}")
    return length


def reordered(
    name: str,
    upstream: Machine[A],
    length: int,
    order: Callable[[int], Order],
) -> Machine[A]:
    """Yield `length` items per epoch, in the order of `order(epoch)`. Upstream has random access.

    A position is the beginning of upstream's epoch, and a count of items.

    Args:
        name: Name for errors.
        upstream: The machine before it.
        length: Number of items per epoch.
        order: Function from an epoch to the order of upstream's items.
    """
    alone, below = upstream.item, upstream.view
    assert alone is not None

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert below is not None
        begin, index = position
        chosen = order(upstream.epoch(begin))
        return below.ahead(begin, chosen.at(affine(offsets, index)))

    def flow(position: Position) -> Flow[A]:
        begin, index = position
        chosen = order(upstream.epoch(begin))

        def items() -> Iterator[A]:
            nonlocal index
            while index < length:
                window = range(index, min(index + _WINDOW, length))
                for number in as_array(chosen.at(window)).tolist():
                    item = alone(begin, number)
                    index += 1
                    yield item

        return Flow(items(), lambda: (begin, index))

    def step(position: Position) -> tuple[Position, A]:
        begin, index = position
        if index >= length:
            raise End(position)
        return (begin, index + 1), item(position, 0)

    def item(position: Position, n: int) -> A:
        begin, index = position
        return alone(begin, order(upstream.epoch(begin))[index + n])

    def skip(position: Position, n: int) -> tuple[Position, int]:
        begin, index = position
        passed = min(n, length - index)
        return (begin, index + passed), passed

    made = stateful(
        name,
        upstream,
        check=lambda index: within(name, index, length),
        rate=Rate(whole_epoch=True),
        step=step,
        flow=flow if below is None else None,
        skip=skip,
        item=item,
        length=length,
        view=below and View(below.table, ahead),
    )

    def fits(position: Position) -> None:
        made.check(position)
        if begun(upstream, position[0]):
            raise InvalidState(f"{name}: the state's epoch doesn't begin at its first item")

    return made._replace(check=fits)
