"""The start of workers: their `worker_init`, their threads, who may start them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.executors.executor import Executor
from tests.executors.faults import (
    EVERY,
    FORKED,
    OTHERS,
    QUICK,
    Sorry,
    each,
    fails,
    notes,
    seekable,
    shapes,
)

pytestmark = pytest.mark.usefixtures("watchdog", "nothing_left")


class Init:
    """Writes down who was called with what; fails while the flag exists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, index: int) -> None:
        if (self.folder / "flag").exists():
            raise Sorry(f"worker {index}")
        (self.folder / f"{index}-{os.getpid()}").open("x").close()


@each({"fork": FORKED["fork2"]} | OTHERS)
def test_worker_init(executor: Executor, flag: Path) -> None:
    executor = lz.processes(**{**executor.arguments, "worker_init": Init(flag.parent)})
    with lz.run(seekable(int, 99), executor=executor) as run:
        for _ in range(2):
            error = fails(run, [], Sorry, "worker [01]")
            assert "in lazyckpt-" in notes(error)
        flag.unlink()
        assert list(run) == list(range(99))
        numbers = {path.name.partition("-")[0] for path in flag.parent.iterdir()}
        assert numbers == {"0", "1"}
        assert len(list(flag.parent.iterdir())) == 2


def test_worker_init_that_exits() -> None:
    executor = lz.processes(worker_init=exit_init, start_method="fork")
    with lz.run(seekable(int), executor=executor) as run:
        fails(run, [], SystemExit)
    executor = lz.processes(worker_init=os._exit, start_method="fork")
    with lz.run(seekable(int), executor=executor) as run:
        fails(run, [], lz.WorkerDied, "exit code 0")


def exit_init(index: int) -> None:
    sys.exit(index)


def library_threads(item: int) -> set[int]:
    import threadpoolctl
    import torch

    np.ones((200, 200)) @ np.ones((200, 200))
    pools = threadpoolctl.threadpool_info()
    return {torch.get_num_threads(), *(pool["num_threads"] for pool in pools)}


@each({"fork": lz.processes(start_method="fork"), "spawn": lz.processes(start_method="spawn")})
def test_libraries_use_one_thread(executor: Executor) -> None:
    pytest.importorskip("threadpoolctl")
    pytest.importorskip("torch")
    with lz.run(lz.source(range(20)) | lz.map(library_threads), executor=executor) as run:
        *_, last = run
    assert last == {1}


@shapes
@each(QUICK)
def test_a_start_from_another_thread(executor: Executor, shape: Any) -> None:
    found: list[Any] = []

    def consume() -> None:
        with lz.run(shape(int, 99), executor=executor) as run:
            found.extend(run)

    thread = threading.Thread(target=consume)
    thread.start()
    thread.join(60)
    assert found == list(range(99))


def test_no_fork_beside_threads_of_a_run() -> None:
    with lz.run(seekable(int, 10**6), executor=lz.threads()) as beside:
        next(beside)
        with (
            lz.run(seekable(int), executor=lz.processes(start_method="fork")) as run,
            pytest.raises(lz.PipelineError, match=r"forkserver"),
        ):
            list(run)
        with lz.run(seekable(os_name), executor=lz.processes()) as run:
            assert list(run) == ["forkserver"] * 9
    with lz.run(seekable(int), executor=lz.processes(start_method="fork")) as run:
        assert list(run) == list(range(9))


def os_name(item: int) -> str | None:
    return multiprocessing.get_start_method()


@shapes
@each({"inline": lz.inline()} | EVERY)
@pytest.mark.parametrize("n", [0, 1, 7])
def test_ends(executor: Executor, shape: Any, n: int) -> None:
    pipeline = shape(int, n)
    with lz.run(pipeline, executor=executor) as run:
        inline = lz.run(pipeline)
        assert list(run) == list(inline) == list(range(n))
        assert run.state == inline.state
        assert run.state.to_json() == inline.state.to_json()
        assert list(run) == []
        assert run.state == inline.state


UNGUARDED = """
import lazyckpt as lz
try:
    next(lz.run(lz.source([1]) | lz.map(abs), executor=lz.processes(start_method="spawn")))
except lz.WorkerDied as error:
    print(error)
"""


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(UNGUARDED)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
    assert "ended with exit code 1 before its first item" in done.stdout, done.stderr
    assert "guard it with if __name__ == '__main__'" in done.stdout
