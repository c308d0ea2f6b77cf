"""Two ranks, each a process: the rows that they read, and the files that they scan."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist
from numpy.typing import NDArray

import lazyckpt as lz
from lazyckpt.io.text import LineScan

RANKS = 2


def read(rank: int, pattern: str, place: Path) -> None:
    """Write the rows of a rank and the files it has scanned, next to the index."""
    scan = LineScan.__call__

    def noted(self: LineScan, file: lz.io.File) -> Iterator[NDArray[Any]]:
        with open(place / "scanned", "a") as log:
            log.write(f"{Path(file.path).stem}\n")
        return scan(self, file)

    LineScan.__call__ = noted  # type: ignore[method-assign]
    meeting = f"file://{place}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS)
    dist.barrier()  # so that both need the index simultaneously
    rows = lz.io.read_jsonl(pattern, index_dir=place / "index")
    mine = rows | lz.shuffle(seed=0) | lz.shard(num_shards=RANKS, index=rank)
    found: list[Any] = [None] * RANKS
    dist.all_gather_object(found, list(mine))
    (place / f"rank-{rank}.json").write_text(json.dumps(found))
    dist.barrier()


def started(rank: int, pattern: str, place: Path) -> int:
    """A process that is a rank. Importing torch takes long, which is done before."""
    if child := os.fork():
        return child
    try:
        read(rank, pattern, place)
        os._exit(0)  # at a common exit torch sometimes waits forever for a thread of gloo
    finally:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    ranks = [started(rank, sys.argv[1], Path(sys.argv[2])) for rank in range(RANKS)]
    sys.exit(max(os.waitpid(rank, 0)[1] for rank in ranks) > 0)
