"""Three ranks that train in step; one is killed, and a new process takes its place."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import lazyckpt as lz
from tests.helpers import until
from tests.world.integrations.forks import codes, forked
from tests.world.integrations.ranks import RANKS, filtered, items

STEPS, KILLED_AT, LOST = 20, 9, 2


def meet(folder: Path, rank: int, attempt: int) -> None:
    meeting, limit = f"file://{folder}/meeting-{attempt}", timedelta(seconds=100)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS, timeout=limit)


def train(folder: Path, rank: int, attempt: int) -> None:
    """Note an item down once all ranks have come through the step."""
    meet(folder, rank, attempt)
    batches = lz.torch.loader(filtered(rank), group=dist.group.WORLD)
    while batches.state.items < STEPS:
        with suppress(RuntimeError):
            loop(folder, rank, batches)
            break
        dist.destroy_process_group()  # which the error would keep alive
        meet(folder, rank, attempt + 1)
        batches.join(dist.group.WORLD, trained(folder, rank))
    dist.barrier()


def loop(folder: Path, rank: int, batches: Any) -> None:
    for item in items(batches):
        step = batches.state.items
        if (rank, step) == (LOST, KILLED_AT) and not (folder / "killed").exists():
            (folder / "killed").touch()
            until(lambda: trained(folder) == RANKS * (KILLED_AT - 1), 60)
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.tensor(float(item)))
        with (folder / "trained").open("a") as file:
            file.write(json.dumps([rank, item]) + "\n")
        if step == STEPS:
            return


def trained(folder: Path, *ranks: int) -> int:
    """The number of items noted down, by these ranks or by all."""
    path = folder / "trained"
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(not ranks or json.loads(line)[0] in ranks for line in lines)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    ranks = [forked(partial(train, place, rank, 1)) for rank in range(RANKS)]
    assert codes([ranks[LOST]]) == [-signal.SIGKILL]
    ranks[LOST] = forked(partial(train, place, LOST, 2))
    assert codes(ranks) == [0] * RANKS
