"""`read_array_record`: records of ArrayRecord files by number, by the format's own reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lazyckpt.errors import ArgumentError
from lazyckpt.io.cache import LRUCache
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.rows import RecordError, Rows
from lazyckpt.io.storage import File, check_unchanged, is_local, optional_module

_MOST_OPEN = 64
_OPTIONS = "readahead_buffer_size:0"  # records are read by number, not from the front


class _Reader(NamedTuple):
    """An open reader of a file, which counts as one of the readers that may be open."""

    opened: Any
    size: int = 1


_readers = LRUCache[_Reader](_MOST_OPEN)


def _reader(file: File) -> Any:
    check_unchanged(file)
    return _readers.get(file, lambda: _Reader(_opened(file))).opened


def _module() -> Any:
    name = "array_record.python.array_record_module"
    return optional_module(name, "array_record", "read_array_record")


def _opened(file: File) -> Any:
    try:
        found = _module().ArrayRecordReader(file.path.removeprefix("file://"), options=_OPTIONS)
        is_good = found.ok()
    except RuntimeError as error:
        raise RecordError(f"{file.path}: {error}") from error
    if not is_good:
        raise RecordError(f"{file.path}: not an ArrayRecord file, or it is cut")
    return found


class _ArrayRecords(Rows[bytes]):
    def __init__(self, files: Files) -> None:
        counts = [_reader(file).num_records() for file in files]
        super().__init__("read_array_record", files, counts, {})

    def read_rows(self, number: int, records: Sequence[int]) -> list[bytes]:
        reader = _reader(self.files[number])
        try:
            found: list[bytes] = reader.read(list(records))
        except RuntimeError as error:
            if len(records) > 1:  # to find the damaged one
                return [row for record in records for row in self.read_rows(number, [record])]
            raise self.error(number, records[0], error) from error
        return found

    def span(self, number: int, record: int) -> tuple[int, int]:
        return 0, self.files[number].size  # only its reader knows where chunks are


def read_array_record(files: Any) -> Rows[bytes]:
    """Read the records of ArrayRecord files, by number, as bytes.

    Parse their content with `map`. Files written with `group_size:1`, as grain requires, are read
    one record at a time. In other files, reading a record decompresses its whole group.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Raises:
        ArgumentError: If a file is not on this machine.
        RecordError: If a file is not an ArrayRecord file, or a record is damaged.

    Memory:
        About 256 records at a time, and the buffers of up to 64 open readers.

    >>> import lazyckpt as lz
    >>> from array_record.python.array_record_module import ArrayRecordWriter
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     writer = ArrayRecordWriter(f"{folder}/a.array_record", "group_size:1")
    ...     _ = writer.write(b"to"), writer.write(b"be"), writer.close()
    ...     list(lz.io.read_array_record(f"{folder}/a.array_record"))
    [b'to', b'be']
    """
    _module()
    listed = as_files(files, "read_array_record")
    for file in listed:
        if not is_local(file.path):
            raise ArgumentError(
                f"read_array_record: files must be on this machine, got {file.path}"
            )
    return _ArrayRecords(listed)
