"""Data frames and series of pandas, polars and pyarrow by position; none of them is imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lazyckpt.core.arrays import picked, read_only
from lazyckpt.core.prng import Indices, as_array
from lazyckpt.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Column(NamedTuple):
    """Values by position: one, or many in one call, as an array of numbers or as a list."""

    get: Callable[[int], Any]
    take: Callable[[Indices], NDArray[Any] | list[Any]]


def is_frame(data: Any) -> bool:
    """Return whether data are a data frame or a series."""
    return _reader(data) is not None


def frame_columns(data: Any) -> dict[Any, Column] | Column:
    """Return the columns of a data frame by name, or the only one of a series."""
    reader = _reader(data)
    assert reader is not None
    found = reader(data)
    if isinstance(found, Column):
        return found
    names = [name for name, _ in found]
    if not names:
        raise ArgumentError("source: a data frame needs at least one column, got none")
    if len({*names}) < len(names):
        raise ArgumentError(f"source: the columns of a data frame need distinct names: {names}")
    return dict(found)


def frame_values(data: Any) -> list[tuple[Any, NDArray[Any] | list[Any]]]:
    """Return all values of a data frame or a series by column name; the index of pandas first."""
    reader = _reader(data)
    assert reader is not None
    found = reader(data)
    columns = [("", found)] if isinstance(found, Column) else found
    is_pandas = any(kind.startswith("pandas.") for kind in kinds(data))
    index = [("", data.index.to_numpy())] if is_pandas else []
    return [*index, *((name, column.take(range(len(data)))) for name, column in columns)]


def kinds(data: Any) -> list[str]:
    """Return the classes of an object, as `package.Name`."""
    classes = type(data).__mro__
    return [f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in classes]


def _array_column(values: NDArray[Any]) -> Column:
    values = read_only(values)
    if values.dtype == object:
        return Column(values.__getitem__, lambda indices: picked(values, indices).tolist())
    return Column(values.__getitem__, lambda indices: picked(values, indices))


def _pandas_column(series: Any) -> Column:
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufcO":
        return _array_column(series.to_numpy())
    values = series.array

    def take(indices: Indices) -> list[Any]:
        some = values.take(as_array(indices))
        if series.dtype.type is str:  # faster to read, with the same result
            found: list[Any] = some.tolist()
            return found
        return [some[place] for place in range(len(some))]

    return Column(values.__getitem__, take)


def _chunked_column(
    part: Callable[[Indices], Any],
    as_list: Callable[[Any], list[Any]],
    as_numpy: Callable[[Any], NDArray[Any]],
    has_missing: bool,
) -> Column:
    """Build a column of polars or pyarrow.

    Args:
        part: Function that selects values by position, as a column.
        as_list: Function that converts them to Python values.
        as_numpy: Function that converts them to NumPy.
        has_missing: Whether some values are missing, which an array of ints can't represent.
    """
    is_list = has_missing or not _is_number(lambda: as_numpy(part(range(0))))

    def get(place: int) -> Any:
        one = part(range(place, place + 1))
        return as_list(one)[0] if is_list else as_numpy(one)[0]

    def take(indices: Indices) -> NDArray[Any] | list[Any]:
        some = part(indices)
        return as_list(some) if is_list else np.array(as_numpy(some))

    return Column(get, take)


def _is_number(empty: Callable[[], NDArray[Any]]) -> bool:
    try:
        return empty().dtype.kind in "biuf"
    except Exception:  # types that NumPy lacks
        return False


def _polars_column(series: Any) -> Column:
    def part(indices: Indices) -> Any:
        if isinstance(indices, range) and indices.step == 1:
            return series.slice(indices.start, len(indices))
        return series[as_array(indices)]

    missing = series.null_count() > 0
    return _chunked_column(part, lambda some: some.to_list(), lambda some: some.to_numpy(), missing)


def _arrow_column(values: Any) -> Column:
    def part(indices: Indices) -> Any:
        if isinstance(indices, range) and indices.step == 1:
            return values.slice(indices.start, len(indices))
        return values.take(as_array(indices))

    def numbers(some: Any) -> NDArray[Any]:
        found: NDArray[Any] = some.to_numpy(zero_copy_only=False)
        return found

    return _chunked_column(part, lambda some: some.to_pylist(), numbers, values.null_count > 0)


def _pandas_frame(frame: Any) -> list[tuple[Any, Column]]:
    return [(name, _pandas_column(series)) for name, series in frame.items()]


def _polars_frame(frame: Any) -> list[tuple[Any, Column]]:
    return [(series.name, _polars_column(series)) for series in frame.get_columns()]


def _arrow_table(table: Any) -> list[tuple[Any, Column]]:
    return [(n, _arrow_column(c)) for n, c in zip(table.column_names, table.columns, strict=True)]


_READERS: dict[str, Callable[[Any], Column | Sequence[tuple[Any, Column]]]] = {
    "pandas.DataFrame": _pandas_frame,
    "pandas.Series": _pandas_column,
    "polars.DataFrame": _polars_frame,
    "polars.Series": _polars_column,
    "pyarrow.Table": _arrow_table,
    "pyarrow.RecordBatch": _arrow_table,
    "pyarrow.ChunkedArray": _arrow_column,
    "pyarrow.Array": _arrow_column,
}


def _reader(data: Any) -> Callable[[Any], Column | Sequence[tuple[Any, Column]]] | None:
    return next((_READERS[kind] for kind in kinds(data) if kind in _READERS), None)
