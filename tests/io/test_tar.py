"""Tar files: samples by key, as WebDataset lays them out."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.io.tar import SampleScan
from tests.io.cases import check_good_rows, check_reader, folder, written, zstd
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
        (2 * 2560, 2, 0),
        (3 * 2560 + 100, 3, 0),
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


def sparse(form: int, size: int = 8) -> bytes:
    """An archive of a sample of two members, of which the first is 5 zeros, "abc" and zeros."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as made:
        if form == tarfile.PAX_FORMAT:
            info, content = tarfile.TarInfo("GNUSparseFile.0/1.txt"), b"1\n5\n3\n".ljust(512, b"\0") + b"abc"  # fmt: skip  # noqa: E501
            info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "d/1.txt", "GNU.sparse.realsize": f"{size}"}  # fmt: skip  # noqa: E501
        else:
            info, content = tarfile.TarInfo("d/1.txt"), b"abc"
        info.size = len(content)
        made.addfile(info, io.BytesIO(content))
        info = tarfile.TarInfo("d/1.cls")
        info.size = 1
        made.addfile(info, io.BytesIO(b"7"))
    found = bytearray(out.getvalue())
    if form == tarfile.GNU_FORMAT:  # its map, of which one span is in the header and one behind
        spans = [b"%011o\0%011o\0" % pair for pair in ((5, 3), (size, 0))]
        found[156:157] = tarfile.GNUTYPE_SPARSE
        found[386 : 386 + 24] = spans[0]
        found[482:483] = b"\1"
        found[483 : 483 + 12] = b"%011o\0" % size
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


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_holes_count_as_bytes_of_a_sample(form: int) -> None:
    files = written([sparse(form, 1 << 30)], ".tar")
    with pytest.raises(lz.io.RecordError, match=r"record 0 at byte 0 of .*'d/1\.txt' has 1,073,74"):
        lz.io.read_tar(files)[0]


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_of_more_than_8_gib_are_passed_over(form: int) -> None:
    """One size is in base 256, the other in an extended header."""
    size = (8 << 30) + 700
    info = tarfile.TarInfo("0.bin")
    info.size = size
    path = folder() / "a.tar"
    with path.open("wb") as out:
        out.write(info.tobuf(form))
        out.seek(size + -size % 512, io.SEEK_CUR)
        out.write(archive([("1.txt", b"a")]))
    rows = lz.io.read_tar(path, index_dir=folder())
    assert rows[1] == {"__key__": "1", "txt": b"a"}
    with pytest.raises(lz.io.RecordError, match=r"it has 8,589,93.*, and max_record_bytes is"):
        rows[0]


def test_an_extended_header_that_never_ends_is_damage() -> None:
    content = bytearray(sparse(tarfile.GNU_FORMAT))[:1024]
    content[512 + 504] = 1  # one more block of its map
    with pytest.raises(lz.io.RecordError, match=r"record 0 at byte 0 of .*"):
        lz.io.read_tar(written([bytes(content)], ".tar"))[0]
    info = tarfile.TarInfo("x")
    info.size, info.type = 1 << 40, tarfile.XHDTYPE
    with pytest.raises(lz.io.RecordError, match="it doesn't begin with a header of tar"):
        lz.io.read_tar(written([info.tobuf(tarfile.GNU_FORMAT)], ".tar"))


OTHERS = [
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.FIFOTYPE,
]
KINDS = [tarfile.REGTYPE] * 6 + OTHERS
NAMES = st.one_of(
    st.sampled_from([
        "a.txt", "a.TXT", "a.cls", "b.txt", "d/a.txt", "./a.txt", "a.b/c", "a.tar.gz", "README",
        "d.e/a.x.y", "ä.é", "\udcff.txt", "x" * 300 + ".txt", "y/" * 80 + "z.txt", "a b.t\nx",
    ]),
    st.text("ab./", min_size=1, max_size=6),
)  # fmt: skip


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """Archives as `tarfile` writes them, one or two behind another, or without an end."""
    form = draw(st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    found = b""
    for _ in range(draw(st.integers(1, 2))):
        out = io.BytesIO()
        names = draw(st.lists(NAMES, max_size=6))
        comment = {"comment": "more"} if names and draw(st.booleans()) else None
        with tarfile.open(
            fileobj=out, mode="w", format=form, errors="surrogateescape", pax_headers=comment
        ) as made:
            for name in names:
                info = tarfile.TarInfo(name)
                info.type, content = draw(st.sampled_from(KINDS)), draw(st.binary(max_size=600))
                info.linkname = "a.txt" * draw(st.sampled_from([1, 30]))
                info.size = len(content) if info.isreg() else 0
                made.addfile(info, io.BytesIO(content))
            end = out.tell()
        is_whole = not names or draw(st.booleans())
        found = found + (out.getvalue() if is_whole else out.getvalue()[:end])
    return found


def samples_of(content: bytes) -> list[dict[str, Any]]:
    """The samples of an archive: by `tarfile`, and webdataset's rule for names.

    One that has an extension twice is empty.
    """
    found: list[dict[str, Any]] = []
    with tarfile.open(fileobj=io.BytesIO(content), errors="surrogateescape") as given_archive:
        for member in given_archive:
            match = re.fullmatch(r"((?:.*/|)[^.]+)[.]([^/]*)", member.name, re.DOTALL)
            if not member.isreg() or match is None:
                continue
            key, extension = match[1], match[2].lower()
            if key.endswith("/") or not extension:
                continue  # unlike webdataset: such as "d/.txt" and "a."
            if not found or found[-1]["__key__"] != key:
                found.append({"__key__": key})
            part = given_archive.extractfile(member)
            assert part is not None
            if extension in found[-1]:
                found[-1]["is_bad"] = True
            found[-1][extension] = part.read()
    return [{} if "is_bad" in each else each for each in found]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz", ".tar.zst"])
def test_samples_are_those_of_tarfile_in_any_order(suffix: str) -> None:
    @settings(max_examples=max(8, settings.default.max_examples // 4))
    @given(archives())
    def holds(content: bytes) -> None:
        expected = samples_of(content)
        packed_content = zstd.compress(content) if suffix == ".tar.zst" else packed(content, suffix)
        rows = lz.io.read_tar(written([packed_content], suffix), index_dir=folder())
        check_good_rows(rows, [each or None for each in expected])

    holds()


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
