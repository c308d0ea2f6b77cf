"""Tar files: samples by key, as WebDataset lays them out."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc

import pytest
from hypothesis import given, settings

import lazyckpt as lz
from lazyckpt.io.tar import SampleScan
from tests.helpers import traced
from tests.io.cases import check_good_rows, folder, written
from tests.io.contents import Contents, samples, samples_of
from tests.io.formats import archive
from tests.io.laws import put


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


@settings(max_examples=max(8, settings.default.max_examples // 4))
@given(samples)
def test_a_sample_that_has_an_extension_twice_is_left_out(found: Contents) -> None:
    rows = lz.io.read_tar(f"{put(found)}/*.tar", index_dir=folder())
    check_good_rows(rows, [each or None for each in found.rows])


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_a_cut_takes_no_member_out_of_a_sample(suffix: str) -> None:
    """Inside a member or its header it is an error of the last row, even before any sample."""
    names = ["README", "1.txt", "1.cls", "2.txt", "2.cls"]
    content = archive([(name, name.encode()) for name in names])
    expected = samples_of(content)
    for cut in range(600, 1024 * len(names), 300):
        keys = {name[0] for name in names[1 : (cut + 512) // 1024]}  # of members with a header
        rows = lz.io.read_tar(written([packed(content[:cut], suffix)], suffix), index_dir=folder())
        assert list(rows[:-1]) == expected[: max(0, len(keys) - 1)]
        with pytest.raises(lz.io.RecordError, match="is cut"):
            rows[-1]


def test_members_are_not_kept() -> None:
    files = written([archive([(f"{n}.txt", b"") for n in range(5_000)], tarfile.USTAR_FORMAT)], ".tar")  # fmt: skip  # noqa: E501
    with traced():
        scanned = sum(len(bounds) for bounds in SampleScan("none", "")(files[0]))
        peak = tracemalloc.get_traced_memory()[1]
    assert scanned == 5_001
    assert peak < 1_000_000
