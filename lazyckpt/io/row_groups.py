"""Rows of tables that are decoded in groups, with a bounded cache of decoded groups."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.machines.stacking import restacked
from lazyckpt.core.checks import boolean, checked, natural, optional
from lazyckpt.core.prng import Indices
from lazyckpt.errors import ArgumentError, SourceChanged, StorageError
from lazyckpt.executors.executor import Executor
from lazyckpt.io.arrow_columns import (
    Columns,
    column_names,
    columns_of,
    common_type,
    concatenated,
    flaw_of,
    row,
    rows,
    schema_digest,
)
from lazyckpt.io.cache import LRUCache
from lazyckpt.io.files import as_files
from lazyckpt.io.index import Index, Scan
from lazyckpt.io.rows import RecordError, Rows, shifted
from lazyckpt.io.storage import (
    File,
    FileObject,
    check_unchanged,
    is_local,
    optional_module,
    unreadable,
)

CACHE_BYTES = 1 << 28

_OF_DAMAGE = ValueError, OSError, NotImplementedError  # raised by pyarrow
_FEW = 256  # most rows of a group per block, when rows are read in order


class RowGroup(NamedTuple):
    """Rows of a file that are decoded together.

    - `number`: the group's number in the file
    - `size`: number of rows
    - `start`, `stop`: range of bytes
    """

    number: int
    size: int
    start: int
    stop: int


def group_entries(groups: Sequence[RowGroup], schema: Any, more: str = "") -> NDArray[np.uint64]:
    """Return the index entries of a file: its groups, then a digest of its schema."""
    return np.array([*groups, RowGroup(0, 0, schema_digest(schema, more), 0)], np.uint64)


def opened(file: File, *, is_mapped: bool = False) -> Any:
    """The bytes of a file, as pyarrow has files; mapped, or read into memory of its own."""
    arrow = optional_module("pyarrow", "arrow", "reading tables")
    if not is_local(file.path):
        return arrow.PythonFile(FileObject(file), mode="r")
    check_unchanged(file)  # it may have been removed
    found = (arrow.memory_map if is_mapped else arrow.OSFile)(file.path)
    check_unchanged(file)
    return found


class _Decoded(NamedTuple):
    """The columns of a group and their number of bytes, or the error of decoding it."""

    columns: Columns | None
    size: int
    error: RecordError | None = None


def _stacked(
    name: str, values: NDArray[Any] | list[Any], places: NDArray[np.int64] | None, is_text: bool
) -> Any:
    """Stack the values of column `name` of a batch, in the order of `places`."""
    if isinstance(values, np.ndarray):
        return values if places is None else values[places]
    if places is not None:
        values = [values[place] for place in places.tolist()]
    return values if is_text or {*map(type, values)} <= {str} else restacked(values, name)


class RowGroupRows(Rows[dict[str, Any]]):
    """Rows as dicts, from files whose rows are decoded in groups; a subclass decodes one group.

    Args:
        reader: Name of the reader.
        files: The files, or patterns for them.
        scan: Function that finds the groups of a file: number, rows, start and stop.
        columns: Names of the columns to read; None for all.
        cache_bytes: Number of bytes of decoded groups to keep.
        index_dir, executor, progress: As in `Index`.
        arguments: As in `Rows`.
    """

    def __init__(
        self,
        reader: str,
        files: Any,
        scan: Scan,
        *,
        columns: Sequence[str] | None,
        cache_bytes: int,
        index_dir: str | os.PathLike[str] | None,
        executor: Executor | None,
        progress: bool,
        **arguments: Any,
    ) -> None:
        optional_module("pyarrow", "arrow", reader)
        listed = as_files(files, reader)
        self.columns = checked(reader, "columns", columns, optional(column_names))
        self._cache = LRUCache[_Decoded](checked(reader, "cache_bytes", cache_bytes, natural))
        shows = checked(reader, "progress", progress, boolean)
        self.row_index = Index(listed, scan, index_dir, executor=executor, progress=shows)
        given = {"columns": self.columns, **arguments}
        given = {name: value for name, value in given.items() if value is not None}
        found = [self.row_index.entries(n).astype(np.int64) for n in range(len(listed))]
        super().__init__(reader, listed, [int(each[:, 1].sum()) for each in found], given)
        self.sums = self.row_index.sums.tolist()
        groups = np.concatenate([np.insert(each, 0, n, axis=1) for n, each in enumerate(found)])
        self._groups = groups[groups[:, 2] > 0]  # file, number, size, start, stop
        self._starts = [0, *np.cumsum(self._groups[:, 2]).tolist()]  # of groups, among all rows
        self._readers: dict[int, Any] = {}  # the open reader of the last file
        firsts = {int(found[n][-1, 2]): n for n in reversed(range(len(listed)))}
        self._types, self._schema = self._unified(sorted(firsts.values()))

    def open(self, file: File) -> Any:
        """Open a file for reading groups."""
        raise NotImplementedError

    def decode(self, number: int, group: RowGroup) -> Any:
        """The table of a group of file `number`, as pyarrow has it."""
        raise NotImplementedError

    def schema(self, number: int) -> Any:
        """Return the pyarrow schema of the columns to read in file `number`."""
        raise NotImplementedError

    @contextmanager
    def opened(self, number: int) -> Iterator[Any]:
        """Provide a reader of file `number`, already open if that file was read last."""
        reader = self._readers.pop(number, None)  # so that no other thread uses it meanwhile
        if reader is None:
            reader = self.open(self.files[number])
        elif is_local(self.files[number].path):
            check_unchanged(self.files[number])
        yield reader
        self._readers = {number: reader}

    def _unified(self, firsts: Iterable[int]) -> tuple[dict[str, Any], Any]:
        """Return the common types of columns in all files, and a schema if files differ.

        An error names two files that don't fit.
        """
        types: dict[str, Any] = {}
        is_one, first = True, self.files[0].path
        schemas = {number: self.schema(number) for number in firsts}
        for number, schema in schemas.items():
            path = self.files[number].path
            for name in list(types) or dict.fromkeys(schema.names):
                if (count := schema.names.count(name)) != 1:
                    reason = f"has {count} columns {name!r}" if count else f"has no column {name!r}"
                    where = f", which {first} has" if number else ""
                    raise ArgumentError(f"{self.reader}: {path} {reason}{where}")
                kind = schema.field(name).type
                if (flaw := flaw_of(kind)) is not None:
                    raise ArgumentError(f"{self.reader}: {name!r} of {path} has {flaw}")
                known = types.setdefault(name, kind)
                if (common := common_type(known, kind)) is None:
                    raise ArgumentError(
                        f"{self.reader}: {name!r} is {kind} in {path}, but {known} in earlier "
                        f"files such as {first}; convert one of them, or read them separately"
                    )
                is_one &= common == known == kind
                types[name] = common
            more = [name for name in schema.names if name not in types]
            if more:
                raise ArgumentError(
                    f"{self.reader}: {first} has no column {more[0]!r}, which {path} has; pass "
                    "columns that all files have"
                )
        if is_one:
            return types, None
        arrow = optional_module("pyarrow", "arrow", self.reader)
        common = arrow.schema(list(types.items()))
        for number, schema in schemas.items():
            try:
                schema.empty_table().select(list(types)).cast(common)
            except arrow.ArrowException as error:
                raise ArgumentError(
                    f"{self.reader}: {self.files[number].path} has other types than files such as "
                    f"{first}; convert one of them, or read them separately: {error}"
                ) from error
        return types, common

    @property
    def block_starts(self) -> NDArray[np.int64]:
        """The first row of each group."""
        return np.array(self._starts[: bisect_left(self._starts, len(self))], np.int64)

    def read_row(self, number: int, record: int) -> dict[str, Any]:
        group, place = self._place(self._begins[number] + record)
        columns = self._columns(group)
        try:
            return row(columns, place)
        except Exception as error:  # such as invalid UTF-8
            raise self.error(number, record, error) from error

    def read_block(self, number: int, record: int, budget: int) -> list[dict[str, Any]]:
        start = self._begins[number] + record
        group, _ = self._place(start)
        stop = min(start + min(budget, _FEW), self._starts[group + 1])
        ((columns, places),) = self._parts(range(start, stop))
        return rows(columns, places)

    def _ascending(self, indices: Indices) -> list[dict[str, Any]]:
        parts = self._parts(indices)
        try:
            return [each for columns, places in parts for each in rows(columns, places)]
        except Exception:  # reading rows one by one finds the bad one
            return [self[index] for index in indices]

    def read_stacked(self, indices: Indices) -> dict[str, Any]:
        """Return rows as one batch, like `stack`, built column by column."""
        order = None
        if not isinstance(indices, range):  # a range is ascending
            ranks = np.argsort(indices, kind="stable")
            indices, order = indices[ranks], np.empty_like(ranks)
            order[ranks] = np.arange(len(ranks))
        parts = self._parts(indices)
        try:
            taken = {
                name: [columns[name].take(places) for columns, places in parts]
                for name in self._types
            }
        except Exception:
            for index in indices:  # so that the error names the row
                self[index]
            raise
        return {
            name: _stacked(
                name,
                values[0] if len(values) == 1 else concatenated(values),
                order,
                all(columns[name].is_text for columns, _ in parts),
            )
            for name, values in taken.items()
        }

    def _parts(self, indices: Indices) -> list[tuple[Columns, Indices]]:
        """Return the columns of each group with some of the rows, and their places in it."""
        found: list[tuple[Columns, Indices]] = []
        while len(indices):
            group, _ = self._place(int(indices[0]))
            start, stop = self._starts[group : group + 2]
            count = bisect_left(indices, stop)
            some, indices = indices[:count], indices[count:]
            found.append((self._columns(group), shifted(some, -start)))
            if isinstance(some, range) and some.stop >= stop:
                self._cache.leave(group, len(self) / (stop - start))
        return found

    def _place(self, index: int) -> tuple[int, int]:
        """Return the group of a row, and its place there."""
        group = bisect_right(self._starts, index) - 1
        return group, index - self._starts[group]

    def span(self, number: int, record: int) -> tuple[int, int]:
        group, _ = self._place(self._begins[number] + record)
        start, stop = self._groups[group, 3:].tolist()
        return start, stop

    def _columns(self, group: int) -> Columns:
        def decode() -> _Decoded:
            """Decode a group of file `number` to a pyarrow table."""
            number, *place = self._groups[group].tolist()
            try:
                table = self._decoded(number, RowGroup(*place))
                return _Decoded(columns_of(table), table.get_total_buffer_size())
            except (SourceChanged, StorageError):
                raise
            except Exception as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise unreadable(self.files[number], error) from error
                found = self.error(number, self._starts[group] - self._begins[number], error)
                if not isinstance(error, _OF_DAMAGE):
                    raise found from error  # such as a lack of memory
                found.__cause__ = error.with_traceback(None)
                return _Decoded(None, 0, found)  # cached, or each row would decode it again

        found = self._cache.get(group, decode)
        if found.columns is None:
            raise RecordError(str(found.error)) from found.error
        return found.columns

    def _decoded(self, number: int, group: RowGroup) -> Any:
        """Return a group's table, cast to the common types of its columns."""
        table = self.decode(number, group).select(list(self._types))
        if table.num_rows != group.size:
            raise ValueError(f"it has {table.num_rows:,} rows, but its index has {group.size:,}")
        return table if self._schema is None else table.cast(self._schema)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_readers": {}}
