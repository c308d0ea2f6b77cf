"""The script of the page on torchrun, started by it, stopped, and resumed on other ranks."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pages import NOTEBOOKS, ROOT, blocks
from tests.world.integrations.trainer_cases import runs

PAGE = NOTEBOOKS / "how-to/train-with-torchrun.md"
STOP, SAVED, END = 7, 5, 12  # steps: stopped after one, saved before it, and ended at one
RANKS = {"ddp": (4, 2), "fsdp": (2, 3)}  # before and after


def script(folder: Path) -> Path:
    """The page's, and the arguments behind it are a folder, the last step, and a wrapper."""
    (code,) = blocks(PAGE.read_text("utf-8"), "python")
    path = folder / "train.py"
    path.write_text(code)
    return path


def rank(path: Path, *arguments: object) -> None:
    """Run the script in a process of its own."""
    sys.argv[:] = [str(path), *map(str, arguments)]
    runpy.run_path(str(path), run_name="__main__")


def logged(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """By torchrun's own command."""
    folder = tmp_path_factory.mktemp("undisturbed")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    known = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*command, script(folder), folder, str(END), "ddp"],
        capture_output=True,
        text=True,
        env=os.environ | known,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return logged(folder)


def dealt(line: dict[str, Any]) -> list[int]:
    """The rows of a step in the order of the stream."""
    return [row for rows in zip(*line["rows"], strict=True) for row in rows]


def test_another_number_of_ranks_continues(
    undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    runs(__file__, tmp_path)
    for wrap, (before, after) in RANKS.items():
        found = logged(tmp_path / wrap)
        steps = [*range(1, STOP + 1), *range(SAVED + 1, END + 1)]
        assert [line["step"] for line in found] == steps, wrap
        assert {len(line["rows"]) for line in found[:STOP]} == {before}
        assert {len(line["rows"]) for line in found[STOP:]} == {after}
        for line in found:
            same = undisturbed[line["step"] - 1]
            assert dealt(line) == dealt(same)
            assert line["loss"] == pytest.approx(same["loss"], rel=0.05)


if __name__ == "__main__":
    from tests.world.integrations.launcher import launch

    place = Path(sys.argv[1])
    for wrap, (before, after) in RANKS.items():
        (place / wrap).mkdir()
        launch(before, rank, script(place), place / wrap, STOP, wrap)
        launch(after, rank, script(place), place / wrap, END, wrap)
