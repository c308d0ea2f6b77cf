"""A dozen faults of functions and workers: reported soon, at their item, and the run continues."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from tests.executors.faults import (
    ERRORS,
    EVERY,
    HUNG,
    ITEMS,
    LATE,
    LOSSES,
    PROCESSES,
    SERVED,
    SHAPES,
    SOON,
    Fault,
    Odds,
    Sorry,
    Told,
    apologise,
    chosen,
    each,
    fails,
    in_a_stream,
    keep,
    kill,
    lock,
    notes,
    of_each,
    replayed,
    script,
    seekable,
    unreceivable_like_a_pipe,
    unsendable_like_a_pipe,
    wait,
)
from tests.helpers import until, worker_pids, workers

pytestmark = pytest.mark.usefixtures("nothing_left")

SIZE, AT = 400, 333  # within a task of many


def cases(several: dict[Callable[[Path], Any], Told]) -> list[Any]:
    """Each fault with each executor, and these with each shape; each loss with each shape."""
    return [
        pytest.param(what, told, executor, shape, id=f"{what.__name__}-{name}-{shape.__name__}")
        for row, (what, told) in enumerate(several.items())
        for column, (name, executor) in enumerate(told.executors.items())
        for number, shape in enumerate([*SHAPES, chosen])
        if (row + column + number) % (len(told.executors) if what in LOSSES else 5) == 0
    ]


@pytest.fixture
def heirless(flag: Path) -> Iterator[None]:
    yield
    flag.touch()  # which an heir waits for


@pytest.mark.usefixtures("heirless")
@pytest.mark.parametrize(("what", "told", "executor", "shape"), cases(ERRORS | ITEMS | LOSSES))
def test_a_fault(what: Any, told: Told, executor: lz.Executor, shape: Any, flag: Path) -> None:
    """The items before it come, it comes again if it stays, and then the others come."""
    pipeline = shape(Fault(flag, AT, what), SIZE)
    found: list[Any] = []
    with lz.run(pipeline, executor=executor) as run:
        for _ in range(1 if told.is_once else 2):
            begun = monotonic()
            error = fails(run, found, told.kind, told.says)
            assert monotonic() - begun < 2 * SOON
            assert found == list(range(AT))
            assert run.state == lz.state_at(pipeline, AT)
            assert re.search(told.note, notes(error))
            assert f"after {AT} delivered items" in notes(error) or not told.note
            assert "lz.replay(" in notes(error) or not told.note
            if what in ERRORS and told.note and executor.public is lz.processes:
                assert what.__name__ == "Domestic" or "in __call__" in notes(error)
            assert getattr(error, "what", "bread") == "bread"
        flag.unlink(missing_ok=True)
        assert what not in LOSSES or replayed(pipeline, error) == AT
        found.extend(run)
        assert found == list(range(SIZE))
        inline = lz.run(pipeline)
        assert list(inline) == found
        assert run.state == inline.state


@pytest.mark.parametrize("at", [0, 99])
@pytest.mark.parametrize("what", [lock, kill, unreceivable_like_a_pipe])
def test_the_first_item_and_the_last(what: Any, at: int, flag: Path) -> None:
    for shape, executor in zip(SHAPES, [*SERVED.values()] * 2, strict=True):
        flag.touch()
        found: list[Any] = []
        with lz.run(shape(Fault(flag, at, what), 100), executor=executor) as run:
            fails(run, found, (ITEMS | LOSSES)[what].kind)
            assert found == list(range(at))
            flag.unlink(missing_ok=True)
            assert [*found, *run] == list(range(100))


@pytest.mark.parametrize("gives", [lock, unsendable_like_a_pipe, unreceivable_like_a_pipe])
def test_tasks_that_can_not_cross(gives: Any, flag: Path) -> None:
    pipeline = lz.source(Odds(flag, gives)) | lz.map(int)
    found: list[Any] = []
    with lz.run(pipeline, executor=lz.processes(2)) as run:
        for _ in range(2):
            fails(run, found, ITEMS[gives].kind)
            assert found == list(range(50))
        flag.unlink()
        found.extend(run)
    assert found == list(range(100))


@each(EVERY)
def test_an_error_does_not_wait_for_work_in_flight(executor: lz.Executor, flag: Path) -> None:
    waiting = flag.with_name("waiting")
    waiting.touch()
    pipeline = seekable(Fault(waiting, 1, wait)) | lz.map(Fault(flag, 0, apologise))
    with lz.run(pipeline, executor=executor) as run:
        begun = monotonic()
        fails(run, [], Sorry)
        assert monotonic() - begun < 2 * SOON  # work in flight takes twice as long
        waiting.unlink()


def test_one_stage_is_named_where_only_one_can_be_meant(flag: Path) -> None:
    pipeline = lz.source(range(9)) | lz.map(Fault(flag, 5, kill)) | lz.batch(2)
    with lz.run(pipeline, executor=SERVED["processes2"]) as run:
        error = fails(run, [], lz.WorkerDied)
        assert "lazyckpt: in map(<Fault>), built at" in notes(error)


def test_a_worker_that_is_killed_while_it_is_idle_blames_no_stage(flag: Path) -> None:
    executor = lz.processes(worker_init=lambda index: kill(flag))
    with lz.run(lz.source(range(9)) | lz.map(int), executor=executor) as run:
        error = fails(run, [], lz.WorkerDied)
        assert "lazyckpt: after 0 delivered items" in notes(error)


@of_each(PROCESSES)
def test_workers_killed_while_they_are_idle(executor: lz.Executor, shape: Any) -> None:
    found: list[Any] = []
    with lz.run(shape(int, 10**4), executor=executor) as run:
        found.append(next(run))
        run.pause()
        for worker in worker_pids():
            with suppress(ProcessLookupError):  # a trial of the server's
                os.kill(worker, signal.SIGKILL)
        run.unpause()  # which a gate that the dead hold would not
        begun = monotonic()
        fails(run, found, lz.WorkerDied, "SIGKILL")
        assert monotonic() - begun < SOON
        assert [*found, *run] == list(range(10**4))


def large(item: int) -> Any:
    return np.full(1 << 20, item)


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_worker_killed_amid_a_large_array(shared_memory: bool) -> None:
    executor = lz.processes(buffer_size=8, shared_memory=shared_memory)
    found: list[int] = []
    with lz.run(lz.source(range(30)) | lz.map(large), executor=executor) as run:
        found.append(int(next(run)[0]))
        [worker] = worker_pids()
        if not shared_memory:  # it writes until the pipe is full, or all 8 have been taken in
            stat = Path(f"/proc/{worker}/wchan")
            until(lambda: stat.read_text().startswith(("sock", "unix")))
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(lz.WorkerDied, match="SIGKILL"):
            found.extend(int(item[0]) for item in run)
        assert run.state.items == len(found)
        found.extend(int(item[0]) for item in run)
    assert found == list(range(30))


def test_a_thread_that_hung_and_wakes_up_is_in_nobodys_way() -> None:
    woken, hangs = threading.Event(), [True]

    def slow(item: int) -> int:
        if item == 5 and hangs:
            hangs.clear()
            woken.wait()
        return item

    pipeline = lz.source(range(10**4)) | lz.map(slow) | lz.filter(lambda item: True)
    found: list[int] = []
    with lz.run(pipeline, executor=lz.threads(timeout=LATE)) as run:
        fails(run, found, lz.WorkerTimeout)
        found.extend(islice(run, 3))
        woken.set()
        until(lambda: len(workers()) == 1)
        found.extend(run)
    assert found == list(range(10**4))


def test_a_source_that_hangs_beside_the_consumer(flag: Path) -> None:
    pipeline = lz.source(Odds(flag, wait)) | lz.map(str) | lz.filter(keep)
    with lz.run(pipeline, executor=lz.threads(2, timeout=0.3)) as run:
        fails(run, [], lz.WorkerTimeout)
        flag.unlink()


def test_a_thread_that_hangs_is_told_of_also_where_records_are_left_out(tmp_path: Path) -> None:
    def told(shape: Any) -> None:
        flag, found = tmp_path / shape.__name__, list[Any]()
        flag.touch()
        pipeline = shape(Fault(flag, AT, wait), SIZE)
        with lz.run(pipeline, executor=HUNG["threads2"], on_error="skip") as run:
            fails(run, found, lz.WorkerTimeout)
            assert found == list(range(AT))
            flag.unlink()
            assert [*found, *run] == list(range(SIZE))

    with ThreadPoolExecutor(2) as both:  # as each of them takes that long
        assert [*both.map(told, [seekable, in_a_stream])] == [None, None]


HIDDEN = """
import sys
sys.modules["cloudpickle"] = None
import lazyckpt as lz
from tests.executors import faults

