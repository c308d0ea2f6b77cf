"""What goes wrong in workers: told soon and in its turn, nothing lost, nothing left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest
from case_helpers import is_alive, until, workers

import lazyckpt as lz
from lazyckpt.executors.executor import Executor
from lazyckpt.testing.laws import Stream

pytestmark = pytest.mark.usefixtures("watchdog", "nothing_left")

SOON = 9.0  # seconds, for what takes less than one where there is nothing else to do

THREADS = {"threads": lz.threads(), "threads2": lz.threads(2)}
FORKED = {
    f"fork{n}": lz.processes(n, start_method="fork", buffer_size=4, timeout=60) for n in (1, 2)
}
OTHERS = {name: lz.processes(2, start_method=name) for name in ("forkserver", "spawn")}
QUICK = THREADS | FORKED
EVERY = QUICK | OTHERS
PROCESSES = FORKED | OTHERS


def each(executors: dict[str, Executor]) -> Any:
    return pytest.mark.parametrize("executor", executors.values(), ids=executors.keys())


@pytest.fixture
def nothing_left() -> Iterator[None]:
    yield
    gc.collect()
    until(lambda: not workers())


def shared() -> set[str]:
    """Names of shared memory and semaphores, as multiprocessing and torch give them."""
    kinds = ("psm_", "sem.mp-", "torch_", "lazyckpt")
    folder = Path("/dev/shm")
    return {name.name for name in folder.glob("*") if name.name.startswith(kinds)}


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    """A file that makes functions below misbehave, in whatever process, while it exists."""
    path = tmp_path / "flag"
    path.touch()
    return path


# --- functions that misbehave ---


class Sorry(Exception):
    pass


class Fault:
    """The identity, but at one item it does something first, while the flag exists."""

    def __init__(self, flag: Path, at: int, what: Callable[[Path], Any]) -> None:
        self.flag, self.at, self.what = flag, at, what

    def __call__(self, item: int) -> Any:
        if item == self.at and self.flag.exists():
            found = self.what(self.flag)
            return item if found is None else found
        return item


def apologise(flag: Path) -> None:
    raise Sorry("at the item", 5)


def stop_iteration(flag: Path) -> None:
    next(iter(()))


def exit_generator(flag: Path) -> None:
    raise GeneratorExit


def exit_system(flag: Path) -> None:
    sys.exit(3)


def interrupt(flag: Path) -> None:
    raise KeyboardInterrupt


def wait(flag: Path) -> None:
    """Take long: until the flag is gone."""
    until(lambda: not flag.exists(), 60)


def kill(flag: Path) -> None:
    flag.unlink()
    os.kill(os.getpid(), signal.SIGKILL)


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


def keep(item: Any) -> bool:
    return True


def seekable(fn: Callable[[int], Any], n: int = 9) -> lz.Pipeline[Any]:
    return lz.source(range(n)) | lz.map(fn)


def before_a_stream(fn: Callable[[int], Any], n: int = 9) -> lz.Pipeline[Any]:
    return lz.source(range(n)) | lz.map(fn) | lz.filter(keep)


def after_a_stream(fn: Callable[[int], Any], n: int = 9) -> lz.Pipeline[Any]:
    return lz.source(Stream(range(n))) | lz.map(fn)


def in_a_stream(fn: Callable[[int], Any], n: int = 9) -> lz.Pipeline[Any]:
    return lz.source(Stream(range(n))) | lz.filter(keep) | lz.map(fn) | lz.filter(keep)


SHAPES = [seekable, before_a_stream, after_a_stream, in_a_stream]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)


def fails(
    run: lz.Run[Any], found: list[Any], kind: type[BaseException], match: str | None = None
) -> BaseException:
    """Iterate, keeping what comes, up to an error: soon, and with a state that is good."""
    with pytest.raises(kind, match=match) as caught:
        found.extend(run)
    assert run.state.items == len(found)
    return caught.value


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


# --- exceptions ---


@shapes
@each({"inline": lz.inline()} | EVERY)
def test_an_exception_of_a_function(executor: Executor, shape: Any, flag: Path) -> None:
    pipeline = shape(Fault(flag, 5, apologise))
    found: list[Any] = []
    with lz.run(pipeline, executor=executor) as run:
        for _ in range(2):  # the same item again
            error = fails(run, found, Sorry, "at the item")
            assert error.args == ("at the item", 5)
            assert found == [0, 1, 2, 3, 4]
            assert run.state == lz.state_at(pipeline, 5)
            assert "in map(<" in notes(error)
            assert f"built at {__file__}" in notes(error)
            assert "after 5 delivered items" in notes(error)
            is_far = executor in PROCESSES.values()
            assert ("in apologise" in notes(error)) == is_far, "the worker's traceback"
        flag.unlink()
        found.extend(run)
        assert found == list(range(9))
        assert run.state == lz.state_at(pipeline, 9)


SPECIAL = {
    stop_iteration: lz.PipelineError,
    exit_generator: lz.PipelineError,
    exit_system: SystemExit,
    interrupt: KeyboardInterrupt,
}


@pytest.mark.parametrize("raises", SPECIAL, ids=lambda raises: raises.__name__)
@shapes
@each({"inline": lz.inline()} | QUICK)
def test_exceptions_that_end_things(
    executor: Executor, shape: Any, raises: Any, flag: Path
) -> None:
    pipeline = shape(Fault(flag, 5, raises))
    found: list[Any] = []
    with lz.run(pipeline, executor=executor) as run:
        for _ in range(2):
            error = fails(run, found, SPECIAL[raises])
            assert found == [0, 1, 2, 3, 4]
            assert raises is not exit_system or error.args == (3,)
            assert SPECIAL[raises] is not lz.PipelineError or "which is no end" in str(error)
        flag.unlink()
        found.extend(run)
    assert found == list(range(9))


@each(EVERY)
def test_an_error_does_not_wait_for_work_in_flight(executor: Executor, flag: Path) -> None:
    waiting = flag.with_name("waiting")
    waiting.touch()
    pipeline = seekable(Fault(waiting, 1, wait)) | lz.map(Fault(flag, 0, apologise))
    with lz.run(pipeline, executor=executor) as run:
        workers_started = monotonic()
        fails(run, [], Sorry)
        assert monotonic() - workers_started < 3 * SOON  # what is in flight takes 60
        waiting.unlink()


def test_an_error_of_a_stream_that_is_read_here_comes_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield from range(5)
        raise Sorry

    class Failing:
        def __iter__(self) -> Iterator[int]:
            return items()

    for executor in (lz.threads(2), lz.processes(2, start_method="fork")):
        found: list[Any] = []
        with lz.run(lz.source(Failing()) | lz.map(str), executor=executor) as run:
            fails(run, found, Sorry)
        assert found == ["0", "1", "2", "3", "4"]


# --- what can't be pickled ---


class Needs(Exception):
    """Its own `__init__` wants what its args don't have."""

    def __init__(self, what: str, count: int) -> None:
        super().__init__(f"{count} of {what}")
        self.what = what


