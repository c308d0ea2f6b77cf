"""`lz.torch.shared` on ranks of torchrun, joined by gloo."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import lazyckpt as lz
from lazyckpt.errors import ArgumentError
from tests.world.integrations.documents import NOTED, pipeline
from tests.world.integrations.launcher import join, launch
from tests.world.integrations.trainer_cases import runs

READERS: list[Any] = ["rank", "node"]
SIZES = {4: ("processes", 6), 3: ("processes", 3), 16: ("threads", 2)}  # workers, and steps
STEPS = (3, 7)  # of two trainings by Lightning, on two ranks


def rank(folder: Path, workers: str, steps: int, readers: Any) -> None:
    """Go on from the last checkpoint of any number of ranks, and leave another one."""
    join()
    rank, size = dist.get_rank(), dist.get_world_size()
    own, saved = pipeline(size, rank), folder / "saved"
    inner = lz.processes(2) if workers == "processes" else lz.threads(1)
    with pytest.raises(ArgumentError, match="readers is 'rank' on rank 0, and 'node' on rank 1"):
        lz.torch.shared(inner, readers=READERS[rank % 2])
    executor = lz.torch.shared(inner, dist.group.WORLD, readers=readers, chunk_size=8, timeout=5)
    batches = lz.torch.loader(own, executor)
    kept = {"data": batches.state_dict()}
    if saved.exists():
        dcp.load(kept, checkpoint_id=saved)
        batches.load_state_dict(lz.rebase(kept["data"], own))
    if size == 3 and rank == 0:
        time.sleep(7)  # as a rank that compiles, for longer than the time limit
    found = [batch["tokens"].tolist() for batch in islice(batches, steps)]
    told = json.dumps([found, json.dumps(batches.state_dict())])
    (folder / f"{size}-{rank}").write_text(told)
    dcp.save({"data": batches.state_dict()}, checkpoint_id=saved)
    dist.destroy_process_group()


def told_by(folder: Path, name: Any, size: int) -> tuple[list[list[int]], set[str]]:
    """The rows of all ranks in the order of one, and their states after the last."""
    found = [json.loads((folder / f"{name}-{rank}").read_text()) for rank in range(size)]
    rows = [
        row
        for step in zip(*(batches for batches, _ in found), strict=True)
        for turn in zip(*step, strict=True)
        for row in turn
    ]
    return rows, {state for _, state in found}


def rows_of(run: Iterator[dict[str, Any]], batches: int) -> list[list[int]]:
    return [row for batch in islice(run, batches) for row in batch["tokens"].tolist()]


def test_ranks_and_a_checkpoint_that_fewer_go_on_from(tmp_path: Path) -> None:
    """DCP has the state, which is one value on all ranks."""
    runs(__file__, tmp_path, *READERS)
    for readers in READERS:
        whole = lz.run(pipeline(1, 0))
        for size, (_, steps) in SIZES.items():
            rows, states = told_by(tmp_path / readers, size, size)
            assert len(states) == 1
            assert rows == rows_of(whole, size * steps)
            made = (tmp_path / readers / f"calls of {size}").read_text().split()
            # One that is under way as a rank leaves is made again; the rest once.
            assert len(made) < 1.1 * len(set(made)) + 16 * size


def test_under_lightning(tmp_path: Path) -> None:
    """Two trainings, of which the second goes on from the checkpoint of the first."""
    runs(__file__, tmp_path)
    whole = lz.run(pipeline(1, 0))
    for before, steps in zip((0, *STEPS), STEPS, strict=False):
        rows, _ = told_by(tmp_path, steps, 2)
        assert rows == rows_of(whole, 2 * (steps - before))


def test_rank_0_of_a_group_need_not_be_on_the_host_of_the_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It meets the others on the network that leads to that host."""
    monkeypatch.setenv("MASTER_ADDR", "198.51.100.1")
    with socket.socket(type=socket.SOCK_DGRAM) as sock, suppress(OSError):  # there is no network
        sock.connect(("198.51.100.1", 9))
        own = sock.getsockname()[0]
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            executor = lz.torch.shared(lz.threads(1))
        finally:
            dist.destroy_process_group()
        assert executor.arguments["meeting"].host == own != "127.0.0.1"


def test_without_a_process_group() -> None:
    with pytest.raises(ArgumentError, match="has no process group"):
        lz.torch.shared(lz.processes(2))


def test_a_time_limit_in_which_no_rank_reports() -> None:
    with pytest.raises(ArgumentError, match="timeout must be at least 2 seconds"):
        lz.torch.shared(lz.processes(2), timeout=1.5)


@pytest.mark.parametrize("executor", [lz.inline(), "processes", None])
def test_without_workers(executor: Any) -> None:
    with pytest.raises(ArgumentError, match="an executor with workers"):
        lz.torch.shared(executor)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    for readers in sys.argv[2:]:
        (place / readers).mkdir()
        for size, job in SIZES.items():
            os.environ[NOTED] = str(place / readers / f"calls of {size}")
            launch(size, rank, place / readers, *job, readers)
    if not sys.argv[2:]:
        from tests.world.integrations.shared_lightning import train

        for steps in STEPS:
            launch(2, train, place, 2, steps)
