"""Documents for ranks that share work, in a module that imports no framework: workers import it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lazyckpt as lz

NOTED = "LAZYCKPT_TEST_CALLS"  # the variable with the file that has each call


def tokens(n: int) -> list[int]:
    if NOTED in os.environ:
        with Path(os.environ[NOTED]).open("a") as file:  # one write, so that no two mix
            file.write(f"{n}\n")
    return [n] * (n % 40 + 1)


def pipeline(size: int, rank: int) -> lz.Pipeline[Any]:
    documents = lz.source(range(5_000)) | lz.shuffle(seed=3) | lz.map(tokens)
    kept = documents | lz.filter(lambda document: len(document) != 3)
    rows = kept | lz.pack_first_fit(64, num_bins=8) | lz.shard(num_shards=size, index=rank)
    return rows | lz.batch(4, collate=lz.stack)