class Doubles(Exception):
    """Unpickles, but to something else."""

    def __init__(self, what: str) -> None:
        super().__init__(f"no {what}")


class Unsendable(Exception):
    def __reduce__(self) -> Any:
        raise RuntimeError("not me")


class Unreceivable(Exception):
    def __reduce__(self) -> Any:
        return refuse, ()


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def refuse() -> None:
    raise Sorry("it can't be unpickled")


def refuse_elsewhere(pid: int) -> Exception:
    if os.getpid() != pid:
        refuse()
    return ValueError("here it can")


class Domestic(Exception):
    """Unpickles in its own process alone."""

    def __reduce__(self) -> Any:
        return refuse_elsewhere, (os.getpid(),)


def raise_needs(flag: Path) -> None:
    raise Needs("bread", 3)


def raise_doubles(flag: Path) -> None:
    raise Doubles("bread")


def raise_held(flag: Path) -> None:
    raise Sorry(threading.Lock())


def raise_local(flag: Path) -> None:
    class Local(Exception):
        pass

    raise Local("bread")


def raise_unsendable(flag: Path) -> None:
    raise Unsendable("bread")


def raise_unreceivable(flag: Path) -> None:
    raise Unreceivable("bread")


def raise_speechless(flag: Path) -> None:
    raise Speechless


