"""Pools and clusters that break, hang or are gone, and runs that are left on them."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from tests.executors.cases import Stream, until_error
from tests.executors.faults import LATE
from tests.executors.pools.test_futures import SPAWN
from tests.helpers import nothing_is_left, until


class Deadly:
    """Kills its worker at 5, until there is the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, x: int) -> int:
        if x == 5 and not self.path.exists():
            self.path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x


@pytest.mark.parametrize("source", [range(12), Stream(12)], ids=["seekable", "stream"])
def test_a_pool_that_breaks(source: Any, tmp_path: Path) -> None:
    breaks(lambda: ProcessPoolExecutor(1, mp_context=SPAWN), source, tmp_path)


def breaks(fresh: Callable[[], Any], source: Any, tmp_path: Path) -> None:
    pipeline = lz.source(source) | lz.map(Deadly(tmp_path / "died"))
    pool = fresh()
    with lz.run(pipeline, executor=lz.futures(pool, buffer_size=2)) as run:
        items, error = until_error(run)
        assert type(error) is lz.WorkerDied
        assert isinstance(error.__cause__, RuntimeError)  # the pool's own
        assert items == [*range(len(items))]
        assert run.state.items == len(items) <= 5
        with pytest.raises(lz.WorkerDied):  # it stays broken
            next(run)
        state = run.state
    pool.shutdown()
    other = fresh()
    with lz.run(pipeline, state, executor=lz.futures(other, buffer_size=2)) as run:
        assert list(run) == [*range(len(items), 12)]
    other.shutdown()


def test_a_pool_that_was_shut_down() -> None:
    pool = ThreadPoolExecutor(1)
    run = lz.run(lz.source(range(10**6)), executor=lz.futures(pool, buffer_size=1))
    assert next(run) == 0
    pool.shutdown()
    items, error = until_error(run)
    assert type(error) is lz.WorkerDied
    assert "shutdown" in str(error.__cause__)
    assert run.state.items == 1 + len(items)


def test_a_task_that_hangs() -> None:
    go_on = threading.Event()

    def hangs(x: int) -> int:
        if x == 1:
            go_on.wait()
        return x

    with ThreadPoolExecutor(1) as pool:
        executor = lz.futures(pool, buffer_size=1, timeout=LATE)
        run = lz.run(lz.source(range(5)) | lz.map(hangs), executor=executor)
        items, error = until_error(run)
        go_on.set()
        assert (items, type(error)) == ([0], lz.WorkerTimeout)
        assert pool.submit(int).result() == 0  # the pool is free again
        assert list(run) == [1, 2, 3, 4]


class Blocked:
    """A thread pool's tasks that wait, from the second item on."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.seen: list[int] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.go_on.set()

    def __call__(self, x: int) -> int:
        self.seen.append(x)
        if x:
            self.begun.set()
            self.go_on.wait()
        return x


@pytest.mark.parametrize("source", [range(20), Stream(20)], ids=["seekable", "stream"])
def test_closing_with_work_in_flight(source: Any) -> None:
    blocked = Blocked()
    with ThreadPoolExecutor(1) as pool, blocked:
        with lz.run(
            lz.source(source) | lz.map(blocked), executor=lz.futures(pool, buffer_size=5)
        ) as run:
            assert next(run) == 0
            blocked.begun.wait()
        nothing_is_left()
        blocked.go_on.set()
        assert pool.submit(int).result() == 0  # it's still there, and nothing else was begun
        assert blocked.seen == [0, 1]
        assert run.state.items == 1
        with run:
            assert list(run) == [*range(1, 20)]
    nothing_is_left()


class Kept(ThreadPoolExecutor):
    """An executor that keeps the futures that it returned."""

    def __init__(self) -> None:
        super().__init__(1)
        self.futures: list[Future[Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.futures.append(super().submit(fn, *args, **kwargs))
        return self.futures[-1]


def test_a_run_that_nobody_holds() -> None:
    blocked = Blocked()
    with Kept() as pool, blocked:
        executor = lz.futures(pool, buffer_size=5)
        run = lz.run(lz.source(range(20)) | lz.map(blocked), executor=executor)
        assert next(run) == 0
        blocked.begun.wait()
        del run
        gc.collect()
        until(lambda: all(future.cancelled() for future in pool.futures[2:]))  # in addition to this
        blocked.go_on.set()
        pool.submit(int).result()
        assert blocked.seen == [0, 1]
