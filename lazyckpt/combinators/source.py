"""`source`, `columns`: items of existing data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Set, Sized
from functools import partial
from itertools import islice
from os import PathLike
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np
import toolz

from lazyckpt.combinators.machines.random_access import by_index, by_row, indexed, looking_up
from lazyckpt.combinators.machines.stacking import restacked
from lazyckpt.core.arrays import picked, read_only
from lazyckpt.core.call import Chain
from lazyckpt.core.checks import UNMASK, Unfit, brief, is_raised_here, optional, short
from lazyckpt.core.content import is_reader
from lazyckpt.core.flow import Flow, Position, Table, counted
from lazyckpt.core.frames import is_frame, kinds
from lazyckpt.core.machine import Machine, Reread
from lazyckpt.core.prng import Indices
from lazyckpt.core.registry import Elastic
from lazyckpt.core.stages import sourced
from lazyckpt.decorators import source_combinator
from lazyckpt.errors import ArgumentError, SourceChanged
from lazyckpt.run import Run

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

T = TypeVar("T", covariant=True)

_END: Any = object()
_OTHER = "isn't the file recorded in the state: its name, size or checksum differs"
_NOT_FIRST = "the files recorded in the state aren't the first ones of these"
_REFUSED = (str, Mapping, Set, Chain, type, np.ma.MaskedArray)
_OTHERS = "these data can't be compared with those recorded in the state"


class Indexable(Protocol[T]):
    """Anything with a length and integer indices."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> T: ...


def _described(data: Any, name: str | None) -> dict[str, Any]:
    identity = data.source_identity if is_reader(data) else {}
    return identity if name is None else {**identity, "name": name}


def _as_it_was(known: Mapping[str, Any], data: Any, **_: Any) -> dict[str, Any]:
    """Return the data as they were for a state, before items or files were appended."""
    if "digest" not in known and not is_reader(data) and _is_indexable(data):
        return {"data": range(_first(known, len(data)))}  # nothing of it is read
    if not hasattr(data, "first_files") or "digest" not in known:
        raise Unfit(_OTHERS)
    first = data.first_files(known.get("files", known.get("length")))
    identity = {} if first is None else {**first.source_identity, "length": len(first)}
    if first is None or {**known, **identity} != known:
        if identity.get("digest") == known["digest"]:
            raise Unfit(_OTHERS)
        path = None if first is None else first.changed_path(known["digest"])
        raise Unfit(_NOT_FIRST if path is None else f"{path} {_OTHER}")
    return {"data": first}


def _first(known: Mapping[str, Any], length: int) -> int:
    """Return the number of items that a state knows, if they can all still exist."""
    before = known.get("length")
    if not isinstance(before, int):
        raise Unfit(_OTHERS)
    if before > length:
        raise Unfit(f"items may be appended but not removed; pass {before:,} or more")
    return before


@source_combinator(
    checks={"name": optional(short)},
    describe=_described,
    sized=True,
    functions={"data": "data"},
    elastic=Elastic(
        changes=dict.fromkeys(["length", "files", "digest"], "grown"), before=_as_it_was
    ),
)
def source(data: Indexable[T] | Iterable[T], *, name: str | None = None) -> Machine[T]:
    """Yield the items of `data` in order.

    Don't change the data while a pipeline reads it. Arrays and their rows are passed on
    read-only, so no function can change them for the next epoch. Other mutable objects, such as
    a tensor or an array in a list, are passed on as they are.

    Args:
        data: A sequence (anything with `__len__` and `__getitem__`: list, range, array, memory
            map, map-style dataset, reader of `lazyckpt.io`), or an iterable that can be iterated
            repeatedly, such as a file reader object. It must yield the same items in the same
            order each time; items may be appended between two runs (`rebase`). A pandas or polars
            data frame and a pyarrow table yield rows as dicts, of which
            `batch(n, collate=stack)` makes arrays column by column; a series yields values by
            position. Two optional methods are used if they exist: `__getitems__` for batched
            reads, and `block_starts` for `local_shuffle`. For files and their readers, a state
            also records a digest. Use `from_generator(fn)` for a generator function.
        name: At most 40 characters that are recorded in a state and checked, like the length. A
            name tells data of the same length apart, for example in a `mix`.

    Raises:
        ArgumentError: If `data` is a one-shot iterator, a run, a set (it has no order), a dict,
            a str or a masked array.
        SourceChanged: If the length differs from that when the pipeline was made, which is checked
            when a run begins and at the end of an epoch; or if an iterable has fewer items than
            before.

    State:
        The epoch and a count of items.

    Resume:
        Re-reads nothing; an iterable is read from its beginning.

    Random access:
        If the data can be indexed. If rows of a reader or a data frame are requested in a
        different order, some are read ahead and held until they are used: as many as take a
        millisecond, at most 256, and at most a quarter of the rows before them.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> list(lz.source("to be or not".split()))
    ['to', 'be', 'or', 'not']
    """
    if is_frame(data):
        return by_row(data, _length(cast(Sized, data)))
    if _is_indexable(data):
        return by_index(data, _length(cast(Sized, data)))
    if isinstance(data, _REFUSED) or not _is_iterable(data):
        raise ArgumentError(
            f"source: data must be a sequence or an iterable, got {brief(data)} "
            f"({type(data).__name__}); {_remedy(data)}"
        )
    if _is_one_shot(data):
        raise ArgumentError(
            f"source: data must be iterable repeatedly, got the one-shot iterator {brief(data)}; "
            "pass the object it came from, or one whose __iter__ opens it again"
        )
    return iterated("source", cast(Iterable[T], data))


