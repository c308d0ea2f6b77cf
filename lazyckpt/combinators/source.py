"""`source`, `columns`: items that are there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Set, Sized
from itertools import islice
from operator import length_hint
from os import PathLike
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import brief, optional, short
from lazyckpt.core.flow import Flow, Position, Table, View, counted
from lazyckpt.core.machine import End, Machine, Reread
from lazyckpt.core.prng import Indices, affine
from lazyckpt.core.stages import sourced
from lazyckpt.decorators import source_combinator
from lazyckpt.errors import ArgumentError, SourceChanged

T = TypeVar("T", covariant=True)

# From an index on: the items, and an iterator whose length hint says how many are left.
Walk = Callable[[int], tuple[Iterator[T], Iterator[Any]]]


class Indexable(Protocol[T]):
    """Anything with a length and integer indices."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> T: ...


def _described(data: Any, name: str | None) -> dict[str, Any]:
    found = {"length": len(data)} if _is_indexable(data) else {}
    return found if name is None else {**found, "name": name}


@source_combinator(
    checks={"name": optional(short)}, describe=_described, functions={"data": "data"}
)
def source(data: Indexable[T] | Iterable[T], *, name: str | None = None) -> Machine[T]:
    """The items of `data`, in its order.

    Don't change the data while a pipeline reads it.

    Args:
        data: Anything with `__len__` and `__getitem__` (list, range, array,
            memory map, map-style dataset; a `__getitems__` is used too), or any
            iterable that begins anew each time, such as a file reader object. It
            must give the same items in the same order each time. `once(None)` with
            `flat_map(lambda _: made())` makes a source of a generator function.
        name: At most 40 characters that a state is checked against, as against the
            length. It tells data of one length apart, such as those of a `mix`.

    Raises:
        ArgumentError: For a one-shot iterator, a run, a set (it has no order), a
            dict or a str.
        SourceChanged: Where the data became shorter.

    State:
        The epoch and a count of items.

    Resume:
        Re-reads nothing; an iterable is read from its beginning.

    Random access:
        Where the data have indices.

    Rank-free:
        Yes.

    >>> import lazyckpt as lz
    >>> list(lz.source("to be or not".split()))
    ['to', 'be', 'or', 'not']
    """
    if _is_indexable(data):
        length = _length(cast(Sized, data))
        return _indexed("source", length, _table(data), _walk(data, length))
    if isinstance(data, (str, Mapping, Set, Chain, type)) or not _is_iterable(data):
        raise ArgumentError(
            f"source: data must be a sequence or an iterable, got {brief(data)} "
            f"({type(data).__name__}); {_remedy(data)}"
        )
    if iter(data) is data or isinstance(data, Iterator):
        raise ArgumentError(
            f"source: data must be readable again, got the one-shot iterator {brief(data)}; "
            "pass what it came from, or an object whose __iter__ opens it anew"
        )
    return _iterated(cast(Iterable[T], data))


@source_combinator(describe=lambda arrays: {"length": len(next(iter(arrays.values())))})
def columns(**arrays: ArrayLike) -> Machine[dict[str, Any]]:
    """The rows of equally long arrays, as dicts.

    With `shuffle`, `shard`, `take` or `repeat` and then
    `batch(n, collate=stack)`, a batch is one fancy index a column.

    Args:
        arrays: One array of shape `(n, ...)` a column, or what `numpy.asarray`
            makes one; memory maps are read where needed.

    Raises:
        ArgumentError: For no column, or columns of unequal lengths.

    State:
        The epoch and a count of rows.

    Resume:
        Re-reads nothing.

    Random access:
        Yes.

    Rank-free:
        Yes.

    >>> import lazyckpt as lz
    >>> table = lz.columns(x=[1.5, 2.5, 3.5], y=[0, 1, 0])
    >>> next(iter(table | lz.batch(2, collate=lz.stack)))
    {'x': array([1.5, 2.5]), 'y': array([0, 1])}
    """
    if not arrays:
        raise ArgumentError("columns: at least one column is needed, got none")
    table = {name: _column(name, values) for name, values in arrays.items()}
    lengths = {name: len(values) for name, values in table.items()}
    if len(set(lengths.values())) != 1:
        raise ArgumentError(f"columns: all must have one length, got {lengths}")
    length = next(iter(lengths.values()))
    pairs = tuple(table.items())

    def get(index: int) -> dict[str, Any]:
        return {name: values[index] for name, values in pairs}

    def stacked(indices: Indices) -> dict[str, Any]:
        return {name: picked(values, indices) for name, values in pairs}

    return _indexed("columns", length, Table(get, None, stacked), _looking_up(get, length))


def _column(name: str, values: Any) -> np.ndarray[Any, Any]:
    try:
        column = np.asarray(values)
    except ValueError:  # ragged lists
        column = np.asarray(None)
    except (TypeError, RuntimeError) as error:  # a tensor's refusal
        raise ArgumentError(
            f"columns: {name} can't be made a NumPy array: {error}; "
            "pass .detach().cpu() of a tensor, and .float() of it where NumPy lacks its type"
        ) from error
    if not column.ndim:
        kind = type(values).__name__
        raise ArgumentError(
            f"columns: {name} must be an array, got {name}={brief(values)} ({kind})"
        )
    return column


