"""Tables of pyarrow as rows, by index: one as a dict, or many as a dict of arrays.

Also the common type of a column in several files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.arrays import picked
from lazyckpt.core.checks import Unfit
from lazyckpt.core.prng import Indices, as_array
from lazyckpt.io.cache import short_digest
from lazyckpt.io.storage import optional_module

_LISTS = "list", "large_list", "list_view", "large_list_view"
TEXTS = {"string", "large_string", "string_view"}  # types of pyarrow
_ALIKE = [  # types with the same values in Python
    ("string_view", "string", "large_string"),
    ("binary_view", "binary", "large_binary"),
]


class Column(NamedTuple):
    """Values by index: one, or many as an array of numbers or a list.

    `is_text` is True if each value is a str.
    """

    get: Callable[[int], Any]
    take: Callable[[Indices], NDArray[Any] | list[Any]]
    is_text: bool = False


Columns = dict[str, Column]


def columns_of(table: Any) -> Columns:
    """Return the columns of a table or record batch.

    A value depends only on itself and its type. Numbers are NumPy scalars, lists of numbers and
    tensors are arrays, and missing values are None. Any other value is the Python object that
    pyarrow converts it to.
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
    """Return a function from values to a row; it takes half the time of `dict(zip(...))`."""
    values = [f"v{number}" for number in range(len(names))]
    items = [f"{name!r}: {value}" for name, value in zip(names, values, strict=True)]
    code = f"lambda {', '.join(values)}: {{{', '.join(items)}}}"
    made: Callable[..., dict[str, Any]] = eval(code)
    return made


def _column(values: Any) -> Column:
    arrow = optional_module("pyarrow", "arrow", "reading tables")
    if isinstance(values, arrow.ChunkedArray):
        values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if isinstance(values, arrow.ChunkedArray):  # too long for one array
        return _objects(values)
    if _is(values.type, "run_end_encoded"):
        places = np.arange(values.offset, values.offset + len(values))
        values = values.values.take(np.searchsorted(values.run_ends, places, side="right"))
    if _is(values.type, "dictionary") and _is_number(values.type.value_type):
        values = values.dictionary_decode()
    if _is_number(values.type):
        return _of_array(values, _numbers(values), _is_missing(values))
    if isinstance(values.type, arrow.FixedShapeTensorType):
        return _tensors(values, values.storage, values.type)
    if _is(values.type, "fixed_size_list"):
        return _tensors(values, values, None)
    if _is(values.type, *_LISTS) and _is_number(values.type.value_type):
        return _lists(values)
    return _objects(values)


def _is(kind: Any, *names: str) -> bool:
    types = optional_module("pyarrow.types", "arrow", "reading tables")
    return any(getattr(types, f"is_{name}")(kind) for name in names)


def _is_number(kind: Any) -> bool:
    return _is(kind, "integer", "floating", "boolean")


def _numbers(values: Any) -> NDArray[Any]:
    """Return numbers as an array, with arbitrary numbers in place of missing ones."""
    if values.null_count and not _is(values.type, "floating"):  # pyarrow turns these into NaN
        values = values.fill_null(False if _is(values.type, "boolean") else 0)
    found: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found


def _is_missing(values: Any) -> NDArray[np.bool_] | None:
    """Return a mask of missing values; None if there are none."""
    if not values.null_count:
        return None
    found: NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
    return found


def _of_array(values: Any, found: NDArray[Any], is_odd: NDArray[np.bool_] | None) -> Column:
    """Return a column with the values of an array; odd ones are converted by pyarrow."""
    plain = found.__getitem__ if found.ndim == 1 else lambda place: found[place].copy()
    if is_odd is None:
        return Column(plain, partial(picked, found))

    def get(place: int) -> Any:
        return values[place].as_py() if is_odd[place] else plain(place)

    def take(places: Indices) -> NDArray[Any] | list[Any]:
        chosen = as_array(places)
        return list(map(get, chosen.tolist())) if is_odd[chosen].any() else found[chosen]

    return Column(get, take)


def _tensors(values: Any, storage: Any, kind: Any) -> Column:
    """Return a column of lists of one size, or tensors of one shape, as one array."""
    count, width = len(values), storage.type.list_size
    inner = storage.values.slice(storage.offset * width, count * width)
    if not _is_number(inner.type):
        return _objects(values)
    shape = [width] if kind is None else kind.shape
    axes = (kind and kind.permutation) or range(len(shape))
    found = _numbers(inner).reshape(count, *shape).transpose(0, *(1 + axis for axis in axes))
    is_odd = np.zeros(count, bool)
    for missing in (_is_missing(values), _is_missing(inner)):
        if missing is not None:
            is_odd |= missing.reshape(count, -1).any(axis=1)
    return _of_array(values, found, is_odd if is_odd.any() else None)


