"""Whole files: names, sizes, what can't be read."""

from __future__ import annotations

import gzip
from pathlib import Path

import fsspec
import pytest

import lazyckpt as lz
from tests.io.cases import check_reader, folder

CONTENTS = {"a.jpg": b"\xff\xd8", "b/c.jpg": b"", "b/d.txt.gz": gzip.compress(b"as it is")}
ROWS = [{"name": name, "data": data} for name, data in CONTENTS.items()]


def place() -> Path:
    found = folder()
    for name, data in CONTENTS.items():
        path = found / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return found


def test_names_are_those_below_the_common_folder() -> None:
    found = place()
    check_reader(lz.io.read_files(f"{found}/**"), ROWS)
    check_reader(lz.io.read_files(f"{found}/b/*"), [{**r, "name": r["name"][2:]} for r in ROWS[1:]])
    assert lz.io.read_files(found / "b" / "c.jpg")[:] == [{"name": "c.jpg", "data": b""}]


def test_files_elsewhere_have_the_same_names() -> None:
    fsspec.filesystem("memory").pipe({f"/whole/{name}": data for name, data in CONTENTS.items()})
    rows = lz.io.read_files("memory://whole/**")
    check_reader(rows, ROWS)
    assert rows.locate(0) == ("memory:///whole/a.jpg", 0, 0, 2)


def test_a_state_is_good_for_a_copy_of_the_folder() -> None:
    one, other = (
        lz.io.read_files(lz.io.Files(lz.io.File(f"{root}/{n}", 3, "1") for n in ("a", "b")))
        for root in ("/data", "s3://bucket/data")
    )
    assert lz.state_at(lz.source(other), 1) == lz.state_at(lz.source(one), 1)


def test_a_file_that_is_too_large_is_left_out() -> None:
    found = place()
    rows = lz.io.read_files(f"{found}/**", max_record_bytes=2)
    message = rf"record 0 at byte 0 of {found}/b/d\.txt\.gz: it has \d+ bytes, and max_record_byt"
    for read in (lambda: rows[2], lambda: rows[::-1], lambda: list(rows)):
        with pytest.raises(lz.io.RecordError, match=message):
            read()
    with lz.run(lz.source(rows), on_error="skip") as run:
        assert list(run) == ROWS[:2]
        assert run.skipped == 1
    assert repr(rows).endswith(", max_record_bytes=2)")


def test_a_file_that_is_gone_is_named() -> None:
    found = place()
    rows = lz.io.read_files(f"{found}/**")
    (found / "b" / "c.jpg").unlink()
    assert rows[0] == ROWS[0]
    with pytest.raises(lz.SourceChanged, match=r"b/c\.jpg is gone since it was listed"):
        rows[1]
