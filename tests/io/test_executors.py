"""Readers under executors and ranks: who builds an index, and who reads rows."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.io.cases import folder, written
from tests.io.formats import EXAMPLES

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


@pytest.mark.parametrize("suffix", EXAMPLES)
@pytest.mark.parametrize("executor", [lz.threads(3), lz.processes(2)], ids=str)
def test_workers_give_the_rows_of_any_format(suffix: str, executor: lz.Executor) -> None:
    content, read = EXAMPLES[suffix]
    files = written([content] * (1 if suffix == ".db" else 2), suffix)
    rows = read(files, index_dir=folder(), executor=executor)
    orders = [lz.shuffle(seed=0)]
    if getattr(rows, "block_starts", None) is not None:
        orders.append(lz.local_shuffle(2, seed=0))
    for order in orders:
        pipeline = rows | order | lz.map(itself)
        with lz.run(pipeline, executor=executor) as run:
            assert equal(list(run), list(pipeline))


def itself(row: Any) -> Any:
    return row
