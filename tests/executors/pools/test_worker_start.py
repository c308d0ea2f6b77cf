"""The start of workers: their `worker_init`, their threads, who may start them."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import threadpoolctl

import lazyckpt as lz
from tests.executors.faults import (
    OTHERS,
    QUICK,
    SERVED,
    SOON,
    Sorry,
    each,
    fails,
    notes,
    of_each,
    script,
    seekable,
)
from tests.helpers import parent_of, until, worker_pids

pytestmark = pytest.mark.usefixtures("nothing_left")


class Init:
    """Writes down its process and its argument; fails while the flag exists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, index: int) -> None:
        if (self.folder / "flag").exists():
            raise Sorry(f"worker {index}")
        (self.folder / f"{index}-{os.getpid()}").open("x").close()


@each({"threads": lz.threads(2), "processes": SERVED["processes2"]} | OTHERS)
def test_worker_init(executor: lz.Executor, flag: Path) -> None:
    executor = executor.public(**{**executor.arguments, "worker_init": Init(flag.parent)})
    with lz.run(seekable(int, 99), executor=executor) as run:
        for _ in range(2):
            error = fails(run, [], Sorry, "worker [01]")
            assert executor.public is lz.threads or "in lazyckpt-" in notes(error)
            assert not worker_pids()
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
    executor = lz.processes(worker_init=exit_init)
    with lz.run(seekable(int), executor=executor) as run:
        fails(run, [], SystemExit)


@pytest.mark.parametrize(
    ("init", "error", "text"),
    [
        (lambda n: 1 // n, ZeroDivisionError, "by zero"),
        (lambda n: next(iter(())), lz.PipelineError, "raised StopIteration"),
    ],
)
@pytest.mark.parametrize("executor", [lz.threads, lz.processes])
def test_an_error_in_worker_init_says_so(executor: Any, init: Any, error: Any, text: str) -> None:
    run = lz.run(seekable(int), executor=executor(1, worker_init=init))
    with run, pytest.raises(error, match=text) as raised:
        next(run)
    assert "in worker_init(0), after 0 delivered items" in raised.value.__notes__[0]


def exit_init(index: int) -> None:
    sys.exit(index)


def library_threads(item: int) -> set[int]:
    np.ones((200, 200)) @ np.ones((200, 200))
    return {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}


@each(OTHERS | {"processes": lz.processes()})
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


def test_a_fork_beside_other_threads_is_told_of() -> None:
    done = threading.Event()
    other = threading.Thread(target=done.wait, name="other")
    other.start()
    try:
        with (
            lz.run(seekable(int), executor=lz.processes(start_method="fork")) as run,
            pytest.warns(RuntimeWarning, match=r"\(.*\bother\b.*\).*start_method='fork'"),
        ):
            assert list(run) == list(range(9))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with lz.run(seekable(int), executor=lz.processes()) as run:
                assert list(run) == list(range(9))
    finally:
        done.set()
        other.join()


HELD = """
import threading
lock = threading.Lock()

def hold():
    with lock:
        threading.Event().wait()

threading.Thread(target=hold, daemon=True).start()

def use(x):
    return threading.active_count(), lock.acquire(timeout=0)
"""
USES_HELD = """
import lazyckpt as lz
{imports}

def use(x):
    import held
    return held.use(x)

with lz.run(lz.source(range(9)) | lz.map({use}), executor=lz.processes(2)) as run:
    print({{*run}})
"""


@pytest.mark.parametrize(("imports", "use"), [("import held", "held.use"), ("", "use")])
def test_a_worker_has_the_threads_of_its_modules(imports: str, use: str, tmp_path: Path) -> None:
    """A fork would have their locks alone."""
    (tmp_path / "held.py").write_text(HELD)
    assert script(tmp_path, USES_HELD.format(imports=imports, use=use)) == "{(2, False)}\n"


def test_a_module_is_imported_once_for_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "heavy.py").write_text(
        "import os\nopen(os.path.join(os.path.dirname(__file__), f'{os.getpid()}'), 'x').close()\n"
        "def use(x): return x\n"
    )
    heavy = importlib.import_module("heavy")
    for _ in range(2):
        with lz.run(seekable(heavy.use), executor=lz.processes(2)) as run:
            assert [*run] == [*range(9)]
    assert len([*tmp_path.glob("[0-9]*")]) == 2  # here, and in the server


HANGS = """
import os
import time

if os.environ["HERE"] != str(os.getpid()):
    time.sleep(1_000)

def use(x):
    return x
"""
USES_HANGING = """
import os
import signal
import lazyckpt as lz

os.environ["HERE"] = str(os.getpid())
import hangs

def stop(*_):
    raise TimeoutError

def run(function):
    return lz.run(lz.source(range(4)) | lz.map(function), executor=lz.processes())

signal.signal(signal.SIGALRM, stop)
with run(abs) as begun:
    print(next(begun))
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with run(hangs.use) as hanging:
            print(*hanging)
    except TimeoutError:
        print("interrupted")
    print(*begun)
    with run(float) as later:
        print(*later)
"""


