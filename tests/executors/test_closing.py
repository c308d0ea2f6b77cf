"""Runs that are left, closed or dropped: no worker outlives them."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Barrier
from time import monotonic, sleep
from typing import Any
from weakref import ref

import pytest

import lazyckpt as lz
from tests.executors.faults import (
    EVERY,
    QUICK,
    SERVED,
    SOON,
    THREADS,
    Fault,
    each,
    every_other,
    keep,
    of_each,
    script,
    seekable,
    wait,
)
from tests.helpers import is_alive, until, workers

pytestmark = pytest.mark.usefixtures("nothing_left")


@of_each(QUICK)
def test_closing_with_long_work_in_flight(executor: lz.Executor, shape: Any, flag: Path) -> None:
    pipeline = shape(Fault(flag, 5, wait))
    run = lz.run(pipeline, executor=executor)
    found = [next(run)]
    begun = monotonic()
    run.close()
    run.close()
    assert monotonic() - begun < SOON
    with pytest.raises(lz.PipelineError, match="closed"):
        list(run)
    assert run.state == lz.state_at(pipeline, 1)
    flag.unlink()
    with run:
        found.extend(run)
    assert found == list(range(9))


@of_each(QUICK, shift=1)
def test_closing_in_a_signal_handler(executor: lz.Executor, shape: Any, flag: Path) -> None:
    """As a trainer does that is told to end: it may be waiting for an item."""
    run = lz.run(shape(Fault(flag, 5, Told(os.getpid()))), executor=executor)
    handler = signal.signal(signal.SIGUSR1, lambda number, frame: run.close())
    try:
        found = list(run)
        assert found == list(range(len(found)))
        assert len(found) < 9
        assert run.state.items == len(found)
        flag.unlink()
        with run:
            assert [*found, *run] == list(range(9))
    finally:
        signal.signal(signal.SIGUSR1, handler)


class Lines:
    """The lines of a file, as one stream."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[str]:
        with self.path.open() as file:
            yield from file


def moved(line: str) -> Path:
    return Path(line.strip())


FILES: dict[str, Callable[[list[Path]], lz.Pipeline[Any]]] = {
    "opened": lambda paths: lz.source(paths) | lz.flat_map(Lines) | lz.map(str),
    "filtered": lambda paths: lz.source(paths) | lz.flat_map(Lines) | lz.filter(keep),
    "mapped first": lambda paths: (
        lz.source(paths) | lz.filter(keep) | lz.map(Path) | lz.flat_map(Lines)
    ),
    "opened twice": lambda paths: (
        lz.source(paths) | lz.flat_map(Lines) | lz.map(moved) | lz.flat_map(Lines) | lz.batch(2)
    ),
    "interleaved": lambda paths: (
        lz.source(paths) | lz.interleave_map(Lines, cycle_length=3) | lz.map(str)
    ),
    "wide": lambda paths: (
        lz.source(paths) | lz.interleave_map(Lines, cycle_length=70) | lz.map(str)
    ),
    "mixed": lambda paths: (
        lz.mix([lz.source(Lines(path)) for path in paths[:3]], weights=[1, 1, 1], seed=0)
        | lz.map(str)
    ),
}


def rest(threads: ThreadPoolExecutor) -> None:
    """Wait until two threads have done their tasks: a future that runs isn't cancelled."""
    meeting = Barrier(3)
    for _ in range(2):
        threads.submit(meeting.wait)
    meeting.wait(SOON)


