"""`lz.torch.shared` on ranks that torchrun starts, joined by gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.errors import ArgumentError
from tests.world.integrations.shared_rank import pipeline

STEPS = 6


def torchrun(folder: Path, size: int, *arguments: Any) -> list[list[tuple[Any, str]]]:
    """The items of each rank."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(size), "-m", "tests.world.integrations.shared_rank"]
    environment = {**os.environ, "SHARED_TEST_FOLDER": str(folder), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*command, json.dumps(arguments)], env=environment, check=True, timeout=300,
        capture_output=True,
    )  # fmt: skip
    return [json.loads((folder / f"rank{rank}").read_text()) for rank in range(size)]


def test_each_document_is_tokenized_once_and_a_resume_on_fewer_ranks(tmp_path: Path) -> None:
    found = torchrun(tmp_path, 4, STEPS)
    calls = [int(line) for line in (tmp_path / "calls").read_text().split()]
    assert len(calls) < 1.1 * len(set(calls))  # one that was under way as a rank left is made again
    whole = [each["tokens"].tolist() for each in islice(lz.run(pipeline(1, 0)), 4 * STEPS + 9)]
    rows = [row for batch in whole for row in batch]

    def dealt(found: list[list[tuple[Any, str]]]) -> list[Any]:
        return [
            row
            for step in zip(*found, strict=True)
            for group in zip(*(batch for batch, _ in step), strict=True)
            for row in group
        ]

    first = dealt(found)
    assert first == rows[: len(first)]
    states = {rank[-1][1] for rank in found}
    assert len(states) == 1
    second = dealt(torchrun(tmp_path, 3, 3, states.pop()))
    assert second == rows[len(first) : len(first) + len(second)]


def test_without_a_process_group() -> None:
    with pytest.raises(ArgumentError, match="has no process group"):
        lz.torch.shared(lz.processes(2))


@pytest.mark.parametrize("executor", [lz.inline(), "processes", None])
def test_without_workers(executor: Any) -> None:
    with pytest.raises(ArgumentError, match="an executor with workers"):
        lz.torch.shared(executor)
