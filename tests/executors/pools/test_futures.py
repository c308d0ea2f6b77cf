"""Executors of others: a thread pool, a process pool; more are in tests/world."""

from __future__ import annotations

import multiprocessing
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.executors.cases import Stream, image, like_inline
from tests.executors.faults import ERRORS, ITEMS, Fault, Odds, fails, keep, lock, notes, script
from tests.executors.graphs import GRAPHS
from tests.executors.table import NAMES, ROWS
from tests.executors.test_like_inline import ON_ERROR, holds, stride
from tests.helpers import until

SPAWN = multiprocessing.get_context("spawn")  # this process has threads


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[str, Any]]:
    with (
        ThreadPoolExecutor(2) as threads,
        ProcessPoolExecutor(2, mp_context=SPAWN) as processes,
    ):
        yield {"threads": threads, "processes": processes}


@pytest.fixture(params=["threads", "processes"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pool(pools: dict[str, Any], kind: str) -> Any:
    return pools[kind]


@pytest.mark.parametrize("number", range(len(ROWS)), ids=NAMES)
def test_the_table(number: int, pools: dict[str, Any]) -> None:
    (_, pipeline), on_error = ROWS[number]
    if number % 3 == 0:
        executor = lz.futures(pools["processes"], buffer_size=50 if number % 2 else 3)
    else:
        executor = lz.futures(pools["threads"], buffer_size=1)
    like_inline(pipeline, executor, stride(25, number), on_error)


@pytest.mark.parametrize("kind", GRAPHS)
@settings(max_examples=max(5, settings().max_examples // 3))
@given(data=st.data(), buffer_size=st.integers(1, 9), cut=st.integers(0, 39))
def test_any_pipeline(
    kind: str, data: st.DataObject, buffer_size: int, cut: int, pools: dict[str, Any]
) -> None:
    executor = lz.futures(pools["threads"], buffer_size=buffer_size)
    holds(data.draw(GRAPHS[kind]), executor, lz.inline(), cut, data.draw(ON_ERROR[kind]))


def larger(x: int) -> Any:
    return (np.full(900_000 + n, x) for n in range(7 * x))


def test_a_part_of_an_items_outputs_may_be_anothers(pools: dict[str, Any]) -> None:
    """The worker starts again, in the middle of the item."""
    pipeline = lz.source(range(3)) | lz.flat_map(larger) | lz.filter(keep) | lz.map(len)
    like_inline(pipeline, lz.futures(pools["processes"], buffer_size=2), 8)


def test_order_is_not_that_of_completion() -> None:
    later = threading.Event()

    def first_waits(x: int) -> int:
        (later.wait if x == 0 else later.set)()
        return x

    with ThreadPoolExecutor(2) as pool:
        pipeline = lz.source(range(9)) | lz.map(first_waits)
        assert list(lz.run(pipeline, executor=lz.futures(pool, buffer_size=2))) == [*range(9)]


def test_arrays_can_be_written_to(pool: Any) -> None:
    pipeline = lz.source([0, 1]) | lz.map(image)
    for item in lz.run(pipeline, executor=lz.futures(pool, buffer_size=2)):
        item["pixels"] += 1


class Recorded:
    """A function that writes down each process in which it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return _unpickled, (self.path,)

    def __call__(self, x: int) -> int:
        return x + 1


def _unpickled(path: Path) -> Recorded:
    with path.open("a") as file:
        file.write(f"{os.getpid()}\n")
    return Recorded(path)


class Counting(ThreadPoolExecutor):
    """Counts how many times handlers are sent to processes of a different executor."""

    def __init__(self, inner: Any) -> None:
        super().__init__(1)
        self.inner, self.tasks, self.sent = inner, 0, 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks += 1
        self.sent += args[0].serialized is not None
        future: Future[Any] = self.inner.submit(fn, *args, **kwargs)
        return future


def test_functions_are_sent_to_a_worker_once(tmp_path: Path, kind: str, pool: Any) -> None:
    path = tmp_path / "unpickled"
    path.touch()
    pipeline = lz.source(range(50)) | lz.map(Recorded(path)) | lz.batch(5)
    counting = Counting(pool)
    with lz.run(pipeline, executor=lz.futures(counting, buffer_size=8)) as run:
        assert list(run) == list(pipeline)
    places = path.read_text().split()
    assert len(places) == len(set(places)) <= (0 if kind == "threads" else 2)
    assert (kind == "threads") == (counting.sent == 0)


def test_one_worker_is_sent_them_once_however_much_is_under_way(tmp_path: Path) -> None:
    path = tmp_path / "unpickled"
    pipeline = lz.source(range(90)) | lz.map(Recorded(path)) | lz.batch(3)
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        counting = Counting(pool)
        list(lz.run(pipeline, executor=lz.futures(counting, buffer_size=16)))
    assert (counting.sent, len(path.read_text().split())) == (1, 1)


_alive: WeakSet[Alive] = WeakSet()


class Alive:
    """A function that tells how many like it there are in its process."""

    def __call__(self, x: int) -> int:
        _alive.add(self)
        return len(_alive)


def test_a_worker_keeps_the_functions_of_some_runs() -> None:
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        executor = lz.futures(pool, buffer_size=2)
        first = lz.run(lz.source(range(20)) | lz.map(Alive()), executor=executor)
        next(first)
        for _ in range(20):
            found = list(lz.run(lz.source(range(3)) | lz.map(Alive()), executor=executor))
        assert 1 < found[-1] < 10
        assert len(list(first)) == 19  # whose functions it had to be sent once more


def test_a_function_that_cannot_be_sent(kind: str, pool: Any) -> None:
    lock = threading.Lock()
    pipeline = lz.source([1, 2]) | lz.map(lambda x: (lock.locked(), x))
    run = lz.run(pipeline, executor=lz.futures(pool, buffer_size=2))
    if kind == "threads":
        assert list(run) == [(False, 1), (False, 2)]
    else:
        with pytest.raises(lz.PipelineError, match=r"map\(<lambda>\), built at .* can't be sent"):
            list(run)


FAULTS = {
    what: told
    for what, told in (ERRORS | ITEMS).items()
    if what.__name__ in ("apologise", "stop_iteration", "Unsendable", "unsendable")
}


@pytest.mark.parametrize("source", [range(12), Stream(12)], ids=["seekable", "stream"])
@pytest.mark.parametrize("what", FAULTS, ids=lambda what: what.__name__)
def test_a_fault_comes_in_its_turn(
    what: Any, source: Any, kind: str, pool: Any, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    pipeline = lz.source(source) | lz.map(Fault(flag, 7, what))
    told, found = FAULTS[what], list[Any]()
    with lz.run(pipeline, executor=lz.futures(pool, buffer_size=4)) as run:
        if kind == "threads" and what in ITEMS:  # which has not far to go
            assert len([*run]) == 12
            return
        for _ in range(2):  # and once more when asked again
            error = fails(run, found, told.kind, told.says)
            assert found == [*range(7)]
            assert re.search(told.note, notes(error))
            assert "after 7 delivered items" in notes(error)
            if what in ERRORS:  # the worker's traceback
                assert ("in __call__" in notes(error)) == (kind != "threads")
            assert run.state == lz.state_at(pipeline, 7)
        flag.unlink()
        assert [*found, *run] == [*range(12)]


def test_an_item_that_cannot_be_sent(kind: str, pool: Any, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    pipeline = lz.source(Odds(flag, lock)) | lz.map(str)
    with lz.run(pipeline, executor=lz.futures(pool, buffer_size=3)) as run:
        if kind == "threads":
            assert len([*run]) == 100
            return
        found: list[Any] = []
        error = fails(run, found, TypeError)
        assert found == [*map(str, range(50))]
        assert "an item can't be sent to a worker" in notes(error)


OF_A_SCRIPT = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
import lazyckpt as lz

class Kept:
    def __init__(self, x):
        self.x = x

if __name__ == "__main__":
    stream = lz.source([1, 2]) | lz.map(Kept) | lz.filter(bool) | lz.enumerate()
    pipeline = stream | lz.map(lambda pair: isinstance(pair[1], Kept))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        print(*lz.run(pipeline, executor=lz.futures(pool, buffer_size=2)))
"""


def test_items_of_a_class_of_the_main_module(tmp_path: Path) -> None:
    assert script(tmp_path, OF_A_SCRIPT) == "True True\n"


@pytest.mark.parametrize("source", [range(12), Stream(12)], ids=["seekable", "stream"])
def test_what_is_ready_is_not_made_again_after_leaving(source: Any) -> None:
    made: list[int] = []

    def note(x: int) -> int:
        made.append(x)
        sleep(0.05)  # so that items come one by one
        return x

    with ThreadPoolExecutor(1) as pool:
        run = lz.run(lz.source(source) | lz.map(note), executor=lz.futures(pool, buffer_size=4))
        with run:
            found = [next(run)]
            until(lambda: run.stats.ready >= 2)
            ready = run.stats.ready
        with run:
            found += run
    assert found == [*range(12)]
    assert [made.count(x) for x in range(1 + ready)] == [1] * (1 + ready)


def test_large_items_into_tasks(pool: Any) -> None:
    pipeline = lz.source(Images()) | lz.map(doubled)
    with lz.run(pipeline, executor=lz.futures(pool, buffer_size=2)) as run:
        assert equal(list(run), list(pipeline))


class Images:
    def __iter__(self) -> Iterator[Any]:
        return map(image, range(5))


def doubled(item: dict[str, Any]) -> Any:
    item["pixels"] *= 2  # as it may if there is no other process
    return item["pixels"], item["box"]
