"""With processes asked for, a user's functions run in these, however little they cost."""

from __future__ import annotations

import ctypes
import faulthandler
import os
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream

pytestmark = pytest.mark.usefixtures("nothing_left")


def pid(x: int) -> int:
    return os.getpid()


def both(x: int) -> list[int]:
    return [os.getpid()] * 2


def keep(x: Any) -> bool:
    return True


SHAPES: dict[str, lz.Pipeline[Any]] = {
    "seekable": lz.source(range(3000)) | lz.map(pid),
    "runs": lz.source(range(3000)) | lz.flat_map(both) | lz.filter(keep),
    "stream": lz.source(Stream(range(3000))) | lz.map(pid),
    "joined": lz.mix([lz.source(range(1500)) | lz.map(pid)] * 2, [1, 2], seed=0),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_none_of_them_runs_in_the_process_that_reads(shape: str, workers: int) -> None:
    executor = lz.processes(workers, start_method="fork")
    assert os.getpid() not in set(lz.run(SHAPES[shape], executor=executor))


def pid_keep(x: int) -> bool:
    CALLED_IN.add(os.getpid())
    return True


CALLED_IN: set[int] = set()
MANY: list[lz.Pipeline[Any]] = [
    lz.source(Stream(range(9))) | lz.filter(pid_keep) for _ in range(70)
]
WIDE: dict[str, lz.Pipeline[Any]] = {
    "interleave": lz.interleave(*MANY) | lz.filter(pid_keep) | lz.map(str),
    "mix": lz.mix(MANY, [1] * 70, seed=0) | lz.filter(pid_keep),
    "window": lz.interleave(*MANY) | lz.shuffle(buffer_size=9, seed=0) | lz.filter(pid_keep),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("shape", WIDE)
def test_nor_does_one_where_states_are_read(shape: str, workers: int) -> None:
    executor = lz.processes(workers, start_method="fork")
    expected = [state for _, state in lz.run(WIDE[shape]).with_state()]
    CALLED_IN.clear()
    with lz.run(WIDE[shape], executor=executor) as run:
        assert [state for _, state in run.with_state()] == expected
    assert os.getpid() not in CALLED_IN


SIZES = [3, 5000]  # those in the pickle, and those beside it
CACHE = {(x, size): np.full(size, x) for x in range(7) for size in SIZES}


def cached(size: int, x: int) -> Any:
    return {"array": CACHE[x % 7, size]}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", ["seekable", "runs"])
def test_who_writes_into_an_item_changes_no_other(shape: str, size: int) -> None:
    pipeline: lz.Pipeline[Any] = lz.source(range(1000)) | lz.map(cached, size)
    pipeline = pipeline | lz.filter(keep) if shape == "runs" else pipeline
    with lz.run(pipeline, executor=lz.processes(2, start_method="fork")) as run:
        for number, item in enumerate(run):
            assert (item["array"] == number % 7).all()
            item["array"] += 1
    assert all((array == x).all() for (x, _), array in CACHE.items())


def crashes(x: int) -> int:
    if x == 1700:
        faulthandler.disable()  # which would print where
        ctypes.string_at(0)
    return x


def begin(worker: int) -> None:
    """What a worker does first."""


def crashing(shape: str) -> lz.Pipeline[int]:
    pipeline: lz.Pipeline[int] = lz.source(range(3000)) | lz.map(crashes)
    return pipeline | lz.filter(keep) if shape == "runs" else pipeline


@pytest.mark.parametrize("init", [None, begin])
@pytest.mark.parametrize("shape", ["seekable", "runs"])
def test_a_crash_of_a_cheap_function_is_a_workers(shape: str, init: Any) -> None:
    executor = lz.processes(2, start_method="fork", worker_init=init)
    with lz.run(crashing(shape), executor=executor) as run:
        found: list[int] = []
        with pytest.raises(lz.WorkerDied):
            found.extend(run)
        assert found == [*range(len(found))]
        assert run.state.items == len(found) <= 1700


@pytest.mark.parametrize("init", [None, begin])
@pytest.mark.parametrize("shape", ["seekable", "runs"])
def test_or_the_item_is_left_out(shape: str, init: Any) -> None:
    executor = lz.processes(2, start_method="fork", retries=1, worker_init=init)
    with lz.run(crashing(shape), executor=executor, on_error="skip") as run:
        assert [*run] == [x for x in range(3000) if x != 1700]
        assert run.skipped == 1