def raise_domestic(flag: Path) -> None:
    raise Domestic


@pytest.mark.parametrize(
    ("raises", "kind", "says"),
    [
        (raise_needs, Needs, "3 of bread"),
        (raise_doubles, Doubles, "no bread"),
        (raise_held, lz.PipelineError, "can't be pickled.*Sorry"),
        (raise_local, Exception, "bread"),
        (raise_unsendable, Unsendable, "bread"),
        (raise_unreceivable, Unreceivable, "bread"),
        (raise_speechless, lz.PipelineError, "can't be pickled.*Speechless"),
        (raise_domestic, Exception, None),
    ],
)
@pytest.mark.parametrize("shape", [seekable, after_a_stream])
@each(FORKED)
def test_exceptions_that_do_not_pickle(
    executor: Executor, shape: Any, raises: Any, kind: Any, says: str, flag: Path
) -> None:
    found: list[Any] = []
    with lz.run(shape(Fault(flag, 5, raises)), executor=executor) as run:
        error = fails(run, found, kind, says)
        assert found == [0, 1, 2, 3, 4]
        assert raises is raise_domestic or f"in {raises.__name__}" in notes(error)
        assert getattr(error, "what", "bread") == "bread"
        flag.unlink()
        assert [*found, *run] == list(range(9))


class Odd:
    """An item that can't cross, and says why in its own way."""

    def __init__(self, error: type[Exception], on_arrival: bool) -> None:
        self.error, self.on_arrival = error, on_arrival

    def __reduce__(self) -> Any:
        if not self.on_arrival:
            raise self.error("not this item")
        return arrive, (self.error,)


def arrive(error: type[Exception]) -> None:
    raise error("not this item")


def lock(flag: Path) -> Any:
    return threading.Lock()


def unsendable(flag: Path) -> Any:
    return Odd(Sorry, False)


def unsendable_like_a_pipe(flag: Path) -> Any:
    return Odd(BrokenPipeError, False)


def unreceivable(flag: Path) -> Any:
    return Odd(Sorry, True)


def unreceivable_like_a_pipe(flag: Path) -> Any:
    return Odd(EOFError, True)


UNPICKLABLE = {
    lock: TypeError,
    unsendable: Sorry,
    unsendable_like_a_pipe: BrokenPipeError,
    unreceivable: Sorry,
    unreceivable_like_a_pipe: EOFError,
}


@pytest.mark.parametrize("at", [0, 50, 99])
@pytest.mark.parametrize("gives", UNPICKLABLE, ids=lambda gives: gives.__name__)
@pytest.mark.parametrize("shape", [seekable, after_a_stream])
@each(FORKED)
def test_items_that_can_not_cross(
    executor: Executor, shape: Any, gives: Any, at: int, flag: Path
) -> None:
    found: list[Any] = []
    with lz.run(shape(Fault(flag, at, gives), 100), executor=executor) as run:
        for _ in range(2):
            error = fails(run, found, UNPICKLABLE[gives])
            assert found == list(range(at))
            assert "can't leave its process" in notes(error) or "unpickled" in notes(error)
        flag.unlink()
        found.extend(run)
        assert found == list(range(100))
        assert run.state.items == 100


class Odds:
    """A stream with an item that can't go to a worker."""

    def __init__(self, flag: Path, gives: Callable[[Path], Any]) -> None:
        self.fault = Fault(flag, 50, gives)

    def __iter__(self) -> Iterator[Any]:
        return map(self.fault, range(100))


