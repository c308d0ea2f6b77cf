"""Runs next to and inside each other, and their leftovers."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import threading
import time
import tracemalloc
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from tests.executors.faults import (
    INLINE,
    LONG,
    QUICK,
    SERVED,
    Fault,
    each,
    in_a_stream,
    kill,
    of_each,
    script,
    seekable,
    wait,
)
from tests.helpers import traced, until, workers

pytestmark = pytest.mark.usefixtures("nothing_left")


@each(QUICK)
def test_two_runs_of_one_pipeline(executor: lz.Executor) -> None:
    pipeline = seekable(int, 300)
    with lz.run(pipeline, executor=executor) as one, lz.run(pipeline, executor=executor) as two:
        assert [*zip(one, two, strict=True)] == [(n, n) for n in range(300)]


def slowly(item: int) -> int:
    time.sleep(2e-3)  # so that workers are at it
    return item


@each(INLINE | QUICK)
def test_a_change_by_another_thread_again_and_again(executor: lz.Executor) -> None:
    items, errors, is_over = list[int](), list[str](), threading.Event()
    slow = lz.source(range(60)) | lz.map(slowly)
    with lz.run(slow | lz.batch(2), executor=executor) as run:

        def change() -> None:
            for size in cycle([3, 4, 2]):
                if is_over.wait(0.003):
                    return
                with suppress(lz.PipelineError):  # while an item is computed
                    run.change(slow | lz.batch(size))

        other = threading.Thread(target=change)
        other.start()
        while len(items) < 60:
            try:
                items += next(run)
                time.sleep(1e-3)  # in which the other thread may change it
            except lz.PipelineError as error:
                errors.append(str(error))
        is_over.set()
        other.join()
    assert items == [*range(60)]
    said = "changed in a different thread", "use one thread at a time"
    assert [error for error in errors if not any(text in error for text in said)] == []


@of_each(INLINE | QUICK)
def test_one_of_two_threads_that_ask_at_once_is_refused(
    executor: lz.Executor, shape: Any, flag: Path
) -> None:
    flag.touch()
    found: list[int] = []
    errors: list[Exception] = []
    with lz.run(shape(Fault(flag, 0, wait), 60), executor=executor) as run:

        def ask() -> None:
            try:
                found.append(next(run))
            except (lz.PipelineError, ValueError) as error:
                errors.append(error)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: errors)
        flag.unlink()
        for thread in threads:
            thread.join()
        found.extend(run)
    assert found == list(range(60))
    assert re.search("one thread at a time|already executing", str(errors[0]))


@pytest.mark.parametrize("name", ["load_state_dict", "advance"])
def test_a_run_that_waits_is_moved_by_no_other_thread(name: str) -> None:
    errors: list[Exception] = []

    def moving(x: int) -> int:
        if x == 0:  # so the run waits for it
            try:
                getattr(run, name)({"load_state_dict": start, "advance": 2}[name])
            except lz.PipelineError as error:
                errors.append(error)
        return x

    with lz.run(lz.source(range(9)) | lz.map(moving), executor=lz.threads(2)) as run:
        start = run.state
        assert list(run) == list(range(9))
    assert f"{name}: an item is being computed" in str(errors[0])


def test_workers_of_one_run_do_not_keep_those_of_another(flag: Path) -> None:
    """Each was forked while the other's pipes were open."""
    executor = SERVED["processes1"]
    with lz.run(seekable(Fault(flag, 5, kill)), executor=executor) as one:
        first = next(one)
        with lz.run(seekable(int, 99), executor=executor) as two:
            next(two)
            with pytest.raises(lz.WorkerDied, match="SIGKILL"):
                list(one)
            assert (first, len(list(two))) == (0, 98)


class Nested:
    """A function that has a run of its own."""

    def __init__(self, executor: lz.Executor) -> None:
        self.executor = executor

    def __call__(self, item: int) -> int:
        with lz.run(seekable(int, item + 3), executor=self.executor) as run:
            return sum(run)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (lz.threads(2), lz.threads(2)),
        (lz.processes(2), lz.threads(2)),
        (lz.processes(2), lz.processes(2)),
        (lz.processes(2, start_method="spawn"), lz.processes(2)),
        (lz.threads(2), lz.processes(2)),
    ],
    ids=lambda executor: executor.public.__name__,
)
def test_nested_runs(outer: lz.Executor, inner: lz.Executor) -> None:
    with lz.run(seekable(Nested(inner), 4), executor=outer) as run:
        assert list(run) == [3, 6, 10, 15]


def held() -> tuple[int, int, int]:
    """Our processes and threads, and open files."""
    gc.collect()
    return len(workers()), threading.active_count(), len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("executor", "cycles"),
    [(lz.threads(), 80), (lz.threads(2), 80), (lz.processes(), 25)],
    ids=["threads", "threads2", "processes"],
)
def test_opening_and_closing_leaks_nothing(executor: lz.Executor, cycles: int) -> None:
    pipelines = [lz.source(range(10**6)) | lz.map(ones), in_a_stream(ones, 10**3)]

    def cycle(count: int) -> None:
        for number in range(count):
            with lz.run(pipelines[number % 2], executor=executor) as run:
                assert len(next(run)) == 5000

    cycle(10)
    before = held()
    with traced():
        cycle(10)
        gc.collect()
        used = tracemalloc.get_traced_memory()[0]
        cycle(cycles)
        until(lambda: held() <= before)
        until(lambda: not gc.collect() and tracemalloc.get_traced_memory()[0] < used + 500_000)


def ones(item: int) -> Any:
    return np.ones(5000)


def test_a_forked_process_leaves_the_workers_alone() -> None:
    with lz.run(seekable(int, 10**5), executor=SERVED["processes1"]) as run:
        next(run)
        child = multiprocessing.get_context("fork").Process(target=consume, args=(run,))
        child.start()
        child.join(LONG)
        assert child.exitcode == 0
        assert len(list(run)) == 10**5 - 1


FORKED_AT_ONCE = """
import os
in_child = []
os.register_at_fork(after_in_child=lambda: [each() for each in in_child])  # before lazyckpt does

import lazyckpt as lz

with lz.run(lz.source(range(9)) | lz.map(str), executor=lz.processes()) as run:
    next(run)
    in_child.append(run.close)
    if not (child := os.fork()):
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(*run, run.stats.restarts)
"""


def test_a_forked_process_that_closes_the_run_at_once_leaves_them_alone(tmp_path: Path) -> None:
    """As in a forked process that collects garbage before it knows that it was forked."""
    assert script(tmp_path, FORKED_AT_ONCE) == "1 2 3 4 5 6 7 8 0\n"


def consume(run: lz.Run[Any]) -> None:
    assert len(list(islice(run, 1000))) == 1000
    run.close()
