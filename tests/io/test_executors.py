"""Readers under executors and ranks: who builds an index, and who reads rows."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from ast import literal_eval
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import chain
from typing import Any

import pytest

import lazyckpt as lz
from tests.io.cases import folder, written

EXECUTORS: dict[str, Callable[[], Any]] = {
    "inline": lz.inline,
    "threads": lambda: lz.threads(2),
    "fork": lambda: lz.processes(2, start_method="fork"),
    "a pool of threads": lambda: lz.futures(ThreadPoolExecutor(2), buffer_size=4),
    "a pool of processes": lambda: lz.futures(
        ProcessPoolExecutor(2, multiprocessing.get_context("fork")), buffer_size=4
    ),
}
CONTENTS = [b"".join(b"%d\n" % (25 * n + m) for m in range(25)) for n in range(4)]


@pytest.mark.parametrize("name", EXECUTORS)
def test_an_executor_builds_the_index_and_reads_rows(name: str) -> None:
    executor = EXECUTORS[name]()
    rows = lz.io.read_jsonl(written(CONTENTS, ".jsonl"), index_dir=folder(), executor=executor)
    pipeline = rows | lz.shuffle(seed=0) | lz.map(str) | lz.batch(4)
    with lz.run(pipeline, executor=executor) as run:
        assert list(run) == list(pipeline)
    with lz.run(pipeline, lz.state_at(pipeline, 9), executor=executor) as run:
        assert list(run) == list(pipeline)[9:]
    assert sorted(int(row) for some in pipeline for row in some) == [*range(100)]


RANK = """
import sys
from torch import distributed
import lazyckpt as lz

listing, place, rank = sys.argv[1:]
distributed.init_process_group(
    "gloo", init_method=f"file://{place}/ranks", rank=int(rank), world_size=2
)
rows = lz.io.read_jsonl(lz.io.Files.load(listing), index_dir=f"{place}/index")
mine = list(rows | lz.shuffle(seed=0) | lz.shard(num_shards=2, index=int(rank)))
found = [None, None]
distributed.all_gather_object(found, mine)
print(found)
distributed.destroy_process_group()
"""


def test_ranks_share_an_index_that_neither_has_built() -> None:
    place = folder()
    written(CONTENTS, ".jsonl").save(place / "files.json")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(place / "files.json"), str(place), rank],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    one, other = (rank.communicate()[0] for rank in ranks)
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert one == other
    assert sorted(chain(*literal_eval(one))) == [*range(100)]
    assert len(list((place / "index").glob("*.index"))) == 4
