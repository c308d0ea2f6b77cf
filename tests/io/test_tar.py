"""Tar files: samples by key, as WebDataset lays them out."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.io.tar import SampleScan
from tests.helpers import traced
from tests.io.cases import check_good_rows, folder, written, zstd
from tests.io.formats import archive


def packed(content: bytes, suffix: str) -> bytes:
    return content if suffix == ".tar" else gzip.compress(content)


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
    """Archives as `tarfile` writes them, one or two in a row, or without an end."""
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


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_a_cut_takes_no_member_out_of_a_sample(suffix: str) -> None:
    """Inside a member or its header it is an error of the last row, even before any sample."""
    names = ["README", "1.txt", "1.cls", "2.txt", "2.cls"]
    content = archive([(name, name.encode()) for name in names])
    samples = samples_of(content)
    for cut in range(600, 1024 * len(names), 300):
        keys = {name[0] for name in names[1 : (cut + 512) // 1024]}  # of members with a header
        rows = lz.io.read_tar(written([packed(content[:cut], suffix)], suffix), index_dir=folder())
        assert list(rows[:-1]) == samples[: max(0, len(keys) - 1)]
        with pytest.raises(lz.io.RecordError, match="is cut"):
            rows[-1]


def test_members_are_not_kept() -> None:
    files = written([archive([(f"{n}.txt", b"") for n in range(5_000)], tarfile.USTAR_FORMAT)], ".tar")  # fmt: skip  # noqa: E501
    with traced():
        scanned = sum(len(bounds) for bounds in SampleScan("none", "")(files[0]))
        peak = tracemalloc.get_traced_memory()[1]
    assert scanned == 5_001
    assert peak < 1_000_000
