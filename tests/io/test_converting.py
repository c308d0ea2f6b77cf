"""`lazyckpt convert`."""

from __future__ import annotations

import bz2
import json
import re
from pathlib import Path

import pytest

import lazyckpt as lz
from lazyckpt.cli.main import main
from tests.io.cases import folder, written, zstd

LINES = b"".join(b'{"n": %d, "ids": [%d, 1]}\n' % (n, n) for n in range(10))
ROWS = [json.loads(line) for line in LINES.splitlines()]


def run(*arguments: object) -> int:
    return main(["convert", *map(str, arguments)])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.bz2", ".jsonl.zst"])
def test_a_corpus_is_written_anew(
    suffix: str, workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    compress = {"bz2": bz2.compress, "zst": zstd.compress}.get(suffix[7:], bytes)
    source, place = written([compress(LINES)], suffix), folder()
    given = [f"{source.root}/*", place, "--rows", 4, "--format", "jsonl.zst", "--workers", workers]
    for _ in range(2):
        assert run(*given) == 0
        shown = capsys.readouterr().out
        assert re.fullmatch(
            rf"3 files, [\d,]+ bytes, in \d\.\d s; {place}/listing\.json lists them\n", shown
        )
    assert lz.io.read_jsonl(f"{place}/*.jsonl.zst", index_dir=folder())[:] == ROWS


def test_one_column_may_be_what_is_written() -> None:
    source, place = written([LINES], ".dat"), folder()
    given = ["--rows", 4, "--format", "tokens", "--from", "jsonl", "--column", "ids"]
    assert run(source[0].path, place, *given, "--dtype", "int32") == 0
    rows = lz.io.read_tokens(f"{place}/*.bin")
    assert [row.tolist() for row in rows] == [row["ids"] for row in ROWS]
    assert rows[0].dtype.name == "int32"


def test_several_inputs_come_in_their_order() -> None:
    source, place = written([b"1\n", b"2\n", b"3\n"], ".jsonl"), folder()
    paths = [source[n].path for n in (2, 0, 1)]
    assert run(*paths, place, "--rows", 2, "--format", "jsonl.zst") == 0
    assert lz.io.read_jsonl(f"{place}/*.zst", index_dir=folder())[:] == [3, 1, 2]


def test_bad_rows_may_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    source, place = written([b"1\n{\n3\n"], ".jsonl"), folder()
    given = [source[0].path, place, "--rows", 2, "--format", "jsonl.zst"]
    assert run(*given) == 2
    assert "record 1 at byte 2 of" in capsys.readouterr().err
    assert run(*given, "--skip-errors") == 0
    assert lz.io.read_jsonl(f"{place}/*.zst", index_dir=folder())[:] == [1, 3]


@pytest.mark.parametrize(
    ("name", "message"),
    [("000.dat", "pass --format"), ("no.jsonl", "No such file"), ("*.no", "no file matches")],
)
def test_what_will_not_do_is_told(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = written([b"a\n"], ".dat")
    place = Path(folder(), "new")
    assert run(f"{files.root}/{name}", place, "--rows", 1, "--format", "tar") == 2
    shown = capsys.readouterr().err
    assert shown.startswith("lazyckpt convert: ")
    assert message in shown
    assert not place.exists()
