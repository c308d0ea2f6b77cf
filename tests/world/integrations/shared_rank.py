"""A rank that torchrun starts, which shares the work before `shard` with the others."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

import lazyckpt as lz

FOLDER = os.environ.get("SHARED_TEST_FOLDER")


def tokens(n: int) -> list[int]:
    if FOLDER is not None:
        with Path(FOLDER, "calls").open("a") as file:  # one write, so that no two mix
            file.write(f"{n}\n")
    return [n] * (n % 40 + 1)


def pipeline(size: int, rank: int) -> lz.Pipeline[Any]:
    documents = lz.source(range(5_000)) | lz.shuffle(seed=3) | lz.map(tokens)
    kept = documents | lz.filter(lambda document: len(document) != 3)
    rows = kept | lz.pack_first_fit(64, num_bins=8) | lz.shard(num_shards=size, index=rank)
    return rows | lz.batch(4, collate=lz.stack)


def main(steps: int, state: str | None = None) -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    executor = lz.torch.shared(lz.processes(2), dist.group.WORLD, chunk_size=8)
    own = pipeline(size, rank)
    batches = lz.torch.loader(own, executor, state and lz.rebase(json.loads(state), own))
    found = []
    for _, batch in zip(range(steps), batches, strict=False):
        found.append([batch["tokens"].tolist(), json.dumps(batches.state_dict())])
    Path(FOLDER or ".", f"rank{rank}").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
