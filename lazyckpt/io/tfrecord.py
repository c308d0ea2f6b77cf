"""`read_tfrecord`: records of TFRecord files by number."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import boolean, checked
from lazyckpt.executors.executor import Executor
from lazyckpt.io.content import Compression, ContentScan
from lazyckpt.io.crc32c import crc32c, crc32c_rows
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.ranges import MAX_RECORD, Options, Records
from lazyckpt.io.rows import Rows
from lazyckpt.io.storage import File

_HEADER = 12  # a length, and its checksum
_AROUND = 16  # bytes of a record that aren't its content
_ADDED = 0xA282EAD8
_MASK = 0xFFFFFFFF
_length = struct.Struct("<Q")
_sum = struct.Struct("<I")


class RecordScan(ContentScan):
    """Where records begin. What follows a length that is wrong is one record."""

    @property
    def name(self) -> str:
        return f"tfrecord {self.compression}"

    def __call__(self, file: File) -> Iterator[NDArray[Any]]:
        yield np.zeros(1, np.uint64)
        at = passed = bound = 0  # where a record begins; bytes that were read; the last bound
        tail, is_good = b"", True
        for chunk in self.content(file).chunks(file):
            data, begin = tail + chunk, passed - len(tail)
            passed += len(chunk)
            if not is_good:
                continue
            starts = []
            while at + _HEADER <= passed:
                starts.append(at)
                at += _AROUND + _length.unpack_from(data, at - begin)[0]
            good = _good_headers(data, np.array(starts, np.int64) - begin)
            is_good = good == len(starts)
            if found := [start for start in starts[: good + 1] if start > bound]:
                bound = found[-1]
                yield np.array(found, np.uint64)
            tail = data[at - begin :] if at < passed else b""
        for end in (at if is_good else 0, passed):
            if bound < end <= passed:
                bound = end
                yield np.array([end], np.uint64)


def _good_headers(data: bytes, starts: NDArray[np.int64]) -> int:
    """How many headers in a row have the checksum of their length."""
    if not len(starts):
        return 0
    values = np.frombuffer(data, np.uint8)
    headers = values[starts[:, None] + np.arange(_HEADER)]
    expected = headers[:, 8:].copy().view("<u4")[:, 0]
    wrong = np.flatnonzero(_masked(crc32c_rows(headers[:, :8])) != expected)
    return int(wrong[0]) if len(wrong) else len(starts)


def _masked(sums: Any) -> Any:
    """Checksums as these files have them."""
    return ((sums >> 15 | sums << 17) + _ADDED) & _MASK


class _TFRecords(Records[bytes]):
    """Contents of records."""

    reader = "read_tfrecord"

    def __init__(self, files: Files, options: Options, check_crc: bool) -> None:
        self.check_crc = check_crc
        given = {} if check_crc else {"check_crc": False}
        super().__init__(files, RecordScan(options.compression, options.index_dir), options, given)

    def decode(self, record: bytes) -> bytes:
        if len(record) < _AROUND:
            raise ValueError(f"it is cut: it has {len(record)} bytes")
        if _masked(crc32c(record[:8])) != _sum.unpack_from(record, 8)[0]:
            raise ValueError("the checksum of its length is wrong; what follows can't be read")
        (length,) = _length.unpack_from(record)
        if length + _AROUND != len(record):
            raise ValueError(f"it is cut: it has {len(record) - _AROUND:,} of {length:,} bytes")
        content = record[_HEADER:-4]
        if self.check_crc and _masked(crc32c(content)) != _sum.unpack_from(record, length + 12)[0]:
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
    """The records of TFRecord files, by number, as bytes.

    What is in them, such as a `tf.train.Example`, is `map`'s to parse. Neither TensorFlow nor
    anything else is needed; with google-crc32c, `lazyckpt[tfrecord]`, checksums take less time.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        check_crc: Whether the checksum of each record is looked at when it is read; that of
            its length is in any case.

    Raises:
        RecordError: A record is cut, or has a wrong checksum. What follows a wrong length is one
            record.

    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> record = bytes.fromhex("0200000000000000 78270b34 6869 13d60856")
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.tfrecord").write_bytes(record * 2)
    ...     list(lz.io.read_tfrecord(f"{folder}/a.tfrecord", index_dir=folder))
    [b'hi', b'hi']
    """
    options = Options.of(
        "read_tfrecord", compression, max_record_bytes, index_dir, executor, progress
    )
    is_checked = checked("read_tfrecord", "check_crc", check_crc, boolean)
    return _TFRecords(as_files(files, "read_tfrecord"), options, is_checked)
