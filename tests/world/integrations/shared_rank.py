"""A rank that torchrun starts, which shares the work before `shard` with the others."""

from __future__ import annotations

import json
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp

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


def main(workers: str, steps: int, readers: Any) -> None:
    """Go on from the last checkpoint of any number of ranks, and leave another one."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    own, folder = pipeline(size, rank), Path(FOLDER or ".")
    inner = lz.processes(2) if workers == "processes" else lz.threads(1)
    executor = lz.torch.shared(inner, dist.group.WORLD, readers=readers, chunk_size=8)
    batches = lz.torch.loader(own, executor)
    kept = {"data": batches.state_dict()}
    if (folder / "saved").exists():
        dcp.load(kept, checkpoint_id=folder / "saved")
        batches.load_state_dict(lz.rebase(kept["data"], own))
    found = [batch["tokens"].tolist() for batch in islice(batches, steps)]
    (folder / f"rank{rank}").write_text(json.dumps([found, json.dumps(batches.state_dict())]))
    dcp.save({"data": batches.state_dict()}, checkpoint_id=folder / "saved")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
