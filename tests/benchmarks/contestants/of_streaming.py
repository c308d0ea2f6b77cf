"""MosaicML's streaming: shards on a disk, shuffled and resumed by its own loader."""

from __future__ import annotations

from tempfile import mkdtemp
from typing import Any

from contestant import Way
from data import add, nothing
from resuming import resumed
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory


def w4indexed(n: int) -> Way:
    folder = mkdtemp(prefix="lazyckpt-bench-")
    with MDSWriter(out=folder, columns={"i": "int"}) as writer:
        for i in range(n):
            writer.write({"i": add(i)})

    def make() -> Any:
        clean_stale_shared_memory()
        data = StreamingDataset(local=folder, shuffle=True, shuffle_seed=0, batch_size=32)
        return StreamingDataLoader(data, batch_size=32, collate_fn=nothing)

    return resumed(n // 32, make)
