"""TFRecord files: records by number, checked."""

from __future__ import annotations

import sys
from gzip import compress as gzip

import pytest

import lazyckpt as lz
from lazyckpt.io import tfrecord
from tests.io.cases import check_reader, folder, written
from tests.io.formats import record

ROWS = [b"first", b"second", b"third"]


def test_a_wrong_length_ends_what_can_be_read() -> None:
    damaged = bytearray(b"".join(map(record, ROWS * 3)))
    damaged[len(record(ROWS[0])) + 1] ^= 1
    reader = lz.io.read_tfrecord(written([bytes(damaged), record(b"more")], ".tfrecord"))
    assert len(reader) == 3
    assert (reader[0], reader[2]) == (b"first", b"more")
    with pytest.raises(
        lz.io.RecordError, match=r"record 1 at byte 21 .*: the checksum of its leng"
    ):
        reader[1]


def test_a_wrong_checksum_may_be_left_unread() -> None:
    damaged = bytearray(b"".join(map(record, ROWS)))
    damaged[len(record(ROWS[0])) + 13] ^= 1
    files = written([bytes(damaged)], ".tfrecord")
    with pytest.raises(lz.io.RecordError, match=r"record 1 at byte 21 .*: its checksum is wrong"):
        lz.io.read_tfrecord(files)[1]
    assert lz.io.read_tfrecord(files, check_crc=False)[1] == b"sdcond"


def test_a_file_that_is_none() -> None:
    reader = lz.io.read_tfrecord(written([b"no such file at all"], ".tfrecord"))
    with pytest.raises(lz.io.RecordError, match=r"record 0 at byte 0 .*: the checksum of its l"):
        reader[0]


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    tfrecord._crc32c.cache_clear()
    with pytest.raises(lz.PipelineError, match=r"read_tfrecord needs .*lazyckpt\[tfrecord\]"):
        lz.io.read_tfrecord(written([record(b"a")], ".tfrecord"))


def test_a_compressed_file_by_another_name_says_how_it_is_read() -> None:
    """As TensorFlow writes them, with options that no name shows."""
    files = written([gzip(b"".join(map(record, ROWS)))], ".tfrecord")
    with pytest.raises(lz.PipelineError, match=r'000\.tfrecord: .* or compression="gzip"'):
        lz.io.read_tfrecord(files)
    reader = lz.io.read_tfrecord(files, compression="gzip", index_dir=folder())
    check_reader(reader, ROWS)
    length = int.from_bytes(b"\x1f\x8b\x08", "little")  # which begins as gzip does
    assert len(lz.io.read_tfrecord(written([record(bytes(length))], ".tfrecord"))[0]) == length
