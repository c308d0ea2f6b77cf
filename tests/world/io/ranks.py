"""Two ranks, each a process: the rows that they read, and the files that they scan."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist
from numpy.typing import NDArray

import lazyckpt as lz
from lazyckpt.io.text import LineScan
from tests.world.integrations.forks import codes, forked

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


if __name__ == "__main__":
    given, folder = sys.argv[1], Path(sys.argv[2])
    ranks = [forked(partial(read, rank, given, folder)) for rank in range(RANKS)]
    assert codes(ranks) == [0] * RANKS
