"""The start of workers: their `worker_init`, their threads, who may start them."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import threadpoolctl

import lazyckpt as lz
from lazyckpt.executors.pools import forking
from tests.executors.faults import (
    FORKED,
    OTHERS,
    QUICK,
    SOON,
    Fault,
    Sorry,
    each,
    fails,
    keep,
    notes,
    of_each,
    script,
    seekable,
    wait,
)

pytestmark = pytest.mark.usefixtures("nothing_left")


class Init:
    """Writes down its process and its argument; fails while the flag exists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, index: int) -> None:
        if (self.folder / "flag").exists():
            raise Sorry(f"worker {index}")
        (self.folder / f"{index}-{os.getpid()}").open("x").close()


@each({"threads": lz.threads(2), "fork": FORKED["fork2"]} | OTHERS)
def test_worker_init(executor: lz.Executor, flag: Path) -> None:
    executor = executor.public(**{**executor.arguments, "worker_init": Init(flag.parent)})
    with lz.run(seekable(int, 99), executor=executor) as run:
        for _ in range(2):
            error = fails(run, [], Sorry, "worker [01]")
            assert executor.public is lz.threads or "in lazyckpt-" in notes(error)
            assert not multiprocessing.active_children()
        flag.unlink()
        assert list(run) == list(range(99))
        numbers = {path.name[0] for path in flag.parent.iterdir()}
        assert numbers
        assert numbers <= {"0", "1"}  # one may have done all before the other has begun


connection = threading.local()


def connect(number: int) -> None:
    connection.number = number


def use(count: int, item: int) -> tuple[int, tuple[int, int]]:
    return count + 1, (item, connection.number)


@pytest.mark.parametrize(
    ("executor", "workers"),
    [(lz.threads, 1), (lz.threads, 3), (lz.processes, 1), (lz.processes, 3)],
)
def test_worker_init_of_who_reads_a_stream(executor: Any, workers: int) -> None:
    pipeline = lz.source(range(40)) | lz.filter(lambda x: x % 2) | lz.scan(use, 0)
    with lz.run(pipeline, executor=executor(workers, worker_init=connect)) as run:
        items, numbers = zip(*run, strict=True)
    assert items == tuple(range(1, 40, 2))
    assert {*numbers} == {0 if workers == 1 else workers}


def test_threads_have_names_of_their_own() -> None:
    names: list[str] = []

    def init(number: int) -> None:
        names.append(threading.current_thread().name)

    pipeline = lz.source(range(99)) | lz.filter(lambda x: not sleep(0.001)) | lz.shuffle(9, seed=0)
    with lz.run(pipeline, executor=lz.threads(2, worker_init=init)) as run:
        list(run)
    assert "lazyckpt-2" in names  # the reader next to the two; not each of these need get a task
    assert len({*names}) == len(names)


def test_worker_init_that_exits() -> None:
    executor = lz.processes(worker_init=exit_init, start_method="fork")
    with lz.run(seekable(int), executor=executor) as run:
        fails(run, [], SystemExit)


def exit_init(index: int) -> None:
    sys.exit(index)


def library_threads(item: int) -> set[int]:
    np.ones((200, 200)) @ np.ones((200, 200))
    return {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}


@each({"fork": lz.processes(start_method="fork"), "spawn": lz.processes(start_method="spawn")})
def test_libraries_use_one_thread(executor: lz.Executor) -> None:
    use_one_thread(library_threads, executor)


def use_one_thread(threads: Callable[[int], set[int]], executor: lz.Executor) -> None:
    pipeline = lz.source(range(10_000)) | lz.map(lambda x: sleep(0.001) or threads(x))
    with lz.run(pipeline, executor=executor) as run:
        assert {1} in run  # not immediately: they are told so after they have begun


@of_each(QUICK)
def test_a_start_from_another_thread(executor: lz.Executor, shape: Any) -> None:
    found: list[Any] = []

    def consume() -> None:
        with lz.run(shape(int, 99), executor=executor) as run:
            found.extend(run)

    thread = threading.Thread(target=consume)
    thread.start()
    thread.join(SOON)
    assert found == list(range(99))


@pytest.fixture
def _told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "_is_said", False)


