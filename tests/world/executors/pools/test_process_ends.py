"""torch's ranks with an open run: one that fails ends the others."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from torch import multiprocessing

import lazyckpt as lz
from tests.executors.faults import SOON, seekable
from tests.executors.pools.test_process_ends import sleepy
from tests.helpers import is_alive, until


def rank(index: int, folder: str) -> None:
    run = lz.run(seekable(sleepy), executor=lz.processes(2))
    next(run)
    (Path(folder) / str(index)).touch()
    until((Path(folder) / str(1 - index)).exists)
    if index:
        raise ValueError("mine")
    time.sleep(60)


def test_a_rank_of_torch_that_fails_ends_the_others(tmp_path: Path) -> None:
    ranks = multiprocessing.start_processes(
        rank, args=(str(tmp_path),), nprocs=2, join=False, start_method="fork"
    )
    with pytest.raises(multiprocessing.ProcessRaisedException, match="mine"):
        until(lambda: ranks.join(SOON))
    until(lambda: not any(map(is_alive, ranks.pids())))
