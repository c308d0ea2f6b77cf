"""`read_tfrecord`: records of TFRecord files by number."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Generator
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import boolean, checked
from lazyckpt.executors.executor import Executor
from lazyckpt.io.content import ChecksummedChunks, Compression, ContentScan
from lazyckpt.io.decompress import check_head
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.records import MAX_RECORD, Options, Records
from lazyckpt.io.rows import Rows
from lazyckpt.io.storage import File, optional_module

_HEADER = struct.Struct("<QI")  # a length, and its checksum
_AROUND = 16  # bytes of a record around its content
_NOWHERE = 1 << 80  # an offset after any file


@cache
def _crc32c() -> Callable[[bytes], int]:
    """Return a function for the checksum CRC-32C (Castagnoli, 1993)."""
    found: Callable[[bytes], int] = optional_module(
        "google_crc32c", "tfrecord", "read_tfrecord"
    ).value
    return found


def _masked(checksum: int) -> int:
    """Return a checksum as TFRecord files store it."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(1 << 12)  # as lengths recur
def _length(header: bytes) -> int:
    """Return the length of a record's content; raise an error if its checksum is wrong."""
    length, expected = _HEADER.unpack(header)
    if _masked(_crc32c()(header[:8])) != expected:
        raise ValueError("the checksum of its length is wrong; the rest can't be read")
    return int(length)


class RecordScan(ContentScan):
    """The offsets of records; after a wrong length, the rest of the file is one record."""

    @property
    def name(self) -> str:
        return f"tfrecord {self.compression}"

    def __call__(self, file: File) -> Generator[NDArray[Any], None, int]:
        yield np.zeros(1, np.uint64)
        chunks = ChecksummedChunks(self.content(file).chunks(file))
        at = end = passed = 0  # start of the next record, end of the last one, bytes read
        tail = b""
        for chunk in chunks:  # to the end of the file: pieces are noted on the way
            data, begin = tail + chunk, passed - len(tail)
            passed += len(chunk)
            ends = [at] if end < at <= passed else []
            while at + _HEADER.size <= passed:
                try:
                    at += _AROUND + _length(data[at - begin : at - begin + _HEADER.size])
                except ValueError:
                    if not at:
                        check_head(file, None, data)
                    at = _NOWHERE
                if at <= passed:
                    ends.append(at)
            tail = data[at - begin :] if at < passed else b""
            if ends:
                end = ends[-1]
                yield np.array(ends, np.uint64)
        if end < passed:
            yield np.array([passed], np.uint64)
        return chunks.sum


class _TFRecords(Records[bytes]):
    """Contents of records as bytes."""

    reader = "read_tfrecord"

    def __init__(self, files: Files, options: Options, check_crc: bool) -> None:
        self.check_crc = check_crc
        given = {} if check_crc else {"check_crc": False}
        super().__init__(files, RecordScan(options.compression, options.index_dir), options, given)

    def decode(self, record: bytes) -> bytes:
        if len(record) < _AROUND:
            raise ValueError(f"it is cut: it has {len(record)} bytes")
        length = _length(record[: _HEADER.size])
        if length + _AROUND != len(record):
            raise ValueError(f"it is cut: it has {len(record) - _AROUND:,} of {length:,} bytes")
        content = record[_HEADER.size : -4]
        expected = int.from_bytes(record[-4:], "little")
        if self.check_crc and _masked(_crc32c()(content)) != expected:
            raise ValueError("its checksum is wrong")
        return content


def read_tfrecord(
    files: Any,
    *,
    check_crc: bool = True,
    compression: Compression = "infer",
    max_record_bytes: int = MAX_RECORD,
    index_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Rows[bytes]:
    """Read the records of TFRecord files, by number, as bytes.

    Parse their content, such as a `tf.train.Example`, with `map`. This needs google-crc32c,
    `lazyckpt[tfrecord]`, but not TensorFlow.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        check_crc: If True, compare the checksum of each record when it is read. The checksum of
            its length is always compared.

    Raises:
        RecordError: If a record is cut, or a checksum is wrong. After a wrong length, the rest of
            the file is one record.

    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> record = bytes.fromhex("0200000000000000 78270b34 6869 13d60856")
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.tfrecord").write_bytes(record * 2)
    ...     list(lz.io.read_tfrecord(f"{folder}/a.tfrecord", index_dir=folder))
    [b'hi', b'hi']
    """
    _crc32c()
    options = Options.of(
        "read_tfrecord", compression, max_record_bytes, index_dir, executor, progress
    )
    is_checked = checked("read_tfrecord", "check_crc", check_crc, boolean)
    return _TFRecords(as_files(files, "read_tfrecord"), options, is_checked)
