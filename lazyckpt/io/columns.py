"""Tables of pyarrow as rows, by place: a dict each, or many as a dict of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.arrays import picked
from lazyckpt.core.checks import Unfit
from lazyckpt.core.prng import Indices, as_array
from lazyckpt.io.storage import optional_module

_NUMBERS = {  # types of pyarrow, whose own to_pandas_dtype needs pandas before its version 26
    "bool": "bool", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64",
    "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64",
    "halffloat": "float16", "float": "float32", "double": "float64",
}  # fmt: skip
_TEXTS = {"string", "large_string", "string_view"}  # types of pyarrow


class Column(NamedTuple):
    """Values by place: one, or many as an array of numbers or a list.

    `is_text` says that each is a str.
    """

    get: Callable[[int], Any]
    take: Callable[[Indices], NDArray[Any] | list[Any]]
    is_text: bool = False


Columns = dict[str, Column]


def columns_of(table: Any) -> Columns:
    """The columns of a table or record batch.

    What a value is depends on itself and its type alone: a number is NumPy's, a list of
    numbers or a tensor an array, anything else what pyarrow makes of it in Python; what is missing
    is None.
    """
    names = table.schema.names
    return {name: _column(table.column(place)) for place, name in enumerate(names)}


def row(columns: Columns, place: int) -> dict[str, Any]:
    return {name: column.get(place) for name, column in columns.items()}


def rows(columns: Columns, places: Indices) -> list[dict[str, Any]]:
    if not columns:
        return [{} for _ in places]
    return list(map(_row_of(tuple(columns)), *(column.take(places) for column in columns.values())))


@lru_cache
def _row_of(names: tuple[str, ...]) -> Callable[..., dict[str, Any]]:
    """A function that makes a row of its values, in half the time of `dict(zip(...))`."""
    values = [f"v{number}" for number in range(len(names))]
    items = [f"{name!r}: {value}" for name, value in zip(names, values, strict=True)]
    code = f"lambda {', '.join(values)}: {{{', '.join(items)}}}"
    made: Callable[..., dict[str, Any]] = eval(code)
    return made


def _column(values: Any) -> Column:
    if getattr(values, "num_chunks", 0) == 1:
        values = values.chunk(0)  # which copies nothing
    elif hasattr(values, "combine_chunks"):
        values = values.combine_chunks()
    if not hasattr(values, "chunks"):  # it may be more than one array holds
        if str(values.type).startswith("run_end_encoded<"):
            compute = optional_module("pyarrow.compute", "arrow", "run-end encoding")
            values = compute.run_end_decode(values)
        if _is_number(values.type):
            return _with_missing(_filled(values), values)
        if "arrow.fixed_shape_tensor[" in str(values.type):
            return _with_missing(_tensors(values), values)
        if hasattr(values, "values") and _is_number(getattr(values.type, "value_type", None)):
            return _arrays(values)
    return _objects(values)


def _is_number(kind: Any) -> bool:
    return str(kind) in _NUMBERS


def _with_missing(found: NDArray[Any], values: Any) -> Column:
    """A column of an array, which has anything for what is missing."""
    if not values.null_count:
        return Column(found.__getitem__, partial(picked, found))
    is_missing = values.is_null().to_numpy(zero_copy_only=False)

    def get(place: int) -> Any:
        return None if is_missing[place] else found[place]

    return Column(get, lambda places: _each(get, places, found, is_missing))


def _tensors(values: Any) -> NDArray[Any]:
    """Tensors of one shape as an array of one dimension more, with 0 for what is missing."""
    whole = type(values).from_storage(values.type, values.storage.drop_null()).to_numpy_ndarray()
    found = np.zeros((len(values), *whole.shape[1:]), whole.dtype)
    found[values.is_valid().to_numpy(zero_copy_only=False)] = whole
    return found


def _filled(values: Any) -> NDArray[Any]:
    """Numbers as an array, with anything for what is missing."""
    zero = np.dtype(_NUMBERS[str(values.type)]).type(0).item()
    if values.null_count and not isinstance(zero, float):  # of which pyarrow makes NaN
        values = values.fill_null(zero)
    found: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found


def _each(
    get: Callable[[int], Any], places: Indices, found: NDArray[Any], is_missing: NDArray[np.bool_]
) -> NDArray[Any] | list[Any]:
    """Numbers as an array, where none of these is missing."""
    chosen = as_array(places)
    return list(map(get, chosen.tolist())) if is_missing[chosen].any() else found[chosen]


def _arrays(values: Any) -> Column:
    inner = values.values
    found = _filled(inner)
    width = getattr(values.type, "list_size", None)
    if width is not None:
        bounds = (np.arange(len(values) + 1) + values.offset) * width
        starts, ends = bounds[:-1], bounds[1:]
    elif hasattr(values, "sizes"):  # of views, which may stand anywhere
        starts = values.offsets.to_numpy()
        ends = starts + values.sizes.to_numpy()
    else:
        bounds = values.offsets.to_numpy()
        starts, ends = bounds[:-1], bounds[1:]
    is_missing = values.is_null().to_numpy(zero_copy_only=False)
    holes = np.zeros(len(found) + 1, np.int64)
    if inner.null_count:
        np.cumsum(inner.is_null().to_numpy(zero_copy_only=False), out=holes[1:])
    is_odd = is_missing | (holes[ends] > holes[starts])

    def get(place: int) -> Any:
        if is_odd[place]:
            return values[place].as_py()
        return found[starts[place] : ends[place]].copy()

    return Column(get, lambda places: [get(place) for place in as_array(places).tolist()])


def _objects(values: Any) -> Column:
    def take(places: Indices) -> list[Any]:
        if isinstance(places, range) and places.step == 1:
            some = values.slice(places.start, len(places))
        else:
            some = values.take(as_array(places))
        found: list[Any] = some.to_pylist()
        return found

    is_text = str(values.type) in _TEXTS and not values.null_count
    return Column(lambda place: values[place].as_py(), take, is_text)


def joined(parts: Sequence[NDArray[Any] | list[Any]]) -> NDArray[Any] | list[Any]:
    """Values one after another: an array, where all parts are arrays of one type."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts) and len({part.dtype for part in arrays}) == 1:
        return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
    return [value for part in parts for value in part]


def column_names(value: Any) -> list[str]:
    """A list of names of columns, as an argument's check has it."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list or not value or not all(isinstance(name, str) for name in value):
        raise Unfit("a list of names of columns")
    return list(value)