@of_each(QUICK, shift=1)
def test_the_start_method_is_the_same_beside_other_runs(executor: lz.Executor, shape: Any) -> None:
    with lz.run(shape(int, 10**6), executor=executor) as beside:
        next(beside)
        with lz.run(seekable(method), executor=lz.processes()) as run:
            assert list(run) == [multiprocessing.get_start_method()] * 9
        assert next(beside) == 1


class Locked:
    """A data set with a lock, which is taken nearly always."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> int:
        with self.lock:
            sleep(2e-3)
        return index


@pytest.mark.usefixtures("_told_nothing")
@pytest.mark.parametrize("stage", [lz.map(int), lz.filter(keep)], ids=str)
def test_a_worker_inherits_no_lock_that_a_thread_of_a_run_holds(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forking, "_PATIENCE", SOON)  # a busy machine may let it go late
    pipeline = lz.source(Locked()) | stage
    executor = lz.processes(2, timeout=SOON, start_method="fork")
    with lz.run(pipeline, executor=lz.threads(2)) as beside:
        next(beside)
        for _ in range(20):
            with lz.run(pipeline, executor=executor) as run:
                assert [next(run) for _ in range(3)] == [0, 1, 2]
        next(beside)


@pytest.fixture
def _fork_is_the_default() -> Iterator[None]:
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("fork", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.mark.usefixtures("_told_nothing", "_fork_is_the_default")
def test_a_fork_beside_threads_of_others_is_told_of_once() -> None:
    done = threading.Event()
    other = threading.Thread(target=done.wait, name="other")
    other.start()
    try:
        with lz.run(seekable(int), executor=lz.processes(start_method="fork")) as run:
            assert list(run) == list(range(9))  # as it was asked for
        with (
            lz.run(seekable(int), executor=lz.processes()) as run,
            pytest.warns(RuntimeWarning, match=r"\(.*\bother\b.*\).*start_method='forkserver'"),
        ):
            assert list(run) == list(range(9))
        with lz.run(seekable(int), executor=lz.processes()) as run:
            assert list(run) == list(range(9))
    finally:
        done.set()
        other.join()


@pytest.mark.usefixtures("_told_nothing", "_fork_is_the_default")
def test_a_fork_beside_a_function_that_takes_long_is_told_of(flag: Path) -> None:
    begun = threading.Event()

    def long(flag: Path) -> None:
        begun.set()
        wait(flag)

    with lz.run(seekable(Fault(flag, 1, long)), executor=lz.threads()) as beside:
        next(beside)
        assert begun.wait(SOON)
        with (
            lz.run(seekable(int), executor=lz.processes()) as run,
            pytest.warns(RuntimeWarning, match=r"\(.*lazyckpt-0.*\).*start_method='forkserver'"),
        ):
            assert list(run) == list(range(9))
        flag.unlink()
        assert list(beside) == list(range(1, 9))


def test_a_daemonic_process_has_no_workers() -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert "daemonic" in pool.apply(start_error)


def start_error() -> str:
    with pytest.raises(lz.PipelineError) as caught:
        next(lz.run(seekable(int), executor=lz.processes()))
    return str(caught.value)


def method(item: int) -> str | None:
    return multiprocessing.get_start_method()


UNGUARDED = """
import lazyckpt as lz
print("begins", flush=True)
{before}
try:
    next(lz.run(lz.source([1]) | lz.map(abs), executor=lz.processes(start_method="{method}")))
except lz.PipelineError as error:
    print(type(error).__name__, error)
"""


def unguarded(folder: Path, method: str, before: str = "") -> str:
    path = folder / "script.py"
    path.write_text(UNGUARDED.format(method=method, before=before))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
    return done.stdout


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_script_without_a_guard_is_not_run_again(method: str, tmp_path: Path) -> None:
    begins, error = unguarded(tmp_path, method).splitlines()
    assert begins == "begins"
    assert error.startswith(f"PipelineError processes: start_method='{method}' runs {tmp_path}")
    assert error.endswith("put line 6 under if __name__ == '__main__':")


def test_a_script_with_a_guard_that_guards_nothing_is_told_so(tmp_path: Path) -> None:
    out = unguarded(tmp_path, "spawn", "if __name__: pass")
    assert "ended with exit code 1 before its first item" in out
    assert "put that under if __name__ == '__main__':" in out


def anonymous_memory(x: Any) -> int:
    """Bytes of memory that this process alone has."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) << 10


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_arrays_of_any_size_go_to_workers(method: str) -> None:
    data = {name: np.arange(9 * size).reshape(9, size) for name, size in [("a", 1), ("b", 999)]}
    pipeline = lz.columns(**data, c=np.full((9, 3001), 7, np.int8)) | lz.map(sum_of_each)
    with lz.run(pipeline, executor=lz.processes(2, start_method=method)) as run:
        assert list(run) == list(pipeline)


