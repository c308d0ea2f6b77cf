"""The script of the page on torchrun, started by it, stopped, and resumed on other ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pages import NOTEBOOKS, ROOT, blocks

PAGE = NOTEBOOKS / "how-to/train-with-torchrun.md"
STOP, SAVED, END = 7, 5, 12  # steps: stopped after one, saved before it, and ended at one

Start = Callable[[Path, int, int, str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Start the script on a number of ranks; the lines that all its starts have logged."""
    script = tmp_path_factory.mktemp("script") / "train.py"
    (code,) = blocks(PAGE.read_text("utf-8"), "python")
    script.write_text(code)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    known = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def starts(folder: Path, ranks: int, last_step: int, wrap: str) -> list[dict[str, Any]]:
        command = [*torchrun, f"--nproc-per-node={ranks}", script, folder, str(last_step), wrap]
        environment = os.environ | known
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]

    return starts


@pytest.fixture(scope="module")
def undisturbed(start: Start, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return start(tmp_path_factory.mktemp("undisturbed"), 1, END, "ddp")


def dealt(line: dict[str, Any]) -> list[int]:
    """The rows of a step in the order of the stream."""
    return [row for rows in zip(*line["rows"], strict=True) for row in rows]


@pytest.mark.timeout(1200)  # each start imports torch on every rank
@pytest.mark.parametrize(("wrap", "before", "after"), [("ddp", 4, 2), ("fsdp", 2, 3)])
def test_another_number_of_ranks_continues(
    start: Start,
    undisturbed: list[dict[str, Any]],
    tmp_path: Path,
    wrap: str,
    before: int,
    after: int,
) -> None:
    start(tmp_path, before, STOP, wrap)
    found = start(tmp_path, after, END, wrap)
    steps = [*range(1, STOP + 1), *range(SAVED + 1, END + 1)]
    assert [line["step"] for line in found] == steps
    assert {len(line["rows"]) for line in found[:STOP]} == {before}
    assert {len(line["rows"]) for line in found[STOP:]} == {after}
    for line in found:
        same = undisturbed[line["step"] - 1]
        assert dealt(line) == dealt(same)
        assert line["loss"] == pytest.approx(same["loss"], rel=0.05)