def picked(values: np.ndarray[Any, Any], indices: Indices) -> Any:
    """Rows of an array as a new array."""
    if isinstance(indices, range):
        return values[indices.start : indices.stop : indices.step].copy()
    return values.take(indices, axis=0)


def _length(data: Sized) -> int:
    try:
        return len(data)
    except OverflowError:
        raise ArgumentError(
            f"source: data must have at most {sys.maxsize:,} items, got {brief(data)} "
            f"({type(data).__name__}); count() has no end"
        ) from None


def _is_indexable(data: Any) -> bool:
    if isinstance(data, (str, Mapping, Set, Chain, type)) or _is_iterable_dataset(data):
        return False
    if getattr(data, "shape", None) == ():
        return False
    return hasattr(data, "__len__") and hasattr(data, "__getitem__")


def _is_iterable(data: Any) -> bool:
    try:
        iter(data)
    except TypeError:
        return False
    return True


def _is_iterable_dataset(data: Any) -> bool:
    # torch's has a __getitem__ that only raises
    return any(kind.__name__ == "IterableDataset" for kind in type(data).__mro__)


def _remedy(data: Any) -> str:
    if isinstance(data, Chain):
        return "it is a pipeline already" if data.calls[0].combinator.is_source else "a stage"
    if isinstance(data, Mapping):
        return "pass columns(**data) for a table, or list(data.items())"
    if isinstance(data, MappingView):
        return "pass list(data)"
    if isinstance(data, Set):
        return "a set has no order that lasts; pass sorted(data)"
    if isinstance(data, str):
        return "pass [data] for one text, list(data) for its characters, open files in flat_map"
    if isinstance(data, PathLike):
        return "open files in flat_map"
    if callable(data):
        return "write once(None) | flat_map(lambda _: made()) for a generator function made"
    return "pass a list of it"


def _table(data: Any) -> Table[Any]:
    if isinstance(data, np.ndarray):
        values = np.asarray(data)  # rows of a memory map are plain arrays
        return Table(values.__getitem__, None, lambda indices: picked(values, indices))
    many = getattr(data, "__getitems__", None)
    if many is None:
        return Table(data.__getitem__)
    return Table(data.__getitem__, lambda indices: list(many([int(i) for i in indices])))


def _walk(data: Any, length: int) -> Walk[Any]:
    if type(data) in (list, tuple, range):

        def indexed(index: int) -> tuple[Iterator[Any], Iterator[Any]]:
            items: Any = iter(data)
            items.__setstate__(index)
            return items, items

        return indexed
    if isinstance(data, np.ndarray):
        return _looking_up(np.asarray(data).__getitem__, length)

    def walk(index: int) -> tuple[Iterator[Any], Iterator[int]]:
        ticks = iter(range(index, length))
        return (data[i] for i in ticks), ticks

    return walk


def _looking_up(get: Callable[[int], T], length: int) -> Walk[T]:
    def walk(index: int) -> tuple[Iterator[T], Iterator[int]]:
        ticks = iter(range(index, length))
        return map(get, ticks), ticks

    return walk


def _indexed(
    name: str,
    length: int,
    table: Table[T],
    walk: Walk[T],
) -> Machine[T]:
    def step(position: Position) -> tuple[Position, T]:
        epoch, index = position
        if index >= length:
            raise End(position)
        return (epoch, index + 1), table.get(index)

    def flow(position: Position) -> Flow[T]:
        epoch, index = position
        items, ticks = walk(index)
        # Where ticks are not the items, an item that can't be had has ticked.
        taken = (lambda: length - index - length_hint(ticks)) if items is ticks else None
        return Flow(items, lambda: (epoch, length - length_hint(ticks)), taken=taken)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        epoch, index = position
        passed = min(n, length - index)
        return (epoch, index + passed), passed

    def ahead(position: Position, offsets: Indices) -> Indices:
        return affine(offsets, position[1])

    return sourced(
        name,
        most=length,
        step=step,
        flow=flow,
        skip=skip,
        length=length,
        view=View(table, ahead),
    )


def _iterated(data: Iterable[T]) -> Machine[T]:
    def flow(position: Position) -> Flow[T]:
        epoch, index = position
        taken: Callable[[], int] = lambda: 0  # noqa: E731  # replaced when reading begins

        def items() -> Iterator[T]:
            nonlocal taken
            stream, taken = counted(data)
            passed = sum(1 for _ in islice(stream, index))
            if passed < index:
                raise SourceChanged(
                    f"source: the state stands after item {index} of {brief(data)}, "
                    f"which now has {passed} items"
                )
            taken, begun = (lambda: begun() - index), taken
            yield from stream

        return Flow(items(), lambda: (epoch, index + taken()))

    return sourced("source", rereads=lambda position: (Reread(None, position[1]),), flow=flow)
