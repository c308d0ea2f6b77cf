"""`lazyckpt seen`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import parquet

import lazyckpt as lz
from lazyckpt.cli.main import main

CODE = """
import lazyckpt as lz

def made():
    return lz.mix([lz.source(range(40)), lz.source(range(9)) | lz.repeat()], [2, 1], seed=0)

pipeline = made() | lz.batch(3)
number = 3
"""


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module, and states of its pipeline after 4 and 8 batches."""
    (tmp_path / "training_of_seen.py").write_text(CODE)
    space: dict[str, lz.Pipeline[list[int]]] = {}
    exec(CODE, space)
    run = lz.run(space["pipeline"])
    for name in ("4.json", "8.json"):
        for _ in range(4):
            next(run)
        lz.save(run.state, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("training_of_seen", None)


def test_counts_are_a_table(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seen", "training_of_seen:pipeline", "8.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["stage", "rows", "file"], ["1[0].1", "16"], ["1[1].1", "8"],
    ]  # fmt: skip
    assert main(["seen", "training_of_seen:pipeline", "8.json", "--since", "4.json"]) == 0
    rows = [int(line.split()[1]) for line in capsys.readouterr().out.splitlines()[1:]]
    assert sum(rows) == 12


def test_rows_are_written(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["seen", "training_of_seen:pipeline", "8.json", "--since", "4.json"]
    assert main([*arguments, "--out", "seen.parquet"]) == 0
    assert capsys.readouterr().out == "12 rows in seen.parquet\n"
    table = parquet.read_table(saved / "seen.parquet")
    assert table["item"].to_pylist() == [n for n in range(4, 8) for _ in range(3)]


@pytest.mark.parametrize(
    ("name", "state", "message"),
    [
        ("training_of_seen", "8.json", "expected module:pipeline, .* got 'training_of_seen'"),
        ("no_such_module:pipeline", "8.json", "no_such_module:pipeline: no module"),
        ("training_of_seen:pipelin", "8.json", "training_of_seen has no 'pipelin'"),
        ("training_of_seen:number", "8.json", "expected a pipeline or .*, got 3"),
        ("training_of_seen:made", "8.json", "belongs to a different pipeline"),
        ("training_of_seen:pipeline", "9.json", "No such file"),
        ("training_of_seen:pipeline", "training_of_seen.py", "not a state"),
    ],
)
def test_what_will_not_do_is_said(
    saved: Path, capsys: pytest.CaptureFixture[str], name: str, state: str, message: str
) -> None:
    assert main(["seen", name, state]) == 2
    out, err = capsys.readouterr()
    assert (out, err[:15]) == ("", "lazyckpt seen: ")
    assert re.search(message, err)
