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
from lazyckpt.io.arrow_columns import TEXTS
from lazyckpt.io.row_groups import CACHE_BYTES, RowGroup, RowGroupRows, group_entries, opened
from lazyckpt.io.rows import RecordError, decoding
from lazyckpt.io.storage import File, FileObject, is_local, optional_module, storage_of

_LONGEST_HEAD = 1 << 20  # bytes that may say what a record batch is


class RecordBatchScan:
    """The record batches of a file: number, rows, and the bytes that each takes.

    Of a file where they don't follow one another that is the whole.
    """

    columns = 4
    is_bounds = False
    name = "arrow batches"

    def __call__(self, file: File) -> Generator[NDArray[Any], None, int]:
        with decoding(file):
            source, reader = _opened(file)
            stop = source.tell()  # of a stream, where its schema ends
            if not is_local(file.path):
                source = _arrow().PythonFile(_Heads(file), mode="r")
            found = self._found(file, source, reader)
            yield group_entries(found, reader.schema)
        storage = storage_of(file.path)
        if not _is_file(reader):
            schema = storage.read(file, 0, stop)
            return zlib.crc32(np.array(found, np.uint64).tobytes(), zlib.crc32(schema))
        end = file.size - 10  # behind which are the footer's length and the format's name
        length = int.from_bytes(storage.read(file, end, end + 4), "little")
        return zlib.crc32(storage.read(file, max(0, end - length), end))

    def _found(self, file: File, source: Any, reader: Any) -> list[RowGroup]:
        if not _is_file(reader):
            source.seek(0)
            return self._messages(file, source)
        numbers = range(reader.num_record_batches)
        source.seek(8)
        with suppress(Exception):  # of one that has more between its record batches
            if len(found := self._messages(file, source)) == len(numbers):
                return found
        sizes = [reader.get_batch(number).num_rows for number in numbers]
        return [RowGroup(number, size, 0, file.size) for number, size in enumerate(sizes)]

    def _messages(self, file: File, source: Any) -> list[RowGroup]:
        """The record batches that follow one another from here on; none of them is decoded."""
        found: list[RowGroup] = []
        while True:
            at = source.tell()
            try:
                message = _ipc().read_message(source)
            except EOFError:
                return found
            if source.tell() > file.size:
                raise RecordError(f"{file.path}: it is cut: record batch {len(found)} ends behind")
            if message.type == "record batch":
                size = _ipc().read_record_batch(message, _arrow().schema([])).num_rows
                found.append(RowGroup(len(found), size, at, source.tell()))
            elif message.type == "dictionary" and found:
                raise RecordError(
                    f"{file.path}: what a dictionary holds changes behind record batch "
                    f"{len(found) - 1}; write it with one dictionary for all"
                )


class _Heads(FileObject):
    """A file elsewhere, of which only what says what comes is fetched, and zeros for the rest."""

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
    """A column, where it is of texts as bytes, of which each row is looked at for itself."""
    kind = str(column.type)
    return column.view(kind.replace("string", "binary")) if kind in TEXTS else column


def _opened(file: File, columns: Sequence[str] | None = None) -> tuple[Any, Any]:
    """The bytes of a file, mapped into memory if it is on this machine, and what reads them."""
    if not file.size:
        raise RecordError(f"{file.path}: it is empty")
    source = opened(file, is_mapped=True)
    with decoding(file):
        magic = source.read(6)
        if magic.startswith(b"FEA1"):
            raise RecordError(
                f"{file.path}: it is of Feather's version 1, which pyarrow.feather reads"
            )
        source.seek(0)
        make = _ipc().open_file if magic == b"ARROW1" else _ipc().open_stream
        reader = make(source)
        if columns is None:
            return source, reader
        places = [n for n, name in enumerate(reader.schema.names) if name in columns]
        source.seek(0)
        return source, make(source, options=_ipc().IpcReadOptions(included_fields=places))


def _is_file(reader: Any) -> bool:
    """Whether a footer says where record batches are."""
    return hasattr(reader, "get_batch")


class _ArrowRows(RowGroupRows):
    def __init__(self, *args: Any, **given: Any) -> None:
        self._checked: set[tuple[int, int]] = set()  # record batches that are as they should be
        super().__init__(*args, **given)

    def open(self, file: File) -> Any:
        source, reader = _opened(file, self.columns)
        if not _is_file(reader) and "dictionary<" in str(reader.schema):
            reader.read_next_batch()  # before which dictionaries are
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

    def decode(self, number: int, group: RowGroup) -> Any:
        with self.opened(number) as (source, reader):
            if _is_file(reader):
                batch = reader.get_batch(group.number)
            else:
                source.seek(group.start)
                batch = reader.read_next_batch()
        if (number, group.number) not in self._checked:
            for column in batch.columns:
                _untyped(column).validate(full=True)  # what is mapped may be anything
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
    """The rows of Arrow IPC files and streams, by number, as dicts; also those of Feather.

    Values are as of `read_parquet`. Files of this machine are mapped into memory: where they
    aren't compressed nothing is decoded, and any order costs the same. Compressed record
    batches are decoded as a whole and kept, the last used ones, as row groups of Parquet are.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        files: All have the columns of the first, and types as of `read_parquet`.
        columns: Those to read, by name; None for all.
        cache_bytes: How many bytes of record batches are kept, in each process, mapped ones
            included; the last one in any case.

    Raises:
        ArgumentError: A file has no such column, or two of one name, or one of a type whose
            values the first file's doesn't have; it names both files.
        RecordError: A file is none of Arrow's, is cut, or a record batch is damaged.

    Resume:
        Re-reads nothing; of a compressed file one record batch.

    Memory:
        `cache_bytes` of record batches, or one of them if that is larger, in each process; mapped
        ones are pages that the system may drop.

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
