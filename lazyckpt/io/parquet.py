"""`read_parquet`: rows of Parquet files by number, with a cache of decoded row groups."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, NamedTuple

from numpy.typing import NDArray

from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor
from lazyckpt.io.cache import LRUCache, short_digest
from lazyckpt.io.row_groups import CACHE_BYTES, RowGroup, RowGroupRows, group_entries, opened
from lazyckpt.io.rows import decoding
from lazyckpt.io.storage import File, optional_module, storage_of

Filters = Any  # of pyarrow: [("a", ">", 1), ...], or a list of such lists

_ENDING = 1 << 16  # bytes read at a file's end, as by pyarrow
_PARSED = 8  # memory of a parsed footer relative to its bytes


class RowGroupScan:
    """The row groups of a file, from its footer, that may hold matching rows."""

    columns = 4
    is_bounds = False

    def __init__(self, filters: Filters) -> None:
        self.filters = filters

    @property
    def name(self) -> str:
        return f"parquet groups {_ordered(self.filters)!r}"

    def __call__(self, file: File) -> Generator[NDArray[Any], None, int]:
        footer = _footer(file)
        with decoding(file):
            schema = footer.metadata.schema.to_arrow_schema()
            numbers: Sequence[int] = range(footer.metadata.num_row_groups)
            if self.filters is not None and not footer.is_encrypted:
                numbers = self._matching(file)
            found = [_group(file, footer, number) for number in numbers]
            # encrypted columns are found out separately for each file
            yield group_entries(found, schema, repr(file) if footer.is_encrypted else "")
        return footer.checksum

    def _matching(self, file: File) -> Any:
        expression = _parquet().filters_to_expression(self.filters)
        kind = optional_module("pyarrow.dataset", "arrow", "read_parquet").ParquetFileFormat()
        fragment = kind.make_fragment(opened(file))
        schema = fragment.physical_schema
        try:
            some = fragment.subset(filter=expression, schema=schema)
        except ValueError as error:
            raise ArgumentError(
                f"read_parquet: filters don't fit {file.path}, which has the columns "
                f"{schema.names}, got filters={self.filters!r}"
            ) from error
        return [group.id for group in some.row_groups]


def _ordered(filters: Any) -> Any:
    """Return filters with sets as sorted lists, so that equal filters have one repr."""
    if isinstance(filters, (list, tuple)):
        return [_ordered(each) for each in filters]
    return sorted(filters, key=repr) if isinstance(filters, (set, frozenset)) else filters


def _parquet() -> Any:
    return optional_module("pyarrow.parquet", "arrow", "read_parquet")


class _Footer(NamedTuple):
    """The end of a file, parsed.

    - `metadata`: the metadata object of pyarrow
    - `size`: approximate bytes of memory that it takes
    - `is_encrypted`: True if some columns may be encrypted
    - `checksum`: checksum of the footer's bytes
    """

    metadata: Any
    size: int
    is_encrypted: bool
    checksum: int


_footers = LRUCache[_Footer](1 << 26)


def _footer(file: File) -> _Footer:
    return _footers.get(file, partial(_read_footer, file))


def _read_footer(file: File) -> _Footer:
    storage = storage_of(file.path)
    ending = storage.read(file, max(0, file.size - _ENDING), file.size)
    length = int.from_bytes(ending[-8:-4], "little")
    if len(ending) < length + 8 <= file.size:
        ending = storage.read(file, file.size - length - 8, file.size)
    with decoding(file):
        metadata = _parquet().read_metadata(io.BytesIO(ending))
    size = metadata.serialized_size
    checksum = zlib.crc32(ending[-8 - length : -8])
    return _Footer(metadata, size * _PARSED, length > size, checksum)  # a signature is extra bytes


def _group(file: File, footer: _Footer, number: int) -> RowGroup:
    group = footer.metadata.row_group(number)
    if footer.is_encrypted:  # asked for the offsets of columns, pyarrow may abort the process
        return RowGroup(number, group.num_rows, 0, file.size)
    chunks = [group.column(place) for place in range(group.num_columns)]
    starts = [
        min(c.data_page_offset, c.dictionary_page_offset or c.data_page_offset) for c in chunks
    ]
    stops = [start + c.total_compressed_size for start, c in zip(starts, chunks, strict=True)]
    return RowGroup(number, group.num_rows, min(starts, default=0), max(stops, default=0))


def _chosen(schema: Any, columns: Sequence[str]) -> Any:
    """Return the schema of chosen columns, or fields of structs, as pyarrow reads them."""
    tops = {name.partition(".")[0] for name in columns if name not in schema.names} | {*columns}
    arrow = optional_module("pyarrow", "arrow", "read_parquet")
    fields = [field for field in schema if field.name in tops]
    if {*columns} <= {*schema.names}:
        return arrow.schema(fields)
    nothing = [arrow.nulls(1, field.type) for field in fields]
    file = io.BytesIO()
    _parquet().write_table(arrow.table(nothing, [field.name for field in fields]), file)
    return _parquet().ParquetFile(file).read_row_group(0, columns=columns).schema


class _ParquetRows(RowGroupRows):
    @property
    def source_identity(self) -> dict[str, Any]:
        filters = self.arguments.get("filters")
        more = {} if filters is None else {"filters": short_digest(repr(_ordered(filters)))[:16]}
        return {**super().source_identity, **more}

    def open(self, file: File) -> Any:
        with decoding(file):
            return _parquet().ParquetFile(opened(file), metadata=_footer(file).metadata)

    def schema(self, number: int) -> Any:
        file, columns = self.files[number], self.columns
        with decoding(file):
            reader = self.open(file)
            known = reader.schema_arrow
            paths = [*known.names, *(column.path for column in reader.schema)]
            for name in columns or known.names:
                if name not in paths and not any(each.startswith(f"{name}.") for each in paths):
                    raise ArgumentError(
                        f"read_parquet: no column {name!r} in {file.path}, which has {known.names}"
                    )
                if any(each.name == name and "struct<>" in str(each.type) for each in known):
                    raise self._unreadable(file, name, "has a group without fields")
                if _footer(file).is_encrypted and reader.num_row_groups:
                    try:
                        reader.read_row_group(0, columns=[name], use_threads=False)
                        if name == (columns or known.names)[-1]:  # some pyarrows fail at all only
                            reader.read_row_group(0, columns=columns, use_threads=False)
                    except OSError as error:
                        raise self._unreadable(file, name, f"is encrypted: {error}") from error
            return known if columns is None else _chosen(known, columns)

    def _unreadable(self, file: File, name: str, reason: str) -> ArgumentError:
        return ArgumentError(
            f"read_parquet: {name!r} of {file.path} can't be read, pass columns without it: it "
            f"{reason}"
        )

    def decode(self, number: int, group: RowGroup) -> Any:
        with self.opened(number) as reader:
            # without pyarrow's own threads, because a fork has none
            return reader.read_row_group(group.number, columns=self.columns, use_threads=False)


def read_parquet(
    files: Any,
    *,
    columns: Sequence[str] | None = None,
    filters: Filters = None,
    cache_bytes: int = CACHE_BYTES,
    index_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> RowGroupRows:
    """Read the rows of Parquet files, by number, as dicts.

    Numbers are NumPy scalars, lists of numbers are arrays, and missing values are None. Any other
    value is the Python object that pyarrow converts it to. `batch(n, collate=stack)` builds arrays
    column by column, without making rows. Row groups are decoded as a whole, and the last used ones
    are kept. For random order use `local_shuffle`, which decodes each row group once, rather than
    `shuffle`. Columns in the names of folders, such as `lang=de`, are not read.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        files: All have the same columns, or those in `columns`. Types may differ only in
            nullability, dictionary encoding, the width of ints and the size of offsets and lists;
            rows have the widest type.
        columns: Names of the columns to read, `a.b` for a field of a struct; None for all. Rows
            keep the order of columns in the first file.
        filters: Condition in pyarrow's notation, `[("year", ">=", 2020)]`. Row groups whose
            statistics exclude it are skipped. All rows of the others are read; use `filter` to
            select rows.
        cache_bytes: Number of bytes of decoded row groups to keep per process. The last one is kept
            in any case. If rows are read in order and not all row groups fit, two are kept.

    Raises:
        ArgumentError: If files have different columns, if a file lacks one of `columns` or has two
            columns of one name, if a column is encrypted or has a group without fields, or if the
            type of a column can't be combined with that in the first file. If two files differ, the
            error names both.
        RecordError: If a file is not a Parquet file, its footer is encrypted, or a row group is
            damaged.

    Resume:
        Decodes one row group again; with `local_shuffle`, up to a window of them.

    Memory:
        `cache_bytes` of decoded row groups per process, or one of them if that is larger, and about
        64 MiB of footers.

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
    if filters is not None:
        _checked_filters(filters)
    return _ParquetRows(
        "read_parquet",
        files,
        RowGroupScan(filters),
        columns=columns,
        cache_bytes=cache_bytes,
        index_dir=index_dir,
        executor=executor,
        progress=progress,
        filters=filters,
    )


def _checked_filters(filters: Any) -> None:
    try:
        _parquet().filters_to_expression(filters)
    except Exception as error:
        raise ArgumentError(
            'read_parquet: filters must look like [("year", ">=", 2020)], '
            f"got filters={filters!r}: {error}"
        ) from None