def test_a_module_that_hangs_holds_up_no_other_run(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    expected = "0\ninterrupted\n1 2 3\n0.0 1.0 2.0 3.0\n"
    assert script(tmp_path, USES_HANGING) == expected


def test_a_daemonic_process_has_workers() -> None:
    """Such as a worker of torch's DataLoader; but multiprocessing lets it fork none."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(worked) == [*range(9)]
        assert "daemonic" in pool.apply(start_error)


def worked() -> list[int]:
    with lz.run(seekable(int), executor=lz.processes(2)) as run:
        return [*run]


def start_error() -> str:
    with pytest.raises(lz.PipelineError) as caught:
        next(lz.run(seekable(int), executor=lz.processes(start_method="fork")))
    return str(caught.value)


UNGUARDED = """
import os, resource, sys
import lazyckpt as lz
print("begins", flush=True)
names = {{"here": 3}}

class Kept:
    def __init__(self, x):
        self.x = x

def keep(x):
    return Kept(x + names["here"])

executor = lz.processes(2, start_method={method!r})
os.environ["TOLD"], place = "so", os.getcwd()
sys.argv.append("more")
with lz.run(lz.source([1, 2]) | lz.map(keep), executor=executor) as run:
    print([each.x for each in run if isinstance(each, Kept)])
about = lz.map(lambda x: (os.environ["TOLD"], os.getcwd() == place, sys.argv[1:], __name__))
with lz.run(lz.source([1]) | about, executor=executor) as run:
    print(*run)
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (123, most))
sys.setrecursionlimit(1234)
limits = lz.map(lambda x: (resource.getrlimit(x)[0], sys.getrecursionlimit()))
with lz.run(lz.source([resource.RLIMIT_NOFILE]) | limits, executor=executor) as run:
    print(*run)
stream = lz.source([1, 2]) | lz.map(keep) | lz.filter(bool) | lz.enumerate()
with lz.run(stream | lz.map(lambda pair: isinstance(pair[1], Kept)), executor=executor) as run:
    print(*run)
"""


@pytest.mark.parametrize(
    ("method", "is_file"), [(None, True), (None, False), ("spawn", True), ("fork", False)]
)
def test_a_script_needs_no_guard(method: str | None, is_file: bool, tmp_path: Path) -> None:
    """Nor do workers run it again, and they find its surroundings as they are now."""
    text = UNGUARDED.format(method=method)
    path = tmp_path / "script.py"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, *([path] if is_file else ["-"])],
        input=None if is_file else text,
        capture_output=True,
        text=True,
        timeout=SOON,
        cwd=tmp_path,
    )
    about = "('so', True, ['more'], '__main__')"
    expected = ["begins", "[4, 5]", about, "(123, 1234)", "True True"]
    assert done.stdout.splitlines() == expected, done.stderr


PRINTS = """
import sys
import lazyckpt as lz

def say(x):
    print(f"item {x}")
    print("oh", file=sys.stderr)
    return x

with lz.run(lz.source([1]) | lz.map(say), executor=lz.processes(start_method="METHOD")) as run:
    list(run)
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_what_workers_print_is_seen(method: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(PRINTS.replace("METHOD", method))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=SOON)
    assert (done.stdout, done.stderr) == ("item 1\n", "oh\n")


def test_workers_start_again_once_their_server_was_killed() -> None:
    for _ in range(2):
        with lz.run(seekable(int), executor=lz.processes(2)) as run:
            found = [next(run)]
            [server] = {parent_of(pid) for pid in worker_pids()}
            os.kill(server, signal.SIGKILL)
            until(lambda: not worker_pids())
            with suppress(lz.WorkerDied):
                found.extend(run)
            found.extend(run)
            assert found == list(range(9))


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
    """As none is on Windows."""
    monkeypatch.delattr(os, "fork")
    run = lz.run(lz.source(range(3)), executor=lz.processes(start_method="fork"))
    with pytest.raises(lz.PipelineError, match=r"no start_method='fork', only 'forkserver' and"):
        list(run)
    monkeypatch.delattr(socket, "send_fds")
    run = lz.run(lz.source(range(3)), executor=lz.processes())
    with pytest.raises(lz.PipelineError, match=r"no start_method.*use threads"):
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
    context = multiprocessing.get_context("fork")
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
    executor = lz.processes(2, start_method={method!r})
    with lz.run(lz.source(range(24)) | lz.map(draw), executor=executor) as run:
        print(len({{*run}}))
"""


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_nor_where_workers_are_the_first_to_load_the_generators(
    method: str, tmp_path: Path
) -> None:
    assert script(tmp_path, FIRST_TO_DRAW.format(method=method)) == "24\n"


def seeded(index: int) -> None:
    np.random.seed(index)


def test_worker_init_has_the_last_word_on_seeds() -> None:
    executor = lz.processes(1, worker_init=seeded)
    with lz.run(lz.source(range(3)) | lz.map(draw), executor=executor) as run:
        found = [number for _, number in run]
    assert found == np.random.RandomState(0).rand(3).tolist()