@pytest.mark.parametrize("gives", UNPICKLABLE, ids=lambda gives: gives.__name__)
def test_tasks_that_can_not_cross(gives: Any, flag: Path) -> None:
    pipeline = lz.source(Odds(flag, gives)) | lz.map(int)
    found: list[Any] = []
    with lz.run(pipeline, executor=lz.processes(2, start_method="fork")) as run:
        for _ in range(2):
            fails(run, found, UNPICKLABLE[gives])
            assert found == list(range(50))
        flag.unlink()
        found.extend(run)
    assert found == list(range(100))


HIDDEN = """
import sys
sys.modules["cloudpickle"] = None
import lazyckpt as lz

if __name__ == "__main__":
    executor = lz.processes(start_method={method!r}{more})
    run = lz.run(lz.source(range(9)) | lz.map({fn}), executor=executor)
    try:
        list(run)
    except lz.PipelineError as error:
        print(error)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize(
    ("fn", "more", "says"),
    [
        ("lambda x: x", "", "map(<lambda>), built at"),
        ("str", ", worker_init=lambda index: None", "worker_init"),
    ],
)
def test_functions_that_do_not_pickle(
    method: str, fn: str, more: str, says: str, tmp_path: Path
) -> None:
    out = script(tmp_path, HIDDEN.format(method=method, fn=fn, more=more))
    assert says in out
    assert "can't be sent to a worker process" in out
    assert "need cloudpickle" in out


# --- workers that die or hang ---


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
            fails(run, found, lz.WorkerTimeout, r"within 0\.3 s")
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


# --- the start of workers ---


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


# --- leaving ---


@shapes
@each(EVERY)
def test_leaving_the_loop_and_going_on(executor: Executor, shape: Any) -> None:
    found: list[Any] = []
    pipeline = shape(int, 40)
    with lz.run(pipeline, executor=executor) as run:
        for size in (3, 1, 9):
            for item in run:
                found.append(item)
                if len(found) % size == 0:
                    break
            assert run.state == lz.state_at(pipeline, len(found))
    with run:
        found.extend(run)
    assert found == list(range(40))
    assert run.state == lz.state_at(pipeline, 40)


@shapes
@each(QUICK)
def test_closing_with_long_work_in_flight(executor: Executor, shape: Any, flag: Path) -> None:
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


@shapes
@each(QUICK)
def test_closing_in_a_signal_handler(executor: Executor, shape: Any, flag: Path) -> None:
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
        run = lz.run(seekable(Fault(flag, 5, wait)), executor=FORKED["fork2"])
        next(run)
        run.close()
        assert not flag.with_name("saved").exists()
    finally:
        signal.signal(signal.SIGTERM, handler)


@shapes
@each(EVERY)
def test_an_unclosed_run_is_collected(executor: Executor, shape: Any) -> None:
    run = lz.run(shape(int, 10**6), executor=executor)
    next(run)
    assert workers()
    del run
    gc.collect()
    until(lambda: not workers(), SOON)


@each(QUICK)
def test_a_loop_that_is_left_lets_its_run_go(executor: Executor) -> None:
    gc.disable()
    try:
        for item in lz.run(seekable(int, 10**6), executor=executor):
            assert item == 0
            break
        until(lambda: not workers(), SOON)
    finally:
        gc.enable()


def script(folder: Path, text: str, code: int = 0, error: str = "") -> str:
    """What a script prints that ends soon with that code, and nothing else on stderr."""
    path = folder / "script.py"
    path.write_text(text)
    begun = monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "error", path], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr.strip().rpartition("\n")[2]) == (code, error), done.stderr
    if not error:
        assert done.stderr == ""
    assert monotonic() - begun < 2 * SOON
    return done.stdout


UNCLOSED = """
import multiprocessing, sys, time
import lazyckpt as lz

def slowly(x):
    time.sleep(x and 0.01)
    return x