@pytest.mark.parametrize(
    ("files", "name"),
    every_other(FILES, ["threads", "processes2", "threads2", "inline", "futures"]),
)
def test_closing_closes_files(files: str, name: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as threads:
        executors = {
            **QUICK,
            "futures": lz.futures(threads, buffer_size=2),
            "inline": lz.inline(),
        }
        closes_files(files, executors[name], tmp_path, lambda: rest(threads))


def closes_files(
    files: str, executor: lz.Executor, tmp_path: Path, rest: Callable[[], None] = lambda: None
) -> None:
    paths = [tmp_path / str(number) for number in range(80)]
    for path in paths:
        path.write_text(f"{path}\n" * 9)
    pipeline = FILES[files](paths)
    gc.collect()
    gc.disable()
    try:
        run, found = lz.run(pipeline, executor=executor), list[Any]()
        for is_settled in (False, True, False):
            with run:
                found += [next(run), next(run)]
                if is_settled:  # so that workers have items ready
                    sleep(0.05)
            rest()
            until(lambda: not open_files(tmp_path), SOON)
            assert run.state.items == len(found)
            assert not open_files(tmp_path)
        with run:
            found += [next(run), next(run)]
            run.close()
        until(lambda: not open_files(tmp_path), SOON)
        assert run.state == lz.state_at(pipeline, len(found))
        assert found == list(islice(pipeline, len(found)))
    finally:
        gc.enable()


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Nothing goes that is part of a cycle."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@each(THREADS)
def test_what_is_read_to_its_end_is_closed(executor: lz.Executor, tmp_path: Path) -> None:
    """The files in which positions were looked up, too: no loop has to ask for the end."""
    paths = [tmp_path / str(number) for number in range(70)]
    for path in paths:
        path.write_text("line\n" * 30)
    with lz.run(FILES["wide"](paths), executor=executor) as run:
        assert list(islice(run, 2099)) == ["line\n"] * 2099
        until(lambda: not open_files(tmp_path), SOON)
        assert list(run) == ["line\n"]


def open_files(folder: Path) -> list[str]:
    """The files in a folder that this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(os.readlink(link))
    return [path for path in found if path.startswith(str(folder))]


class Told:
    """Sends the consumer a signal, and takes long."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def __call__(self, flag: Path) -> None:
        os.kill(self.pid, signal.SIGUSR1)
        wait(flag)


def test_a_trainers_handler_is_not_the_workers(flag: Path) -> None:
    handler = signal.signal(signal.SIGTERM, lambda number, frame: flag.with_name("saved").touch())
    try:
        run = lz.run(seekable(Fault(flag, 5, wait)), executor=SERVED["processes2"])
        next(run)
        run.close()
        assert not flag.with_name("saved").exists()
    finally:
        signal.signal(signal.SIGTERM, handler)


@pytest.mark.usefixtures("uncollected")
@of_each(EVERY)
def test_a_run_that_nobody_holds_lets_its_workers_go(executor: lz.Executor, shape: Any) -> None:
    run = lz.run(shape(int, 10**6), executor=executor)
    next(run)
    assert workers()
    dropped = ref(run)
    del run
    assert dropped() is None
    until(lambda: not workers(), SOON)
    for item in lz.run(shape(int, 10**6), executor=executor):
        assert item == 0
        break
    until(lambda: not workers(), SOON)


@pytest.mark.usefixtures("uncollected")
def test_a_signal_while_a_dropped_run_ends_is_not_lost(flag: Path) -> None:
    """An error that is raised within a finalizer is printed and forgotten."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, interrupt)
    gc.freeze()  # collecting the rest takes no time, in which other software would lose it
    try:
        run = lz.run(seekable(Fault(flag, 2, wait)), executor=lz.threads(2))
        cycle: list[Any] = [run, next(run)]
        cycle.append(cycle)
        del run, cycle
        signal.setitimer(signal.ITIMER_REAL, 0.2)  # a thread waits, and its end is waited for
        with pytest.raises(KeyboardInterrupt):
            until(lambda: gc.collect() < 0, SOON)
    finally:
        signal.signal(signal.SIGALRM, handler)
        flag.unlink()
    until(lambda: not workers(), SOON)


UNCLOSED = """
import sys, time
import lazyckpt as lz
from tests.helpers import pids_of

def slowly(x):
    time.sleep(x and 0.01)
    return x

if __name__ == "__main__":
    executor = {executor}
    pipeline = lz.source(range(10**6)) | lz.map(slowly) | lz.{stage}
    run = lz.run(pipeline, executor=executor)
    for item in run:
        print(*pids_of({count}))
        {end}
"""


ENDS = [
    ("break", 0, ""),
    ("sys.exit(3)", 3, ""),
    ("raise ValueError('mine')", 1, "ValueError: mine"),
]
UNCLOSED_RUNS = {
    "lz.threads(2)": 0,
    "lz.processes(2)": 2,
    "lz.processes(2, start_method='spawn')": 2,
}


@pytest.mark.parametrize(
    ("executor", "stage", "end"),
    [
        (executor, "filter(lambda x: True)" if end == ENDS[1] else "map(slowly)", end)
        for executor, end in every_other(UNCLOSED_RUNS, ENDS[:2])
    ]
    + [(each, "map(slowly)", ENDS[2]) for each in [*UNCLOSED_RUNS][:2]],
)
def test_the_interpreter_ends_with_an_unclosed_run(
    executor: str, stage: str, end: tuple[str, int, str], tmp_path: Path
) -> None:
    how, code, error = end
    count = UNCLOSED_RUNS[executor]
    text = UNCLOSED.format(executor=executor, stage=stage, end=how, count=count)
    pids = script(tmp_path, text, code, error).split()
    assert len(pids) == count
    until(lambda: not any(is_alive(int(pid)) for pid in pids))


OUTLIVING = """
import sys
import lazyckpt as lz

sys.held = sys.modules["__main__"]  # as torch.distributed does: modules are cleared before
if __name__ == "__main__":
    pipeline = lz.source(list(range(100))) | lz.filter(bool) | lz.batch(2)
    run = lz.run(pipeline, executor={executor})
    items = iter(run)
    print(next(items))
"""


@pytest.mark.parametrize("executor", ["None", "lz.threads(2)", "lz.processes(2)"])
def test_an_unclosed_run_that_outlives_the_modules_says_nothing(
    executor: str, tmp_path: Path
) -> None:
    assert script(tmp_path, OUTLIVING.format(executor=executor)) == "[1, 2]\n"


@pytest.mark.usefixtures("uncollected")
@of_each(QUICK)
def test_a_run_that_is_dropped_after_an_error_lets_its_workers_go(
    executor: lz.Executor, shape: Any
) -> None:
    with suppress(ZeroDivisionError):
        list(lz.run(shape(lambda x: 1 // (2 - x)), executor=executor))
    until(lambda: not workers(), SOON)
