"""Tar files: samples by key, as WebDataset lays them out."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.io.tar import SampleScan
from tests.io.cases import check_reader, folder, written
from tests.io.formats import archive, members_of


def packed(content: bytes, suffix: str) -> bytes:
    return content if suffix == ".tar" else gzip.compress(content)


def test_an_index_of_energon_is_read() -> None:
    files = written([archive(members_of([{"txt": b"a"}, {"txt": b"b", "cls": b"1"}]))], ".tar")
    path = Path(f"{files[0].path}.idx")
    np.array([0, 1024, 3072], "<u8").tofile(path)
    assert [row["txt"] for row in lz.io.read_tar(files, index_dir=folder())] == [b"a", b"b"]
    np.array([0, 3072], "<u8").tofile(path)  # it decides
    with pytest.raises(
        lz.io.RecordError, match=r"record 0 at byte 0 of .*: 'd/1.txt' in the sampl"
    ):
        lz.io.read_tar(files, index_dir=folder())[0]


@pytest.mark.parametrize("bounds", [[], [0], [5, 9], [0, 1024, 512], [0, 10**9]])
def test_a_stale_index_of_energon_is_named(bounds: list[int]) -> None:
    files = written([archive(members_of([{"txt": b"a"}]))], ".tar")
    np.array(bounds, "<u8").tofile(f"{files[0].path}.idx")
    with pytest.raises(lz.io.RecordError, match=r"000\.tar\.idx: no index of .*000\.tar, or of an"):
        lz.io.read_tar(files, index_dir=folder())


SAMPLE = [{"txt": b"a" * 600, "cls": b"1"} for _ in range(3)]  # 2,560 bytes each


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
@pytest.mark.parametrize(
    ("size", "good", "bad"),
    [
        (2 * 2560, 2, 1),
        (3 * 2560 + 100, 3, 1),
        (3 * 2560 + 512, 3, 0),
        (2 * 2560 + 100, 2, 1),
        (2 * 2560 + 512, 2, 1),
        (2 * 2560 + 700, 2, 1),
        (2560 - 200, 0, 1),
    ],
)
def test_an_archive_that_is_cut(suffix: str, size: int, good: int, bad: int) -> None:
    content = archive(members_of(SAMPLE))[:size]
    files = written([packed(content, suffix)], suffix)
    reader = lz.io.read_tar(files)
    assert len(reader) == good + bad
    with lz.run(lz.source(reader), on_error="skip") as run:
        assert len(list(run)) == good
    assert run.skipped == bad
    if bad:
        message = rf"record {good} at byte {good * 2560:,} of .*000\{suffix}: "
        with pytest.raises(lz.io.RecordError, match=message):
            reader[good]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_a_damaged_header_ends_what_can_be_read(suffix: str) -> None:
    content = bytearray(archive(members_of(SAMPLE)))
    content[2560 + 20] ^= 255
    reader = lz.io.read_tar(written([packed(bytes(content), suffix)], suffix))
    assert reader[0]["cls"] == b"1"
    with pytest.raises(lz.io.RecordError, match=r"record 1 at byte 2,560 of .*: "):
        reader[1]
    assert len(reader) == 2


def sparse(form: int) -> bytes:
    """An archive of a sample of two members, of which the first is 5 zeros and "abc"."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as made:
        if form == tarfile.PAX_FORMAT:
            info, content = tarfile.TarInfo("GNUSparseFile.0/1.txt"), b"1\n5\n3\n".ljust(512, b"\0") + b"abc"  # fmt: skip  # noqa: E501
            info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "d/1.txt", "GNU.sparse.realsize": "8"}  # fmt: skip  # noqa: E501
        else:
            info, content = tarfile.TarInfo("d/1.txt"), b"abc"
        info.size = len(content)
        made.addfile(info, io.BytesIO(content))
        info = tarfile.TarInfo("d/1.cls")
        info.size = 1
        made.addfile(info, io.BytesIO(b"7"))
    found = bytearray(out.getvalue())
    if form == tarfile.GNU_FORMAT:  # its map, of which one span is in the header and one behind
        spans = [b"%011o\0%011o\0" % pair for pair in ((5, 3), (8, 0))]
        found[156:157] = tarfile.GNUTYPE_SPARSE
        found[386 : 386 + 24] = spans[0]
        found[482:483] = b"\1"
        found[483 : 483 + 12] = b"%011o\0" % 8
        found[148:156] = b" " * 8
        found[148:156] = b"%06o\0 " % sum(found[:512])
        found[512:512] = spans[1].ljust(512, b"\0")
    return bytes(found)


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_sparse_members_are_whole(suffix: str, form: int) -> None:
    content = sparse(form)
    with tarfile.open(fileobj=io.BytesIO(content)) as found:
        assert found.getmembers()[0].issparse()
    files = written([packed(content, suffix)], suffix)
    check_reader(lz.io.read_tar(files), [{"__key__": "d/1", "txt": bytes(5) + b"abc", "cls": b"7"}])


@pytest.mark.parametrize("kind", [b"0", b"x", b"L"])
def test_a_size_below_zero_ends_what_can_be_read(kind: bytes) -> None:
    content = bytearray(archive(members_of(SAMPLE)))
    header = content[2560 : 2560 + 512]
    header[124:136] = b"\xff" * 12
    header[156:157] = kind
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    content[2560 : 2560 + 512] = header
    reader = lz.io.read_tar(written([bytes(content)], ".tar"))
    assert reader[0]["cls"] == b"1"
    with pytest.raises(lz.io.RecordError, match=r"record 1 at byte 2,560 of .*: "):
        reader[1]
    assert len(reader) == 2


def test_members_are_not_kept() -> None:
    files = written([archive([(f"{n}.txt", b"") for n in range(5_000)], tarfile.USTAR_FORMAT)], ".tar")  # fmt: skip  # noqa: E501
    tracemalloc.start()
    try:
        scanned = sum(len(bounds) for bounds in SampleScan("none", "")(files[0]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert scanned == 5_001
    assert peak < 1_000_000


def test_two_members_of_one_extension() -> None:
    reader = lz.io.read_tar(written([archive([("1.txt", b"a"), ("1.TXT", b"b")])], ".tar"))
    with pytest.raises(lz.io.RecordError, match=r"record 0 at byte 0 of .*'1\.TXT' in the sample"):
        reader[0]