if __name__ == "__main__":
    executor = {executor}
    pipeline = lz.source(range(10**6)) | lz.map(slowly) | lz.{stage}
    run = lz.run(pipeline, executor=executor)
    for item in run:
        print(*[child.pid for child in multiprocessing.active_children()])
        {end}
"""


@pytest.mark.parametrize(
    ("end", "code", "error"),
    [
        ("break", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("raise ValueError('mine')", 1, "ValueError: mine"),
    ],
)
@pytest.mark.parametrize("stage", ["map(slowly)", "filter(lambda x: True)"])
@pytest.mark.parametrize(
    "executor",
    [
        "lz.threads()",
        "lz.threads(2)",
        "lz.processes(2, start_method='fork')",
        "lz.processes(start_method='forkserver')",
    ],
)
def test_the_interpreter_ends_with_an_unclosed_run(
    executor: str, stage: str, end: str, code: int, error: str, tmp_path: Path
) -> None:
    text = UNCLOSED.format(executor=executor, stage=stage, end=end)
    pids = script(tmp_path, text, code, error).split()
    assert (
        len(pids)
        == {"threads": 0, "processe": "1" if "server" in executor else 2}.get(
            executor[3:11].rstrip("("), len(pids)
        )
        or pids
    )
    until(lambda: not any(is_alive(int(pid)) for pid in pids))


def test_the_interpreter_ends_with_an_unclosed_run_of_spawned_workers(tmp_path: Path) -> None:
    text = UNCLOSED.format(
        executor="lz.processes(2, start_method='spawn')", stage="map(slowly)", end="break"
    )
    pids = script(tmp_path, text).split()
    assert len(pids) == 2
    until(lambda: not any(is_alive(int(pid)) for pid in pids))


# --- signals ---


INTERRUPTED = """
import os, sys, time
import lazyckpt as lz

folder = sys.argv[1]

def ready(index):
    open(folder + f"/ready{{index}}", "w").close()

def slowly(x):
    if x == 3:
        open(folder + "/begun", "w").close()
        while not os.path.exists(folder + "/go"):
            time.sleep(0.005)
    return x

if __name__ == "__main__":
    pipeline = lz.source(range(6)) | lz.map(slowly) | lz.{stage}
    with lz.run(pipeline, executor={executor}) as run:
        found = []
        try:
            for item in run:
                found.append(item)
        except KeyboardInterrupt:
            assert run.state == lz.state_at(pipeline, len(found))
            open(folder + "/go", "w").close()
            found.extend(run)
        else:
            found = "not interrupted"
    print(found)
"""


@pytest.mark.parametrize("stage", ["map(int)", "filter(lambda x: True)"])
@pytest.mark.parametrize(
    "executor",
    ["threads()", "threads(2)"]
    + [f"processes({n}, start_method='fork')" for n in (1, 2)]
    + ["processes(2, start_method='forkserver', worker_init=ready)"]
    + ["processes(2, start_method='spawn')"],
)
def test_a_ctrl_c_in_the_consumer(executor: str, stage: str, tmp_path: Path) -> None:
    text = INTERRUPTED.format(executor="lz." + executor, stage=stage)
    (tmp_path / "script.py").write_text(text)
    with subprocess.Popen(
        [sys.executable, tmp_path / "script.py", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        until((tmp_path / "begun").exists, 20)
        if "ready" in executor:  # a server's child can be hit before it is a worker
            until((tmp_path / "ready0").exists)
            until((tmp_path / "ready1").exists)
        begun = monotonic()
        os.killpg(process.pid, signal.SIGINT)
        out, error = process.communicate(timeout=30)
        assert monotonic() - begun < 2 * SOON
    assert (out.decode().strip(), error.decode()) == ("[0, 1, 2, 3, 4, 5]", "")


ORPHANS = """
import multiprocessing, os, sys
import lazyckpt as lz

def busily(x):
    while x:
        sum(range(1000))
    return x

