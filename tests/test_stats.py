"""`run.stats`: its counts, under any executor."""

from __future__ import annotations

import math
import os
import signal
from operator import mul
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from tests.executors.cases import PIPELINES
from tests.helpers import HANGS, until

EXECUTORS = [None, lz.threads(1), lz.threads(2), lz.processes(1), lz.processes(2)]


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("name", PIPELINES)
def test_items_are_those_delivered_since_the_run_began(
    name: str, executor: lz.Executor | None
) -> None:
    pipeline = PIPELINES[name]
    state = lz.state_at(pipeline, 2)
    with lz.run(pipeline, state, executor=executor) as run:
        assert run.stats.items == 0
        for count, _ in enumerate(run, 1):
            stats = run.stats
            assert stats.items == count == run.state.items - 2
            assert stats.ready >= 0
            assert 0 <= stats.waiting <= 1
            assert stats.waited <= stats.seconds
    assert run.stats.ready == 0
    assert run.stats.restarts == run.stats.skipped == 0


@given(st.lists(st.sampled_from(["next", "advance", "go back", "epoch", "error"]), max_size=12))
def test_what_a_run_jumps_over_is_no_item(moves: list[str]) -> None:
    def may_fail(x: int) -> int:
        if fails:
            raise ValueError("x")
        return x

    fails = False
    run = lz.run(lz.source(range(10)) | lz.map(may_fail) | lz.repeat())
    begin, delivered = run.state, 0
    for move in moves:
        if move == "next":
            next(run)
            delivered += 1
        elif move == "advance":
            run.advance(3)
        elif move == "go back":
            run.load_state_dict(begin)
        elif move == "error":
            fails = True
            with pytest.raises(ValueError, match="x"):
                next(run)
            fails = False
        else:
            delivered += sum(1 for _ in run.epoch(4))
        assert run.stats.items == delivered


SLEEP = 0.0099  # seconds of `sleep(0.01)`, as another clock may see it


def test_the_waiting_share_is_that_of_the_slow_side() -> None:
    def slow(x: int) -> int:
        sleep(0.01)
        return x

    for executor in (lz.inline(), lz.threads(1)):
        with lz.run(lz.source(range(8)) | lz.map(slow), executor=executor) as run:
            assert math.isnan(run.stats.waiting)
            assert len([*run]) == 8
        stats = run.stats
        assert stats.waited >= 8 * SLEEP
        assert stats.waiting == stats.waited / stats.seconds
    quick = lz.run(lz.source(range(8)) | lz.map(abs))
    assert math.isnan(quick.stats.waiting)
    for _ in quick:
        sleep(0.01)
    assert quick.stats.seconds - quick.stats.waited >= 8 * SLEEP


def test_no_time_passes_at_the_end_or_while_the_run_is_closed() -> None:
    run = lz.run(lz.source(range(3)))
    assert run.stats == lz.types.Stats()
    next(run)
    first = run.stats
    assert first.seconds < run.stats.seconds
    run.close()
    closed = run.stats.seconds
    assert closed == run.stats.seconds
    with run:
        assert len([*run]) == 2
        assert closed < run.stats.seconds == run.stats.seconds
    since = run.stats - first
    assert (since.items, since.rate) == (2, 2 / since.seconds)


def test_items_left_out_and_workers_lost_are_counted() -> None:
    texts = lz.source(["1", "a", "3", "b"]) | lz.map(int)
    for executor in (None, lz.threads(2)):
        with lz.run(texts, executor=executor, on_error="skip") as run:
            assert [*run] == [1, 3]
            assert run.stats.skipped == run.skipped == 2

    deadly = lz.source(range(6)) | lz.map(_kill_worker, os.getpid())
    with lz.run(deadly, executor=lz.processes(2, timeout=60)) as run:
        assert run.stats.restarts == 0
        with pytest.raises(lz.WorkerDied):
            list(run)
        assert (run.stats.items, run.stats.restarts) == (3, 1)

    with lz.run(deadly | lz.map(mul, 1), executor=lz.processes(2, timeout=60)) as run:
        with pytest.raises(lz.WorkerDied):
            list(run)
        run.change(deadly | lz.map(mul, 2))
        assert (run.stats.items, run.stats.restarts) == (3, 1)


def _kill_worker(consumer: int, x: int) -> int:
    if x == 3 and os.getpid() != consumer:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def test_what_workers_have_ready_is_counted() -> None:
    made = Event()

    def note(x: int) -> int:
        if x == 3:
            made.set()
        return x * (1 << 20) * b"x" and x

    with lz.run(lz.source(range(9)) | lz.map(note), executor=lz.threads(1, buffer_size=4)) as run:
        next(run)
        assert made.wait(HANGS)
        until(lambda: run.stats.ready >= 2)
        ready = run.stats.ready
        assert ready <= 8


def test_any_thread_may_ask() -> None:
    found: list[Any] = []
    is_over = Event()
    with lz.run(lz.source(range(20_000)) | lz.map(abs), executor=lz.threads(2)) as run:

        def ask() -> None:
            while not is_over.is_set():
                found.append(run.stats)

        thread = Thread(target=ask)
        thread.start()
        assert len([*run]) == 20_000
        is_over.set()
        thread.join()
    items = [stats.items for stats in found]
    assert items == sorted(items)
    assert run.stats.items == 20_000
