"""`read_arrow`: rows of Arrow IPC and Feather files by number, memory-mapped."""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor
from lazyckpt.io.arrow_columns import TEXTS, Columns
from lazyckpt.io.row_groups import CACHE_BYTES, RowGroup, RowGroupRows, group_entries, opened
from lazyckpt.io.rows import RecordError, decoding
from lazyckpt.io.storage import (
    File,
    FileObject,
    check_unchanged,
    is_local,
    optional_module,
    storage_of,
)

_LONGEST_HEAD = 1 << 20  # most bytes of a message's metadata


class RecordBatchScan:
    """The record batches of a file: number, rows, and the range of bytes of each.

    If the batches of a file don't follow one another, the range is the whole file.
    """

    columns = 4
    is_bounds = False
    name = "arrow batches"

    def __call__(self, file: File) -> Generator[NDArray[Any], None, int]:
        with decoding(file):
            source, reader = _opened(file)
            stop = source.tell()  # in a stream, the end of the schema
            if not is_local(file.path):
                source = _arrow().PythonFile(_Heads(file), mode="r")
            found = self._found(file, source, reader)
            yield group_entries(found, reader.schema)
        storage = storage_of(file.path)
        if not _is_file(reader):
            schema = storage.read(file, 0, stop)
            return zlib.crc32(np.array(found, np.uint64).tobytes(), zlib.crc32(schema))
        end = file.size - 10  # followed by the footer's length and the format's name
        length = int.from_bytes(storage.read(file, end, end + 4), "little")
        return zlib.crc32(storage.read(file, max(0, end - length), end))

    def _found(self, file: File, source: Any, reader: Any) -> list[RowGroup]:
        if not _is_file(reader):
            source.seek(0)
            return self._messages(file, source)
        numbers = range(reader.num_record_batches)
        source.seek(8)
        with suppress(Exception):  # a file may have other content between its record batches
            if len(found := self._messages(file, source)) == len(numbers):
                return found
        sizes = [reader.get_batch(number).num_rows for number in numbers]
        return [RowGroup(number, size, 0, file.size) for number, size in enumerate(sizes)]

    def _messages(self, file: File, source: Any) -> list[RowGroup]:
        """List the record batches that follow from here, without decoding them."""
        found: list[RowGroup] = []
        while True:
            at = source.tell()
            try:
                message = _ipc().read_message(source)
            except EOFError:
                return found
            if source.tell() > file.size:
                raise RecordError(
                    f"{file.path}: it is cut: record batch {len(found)} ends after the file"
                )
            if message.type == "record batch":
                size = _ipc().read_record_batch(message, _arrow().schema([])).num_rows
                found.append(RowGroup(len(found), size, at, source.tell()))
            elif message.type == "dictionary" and found:
                raise RecordError(
                    f"{file.path}: a dictionary changes after record batch {len(found) - 1}; "
                    "write the file with one dictionary for all batches"
                )


