"""Regressions: hangs, costs that grew with prefetched items, errors kept from the user."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import weakref
from collections import Counter
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from time import sleep
from types import FrameType
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from tests.executors.faults import script
from tests.executors.test_interrupts import At, Interrupt
from tests.helpers import IS_DEEP

pytestmark = pytest.mark.usefixtures("nothing_left")

FULL_PIPES = """
import time
import lazyckpt as lz

def slowly(x):
    time.sleep(0.002)
    return "x" * 30_000

if __name__ == "__main__":
    pipeline = lz.interleave(*[lz.source(range(1000)) for _ in range(500)]) | lz.map(slowly)
    with lz.run(pipeline, executor=lz.processes(1, buffer_size=80)) as run:
        for count, _ in zip(range(200), run):
            pass
    print("all came")
"""


def test_both_sides_of_a_pipe_that_is_full(tmp_path: Path) -> None:
    """Tasks with wide positions one way, and long strings the other."""
    assert script(tmp_path, FULL_PIPES) == "all came\n"


STOPPED = """
import time
import lazyckpt as lz

def slowly(x):
    for _ in range(10):
        time.sleep(0.02)
    return x

pipeline = lz.source(range(12)) | lz.map(slowly)
with lz.run(pipeline, executor=lz.EXECUTOR(2, timeout=0.5)) as run:
    for item in run:
        print(item, flush=True)
"""


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_the_time_while_all_processes_are_stopped_is_none(executor: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(STOPPED.replace("EXECUTOR", executor))
    process = subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, process_group=0)
    assert process.stdout is not None
    found = [process.stdout.readline() for _ in range(4)]
    os.killpg(process.pid, signal.SIGSTOP)
    sleep(1)
    os.killpg(process.pid, signal.SIGCONT)
    found += process.communicate(timeout=60)[0].splitlines()
    assert [*map(int, found)] == [*range(12)]


def test_items_that_fill_the_pipe_to_a_worker() -> None:
    """Meanwhile the worker gets its next task, and doesn't wait for its items to be read."""

    class Texts:
        def __iter__(self) -> Any:
            return (str(number) * 5_000 for number in range(1000, 1060))

    pipeline = lz.source(Texts()) | lz.map(str.upper)
    for workers in (1, 2):
        executor = lz.processes(workers, buffer_size=50, shared_memory=False)
        with lz.run(pipeline, executor=executor) as run:
            assert [text[:4] for text in run] == [str(number) for number in range(1000, 1060)]


WATCHED = """
import threading
import lazyckpt as lz

def number(x):
    return x

if __name__ == "__main__":
    for _ in range(8):
        executor = lz.processes(1, buffer_size=1, timeout=60)
        with lz.run(lz.source(range(400)) | lz.map(number), executor=executor) as run:
            items, is_over = iter(run), threading.Event()
            found = [next(items)]

            def watch():
                while not is_over.is_set():
                    run.stats

            watching = threading.Thread(target=watch)
            watching.start()
            found += items
            is_over.set()
            watching.join()
            assert found == [*range(400)]
    print("all came")
"""


def test_stats_that_another_thread_reads(tmp_path: Path) -> None:
    """It takes in the message that the consumer is about to wait for."""
    assert script(tmp_path, WATCHED) == "all came\n"


def yes(x: Any) -> bool:
    sleep(0.02)  # so long that items come one by one, and all that may be ahead soon is
    return True


def calls_per_item(executor: lz.Executor, n: int) -> Counter[str]:
    """How many times the consumer's thread calls functions for `n` items, by their names.

    The lowest of three runs: in the others, the thread may have filled the buffer.
    """
    found: Counter[str] = Counter()
    counts: list[Counter[str]] = []

    def note(frame: FrameType, event: str, function: Any) -> None:
        if event == "call":
            found[frame.f_code.co_name] += 1
        elif event == "c_call":
            found[function.__name__] += 1

    with lz.run(lz.source(range(3000)) | lz.filter(yes), executor=executor) as run:
        assert len([*islice(run, 20)]) == 20
        for _ in range(3):
            found = Counter()
            sys.setprofile(note)
            try:
                assert len([*islice(run, n)]) == n
            finally:
                sys.setprofile(None)
            counts.append(found)
    return min(counts, key=Counter.total)


@pytest.mark.parametrize("make", [lz.threads, lz.processes])
def test_an_item_costs_the_consumer_no_more_with_many_ahead(make: Any) -> None:
    found = calls_per_item(make(2, buffer_size=1500), 50)
    assert found["poll"] <= 100 * 50
    assert found.total() <= 1000 * 50


_alive: list[weakref.ref[Any]] = []


def large(x: int) -> Any:
    """An array, which says how many others there are in its process."""
    made = np.full(1 << 17, sum(each() is not None for each in _alive))
    _alive.append(weakref.ref(made))
    return made


@pytest.mark.parametrize("buffer_size", [2, 8, 32])
def test_large_arrays_are_alive_one_by_one_in_their_worker(buffer_size: int) -> None:
    """Memory that many items fill is returned, and faulted in again for the next ones."""
    executor = lz.processes(buffer_size=buffer_size)
    with lz.run(lz.source(range(100)) | lz.map(large), executor=executor) as run:
        assert max(int(made[0]) for made in run) <= 1


SIGINT_OF = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"


def of_a_subprocess(x: int) -> str:
    command = [sys.executable, "-c", SIGINT_OF]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_programs_that_a_function_starts_can_be_interrupted(method: str) -> None:
    executor = lz.processes(start_method=method)
    with lz.run(lz.source([1]) | lz.map(of_a_subprocess), executor=executor) as run:
        assert [*run] == ["True\n"]


NO_FILES = """
import os, resource
import numpy as np
import lazyckpt as lz

def array(x):
    return np.full(50_000, x)

if __name__ == "__main__":
    executor = lz.processes(gated=True)
    with lz.run(lz.source(range(5)) | lz.map(lambda x: x and array(x)), executor=executor) as run:
        assert next(run) == 0
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
        taken = []
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        for each in taken[:FREE]:
            os.close(each)
        try:
            next(run)
        except OSError as error:
            print(error.strerror)
        for each in taken[FREE:]:
            os.close(each)
        assert [int(each[0]) for each in run] == [1, 2, 3, 4]
"""


@pytest.mark.parametrize("free", [0, 1])
def test_no_room_for_another_open_file(free: int, tmp_path: Path) -> None:
    """Though perhaps for one, the memory that arrays are in takes two."""
    assert "Too many open files" in script(tmp_path, NO_FILES.replace("FREE", str(free)))


@pytest.mark.parametrize("is_error", [False, True])
def test_a_signals_handler_may_resume_and_pause_while_the_run_does(is_error: bool) -> None:
    """At any line: as often as each was called, so it is, and nothing is made ahead."""
    for number in count(1, 1 if IS_DEEP else 3):
        made: list[int] = []
        executor = lz.threads(gated=True, buffer_size=3)
        with lz.run(lz.source(range(99)) | lz.map(made.append), executor=executor) as run:

            def handler(run: lz.Run[Any] = run) -> None:
                run.unpause()
                run.pause()
                if is_error:
                    raise Interrupt

            at = At(number, handler, lines=True)
            with suppress(Interrupt), at:
                run.unpause()
                run.pause()
            if not is_error or not at.has_come:
                assert len([*islice(run, 20)]) == len(made) == 20
            with run.allow_buffering:
                assert len([*islice(run, 20)]) == 20
        if not at.has_come:
            assert number > 5
            return