if __name__ == "__main__":
    run = lz.run({pipeline}, executor=lz.processes(2, start_method={method!r}))
    next(run)
    print(os.getpid(), *[child.pid for child in multiprocessing.active_children()], flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("is_busy", [True, False])
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_end_with_their_parent(method: str, is_busy: bool, tmp_path: Path) -> None:
    pipeline = f"lz.source(range(9)) | lz.map({'busily' if is_busy else 'abs'})"
    (tmp_path / "script.py").write_text(ORPHANS.format(pipeline=pipeline, method=method))
    before = shared()
    with subprocess.Popen(
        [sys.executable, tmp_path / "script.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        pids = [*map(int, process.stdout.readline().split())]
        assert len(pids) == 3
        assert all(map(is_alive, pids))
        process.kill()
        until(lambda: not any(map(is_alive, pids)), 3 * 3)
    until(lambda: shared() <= before)


# --- more than one ---


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


@each(QUICK)
def test_two_runs_of_one_pipeline(executor: Executor) -> None:
    pipeline = seekable(int, 300)
    with lz.run(pipeline, executor=executor) as one, lz.run(pipeline, executor=executor) as two:
        assert [*zip(one, two, strict=True)] == [(n, n) for n in range(300)]


def test_workers_of_one_run_do_not_keep_those_of_another(flag: Path) -> None:
    """Each was forked while the other's pipes were open."""
    executor = FORKED["fork1"]
    with lz.run(seekable(Fault(flag, 5, kill)), executor=executor) as one:
        first = next(one)
        with lz.run(seekable(int, 99), executor=executor) as two:
            next(two)
            fails(one, [first], lz.WorkerDied, "SIGKILL") if first else fails_later(one)
            assert len(list(two)) == 98


def fails_later(run: lz.Run[Any]) -> None:
    with pytest.raises(lz.WorkerDied, match="SIGKILL"):
        list(run)


class Nested:
    """A function that has a run of its own."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def __call__(self, item: int) -> int:
        with lz.run(seekable(int, item + 3), executor=self.executor) as run:
            return sum(run)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (lz.threads(2), lz.threads(2)),
        (lz.processes(2, start_method="fork"), lz.threads(2)),
        (lz.processes(2, start_method="fork"), lz.processes(2)),
        (lz.processes(2, start_method="spawn"), lz.processes(2)),
        (lz.threads(2), lz.processes(2)),
    ],
    ids=lambda executor: executor.public.__name__,
)
def test_nested_runs(outer: Executor, inner: Executor) -> None:
    with lz.run(seekable(Nested(inner), 4), executor=outer) as run:
        assert list(run) == [3, 6, 10, 15]


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


# --- ends, and leaks ---


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


def held() -> tuple[int, int, int]:
    """Processes and threads of ours, open files."""
    gc.collect()
    return len(workers()), threading.active_count(), len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("executor", "cycles"),
    [(lz.threads(), 1_000), (lz.threads(2), 1_000), (lz.processes(start_method="fork"), 1_000)],
    ids=["threads", "threads2", "fork"],
)
def test_opening_and_closing_leaks_nothing(executor: Executor, cycles: int) -> None:
    # In a process of its own: one that has all that tests import takes long to fork.
    process = multiprocessing.get_context("spawn").Process(target=cycled, args=(executor, cycles))
    process.start()
    process.join(110)
    assert process.exitcode == 0


def cycled(executor: Executor, cycles: int) -> None:
    pipelines = [lz.source(range(10**6)) | lz.map(ones), in_a_stream(ones, 10**6)]

    def cycle(count: int) -> None:
        for number in range(count):
            with lz.run(pipelines[number % 2], executor=executor) as run:
                assert len(next(run)) == 5000

    cycle(10)
    before = held()
    tracemalloc.start()
    cycle(10)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    cycle(cycles)
    until(lambda: held() <= before)
    until(lambda: not gc.collect() and tracemalloc.get_traced_memory()[0] < used + 500_000)


def ones(item: int) -> Any:
    return np.ones(5000)


def test_a_forked_process_leaves_the_workers_alone() -> None:
    with lz.run(seekable(int, 10**5), executor=FORKED["fork1"]) as run:
        next(run)
        child = multiprocessing.get_context("fork").Process(target=run.close)
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert len(list(islice(run, 1000))) == 1000
        again = multiprocessing.get_context("fork").Process(target=consume, args=(run,))
        again.start()
        again.join(60)
        assert again.exitcode == 0
        assert len(list(run)) == 10**5 - 1001


def consume(run: lz.Run[Any]) -> None:
    assert len(list(islice(run, 1000))) == 1000
    run.close()


def test_an_executor_pickles() -> None:
    for executor in EVERY.values():
        assert pickle.loads(pickle.dumps(executor)) == executor


AT_ANY_MOMENT = """
import random, signal, sys
from contextlib import suppress
from time import monotonic
import lazyckpt as lz

def yes(x):
    return True

def ctrl_c(*_):
    signal.raise_signal(signal.SIGINT)

sys.unraisablehook = lambda _: None  # an interrupt within a callback
signal.signal(signal.SIGALRM, ctrl_c)
moments, last = random.Random(0), -1
with lz.run(lz.count() | {stage}, executor={executor}) as run:
    for _ in range(60):
        with suppress(KeyboardInterrupt):
            begun = monotonic()
            signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-5, 4e-3))
            for item in run:
                assert item == last + 1, (item, last)
                last = item
                if monotonic() > begun + 0.05:
                    break
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert run.state.items == run.state.position[1] == last + 1, (run.state, last)
    assert next(run) == last + 1
"""


@pytest.mark.parametrize(
    "executor",
    [
        "None",
        "lz.threads()",
        "lz.threads(2, buffer_size=5)",
        "lz.threads(gated=True)",
        "lz.processes(start_method='fork')",
        "lz.to_device(lz.inline(), 'cpu')",
    ],
)
@pytest.mark.parametrize("stage", ["lz.map(abs)", "lz.map(lambda x: x)", "lz.filter(yes)"])
def test_interrupts_at_any_moment(executor: str, stage: str, tmp_path: Path) -> None:
    """After each the state is that of the last item which the loop had, and it goes on there.

    In a process of its own, whose other software has no locks that one may leave taken.
    """
    path = tmp_path / "script.py"
    path.write_text(AT_ANY_MOMENT.format(executor=executor, stage=stage))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


@each(QUICK)
@pytest.mark.parametrize("stage", [lz.batch(1), lz.filter(bool), lz.sliding_window(1)], ids=str)
def test_a_run_that_is_dropped_after_an_error_lets_its_workers_go(
    executor: Executor, stage: Any
) -> None:
    gc.collect()
    gc.disable()
    try:
        with suppress(ZeroDivisionError):
            list(
                lz.run(
                    lz.source([1, 1, 0, 1]) | lz.map(lambda x: 1 // x) | stage, executor=executor
                )
            )
        until(lambda: not workers(), SOON)
    finally:
        gc.enable()


class Attributes(dict[str, int]):
    """A dict whose keys are its attributes too; others are a KeyError."""

    __getattr__ = dict.__getitem__

    def __call__(self, item: int) -> int:
        return self["scale"] // item


@each(QUICK)
def test_items_and_functions_with_attributes_of_their_own(executor: Executor) -> None:
    pipeline = lz.source([3, 2, 1, 0]) | lz.map(Attributes(scale=6))
    with lz.run(pipeline, executor=executor) as run:
        assert [next(run) for _ in range(3)] == [2, 3, 6]
        with pytest.raises(ZeroDivisionError):
            next(run)
    items = lz.source(range(4)) | lz.map(lambda x: Attributes(x=x))
    with lz.run(items, executor=executor) as run:
        assert [item.x for item in run] == [0, 1, 2, 3]


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
