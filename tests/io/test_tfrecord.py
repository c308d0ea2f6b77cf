"""TFRecord files: records by number, checked."""

from __future__ import annotations

import sys

import pytest

import lazyckpt as lz
from lazyckpt.io import content, tfrecord
from tests.io.cases import folder, written
from tests.io.formats import record


@pytest.mark.parametrize("chunk", [1, 2, 7, 11, 12, 13, 29, 1 << 20])
def test_records_are_the_same_whatever_is_read_at_once(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "CHUNK", chunk)
    rows = [b"", b"a", b"b" * 50, b"", b"c" * 13]
    listed = written([b"".join(map(record, rows)), b""], f".{chunk}.tfrecord")
    assert list(lz.io.read_tfrecord(listed, index_dir=folder())) == rows
    cut = written([b"".join(map(record, rows))[:-3]], f".{chunk}.tfrecord")
    reader = lz.io.read_tfrecord(cut, index_dir=folder())
    assert reader[:4] == rows[:4]
    with pytest.raises(lz.io.RecordError, match="it is cut: it has 10 of 13 bytes"):
        reader[4]


ROWS = [b"first", b"second", b"third"]


@pytest.mark.parametrize("size", [1, 8, 11, 12, 15, 20])
def test_a_file_that_is_cut(size: int) -> None:
    whole = b"".join(map(record, ROWS))
    begin = len(record(ROWS[0]) + record(ROWS[1]))
    reader = lz.io.read_tfrecord(written([whole[: begin + size]], ".tfrecord"))
    assert len(reader) == 3
    message = rf"record 2 at byte {begin} of .*000\.tfrecord: it is cut"
    with pytest.raises(lz.io.RecordError, match=message):
        reader[2]
    with lz.run(lz.source(reader), on_error="skip") as run:
        assert list(run) == ROWS[:2]


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


def test_a_wrong_checksum_is_left_out_where_asked() -> None:
    damaged = bytearray(b"".join(map(record, ROWS)))
    damaged[len(record(ROWS[0])) + 13] ^= 1
    files = written([bytes(damaged)], ".tfrecord")
    reader = lz.io.read_tfrecord(files)
    with pytest.raises(
        lz.io.RecordError, match=r"record 1 at byte 21 of .*: its checksum is wrong"
    ):
        list(reader)
    with lz.run(lz.source(reader), on_error="skip") as run:
        assert list(run) == [b"first", b"third"]
    assert lz.io.read_tfrecord(files, check_crc=False)[1] == b"sdcond"


def test_a_file_that_is_none() -> None:
    reader = lz.io.read_tfrecord(written([b"no such file at all"], ".tfrecord"))
    with pytest.raises(lz.io.RecordError, match=r"record 0 at byte 0 .*: the checksum of its l"):
        reader[0]


def test_a_large_record_is_not_read() -> None:
    files = written([record(b"x" * 1000) + record(b"y")], ".tfrecord")
    reader = lz.io.read_tfrecord(files, max_record_bytes=100)
    with pytest.raises(lz.io.RecordError, match="it has 1,016 bytes, and max_record_bytes is 100"):
        reader[0]
    assert reader[1] == b"y"


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    tfrecord._checksum.cache_clear()
    with pytest.raises(lz.PipelineError, match=r"read_tfrecord needs .*lazyckpt\[tfrecord\]"):
        lz.io.read_tfrecord(written([record(b"a")], ".tfrecord"))
