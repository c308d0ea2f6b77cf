"""`lazyckpt index`."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import lazyckpt as lz
from lazyckpt.cli.main import main
from tests.io.cases import folder, written


def test_an_index_is_built_ahead(capsys: pytest.CaptureFixture[str]) -> None:
    files, place = written([b"[1]\n\n[2]\n", b"3"], ".jsonl"), folder()
    for workers in ("2", "0"):
        arguments = ["index", f"{files.root}/*", "--index-dir", str(place), "--workers", workers]
        assert main(arguments) == 0
        out = capsys.readouterr().out
        assert re.fullmatch(
            rf"3 rows of 2 files, 10 bytes, in \d\.\d s; index of \d+ bytes in {place}\n", out
        )
    known = {path: path.stat().st_ino for path in place.iterdir()}
    assert lz.io.read_jsonl(files, index_dir=place)[:] == [[1], [2], 3]
    assert {path: path.stat().st_ino for path in place.iterdir()} == known


def test_the_format_may_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    files = written([b'a\n"b\nc"\n'], ".dat")
    for form, rows in (("text", 3), ("csv", 1)):
        assert main(["index", files[0].path, "--format", form]) == 0
        assert capsys.readouterr().out.startswith(f"{rows} rows of 1 files")


def test_the_end_of_a_name_says_the_format(capsys: pytest.CaptureFixture[str]) -> None:
    place = folder()
    parquet.write_table(pa.table({"n": range(7)}), f"{place}/a.parquet", 2)
    feather.write_feather(pa.table({"n": range(5)}), f"{place}/a.feather")
    for name, rows in (("a.parquet", 7), ("a.feather", 5)):
        assert main(["index", f"{place}/{name}"]) == 0
        assert capsys.readouterr().out.startswith(f"{rows} rows of 1 files")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("000.dat", "pass --format text, jsonl, csv, parquet, arrow, tar or tfrecord"),
        ("no", "No such file"),
        ("*.no", "no file"),
    ],
)
def test_what_will_not_do_is_told(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = written([b"a\n"], ".dat")
    assert main(["index", f"{files.root}/{name}"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("lazyckpt index: ")
    assert message in shown
