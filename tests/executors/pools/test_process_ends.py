"""Processes with an open run: they end, however they do, and their workers with them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from tests.executors.faults import LONG, SOON, seekable
from tests.helpers import is_alive, pids_of, until

pytestmark = pytest.mark.usefixtures("nothing_left")


def fail() -> None:
    raise ValueError("mine")


def leave() -> None:
    sys.exit(3)


def leave_at_once() -> None:
    os._exit(4)


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


def kill() -> None:
    signal.raise_signal(signal.SIGKILL)


ENDS: dict[Callable[[], None], int] = {
    int: 0,
    fail: 1,
    leave: 3,
    leave_at_once: 4,
    terminate: -signal.SIGTERM,
    kill: -signal.SIGKILL,
}


def forks(item: int) -> int:
    """Have a child that does not end itself."""
    if item == 7:
        if not (child := os.fork()):
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    return item


def test_a_child_of_a_function_does_no_tasks_of_its_worker() -> None:
    pipeline = lz.source(range(40)) | lz.map(forks) | lz.batch(3)
    for workers in 1, 2:
        with lz.run(pipeline | lz.unbatch(), executor=lz.processes(workers)) as run:
            assert [*run] == [*range(40)]


def sleepy(item: int) -> int:
    time.sleep(LONG * (item > 1))
    return item


def busy(item: int) -> int:
    while item > 1:
        pass
    return item


def consume(pipe: Any, ends: Callable[[], None], method: str) -> None:
    """Leave with three runs open, two of them with workers that have something to do."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # of what multiprocessing prints
    runs = [
        lz.run(seekable(fn), executor=lz.processes(2, start_method=method))
        for fn in (int, sleepy, busy)
    ]
    for run in runs:
        next(run)
    pipe.send(pids_of(6))
    ends()
    del runs  # not before


@pytest.mark.parametrize(
    ("method", "ends", "workers"),
    [(method, kill, method) for method in ("spawn", "forkserver")]
    + [
        *(("fork", end, "fork") for end in ENDS),
        ("spawn", fail, "fork"),
        ("forkserver", int, "fork"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_process_with_an_open_run_ends(
    method: str, ends: Callable[[], None], workers: str
) -> None:
    context: Any = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    process = context.Process(target=consume, args=(theirs, ends, workers))
    process.start()
    pids = ours.recv()
    assert len(pids) == 6
    process.join(SOON)
    try:
        assert process.exitcode == ENDS[ends]
        until(lambda: not any(map(is_alive, pids)))
    finally:
        process.kill()


INTERRUPTED_TWICE = """
import os, signal, sys, time
import lazyckpt as lz
from tests.helpers import pids_of

def sleepy(x):
    if x > 1:
        os.mkdir(f"{{sys.argv[1]}}/{{os.getpid()}}")
        time.sleep(600)
    return x

def ctrl_c(*_):
    signal.raise_signal(signal.SIGINT)

if __name__ == "__main__":
    signal.signal(signal.SIGALRM, ctrl_c)
    run = lz.run(lz.source(range(9)) | lz.map(sleepy), executor=lz.processes({workers}))
    print(next(run))
    print(*pids_of({workers}))
    while len(os.listdir(sys.argv[1])) < {workers}:
        time.sleep(0.01)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        list(run)
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, {gap})
        run.close()
"""


@pytest.mark.parametrize(("workers", "gap"), [(1, 1e-6), (2, 1e-4), (1, 0.01), (2, 0.1)])
def test_a_second_ctrl_c_while_workers_are_busy(workers: int, gap: float, tmp_path: Path) -> None:
    path, asleep = tmp_path / "script.py", tmp_path / "asleep"
    path.write_text(INTERRUPTED_TWICE.format(workers=workers, gap=gap))
    asleep.mkdir()
    command = [sys.executable, path, asleep]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON)
    assert done.returncode == -signal.SIGINT, done.stderr
    first, *pids = map(int, done.stdout.split())
    assert (first, len(pids)) == (0, workers)
    until(lambda: not any(map(is_alive, pids)))