class _Heads(FileObject):
    """A remote file: reads of metadata are fetched; longer reads return zeros."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < _LONGEST_HEAD:
            return super().read(size)
        count = min(size, max(0, self._file.size - self.tell()))
        self.seek(count, 1)
        return bytes(count)


def _arrow() -> Any:
    return optional_module("pyarrow", "arrow", "read_arrow")


def _ipc() -> Any:
    return optional_module("pyarrow.ipc", "arrow", "read_arrow")


def _untyped(column: Any) -> Any:
    """View a column of strings as bytes, because strings are validated row by row."""
    kind = str(column.type)
    return column.view(kind.replace("string", "binary")) if kind in TEXTS else column


def _opened(file: File, columns: Sequence[str] | None = None) -> tuple[Any, Any]:
    """Return the bytes of a file, memory-mapped if it is on this machine, and their reader."""
    if not file.size:
        raise RecordError(f"{file.path}: it is empty")
    source = opened(file, is_mapped=True)
    with decoding(file):
        magic = source.read(6)
        if magic.startswith(b"FEA1"):
            raise RecordError(f"{file.path}: it is Feather version 1; pyarrow.feather reads that")
        source.seek(0)
        make = _ipc().open_file if magic == b"ARROW1" else _ipc().open_stream
        reader = make(source)
        if columns is None:
            return source, reader
        places = [n for n, name in enumerate(reader.schema.names) if name in columns]
        source.seek(0)
        return source, make(source, options=_ipc().IpcReadOptions(included_fields=places))


def _is_file(reader: Any) -> bool:
    """Return whether a footer lists the positions of record batches."""
    return hasattr(reader, "get_batch")


class _ArrowRows(RowGroupRows):
    def __init__(self, *args: Any, **given: Any) -> None:
        self._checked: set[tuple[int, int]] = set()  # record batches that were validated
        super().__init__(*args, **given)

    def open(self, file: File) -> Any:
        source, reader = _opened(file, self.columns)
        if not _is_file(reader) and "dictionary<" in str(reader.schema):
            reader.read_next_batch()  # to load the dictionaries, which come before it
        return source, reader

    def schema(self, number: int) -> Any:
        file = self.files[number]
        known = _opened(file)[1].schema
        for name in self.columns or ():
            if name not in known.names:
                raise ArgumentError(
                    f"read_arrow: no column {name!r} in {file.path}, which has {known.names}"
                )
        is_all = self.columns is None
        return _arrow().schema([each for each in known if is_all or each.name in self.columns])

    def _columns(self, group: int) -> Columns:
        file = self.files[self._groups[group, 0]]
        if is_local(file.path):  # mapped bytes change with the file, even those in the cache
            check_unchanged(file)
        return super()._columns(group)

    def decode(self, number: int, group: RowGroup) -> Any:
        with self.opened(number) as (source, reader):
            if _is_file(reader):
                batch = reader.get_batch(group.number)
            else:
                source.seek(group.start)
                batch = reader.read_next_batch()
        if (number, group.number) not in self._checked:
            for column in batch.columns:
                _untyped(column).validate(full=True)  # mapped bytes may be anything
            self._checked.add((number, group.number))
        return batch


def read_arrow(
    files: Any,
    *,
    columns: Sequence[str] | None = None,
    cache_bytes: int = CACHE_BYTES,
    index_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> RowGroupRows:
    """Read the rows of Arrow IPC files and streams, and of Feather files, by number, as dicts.

    Values are as in `read_parquet`. Files on this machine are memory-mapped. If they aren't
    compressed, nothing is decoded and any order costs the same. Compressed record batches are
    decoded as a whole, and the last used ones are kept, as row groups of Parquet are. Replace
    a file that is being read by renaming a new one: if a mapped file is cut, the system may end the
    process.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        files: All have the same columns, or those in `columns`, with types as in `read_parquet`.
        columns: Names of the columns to read; None for all. Rows keep the order of columns in the
            first file.
        cache_bytes: Number of bytes of record batches to keep per process, mapped ones included.
            The last one is kept in any case.

    Raises:
        ArgumentError: If files have different columns, if a file lacks one of `columns` or has two
            columns of one name, or if the type of a column can't be combined with that in the first
            file. If two files differ, the error names both.
        RecordError: If a file is not an Arrow file or is cut, or a record batch is damaged.

    Resume:
        Re-reads nothing, or one record batch of a compressed file.

    Memory:
        `cache_bytes` of record batches per process, or one of them if that is larger. The system
        may drop pages of mapped ones.

    >>> import lazyckpt as lz
    >>> from pyarrow import feather, table
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     feather.write_feather(table({"x": [1, 2, 3]}), f"{folder}/a.arrow")
    ...     rows = lz.io.read_arrow(f"{folder}/a.arrow", index_dir=folder)
    ...     len(rows), list(rows | lz.batch(2, collate=lz.stack))
    (3, [{'x': array([1, 2])}, {'x': array([3])}])
    """
    return _ArrowRows(
        "read_arrow",
        files,
        RecordBatchScan(),
        columns=columns,
        cache_bytes=cache_bytes,
        index_dir=index_dir,
        executor=executor,
        progress=progress,
    )
