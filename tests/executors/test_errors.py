"""Errors in workers: told in their turn, also those that no pipe can carry."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.executors.executor import Executor
from tests.executors import faults
from tests.executors.faults import (
    EVERY,
    FORKED,
    OTHERS,
    PROCESSES,
    QUICK,
    SOON,
    Fault,
    Odds,
    Sorry,
    after_a_stream,
    each,
    fails,
    notes,
    script,
    seekable,
    shapes,
    wait,
)

pytestmark = pytest.mark.usefixtures("nothing_left")


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
            assert f"built at {faults.__file__}" in notes(error)
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
            assert SPECIAL[raises] is not lz.PipelineError or "which does not end" in str(error)
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


class Locked(Exception):
    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what, self.lock = what, threading.Lock()


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


@dataclass(frozen=True)
class Frozen(Exception):
    """No attribute can be set: no note, no traceback."""

    what: str
    count: int


@dataclass
class Unhashable(Exception):
    what: str


def raise_frozen(flag: Path) -> None:
    raise Frozen("bread", count=3)


def raise_unhashable(flag: Path) -> None:
    raise Unhashable("bread")


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


def raise_locked(flag: Path) -> None:
    raise Locked("bread")


def raise_group(flag: Path) -> None:
    raise ExceptionGroup("bread", [ValueError(1), Needs("butter", 2)])


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
        (raise_speechless, Speechless, None),
        (raise_locked, Locked, "bread"),
        (raise_group, ExceptionGroup, "bread"),
        (raise_domestic, Exception, None),
        (raise_frozen, Frozen, "bread"),
        (raise_unhashable, Unhashable, "bread"),
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


@pytest.mark.parametrize("raises", [raise_frozen, raise_unhashable])
@shapes
@each({"inline": lz.inline()} | QUICK)
def test_exceptions_that_are_dataclasses(
    executor: Executor, shape: Any, raises: Any, flag: Path
) -> None:
    found: list[Any] = []
    with lz.run(shape(Fault(flag, 5, raises)), executor=executor) as run:
        for _ in range(2):
            error = fails(run, found, (Frozen, Unhashable), "bread")
            assert "in map(" in notes(error)
            assert "lz.replay(" in notes(error)


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


_opened: list[Any] = []  # so that nothing is told of files left open


def opened(flag: Path) -> Any:
    _opened.append(flag.open())
    return _opened[-1]


def view(flag: Path) -> Any:
    return memoryview(b"bread")


UNPICKLABLE = {
    opened: TypeError,
    view: TypeError,
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
from tests.executors import faults

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


def holding(held: Any) -> Any:
    return lambda item: held


@each(OTHERS)
def test_functions_that_hold_what_would_come_as_something_else(
    executor: Executor, flag: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = memoryview(b"bread")
    with flag.open() as file:
        for held, says in ((view, "bytes would come"), (file, "text would come")):
            with (
                lz.run(seekable(holding(held)), executor=executor) as run,
                pytest.raises(lz.PipelineError, match=rf"map\(.*built at.*{says}"),
            ):
                list(run)
    monkeypatch.setattr(sys, "stdout", out := sys.__stdout__)
    with lz.run(lz.source([1]) | lz.map(lambda x: out is sys.stdout), executor=executor) as run:
        assert list(run) == [True]