if __name__ == "__main__":
    executor = lz.processes(start_method={method!r}{more})
    run = lz.run(lz.source(range(9)) | lz.map({fn}), executor=executor)
    try:
        list(run)
    except lz.PipelineError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("method", "fn", "more", "says"),
    [
        ("spawn", "lambda x: x", "", "map(<lambda>), built at"),
        ("forkserver", "str", ", worker_init=lambda index: None", "worker_init"),
    ],
)
def test_functions_that_do_not_pickle(
    method: str, fn: str, more: str, says: str, tmp_path: Path
) -> None:
    out = script(tmp_path, HIDDEN.format(method=method, fn=fn, more=more))
    assert says in out
    assert "can't be sent to a worker process" in out
    assert "define the function in a module" in out
    assert 'pip install "lazyckpt[processes]"' in out


def holding(held: Any) -> Any:
    return lambda item: held


@each(SERVED)
def test_functions_that_hold_what_would_come_as_something_else(
    executor: lz.Executor, flag: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = memoryview(b"bread")
    with flag.open() as file:
        for held, says in ((view, "would become bytes"), (file, "text would be sent")):
            with (
                lz.run(seekable(holding(held)), executor=executor) as run,
                pytest.raises(lz.PipelineError, match=rf"map\(.*built at.*{says}"),
            ):
                list(run)
    monkeypatch.setattr(sys, "stdout", out := sys.__stdout__)
    with lz.run(lz.source([1]) | lz.map(lambda x: out is sys.stdout), executor=executor) as run:
        assert list(run) == [True]
