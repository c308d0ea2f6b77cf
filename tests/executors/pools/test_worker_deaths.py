"""Workers that die or hang: told soon, and nothing lost."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.executors.executor import Executor
from tests.executors.faults import (
    FORKED,
    OTHERS,
    PROCESSES,
    SOON,
    Fault,
    Odds,
    each,
    fails,
    keep,
    kill,
    notes,
    seekable,
    shapes,
    wait,
)
from tests.helpers import until, workers

pytestmark = pytest.mark.usefixtures("nothing_left")


def leave(flag: Path) -> None:
    flag.unlink()
    os._exit(3)


def realtime(flag: Path) -> None:
    flag.unlink()
    os.kill(os.getpid(), signal.SIGRTMIN + 1)


def leave_an_heir(flag: Path) -> None:
    """Die, while a process forked here holds the pipe open."""
    flag.unlink()
    if not os.fork():
        until(lambda: flag.exists(), 60)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("dies", "says"),
    [
        (kill, "was ended by SIGKILL"),
        (leave, "ended with exit code 3"),
        (realtime, "ended by (signal 3|SIGRTMIN)"),
        (leave_an_heir, "was ended by SIGKILL"),
    ],
)
@shapes
@each(FORKED)
def test_a_worker_that_dies(
    executor: Executor, shape: Any, dies: Any, says: str, flag: Path
) -> None:
    found: list[Any] = []
    with lz.run(shape(Fault(flag, 5, dies)), executor=executor) as run:
        begun = monotonic()
        fails(run, found, lz.WorkerDied, says)
        assert monotonic() - begun < SOON
        assert found == list(range(len(found)))
        found.extend(run)
        assert found == list(range(9))
        flag.touch()


@each(OTHERS)
def test_a_worker_that_dies_however_it_was_started(executor: Executor, flag: Path) -> None:
    found: list[Any] = []
    with lz.run(seekable(Fault(flag, 5, kill)), executor=executor) as run:
        fails(run, found, lz.WorkerDied, "was ended by SIGKILL")
        assert [*found, *run] == list(range(9))


@shapes
@each(PROCESSES)
def test_workers_killed_while_they_are_idle(executor: Executor, shape: Any) -> None:
    found: list[Any] = []
    with lz.run(shape(int, 10**5), executor=executor) as run:
        found.append(next(run))
        run.pause()
        for worker in multiprocessing.active_children():
            worker.kill()
        run.resume()  # which a gate that the dead hold would not
        begun = monotonic()
        fails(run, found, lz.WorkerDied, "SIGKILL")
        assert monotonic() - begun < SOON
        assert [*found, *run] == list(range(10**5))


def large(item: int) -> Any:
    return np.full(1 << 22, item)


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_worker_killed_amid_a_large_array(shared_memory: bool) -> None:
    executor = lz.processes(buffer_size=8, shared_memory=shared_memory, start_method="fork")
    found: list[int] = []
    with lz.run(lz.source(range(9)) | lz.map(large), executor=executor) as run:
        found.append(int(next(run)[0]))
        [worker] = multiprocessing.active_children()
        if not shared_memory:  # it writes until the pipe is full
            stat = Path(f"/proc/{worker.pid}/wchan")
            until(lambda: stat.read_text().startswith(("sock", "unix")), 9)
        worker.kill()
        with pytest.raises(lz.WorkerDied, match="SIGKILL"):
            found.extend(int(item[0]) for item in run)
        assert run.state.items == len(found)
        found.extend(int(item[0]) for item in run)
    assert found == list(range(9))


CGROUPS_1 = Path("/sys/fs/cgroup/memory").is_dir()


def little_memory(index: int) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + (1 << 28)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def much_memory(flag: Path) -> Any:
    return bytearray(1 << 30)


def test_a_worker_out_of_memory(flag: Path) -> None:
    executor = lz.processes(worker_init=little_memory, start_method="fork")
    found: list[Any] = []
    with lz.run(seekable(Fault(flag, 5, much_memory)), executor=executor) as run:
        error = fails(run, found, MemoryError)
        assert "in much_memory" in notes(error)
        flag.unlink()
        assert [*found, *run] == list(range(9))


@contextmanager
def confined() -> Iterator[Callable[[Path], Any]]:
    """What uses up the memory of a control group that the process enters for it.

    Where none can be made, the signal that the kernel would send.
    """
    group = Path("/sys/fs/cgroup/memory" if CGROUPS_1 else "/sys/fs/cgroup") / f"lz-{os.getpid()}"
    limit, entry = ("limit_in_bytes", "tasks") if CGROUPS_1 else ("max", "cgroup.procs")
    try:
        group.mkdir()
        (group / f"memory.{limit}").write_text(str(1 << 26))
    except OSError:
        yield lambda _: os.kill(os.getpid(), signal.SIGKILL)
        return

    def use(_: Path) -> Any:
        (group / entry).write_text(str(os.getpid()))
        return np.ones(1 << 28)

    yield use
    until(lambda: not (group / entry).read_text())
    group.rmdir()


def test_a_worker_that_the_kernel_kills_for_its_memory(flag: Path) -> None:
    found: list[Any] = []
    executor = lz.processes(start_method="fork")
    with confined() as use, lz.run(seekable(Fault(flag, 5, use)), executor=executor) as run:
        fails(run, found, lz.WorkerDied, "SIGKILL")
        flag.unlink()
        assert [*found, *run] == list(range(9))


@shapes
@each(
    {
        "threads": lz.threads(timeout=0.3),
        "threads2": lz.threads(2, timeout=0.3),
        "fork": lz.processes(timeout=0.3, start_method="fork"),
        "fork2": lz.processes(2, timeout=0.3, start_method="fork"),
    }
)
def test_a_worker_that_hangs(executor: Executor, shape: Any, flag: Path) -> None:
    found: list[Any] = []
    with lz.run(shape(Fault(flag, 5, wait)), executor=executor) as run:
        for _ in range(2):
            begun = monotonic()
            error = fails(run, found, lz.WorkerTimeout, r"within 0\.3 s")
            assert isinstance(error, RuntimeError)  # as one that died is
            assert monotonic() - begun < 0.3 * 6 + SOON
        flag.unlink()
        while len(found) < 9:
            with suppress(lz.WorkerTimeout):  # of a machine with much else to do
                found.extend(run)
        assert found == list(range(9))


def test_a_thread_that_hung_and_wakes_up_is_in_nobodys_way() -> None:
    woken, hangs, made = threading.Event(), [True], []

    def slow(item: int) -> int:
        if item == 5 and hangs:
            hangs.clear()
            woken.wait()
        made.append(item)
        return item

    pipeline = lz.source(range(10**4)) | lz.map(slow) | lz.filter(lambda item: True)
    found: list[int] = []
    with lz.run(pipeline, executor=lz.threads(timeout=0.3)) as run:
        fails(run, found, lz.WorkerTimeout)
        found.extend(islice(run, 3))
        until(lambda: len(made) == (sleep(0.05), len(made))[1])  # ahead as far as may be
        woken.set()
        until(lambda: len(workers()) == 1)
        found.extend(run)
    assert found == list(range(10**4))


def test_a_source_that_hangs_beside_the_consumer(flag: Path) -> None:
    pipeline = lz.source(Odds(flag, wait)) | lz.map(str) | lz.filter(keep)
    with lz.run(pipeline, executor=lz.threads(2, timeout=0.3)) as run:
        fails(run, [], lz.WorkerTimeout)
        flag.unlink()
