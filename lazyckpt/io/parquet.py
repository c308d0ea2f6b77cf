"""`read_parquet`: rows of Parquet files by number, row groups kept decoded."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from functools import lru_cache
from typing import Any

from numpy.typing import NDArray

from lazyckpt.core.checks import boolean, checked, natural, optional
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor
from lazyckpt.io.columns import column_names
from lazyckpt.io.file_object import FileObject
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.groups import CACHE_BYTES, Group, GroupedRows, footer_sum, group_entries
from lazyckpt.io.index import Index
from lazyckpt.io.mapped_arrays import short_digest
from lazyckpt.io.rows import decoding
from lazyckpt.io.storage import File, check_unchanged, is_local, optional_module

Filters = Any  # of pyarrow: [("a", ">", 1), ...], or a list of such lists


class GroupScan:
    """The row groups of a file, as its footer has them, that may hold rows which match."""

    columns = 4
    is_bounds = False

    def __init__(self, filters: Filters) -> None:
        self.filters = filters

    @property
    def name(self) -> str:
        return f"parquet groups {_ordered(self.filters)!r}"

    def __call__(self, file: File) -> Generator[NDArray[Any], None, int]:
        with decoding(file):
            metadata = _metadata(file)
            numbers = range(metadata.num_row_groups)
            if self.filters is not None:
                numbers = self._matching(file)
            found = [_group(metadata, number) for number in numbers]
            yield group_entries(found, metadata.schema.to_arrow_schema())
            return footer_sum(file, magic=4)

    def _matching(self, file: File) -> Any:
        expression = _parquet().filters_to_expression(self.filters)
        kind = optional_module("pyarrow.dataset", "arrow", "read_parquet").ParquetFileFormat()
        fragment = kind.make_fragment(_source(file))
        some = fragment.subset(filter=expression, schema=fragment.physical_schema)
        return [group.id for group in some.row_groups]


def _ordered(filters: Any) -> Any:
    """Filters with sets as sorted lists, so that equal ones read alike."""
    if isinstance(filters, (list, tuple)):
        return [_ordered(each) for each in filters]
    return sorted(filters, key=repr) if isinstance(filters, (set, frozenset)) else filters


def _group(metadata: Any, number: int) -> Group:
    group = metadata.row_group(number)
    chunks = [group.column(place) for place in range(group.num_columns)]
    starts = [
        min(c.data_page_offset, c.dictionary_page_offset or c.data_page_offset) for c in chunks
    ]
    stops = [start + c.total_compressed_size for start, c in zip(starts, chunks, strict=True)]
    return Group(number, group.num_rows, min(starts, default=0), max(stops, default=0))


def _arrow() -> Any:
    return optional_module("pyarrow", "arrow", "read_parquet")


def _parquet() -> Any:
    return optional_module("pyarrow.parquet", "arrow", "read_parquet")


@lru_cache(maxsize=64)
def _metadata(file: File) -> Any:
    return _parquet().read_metadata(_source(file))


def _source(file: File) -> Any:
    """The bytes of a file: those of this machine read by pyarrow, into memory of its own."""
    if not is_local(file.path):
        return _arrow().PythonFile(FileObject(file), mode="r")
    check_unchanged(file)  # it may be gone
    opened = _arrow().OSFile(file.path)
    check_unchanged(file)
    return opened


class _ParquetRows(GroupedRows):
    def __init__(
        self, files: Files, index: Index, columns: list[str] | None, filters: Any, cache: int
    ) -> None:
        given = {"columns": columns, "filters": filters}
        arguments = {name: value for name, value in given.items() if value is not None}
        self._chosen = columns
        self._names = _names(files[0], columns)
        self._readers: dict[int, Any] = {}  # of the file read last
        super().__init__("read_parquet", files, index, cache, arguments)
        self.unify([name for name in self._names if columns is None or name in columns])

    def schema(self, number: int) -> Any:
        return _metadata(self.files[number]).schema.to_arrow_schema()

    @property
    def source_identity(self) -> dict[str, Any]:
        filters = self.arguments.get("filters")
        more = {} if filters is None else {"filters": short_digest(repr(_ordered(filters)))[:16]}
        return {**super().source_identity, **more}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_readers": {}}

    def decode(self, number: int, group: Group) -> Any:
        file = self.files[number]
        reader = self._readers.pop(number, None)  # which no other thread has meanwhile
        if reader is None:
            reader = _parquet().ParquetFile(_source(file), metadata=_metadata(file))
        elif is_local(file.path):
            check_unchanged(file)
        # without pyarrow's own threads, which a fork would not have
        table = reader.read_row_group(group.number, columns=self._chosen, use_threads=False)
        self._readers = {number: reader}
        return table.select(self._names)


def _names(file: File, columns: list[str] | None) -> list[str]:
    """The columns that rows have, by the first file."""
    schema = _metadata(file).schema.to_arrow_schema()
    if columns is None:
        return list(schema.names)
    known = [*schema.names, *(column.path for column in _metadata(file).schema)]
    for name in columns:
        if name not in known and not any(each.startswith(f"{name}.") for each in known):
            raise ArgumentError(
                f"read_parquet: no column {name!r} in {file.path}, which has {schema.names}"
            )
    wanted = {name.partition(".")[0] for name in columns if name not in schema.names}
    return [name for name in schema.names if name in wanted or name in columns]


def read_parquet(
    files: Any,
    *,
    columns: Sequence[str] | None = None,
    filters: Filters = None,
    cache_bytes: int = CACHE_BYTES,
    index_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> GroupedRows:
    """The rows of Parquet files, by number, as dicts.

    Numbers are NumPy's, lists of numbers arrays, anything else what pyarrow makes of it in
    Python; what is missing is None. `batch(n, collate=stack)` makes arrays column by column,
    and no rows. Row groups are decoded as a whole and kept, the last used ones: in random
    order by `local_shuffle`, which decodes each once, rather than by `shuffle`.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        files: All have the columns of the first, and types that differ only as to missing values,
            dictionaries and the width of ints, of which rows have the widest.
        columns: Those to read, by name, `a.b` for a field of a struct; None for all.
        filters: What row groups are left out by their statistics, as pyarrow has it:
            `[("year", ">=", 2020)]`. Of those that stay all rows come: `filter` looks at
            rows.
        cache_bytes: How many bytes of decoded row groups are kept, in each process; the
            last one in any case. Of rows in order two are kept, where not all fit.

    Raises:
        ArgumentError: A file has no such column, or two of one name, or one of a type whose
            values the first file's doesn't have; it names both files.
        RecordError: A file is no Parquet, or a row group is damaged.

    Resume:
        Decodes one row group again; with `local_shuffle`, up to a window of them.

    Memory:
        `cache_bytes` of decoded row groups, or one of them if that is larger, in each process.

    >>> import lazyckpt as lz
    >>> from pyarrow import parquet, table
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     parquet.write_table(table({"x": [1, 2, 3]}), f"{folder}/a.parquet")
    ...     rows = lz.io.read_parquet(f"{folder}/a.parquet", index_dir=folder)
    ...     len(rows), list(rows | lz.batch(2, collate=lz.stack))
    (3, [{'x': array([1, 2])}, {'x': array([3])}])
    """
    _parquet()
    listed = as_files(files, "read_parquet")
    names = checked("read_parquet", "columns", columns, optional(column_names))
    cache = checked("read_parquet", "cache_bytes", cache_bytes, natural)
    if filters is not None:
        _checked_filters(filters)
    shows = checked("read_parquet", "progress", progress, boolean)
    index = Index(listed, GroupScan(filters), index_dir, executor=executor, progress=shows)
    return _ParquetRows(listed, index, names, filters, cache)


def _checked_filters(filters: Any) -> None:
    try:
        _parquet().filters_to_expression(filters)
    except Exception as error:
        raise ArgumentError(
            'read_parquet: filters must be as [("year", ">=", 2020)], '
            f"got filters={filters!r}: {error}"
        ) from None
