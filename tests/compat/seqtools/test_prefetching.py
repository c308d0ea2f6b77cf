"""`prefetch`: order, errors, memory and workers."""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
import threading
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import (
    LIBRARIES,
    REFUSED,
    TOLD,
    Ends,
    double,
    fails_at_five,
    outcomes,
    tell,
)
from tests.helpers import HANGS, until, worker_pids


def dies(x: int) -> int:
    if x == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def rows(x: int) -> np.ndarray[Any, Any]:
    return np.full(5000, x)


METHODS = ["process", "thread"]  # in a process with threads, processes start slowly


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("workers", [1, 2])
def test_sq27_sq32_prefetch_is_ordered_and_follows_jumps(method: str, workers: int) -> None:
    data = ours.smap(double, range(300))
    ahead: Any = ours.prefetch(data, workers, method, max_buffered=7)
    assert list(ahead) == list(data)
    for index in (250, 251, 3, 4, 5, -1, 299, -300, -1, 0, np.int64(17)):
        assert ahead[index] == data[index]
    assert (len(ahead), list(ahead[10:20:3]), list(ahead)) == (300, [20, 26, 32, 38], list(data))
    assert list(ours.smap(double, ahead)[:3]) == [0, 4, 8]
    for index in (300, -301):
        with pytest.raises(IndexError):
            ahead[index]
    assert list(ours.prefetch([], workers, method)) == []


def test_sq27_as_theirs() -> None:
    data = list(range(50))
    for method in METHODS:
        for library in LIBRARIES:
            ahead = library.prefetch(library.smap(double, data), 2, method, 5)
            assert [ahead[i] for i in range(50)] == [2 * each for each in data]
    assert all(library.prefetch(data) is data for library in LIBRARIES)
    left = len(os.sched_getaffinity(0))
    assert list(ours.prefetch(data, 1 - left)) == data
    for library in LIBRARIES:
        for wrong in ({"method": "other"}, {"max_buffered": 0}, {"nworkers": -left}):
            with pytest.raises(REFUSED):
                library.prefetch(data, **{"nworkers": 1} | wrong)


@pytest.mark.parametrize("method", METHODS)
def test_sq27_endless_sources(method: str) -> None:
    ahead: Any = ours.prefetch(ours.cycle([1, 2, 3]), 2, method)
    assert list(islice(ahead, 7)) == [1, 2, 3, 1, 2, 3, 1]
    assert [ahead[i] for i in (10**9, 10**9 + 1, 0)] == [2, 3, 1]
    assert list(ours.prefetch(Ends(), 2, method)) == list(range(7))
    with pytest.raises(IndexError):
        ours.prefetch(Ends(), 2, method)[7]  # type: ignore[index]


def test_sq27_workers_end_with_a_sequence_without_a_length() -> None:
    gc.collect()
    assert list(ours.prefetch(Ends(), 1, "process")) == list(range(7))
    until(lambda: not worker_pids())


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("method", METHODS)
def test_sq27_workers_start_and_make_items_when_it_is_made(
    method: str, library: Any, tmp_path: Any
) -> None:
    path = str(tmp_path / "calls")
    os.mkfifo(path)
    with open(os.open(path, os.O_RDWR), "rb", buffering=0) as calls:
        data = library.smap(partial(write_to, path, b"i"), range(100))
        hook = partial(write_to, path, b"h")
        _ahead = library.prefetch(data, 1, method, 4, start_hook=hook)
        assert select.select([calls], [], [], HANGS)[0], "no worker has started"
        assert (calls.read(1), calls.read(1)) == (b"h", b"i")


def write_to(path: str, text: bytes, *_: int) -> None:
    with open(os.open(path, os.O_RDWR), "wb", buffering=0) as file:  # waits for no reader
        file.write(text)


ORPHANS = """
import os, signal, time
from lazyckpt.compat import seqtools
def linger(x):
    return x
if __name__ == "__main__":
    ahead = seqtools.prefetch(seqtools.smap(linger, range(10**6)), 2, "process")
    ahead[0]
    print("started", flush=True)
    signal.pause()
"""


def test_sq27_orphaned_workers_end(tmp_path: Any) -> None:
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    # The workers hold the pipe's other end: it is at its end when all are gone.
    child = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"started\n"
    child.kill()
    child.wait()
    with child.stdout:
        assert select.select([child.stdout], [], [], HANGS)[0], "workers live on"
        assert child.stdout.read() == b""