def _columns_as_they_were(known: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    name, values = toolz.first(arrays.items())
    return {"arrays": {name: np.broadcast_to(0, _first(known, len(_column(name, values))))}}


@source_combinator(
    describe=lambda arrays: {},
    sized=True,
    elastic=Elastic(changes={"length": "grown"}, before=_columns_as_they_were),
)
def columns(**arrays: ArrayLike) -> Machine[dict[str, Any]]:
    """Yield the rows of equally long arrays, as dicts.

    With `shuffle`, `shard`, `take` or `repeat`, followed by `batch(n, collate=stack)`, a batch
    takes one fancy index per column; strings, bytes and objects are then stacked one by one. Rows
    that are arrays are read-only.

    Args:
        arrays: One array of shape `(n, ...)` per column, or anything that `numpy.asarray` makes
            into one. Memory maps are read on demand. Rows of a list of bytes are the list's own
            objects.

    Raises:
        ArgumentError: If there are no columns, if columns have unequal lengths, if an array is
            masked, or if an array can't hold a list's values unchanged, such as numbers and
            strings.

    State:
        The epoch and a count of rows.

    Resume:
        Re-reads nothing.

    Random access:
        Yes.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> table = lz.columns(x=[1.5, 2.5, 3.5], y=[0, 1, 0])
    >>> next(iter(table | lz.batch(2, collate=lz.stack)))
    {'x': array([1.5, 2.5]), 'y': array([0, 1])}
    """
    if not arrays:
        raise ArgumentError("columns: at least one column is needed, got none")
    table = {name: read_only(_column(name, values)) for name, values in arrays.items()}
    lengths: dict[str, int] = toolz.valmap(len, table)
    if len(set(lengths.values())) != 1:
        raise ArgumentError(f"columns: all must have the same length, got {lengths}")
    length = toolz.first(lengths.values())
    pairs = tuple(table.items())

    def get(index: int) -> dict[str, Any]:
        return {name: values[index] for name, values in pairs}

    def stacked(indices: Indices) -> dict[str, Any]:
        found: dict[str, Any] = restacked({name: picked(values, indices) for name, values in pairs})
        return found

    return indexed("columns", length, Table(get, None, stacked), looking_up(get, length))


def _column(name: str, values: Any) -> np.ndarray[Any, Any]:
    try:
        column = np.asarray(values)
    except ValueError as error:
        if not is_raised_here(error):
            raise
        column = np.asarray(None)  # of ragged lists
    except (TypeError, RuntimeError) as error:  # a tensor's refusal
        raise ArgumentError(
            f"columns: {name} can't be made a NumPy array: {error}; "
            "for a tensor pass .detach().cpu(), and .float() if NumPy lacks its type"
        ) from error
    if not column.ndim:
        kind = type(values).__name__
        raise ArgumentError(
            f"columns: {name} must be an array, got {name}={brief(values)} ({kind})"
        )
    if isinstance(values, np.ma.MaskedArray):
        raise ArgumentError(f"columns: {name} is masked, but rows can't be; {UNMASK}")
    return column if hasattr(values, "dtype") else _as_given(name, values, column)


def _as_given(name: str, values: Any, column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a list's bytes as they are; check that an array changes none of its other values.

    An array of bytes drops trailing zeros, and so does an array of strings. An array of bools,
    ints and floats makes them one type.
    """
    kind = column.dtype.kind
    if kind not in "SUiufc":
        return column
    given = np.array(values, object)
    if kind == "S":
        return given
    flat = given.ravel().tolist()
    kinds = {*map(type, flat)}
    if kind != "U" and len(kinds) < 2 and not (kind == "f" and kinds == {int}):
        return column
    flat = [each.item() if isinstance(each, np.generic) else each for each in flat]
    kinds = {*map(type, flat)}
    is_odd = (kind == "f" and kinds == {int}) or bool in kinds
    for kept, value in zip(column.ravel().tolist(), flat, strict=True):
        if (kept != value and value == value) or (is_odd and type(kept) is not type(value)):
            raise ArgumentError(
                f"columns: {name} would contain {brief(kept)} instead of {brief(value)} "
                f"({type(value).__name__}); to keep values, pass numpy.array(values, object)"
            )
    return column


def _length(data: Sized) -> int:
    try:
        return len(data)
    except OverflowError as error:
        if not is_raised_here(error):
            raise
        raise ArgumentError(
            f"source: data must have at most {sys.maxsize:,} items, got {brief(data)} "
            f"({type(data).__name__}); use count() for an endless source"
        ) from None


def _is_indexable(data: Any) -> bool:
    if isinstance(data, _REFUSED) or _is_iterable_dataset(data):
        return False
    if getattr(data, "shape", None) == ():
        return False
    return hasattr(type(data), "__len__") and hasattr(type(data), "__getitem__")


def _is_iterable(data: Any) -> bool:
    """Decide by the type alone: asking for an iterator may open a file, or begin an epoch."""
    if getattr(data, "shape", None) == () or not _READABLE.keys().isdisjoint(kinds(data)):
        return False
    kind = type(data)
    return getattr(kind, "__iter__", None) is not None or hasattr(kind, "__getitem__")


def _is_one_shot(data: Any) -> bool:
    """Return whether an iterator can never be iterated again, as far as can be seen.

    An iterator whose `__iter__` does something before it returns itself may rewind.
    """
    if isinstance(data, Run):
        return True
    if not isinstance(data, Iterator):
        return False
    begin = type(data).__iter__
    return not isinstance(begin, FunctionType) or not begin.__code__.co_names


def _is_iterable_dataset(data: Any) -> bool:
    # torch's has a __getitem__ that only raises
    return any(kind.__name__ == "IterableDataset" for kind in type(data).__mro__)


_READABLE = {  # objects of other libraries for files and queries
    "pyarrow.ParquetFile": "pass .read() of it, or read its row groups in flat_map",
    "pyarrow.Dataset": "pass .to_table() of it, or read its fragments in flat_map",
    "polars.LazyFrame": "pass .collect() of it",
}


def _remedy(data: Any) -> str:
    for kind in kinds(data):
        if kind in _READABLE:
            return _READABLE[kind]
    if data is None:
        return "does a function that makes it lack a return? pass a list, an array or a dataset"
    if isinstance(data, Chain):
        return "it is a pipeline already" if data.calls[0].combinator.is_source else "a stage"
    if isinstance(data, Mapping):
        return "pass columns(**data) for a table, or list(data.items())"
    if isinstance(data, MappingView):
        return "pass list(data)"
    if isinstance(data, np.ma.MaskedArray):
        return f"rows can't be masked; {UNMASK}"
    if isinstance(data, Set):
        return "a set has no stable order; pass sorted(data)"
    if isinstance(data, str):
        return "pass [data] for one string, list(data) for its characters; open files in flat_map"
    if isinstance(data, PathLike):
        return "open files in flat_map"
    if callable(data):
        return "use from_generator(fn) for a generator function fn"
    return "pass a list of it"


def iterated(name: str, data: Iterable[T]) -> Machine[T]:
    """Build the machine of data without indices, iterated once per epoch."""
    begin = _beginning(data)

    def flow(position: Position) -> Flow[T]:
        epoch, index = position
        reached: Callable[[], int] = partial(int, index)  # until reading begins

        def items() -> Iterator[T]:
            nonlocal reached
            stream, taken = counted(begin())
            passed = sum(1 for _ in islice(stream, index))
            if passed < index:
                raise SourceChanged(
                    f"{name}: the state is after item {index} of {brief(data)}, "
                    f"which now has {passed} items"
                )
            reached = taken
            yield from stream

        return Flow(items(), lambda: (epoch, reached()), before=lambda: (epoch, reached() - 1))

    return sourced(name, rereads=lambda position: (Reread(None, position[1]),), flow=flow)


def _beginning(data: Iterable[T]) -> Callable[[], Iterator[T]]:
    """Return a function that iterates the data again, and ends older reads if they rewind."""
    reader = object()
    had_items = False

    def rewound(stream: Iterator[T]) -> Iterator[T]:
        nonlocal reader, had_items
        me = reader = object()
        is_empty = True
        while (item := next(stream, _END)) is not _END:
            had_items, is_empty = True, False
            yield item
            if reader is not me:
                raise SourceChanged(
                    f"source: {brief(data)} was iterated again while it was read: its __iter__ "
                    "returns itself, so it allows one reader at a time; return a new iterator"
                )
        if is_empty and had_items:
            raise SourceChanged(
                f"source: {brief(data)} yielded items before and yields none now: its __iter__ "
                "returns itself without rewinding; return a new iterator"
            )

    def begin() -> Iterator[T]:
        stream = iter(data)
        return rewound(stream) if stream is data else stream

    return begin
