"""Whole files: names, sizes, what can't be read."""

from __future__ import annotations

import gzip
from pathlib import Path

import fsspec

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