@pytest.mark.parametrize("method", METHODS)
def test_sq28_errors_are_the_items_own(method: str) -> None:
    ahead: Any = ours.prefetch(ours.smap(fails_at_five, range(9)), 2, method)
    assert outcomes(ahead) == [0, 1, 2, 3, 4, "EvaluationError", 6, 7, 8]
    with pytest.raises(ours.EvaluationError, match="item 5 of smap") as caught:
        ahead[5]
    assert isinstance(caught.value.__cause__, KeyError)
    assert (ahead[6], ahead[4], ahead[-1]) == (6, 4, 8)
    ours.seterr("passthrough")
    try:
        with pytest.raises(KeyError):
            ahead[5]
    finally:
        ours.seterr("wrap")
    wrapped: Any = ours.prefetch(ours.batch(range(9), 3, collate_fn=refuse_fives), 1, method)
    assert outcomes(wrapped) == [3, "EvaluationError", 21]
    with pytest.raises(
        ours.EvaluationError, match=r"item 1 of prefetch, built at .*test_prefetching"
    ):
        wrapped[1]


def refuse_fives(batch: list[int]) -> int:
    if 5 in batch:
        raise ValueError(batch)
    return sum(batch)


def test_sq28_a_killed_worker_raises() -> None:
    ahead: Any = ours.prefetch(ours.smap(dies, range(8)), 2, "process")
    with pytest.raises(RuntimeError, match="SIGKILL"):
        list(ahead)
    assert ahead[6] == 6
    loader = ours.DataLoader(ours.smap(dies, range(8)), 2, num_workers=2)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1]
    for _ in range(2):  # the same batch is tried again
        with pytest.raises(lz.WorkerDied):
            next(batches)
    assert loader.state_dict()["items"] == 1


def test_sq30_arrays_in_shared_memory_are_used_in_place() -> None:
    ahead: Any = ours.prefetch(ours.smap(rows, range(40)), 2, "process", 4, shm_size=10**6)
    first = ahead[0]
    base = first
    while getattr(base, "base", None) is not None and not isinstance(base, memoryview):
        base = base.base
    assert not first.flags.owndata
    kept = [first, *(ahead[i] for i in range(1, 30))]  # more than there are slots: copies
    assert [int(row[0]) for row in kept] == list(range(30))
    kept[3][:] = -1
    assert [int(row[-1]) for row in kept if row is not kept[3]] == [*range(3), *range(4, 30)]
    del ahead
    gc.collect()
    assert [int(row[4999]) for row in kept[:2]] == [0, 1]


def refuse(*numbers: int) -> None:
    raise OSError("no licence")


def test_sq33_a_start_hook_is_called_where_workers_start() -> None:
    called: list[int] = []
    ahead: Any = ours.prefetch(
        range(50), 2, start_hook=lambda: called.append(threading.get_ident())
    )
    assert list(ahead) == list(range(50))
    assert 1 <= len(set(called)) == len(called) <= 2
    assert threading.get_ident() not in called
    del ahead
    numbers: Any = ours.prefetch(ours.smap(told, range(8)), 2, "process", start_hook=tell)
    assert set(numbers) <= {0, 1}


def told(x: int) -> int:
    return TOLD[-1]


@pytest.mark.parametrize("method", METHODS)
def test_sq33_a_raising_start_hook_is_an_error(method: str) -> None:
    ahead: Any = ours.prefetch(range(3), 1, method, start_hook=refuse)
    for _ in range(2):
        with pytest.raises(ours.EvaluationError) as caught:
            ahead[0]
        assert isinstance(caught.value.__cause__, OSError)


def test_sq33_workers_start_off_the_main_thread() -> None:
    found: list[list[int]] = []
    data = ours.smap(double, range(5))
    work = [
        threading.Thread(target=lambda m=m: found.append(list(ours.prefetch(data, 1, m))))
        for m in METHODS
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert found == [[0, 2, 4, 6, 8]] * 2


def dies_once(flag: Any, x: int) -> int:
    if x == 3 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def test_sq28_an_iterator_outlives_its_end_and_a_worker(tmp_path: Any) -> None:
    data = ours.smap(partial(dies_once, tmp_path / "flag"), range(6))
    items: Any = iter(ours.prefetch(data, 1, "process", 1))
    found = outcomes(items)
    assert [each for each in found if each != "WorkerDied"] == list(range(6))
    assert found.count("WorkerDied") == 1
    ended: Any = iter(ours.prefetch(Ends(), 1))
    assert outcomes(ended) == list(range(7))
    for iterator in (items, ended):
        assert next(iterator, None) is next(iterator, None) is None