def _lists(values: Any) -> Column:
    """Return a column of lists of numbers, each as an array."""
    inner = values.values
    found, is_missing, holes = _numbers(inner), _is_missing(values), _is_missing(inner)
    starts = values.offsets.to_numpy()
    if hasattr(values, "sizes"):  # list views, which may start anywhere
        ends = starts + values.sizes.to_numpy()
    else:
        starts, ends = starts[:-1], starts[1:]

    def get(place: int) -> Any:
        start, end = starts[place], ends[place]
        if is_missing is not None and is_missing[place]:
            return None
        if holes is not None and holes[start:end].any():
            return values[place].as_py()
        return found[start:end].copy()

    return Column(get, lambda places: [get(place) for place in as_array(places).tolist()])


def _objects(values: Any) -> Column:
    def get(place: int) -> Any:
        return values[place].as_py()

    def take(places: Indices) -> list[Any]:
        if isinstance(places, range) and places.step == 1:
            return list(values.slice(places.start, len(places)).to_pylist())
        chosen = as_array(places)
        try:
            return list(values.take(chosen).to_pylist())
        except NotImplementedError:  # such as for views
            return list(map(get, chosen.tolist()))

    is_text = str(values.type) in TEXTS and not values.null_count
    return Column(get, take, is_text)


def concatenated(parts: Sequence[NDArray[Any] | list[Any]]) -> NDArray[Any] | list[Any]:
    """Concatenate values: to an array if all parts are arrays of one type, else to a list."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts) and len({part.dtype for part in arrays}) == 1:
        return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
    return [value for part in parts for value in part]


def column_names(value: Any) -> list[str]:
    """Check an argument that lists names of columns."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list or not value or not all(isinstance(name, str) for name in value):
        raise Unfit("a list of column names")
    return list(value)


def schema_digest(schema: Any, more: str) -> int:
    """Return a digest of 63 bits of names, types and `more`, which distinguishes other details."""
    return int(short_digest(str(schema.remove_metadata()), more)[:16], 16) >> 1


def flaw_of(kind: Any) -> str | None:
    """Return the reason why values of a type can't be rows; None if they can."""
    types = optional_module("pyarrow.types", "arrow", "reading")
    fields = [kind.field(number) for number in range(kind.num_fields)]
    names = [field.name for field in fields]
    if types.is_struct(kind) and (twice := [name for name in names if names.count(name) > 1]):
        return f"two fields {twice[0]!r}"
    return next(filter(None, (flaw_of(field.type) for field in fields)), None)


def common_type(one: Any, other: Any) -> Any:
    """Return the type that holds the values of both types unchanged; None if there is none.

    Two types have one if they differ in the width of ints, the size of offsets or lists, in
    nullability, or if one is a dictionary of the other or has only missing values. This holds
    inside lists and structs too.
    """
    arrow = optional_module("pyarrow", "arrow", "reading")
    types = arrow.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_dictionary(one) or types.is_dictionary(other):
        return common_type(*(t.value_type if types.is_dictionary(t) else t for t in (one, other)))
    if types.is_integer(one) and types.is_integer(other):
        found = np.promote_types(str(one), str(other))
        return getattr(arrow, found.name)() if found.kind in "iu" else None
    for kinds in _ALIKE:
        if str(one) in kinds and str(other) in kinds:
            return getattr(arrow, kinds[2])()
    lists = types.is_list, types.is_large_list, types.is_fixed_size_list
    if all(any(is_list(kind) for is_list in lists) for kind in (one, other)):
        value = common_type(one.value_type, other.value_type)
        if value is None or types.is_large_list(one) or types.is_large_list(other):
            return value and arrow.large_list(value)
        sizes = {getattr(kind, "list_size", -1) for kind in (one, other)}
        return arrow.list_(value, sizes.pop() if len(sizes) == 1 else -1)
    if types.is_struct(one) and types.is_struct(other):
        names = [field.name for field in one]
        if names == [field.name for field in other]:
            inner = [common_type(one.field(name).type, other.field(name).type) for name in names]
            return arrow.struct(list(zip(names, inner, strict=True))) if all(inner) else None
    return None
