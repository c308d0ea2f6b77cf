"""With processes asked for, a user's functions run in these, however little they cost."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from tests.executors.cases import Stream, odd
from tests.executors.faults import keep
from tests.executors.table import picks
from tests.helpers import until

pytestmark = pytest.mark.usefixtures("nothing_left")


def pid(x: Any) -> int:
    return os.getpid()


def meet(folder: Path, x: Any) -> int:
    """The worker's number; after the first items as soon as a second worker has been asked."""
    (folder / str(os.getpid())).touch()
    if x > 9:
        until(lambda: len(os.listdir(folder)) > 1)
    return os.getpid()


def pids(fn: Any, size: int) -> dict[str, lz.Pipeline[int]]:
    numbers, stream = lz.source(range(size)), lz.source(Stream(size))
    flags = numbers | lz.filter(keep) | lz.map(odd)
    return {
        "seekable": numbers | lz.map(fn),
        "outputs": numbers | lz.flat_map(lambda x: [fn(x)] * 2) | lz.filter(keep),
        "outputs mapped": numbers | lz.map(fn) | lz.filter(keep) | lz.tap(keep),
        "stream": stream | lz.map(fn),
        "joined": lz.mix([numbers | lz.map(fn)] * 2, [1, 2], seed=0),
        "chosen": lz.case(stream | lz.map(picks), *[numbers | lz.map(fn)] * 2),
        "switched": lz.switch(flags, *[stream | lz.map(fn)] * 2),
    }


@pytest.mark.parametrize("shape", pids(pid, 1))
def test_none_runs_in_the_process_that_reads(shape: str) -> None:
    for workers in (1, 2):
        executor = lz.processes(workers)
        assert os.getpid() not in set(lz.run(pids(pid, 3000)[shape], executor=executor))


@pytest.mark.parametrize(
    ("shape", "on_error"), [*zip(pids(pid, 1), ["raise", "skip"] * 4, strict=False)]
)
def test_all_workers_have_a_part_of_what_takes_long(
    shape: str, on_error: Any, tmp_path: Path
) -> None:
    executor = lz.processes(2)
    pipeline = pids(partial(meet, tmp_path), 80)[shape]
    with lz.run(pipeline, executor=executor, on_error=on_error) as run:
        assert len(set(run)) == 2


class Counting:
    """The identity, which counts its items."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, x: int) -> int:
        self.asked.append(x)
        return x


@pytest.mark.parametrize("build", [lz.case, lambda s, a, b: lz.switch(s, b, a)])
def test_only_what_is_chosen_is_made(build: Any) -> None:
    low, high = Counting(), Counting()
    several = [lz.source(range(20)) | lz.map(fn) | lz.batch(1) for fn in (low, high)]
    selector = lz.source(Stream(20)) | lz.map(picks)
    with lz.run(build(selector, *several), executor=lz.threads(2)) as run:
        assert list(run) == [[x] for x in range(20)]
    assert sorted(low.asked) == [x for x in range(20) if not picks(x)]
    assert sorted(high.asked) == [x for x in range(20) if picks(x)]


@pytest.mark.parametrize("stop", ["first_exhausted", "all_exhausted"])
def test_of_a_mixture_only_the_items_of_this_rank_are_made(stop: Any) -> None:
    fn = Counting()
    several = [lz.source(range(n, n + 200)) | lz.map(fn) for n in (0, 1000)]
    mixed = lz.mix([*several, lz.source(range(9, 99))], [1, 2, 3], seed=0, stop=stop)
    dealt = mixed | lz.repeat(2) | lz.shard(num_shards=7, index=3) | lz.map(str)
    expected = list(dealt)
    made, fn.asked = fn.asked, []
    with lz.run(dealt, executor=lz.threads(2)) as run:
        assert list(run) == expected
    assert sorted(fn.asked) == sorted(made)
    assert 0 < len(made) < len(expected)


def pid_keep(x: int) -> bool:
    CALLED_IN.add(os.getpid())
    return True


CALLED_IN: set[int] = set()
MANY: list[lz.Pipeline[Any]] = [lz.source(Stream(9)) | lz.filter(pid_keep) for _ in range(70)]
WIDE: dict[str, lz.Pipeline[Any]] = {
    "interleave": lz.interleave(*MANY) | lz.filter(pid_keep) | lz.map(str),
    "mix": lz.mix(MANY, [1] * 70, seed=0) | lz.filter(pid_keep),
    "window": lz.interleave(*MANY) | lz.shuffle(buffer_size=9, seed=0) | lz.filter(pid_keep),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("shape", WIDE)
def test_nor_does_one_where_states_are_read(shape: str, workers: int) -> None:
    executor = lz.processes(workers)
    expected = [state for _, state in lz.run(WIDE[shape]).with_state()]
    CALLED_IN.clear()
    with lz.run(WIDE[shape], executor=executor) as run:
        assert [state for _, state in run.with_state()] == expected
    assert os.getpid() not in CALLED_IN


SIZES = [3, 5000]  # those in the pickle, and those next to it
CACHE = {(x, size): np.full(size, x) for x in range(7) for size in SIZES}


def cached(size: int, x: int) -> Any:
    return {"array": CACHE[x % 7, size]}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", ["seekable", "outputs"])
def test_who_writes_into_an_item_changes_no_other(shape: str, size: int) -> None:
    pipeline: lz.Pipeline[Any] = lz.source(range(1000)) | lz.map(cached, size)
    pipeline = pipeline | lz.filter(keep) if shape == "outputs" else pipeline
    with lz.run(pipeline, executor=lz.processes(2)) as run:
        for number, item in enumerate(run):
            assert (item["array"] == number % 7).all()
            item["array"] += 1
    assert all((array == x).all() for (x, _), array in CACHE.items())
