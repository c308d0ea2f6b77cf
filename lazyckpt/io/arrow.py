"""`read_arrow`: rows of Arrow IPC and Feather files by number, memory-mapped."""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import boolean, checked, natural, optional
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor
from lazyckpt.io.columns import column_names
from lazyckpt.io.file_object import FileObject
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.groups import CACHE_BYTES, Group, GroupedRows, footer_sum, group_entries
from lazyckpt.io.index import Index
from lazyckpt.io.rows import RecordError, decoding
from lazyckpt.io.storage import File, check_unchanged, is_local, optional_module, storage_of

_MAGIC = b"ARROW1"  # at both ends of a file; a stream has none


class _Head(NamedTuple):
    """What a file says before its record batches.

    - `schema`: what its columns are
    - `stop`: of a stream, the byte where that ends; 0 for a file, whose footer says it
    """

    schema: Any
    stop: int


class BatchScan:
    """The record batches of a file: number, rows, and the bytes that each takes.

    Of a file where they don't follow one another that is the whole.
    """

    columns = 4
    is_bounds = False
    name = "arrow batches"

    def __call__(self, file: File) -> Generator[NDArray[Any], None, int]:
        with decoding(file):
            head = _head(file)
            found = self._messages(file, _source(file)) if head.stop else self._of_file(file)
        yield group_entries(found, head.schema)
        if not head.stop:
            return footer_sum(file, magic=len(_MAGIC))
        schema = storage_of(file.path).read(file, 0, head.stop)
        return zlib.crc32(np.array(found, np.uint64).tobytes(), zlib.crc32(schema))

    def _of_file(self, file: File) -> list[Group]:
        source = _source(file)
        reader = _ipc().open_file(source)
        numbers = range(reader.num_record_batches)
        source.seek(8)
        with suppress(Exception):  # of one that has more between its record batches
            if len(found := self._messages(file, source)) == len(numbers):
                return found
        sizes = [reader.get_batch(number).num_rows for number in numbers]
        return [Group(number, size, 0, file.size) for number, size in enumerate(sizes)]

    def _messages(self, file: File, source: Any) -> list[Group]:
        """The record batches that follow one another from here on; none of them is decoded."""
        found: list[Group] = []
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
                found.append(Group(len(found), size, at, source.tell()))
            elif message.type == "dictionary" and found:
                raise RecordError(
                    f"{file.path}: what a dictionary holds changes behind record batch "
                    f"{len(found) - 1}; write it with one dictionary for all"
                )


def _arrow() -> Any:
    return optional_module("pyarrow", "arrow", "read_arrow")


def _ipc() -> Any:
    return optional_module("pyarrow.ipc", "arrow", "read_arrow")


def _untyped(column: Any) -> Any:
    """A column, where it is of texts as bytes, of which each row is looked at for itself."""
    plain = {"string": "binary", "large_string": "large_binary", "string_view": "binary_view"}
    kind = plain.get(str(column.type))
    return column if kind is None else column.view(getattr(_arrow(), kind)())


def _source(file: File) -> Any:
    """The bytes of a file: mapped into memory, if it is on this machine."""
    if not is_local(file.path):
        return _arrow().PythonFile(FileObject(file), mode="r")
    check_unchanged(file)
    return _arrow().memory_map(file.path.removeprefix("file://"))


@lru_cache(maxsize=64)
def _head(file: File) -> _Head:
    ends = [(0, min(8, file.size)), (max(0, file.size - len(_MAGIC)), file.size)]
    first, last = storage_of(file.path).read_ranges(file, ends)
    is_file = first.startswith(_MAGIC)
    if first.startswith(b"FEA1"):
        raise RecordError(f"{file.path}: it is of Feather's version 1, which pyarrow.feather reads")
    if not file.size or (is_file and last != _MAGIC):
        raise RecordError(f"{file.path}: it is {'cut' if file.size else 'empty'}")
    source = _source(file)
    with decoding(file):
        if is_file:
            return _Head(_ipc().open_file(source).schema, 0)
        return _Head(_ipc().open_stream(source).schema, source.tell())


class _ArrowRows(GroupedRows):
    def __init__(self, files: Files, index: Index, columns: list[str] | None, cache: int) -> None:
        known = _head(files[0]).schema.names
        for name in columns or ():
            if name not in known:
                raise ArgumentError(
                    f"read_arrow: no column {name!r} in {files[0].path}, which has {known}"
                )
        self._names = known if columns is None else [name for name in known if name in columns]
        given = {} if columns is None else {"columns": columns}
        self._checked: set[tuple[int, int]] = set()  # record batches that are as they should be
        super().__init__("read_arrow", files, index, cache, given)
        self.unify(self._names)

    def schema(self, number: int) -> Any:
        return _head(self.files[number]).schema

    def _batch(self, number: int, group: Group, head: _Head) -> Any:
        file = self.files[number]
        source = _source(file)
        if not head.stop:
            return _ipc().open_file(source).get_batch(group.number)
        if "dictionary<" not in str(head.schema):
            source.seek(group.start)
            return _ipc().read_record_batch(_ipc().read_message(source), head.schema)
        first = Group(*self.row_index.entries(number)[0].tolist())  # before which dictionaries are
        ranges = [(0, first.stop), (group.start, group.stop)][: 1 + (group.number > 0)]
        content = b"".join(storage_of(file.path).read_ranges(file, ranges))
        return list(_ipc().open_stream(content))[-1]

    def decode(self, number: int, group: Group) -> Any:
        file = self.files[number]
        head = _head(file)
        batch = self._batch(number, group, head)
        if batch.num_rows != group.size:
            raise ValueError(f"it has {batch.num_rows:,} rows, and its index {group.size:,}")
        if (number, group.number) not in self._checked:
            for column in batch.columns:
                _untyped(column).validate(full=True)  # what is mapped may be anything
            self._checked.add((number, group.number))
        return batch.select(self._names)


def read_arrow(
    files: Any,
    *,
    columns: Sequence[str] | None = None,
    cache_bytes: int = CACHE_BYTES,
    index_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> GroupedRows:
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
    _ipc()
    listed = as_files(files, "read_arrow")
    names = checked("read_arrow", "columns", columns, optional(column_names))
    cache = checked("read_arrow", "cache_bytes", cache_bytes, natural)
    shows = checked("read_arrow", "progress", progress, boolean)
    index = Index(listed, BatchScan(), index_dir, executor=executor, progress=shows)
    return _ArrowRows(listed, index, names, cache)
