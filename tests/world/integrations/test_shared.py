"""`lz.torch.shared` on ranks that torchrun starts, joined by gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.errors import ArgumentError
from tests.world.integrations.shared_rank import pipeline


def torchrun(
    folder: Path, size: int, module: str, *arguments: str
) -> tuple[list[list[int]], set[str]]:
    """The rows of all ranks in the order of one, and their states after the last."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(size), "-m", f"tests.world.integrations.{module}"]
    environment = {**os.environ, "SHARED_TEST_FOLDER": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *arguments], env=environment, timeout=300, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads((folder / f"rank{rank}").read_text()) for rank in range(size)]
    rows = [
        row
        for step in zip(*(batches for batches, _ in found), strict=True)
        for turn in zip(*step, strict=True)
        for row in turn
    ]
    return rows, {state for _, state in found}


def rows_of(run: Iterator[dict[str, Any]], batches: int) -> list[list[int]]:
    return [row for batch in islice(run, batches) for row in batch["tokens"].tolist()]


@pytest.mark.parametrize("readers", ["rank", "node"])
def test_ranks_of_torchrun_and_a_checkpoint_that_fewer_go_on_from(
    tmp_path: Path, readers: str
) -> None:
    """DCP has the state, which is one value on all ranks."""
    whole = lz.run(pipeline(1, 0))
    for size, workers, steps in ((4, "processes", 6), (3, "processes", 3), (16, "threads", 2)):
        rows, states = torchrun(tmp_path, size, "shared_rank", workers, str(steps), readers)
        assert len(states) == 1
        assert rows == rows_of(whole, size * steps)
        made = (tmp_path / "calls").read_text().split()
        # One that is under way as a rank leaves is made again; the rest once.
        assert len(made) < 1.1 * len(set(made)) + 16 * size
        (tmp_path / "calls").unlink()


def test_under_lightning(tmp_path: Path) -> None:
    """Two trainings, of which the second goes on from the checkpoint of the first."""
    whole = lz.run(pipeline(1, 0))
    for steps in (3, 7):
        rows, _ = torchrun(tmp_path, 2, "shared_lightning", str(tmp_path), "2", str(steps))
        assert rows == rows_of(whole, 2 * 3 if steps == 3 else 2 * 4)


def test_without_a_process_group() -> None:
    with pytest.raises(ArgumentError, match="has no process group"):
        lz.torch.shared(lz.processes(2))


@pytest.mark.parametrize("executor", [lz.inline(), "processes", None])
def test_without_workers(executor: Any) -> None:
    with pytest.raises(ArgumentError, match="an executor with workers"):
        lz.torch.shared(executor)