def sum_of_each(row: dict[str, Any]) -> dict[str, int]:
    return {name: int(value.sum()) for name, value in row.items()}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the memory there")
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_an_array_as_a_source_is_in_memory_once(method: str) -> None:
    data = np.ones((128, 1 << 17))
    pipeline = lz.source(data) | lz.map(anonymous_memory)
    with lz.run(pipeline, executor=lz.processes(2, start_method=method)) as run:
        assert max(run) < data.nbytes


def test_a_start_method_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As fork and forkserver aren't on Windows."""
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    run = lz.run(lz.source(range(3)), executor=lz.processes(start_method="forkserver"))
    with pytest.raises(lz.PipelineError, match=r"no start_method='forkserver', only 'spawn'"):
        list(run)


def leave(worker: int) -> None:
    os._exit(3)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_worker_that_dies_at_its_start_each_time(method: str) -> None:
    executor = lz.processes(2, start_method=method, worker_init=leave)
    with lz.run(lz.source(range(3)) | lz.map(str), executor=executor) as run:
        for _ in range(2):
            with pytest.raises(lz.WorkerDied, match=r"exit code 3 before its first.*worker_init"):
                next(run)
        assert run.state.items == 0


def draw(_: int) -> tuple[float, float]:
    sleep(1e-3)  # so that each worker has some
    return random.random(), float(np.random.rand())


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_draw_what_no_other_worker_draws(method: str) -> None:
    """This includes the next workers, and the workers of a user's pool."""
    context = multiprocessing.get_context(method)
    before = random.getstate(), np.random.get_state()
    random.seed(0)
    np.random.seed(0)
    pipeline, found = lz.source(range(24)) | lz.map(draw), list[Any]()
    try:
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            for executor in (
                lz.processes(2, start_method=method),
                lz.processes(2, start_method=method),
                lz.futures(pool, buffer_size=4),
            ):
                with lz.run(pipeline, executor=executor) as run:
                    found += run
        here = random.random(), float(np.random.rand())
        random.seed(0)
        np.random.seed(0)
        assert here == (random.random(), float(np.random.rand())), "nobody drew or seeded here"
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
    assert [len({*draws}) for draws in zip(*found, strict=True)] == [72, 72]


FIRST_TO_DRAW = """
import time
import numpy as np
import lazyckpt as lz

def draw(x):
    time.sleep(1e-3)
    return np.random.rand()

if __name__ == "__main__":
    executor = lz.processes(2, start_method="fork")
    with lz.run(lz.source(range(24)) | lz.map(draw), executor=executor) as run:
        print(len({*run}))
"""


def test_nor_where_workers_are_the_first_to_load_the_generators(tmp_path: Path) -> None:
    assert script(tmp_path, FIRST_TO_DRAW) == "24\n"


def seeded(index: int) -> None:
    np.random.seed(index)


def test_worker_init_has_the_last_word_on_seeds() -> None:
    executor = lz.processes(1, start_method="fork", worker_init=seeded)
    with lz.run(lz.source(range(3)) | lz.map(draw), executor=executor) as run:
        found = [number for _, number in run]
    assert found == np.random.RandomState(0).rand(3).tolist()


FEW_FILES = """
import resource
import lazyckpt as lz

resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
many = lz.processes(64, start_method="fork")
with lz.run(lz.source(range(9)) | lz.map(abs), executor=many) as run:
    try:
        next(run)
    except OSError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_too_few_files_for_so_many_workers_are_an_error_that_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEW_FILES], capture_output=True, text=True, timeout=SOON, check=True
    )
    assert "Too many open files: each worker needs a few; raise the limit" in done.stdout
