"""Which item a worker died or hung at: those before it come, and the error names it."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from time import sleep
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.pools.progress import Progress, shared_cells
from tests.executors.faults import FORKED, OTHERS, Fault, each, fails, kill, notes, shapes, wait

pytestmark = pytest.mark.usefixtures("nothing_left")

SIZE, AT = 400, 333  # within a task of many
MANY = 20_000  # in tasks of thousands
HUNG: dict[str, Executor] = {
    "threads": lz.threads(timeout=1),
    "threads2": lz.threads(2, timeout=1),
    "fork": lz.processes(timeout=1, start_method="fork"),
    "fork2": lz.processes(2, timeout=1, start_method="fork"),
}


def replayed(pipeline: Any, error: BaseException) -> Any:
    """The item that the error's note tells how to make again."""
    _, _, text = notes(error).partition("lz.replay(pipeline, state) makes it again; state = '")
    return lz.replay(pipeline, json.loads(text.partition("'")[0]))


def names_the_item(run: lz.Run[Any], pipeline: Any, kind: type[Exception], flag: Path) -> None:
    found: list[Any] = []
    error = fails(run, found, kind)
    assert found == list(range(AT))
    assert f"after {AT} delivered items" in notes(error)
    if len(pipeline.calls) < 4:  # few stages it may come from
        assert "map(<Fault>), built at" in notes(error)
    assert "sieve" not in notes(error)
    flag.unlink(missing_ok=True)
    assert replayed(pipeline, error) == AT
    assert [*found, *run] == list(range(SIZE))


@shapes
@each(FORKED)
def test_a_worker_that_dies(executor: Executor, shape: Any, flag: Path) -> None:
    pipeline = shape(Fault(flag, AT, kill), SIZE)
    with lz.run(pipeline, executor=executor) as run:
        names_the_item(run, pipeline, lz.WorkerDied, flag)


@each(OTHERS)
def test_a_worker_that_dies_however_it_was_started(executor: Executor, flag: Path) -> None:
    pipeline = lz.source(range(SIZE)) | lz.map(Fault(flag, AT, kill))
    with lz.run(pipeline, executor=executor) as run:
        names_the_item(run, pipeline, lz.WorkerDied, flag)


@shapes
@each(HUNG)
def test_a_worker_that_hangs(executor: Executor, shape: Any, flag: Path) -> None:
    pipeline = shape(Fault(flag, AT, wait), SIZE)
    with lz.run(pipeline, executor=executor) as run:
        names_the_item(run, pipeline, lz.WorkerTimeout, flag)


@shapes
@each({name: executor for name, executor in HUNG.items() if name.startswith("threads")})
def test_a_thread_that_hangs_is_told_of_also_where_records_are_left_out(
    executor: Executor, shape: Any, flag: Path
) -> None:
    pipeline = shape(Fault(flag, AT, wait), SIZE)
    with lz.run(pipeline, executor=executor, on_error="skip") as run:
        names_the_item(run, pipeline, lz.WorkerTimeout, flag)


def test_one_stage_is_named_where_only_one_can_be_meant(flag: Path) -> None:
    pipeline = lz.source(range(9)) | lz.map(Fault(flag, 5, kill)) | lz.batch(2)
    with lz.run(pipeline, executor=FORKED["fork2"]) as run:
        error = fails(run, [], lz.WorkerDied)
        assert "lazyckpt: in map(<Fault>), built at" in notes(error)


def test_a_worker_that_is_killed_while_it_is_idle_blames_no_stage(flag: Path) -> None:
    executor = lz.processes(start_method="fork", worker_init=lambda index: kill(flag))
    with lz.run(lz.source(range(9)) | lz.map(int), executor=executor) as run:
        error = fails(run, [], lz.WorkerDied)
        assert "lazyckpt: after 0 delivered items" in notes(error)


class Deadly:
    """The identity, but a worker does not survive one item, however often it tries."""

    def __init__(self, at: int) -> None:
        self.at, self.here = at, os.getpid()

    def __call__(self, item: int) -> int:
        if item == self.at and os.getpid() != self.here:
            os.kill(os.getpid(), signal.SIGKILL)
        return item


@shapes
@pytest.mark.parametrize("workers", [1, 2])
@settings(max_examples=3)
@given(at=st.integers(0, MANY - 1))
@example(512)
@example(MANY - 1)
def test_one_of_thousands(shape: Any, workers: int, at: int) -> None:
    pipeline = shape(Deadly(at), MANY)
    found: list[int] = []
    with lz.run(pipeline, executor=lz.processes(workers, start_method="fork")) as run:
        error = fails(run, found, lz.WorkerDied)
        state = run.state
    assert found == list(range(at))
    assert f"after {at:,} delivered items" in notes(error)
    assert replayed(pipeline, error) == at
    assert [*found, *lz.run(pipeline, state)] == list(range(MANY))


@shapes
def test_one_of_thousands_is_left_out(shape: Any) -> None:
    pipeline = shape(Deadly(MANY - 100), MANY)
    executor = lz.processes(2, start_method="fork")
    with lz.run(pipeline, executor=executor, on_error="skip") as run:
        assert list(run) == [item for item in range(MANY) if item != MANY - 100]
        assert run.skipped == 1


@shapes
def test_a_worker_of_thousands_that_is_killed_by_someone_else(shape: Any, flag: Path) -> None:
    pipeline = shape(Fault(flag, MANY - 100, kill), MANY)
    found: list[int] = []
    with lz.run(pipeline, executor=lz.processes(start_method="fork")) as run:
        fails(run, found, lz.WorkerDied)
        assert len(found) >= MANY - 100
        assert [*found, *run] == list(range(MANY))


def slow_behind_thousands(item: int) -> int:
    if 15_000 <= item < 15_128:
        sleep(0.02)
    return item


@shapes
def test_slow_items_behind_thousands_are_not_late(shape: Any) -> None:
    pipeline = shape(slow_behind_thousands, MANY)
    with lz.run(pipeline, executor=lz.processes(timeout=1, start_method="fork")) as run:
        assert list(run) == list(range(MANY))


@pytest.mark.parametrize("size", [0, 1, 20_000])
def test_items_are_counted_while_they_are_made(size: int) -> None:
    progress = Progress(shared_cells(get_context("fork"), 2), 1)
    progress.end()
    assert progress.made(7) is None
    items, seen = progress.begin(7), []

    def make() -> Any:
        for number in range(size):
            seen.append(progress.made(7))
            yield number

    items.extend(make())
    assert items == seen == list(range(size))
    progress.begin(8).append("one")
    assert (progress.made(7), progress.made(8)) == (None, 1)


class Interrupt(BaseException):
    pass


def test_an_interrupt_while_memory_is_shared_leaves_it_in_order() -> None:
    context, left = get_context("fork"), 0

    def interrupt(frame: FrameType, event: str, found: Any) -> None:
        nonlocal left
        left -= event in ("call", "c_return")
        if not left:
            sys.setprofile(None)
            raise Interrupt

    for number in count(3):
        left = number
        with suppress(Interrupt):
            sys.setprofile(interrupt)
            shared_cells(context, 2)
            sys.setprofile(None)
        sys.setprofile(None)
        assert Progress(shared_cells(context, 2), 1).reached() == (0,) * 4
        if left > 0:
            return
