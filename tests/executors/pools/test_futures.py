"""Executors of others: a thread pool, a process pool; more are in tests/world."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.core.call import same
from lazyckpt.executors.ipc.serialization import Message, serialize_handlers
from lazyckpt.executors.plan.handlers import Reader
from lazyckpt.executors.pools import futures as module
from tests.executors.cases import PIPELINES, Stream, image, like_inline, square, until_error

SPAWN = multiprocessing.get_context("spawn")  # this process has threads


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[str, Any]]:
    with (
        ThreadPoolExecutor(2) as threads,
        ProcessPoolExecutor(2, mp_context=SPAWN) as processes,
    ):
        yield {"threads": threads, "processes": processes}


@pytest.fixture(params=["threads", "processes"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pool(pools: dict[str, Any], kind: str) -> Any:
    return pools[kind]


@pytest.mark.parametrize("name", PIPELINES)
def test_items_order_and_states_are_those_of_inline(name: str, kind: str, pool: Any) -> None:
    stride = {"threads": 1, "processes": 2}.get(kind, 4)
    like_inline(PIPELINES[name], lz.futures(pool, buffer_size=3), stride)


@pytest.mark.parametrize("buffer_size", [1, 2, 50])
def test_any_buffer(pools: dict[str, Any], buffer_size: int) -> None:
    for pipeline in PIPELINES.values():
        like_inline(pipeline, lz.futures(pools["threads"], buffer_size=buffer_size))


def test_order_is_not_that_of_completion() -> None:
    later = threading.Event()

    def first_waits(x: int) -> int:
        (later.wait if x == 0 else later.set)()
        return x

    with ThreadPoolExecutor(2) as pool:
        pipeline = lz.source(range(9)) | lz.map(first_waits)
        assert list(lz.run(pipeline, executor=lz.futures(pool, buffer_size=2))) == [*range(9)]


def test_arrays_can_be_written_to(pool: Any) -> None:
    pipeline = lz.source([0, 1]) | lz.map(image)
    for item in lz.run(pipeline, executor=lz.futures(pool, buffer_size=2)):
        item["pixels"] += 1


class Recorded:
    """A function that writes down where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return _unpickled, (self.path,)

    def __call__(self, x: int) -> int:
        return x + 1


def _unpickled(path: Path) -> Recorded:
    with path.open("a") as file:
        file.write(f"{os.getpid()}\n")
    return Recorded(path)


class Counting(ThreadPoolExecutor):
    """Counts how often handlers are sent, to processes of another executor."""

    def __init__(self, inner: Any) -> None:
        super().__init__(1)
        self.inner, self.tasks, self.sent = inner, 0, 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks += 1
        self.sent += args[0].serialized is not None
        future: Future[Any] = self.inner.submit(fn, *args, **kwargs)
        return future


def test_functions_are_sent_to_a_worker_once(tmp_path: Path, kind: str, pool: Any) -> None:
    path = tmp_path / "unpickled"
    path.touch()
    pipeline = lz.source(range(50)) | lz.map(Recorded(path)) | lz.batch(5)
    counting = Counting(pool)
    with lz.run(pipeline, executor=lz.futures(counting, buffer_size=8)) as run:
        assert list(run) == list(pipeline)
    places = path.read_text().split()
    assert len(places) == len(set(places)) <= (0 if kind == "threads" else 2)
    assert (kind == "threads") == (counting.sent == 0)


def test_one_worker_is_sent_them_once_however_much_is_under_way(tmp_path: Path) -> None:
    path = tmp_path / "unpickled"
    pipeline = lz.source(range(90)) | lz.map(Recorded(path)) | lz.batch(3)
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        counting = Counting(pool)
        list(lz.run(pipeline, executor=lz.futures(counting, buffer_size=16)))
    assert (counting.sent, len(path.read_text().split())) == (1, 1)


def test_a_worker_keeps_the_handlers_of_some_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, Any] = {}
    monkeypatch.setattr(module, "_cache", kept)
    blob = serialize_handlers([Reader(lz.source([1, 2, 3]))])
    for key in map(str, range(20)):
        bare = module.RemoteTask(key, 0, 0, Message(((0, 1), 2)))
        assert isinstance(module.run_task(bare).open(), str)  # lacks them
        sent = module.RemoteTask(key, 0, 0, Message(((0, 1), 2)), None, blob)
        assert module.run_task(sent).open().items == [2, 3]
        assert module.run_task(bare).open().items == [2, 3]
    assert len(kept) == 8


def test_a_function_that_cannot_be_sent(kind: str, pool: Any) -> None:
    lock = threading.Lock()
    pipeline = lz.source([1, 2]) | lz.map(lambda x: (lock.locked(), x))
    run = lz.run(pipeline, executor=lz.futures(pool, buffer_size=2))
    if kind == "threads":
        assert list(run) == [(False, 1), (False, 2)]
    else:
        with pytest.raises(lz.PipelineError, match=r"map\(<lambda>\), built at .* can't be sent"):
            list(run)


class Odd(Exception):
    pass


def fails_at_7(x: int) -> int:
    if x == 7:
        raise Odd("seven")
    return x


@pytest.mark.parametrize("source", [range(12), Stream(12)], ids=["seekable", "stream"])
def test_an_error_comes_in_its_turn(source: Any, kind: str, pool: Any) -> None:
    pipeline = lz.source(source) | lz.map(fails_at_7)
    with lz.run(pipeline, executor=lz.futures(pool, buffer_size=4)) as run:
        for expected in ([*range(7)], []):  # and once more when asked again
            items, error = until_error(run)
            assert items == expected
            assert type(error) is Odd
            assert error.args == ("seven",)
            note = "\n".join(error.__notes__)
            assert "in map(fails_at_7), built at" in note
            assert "after 7 delivered items" in note
            assert ("in fails_at_7" in note) == (kind != "threads")  # the worker's traceback
            assert run.state == lz.state_at(lz.source(source) | lz.map(int), 7)


def test_an_error_and_the_run_goes_on(tmp_path: Path, pool: Any) -> None:
    mended = tmp_path / "mended"

    def fails(x: int) -> int:
        if x == 5 and not mended.exists():
            raise OSError("no network")
        return x

    pipeline = lz.source(Stream(9)) | lz.map(fails)
    run = lz.run(pipeline, executor=lz.futures(pool, buffer_size=4))
    items, error = until_error(run)
    assert (items, type(error)) == ([*range(5)], OSError)
    mended.touch()
    assert list(run) == [5, 6, 7, 8]


def stops(x: int) -> int:
    return next(iter([])) if x == 3 else x


def test_a_stop_iteration_is_no_end(pool: Any) -> None:
    run = lz.run(lz.source(range(9)) | lz.map(stops), executor=lz.futures(pool, buffer_size=2))
    items, error = until_error(run)
    assert items == [0, 1, 2]
    assert type(error) is lz.PipelineError
    assert "StopIteration" in str(error)


def lock_at_3(x: int) -> Any:
    return threading.Lock() if x == 3 else x


def test_an_item_that_cannot_be_pickled(kind: str, pool: Any) -> None:
    run = lz.run(lz.source(range(9)) | lz.map(lock_at_3), executor=lz.futures(pool, buffer_size=2))
    if kind == "threads":
        assert len(list(run)) == 9
        return
    items, error = until_error(run)
    assert items == [0, 1, 2]
    assert type(error) is TypeError
    assert "a lock, can't leave its process" in "\n".join(error.__notes__)


class Locks:
    def __iter__(self) -> Iterator[Any]:
        return map(lock_at_3, range(9))


def test_an_item_that_cannot_be_sent(kind: str, pool: Any) -> None:
    run = lz.run(lz.source(Locks()) | lz.map(str), executor=lz.futures(pool, buffer_size=3))
    if kind == "threads":
        assert len(list(run)) == 9
        return
    items, error = until_error(run)
    assert items == ["0", "1", "2"]
    assert "an item can't be sent to a worker" in "\n".join(error.__notes__)


def locked(x: int) -> int:
    raise Odd("hidden", threading.Lock())


def test_an_error_that_cannot_be_pickled(kind: str, pool: Any) -> None:
    run = lz.run(lz.source(range(9)) | lz.map(locked), executor=lz.futures(pool, buffer_size=2))
    with pytest.raises(Odd if kind == "threads" else lz.PipelineError, match="hidden"):
        next(run)


def test_leaving_and_going_on(pools: dict[str, Any]) -> None:
    is_left_and_goes_on(pools["processes"])


def is_left_and_goes_on(pool: Any) -> None:
    run = lz.run(PIPELINES["stream"], executor=lz.futures(pool, buffer_size=3))
    items = []
    for _ in range(3):
        with run:
            items += [next(run), next(run)]
    with run:
        items += list(run)
    assert items == list(PIPELINES["stream"])


def test_the_value(pools: dict[str, Any]) -> None:
    pool = pools["threads"]
    executor = lz.futures(pool, buffer_size=3)
    assert repr(executor) == "futures(<ThreadPoolExecutor>, buffer_size=3)"
    assert executor == lz.futures(pool, buffer_size=3)
    assert hash(executor) == hash(lz.futures(pool, buffer_size=3))
    assert executor != lz.futures(pool, buffer_size=4)
    assert executor != lz.futures(pools["processes"], buffer_size=3)
    with pytest.raises((TypeError, pickle.PicklingError), match="pickle"):
        pickle.dumps(executor)


def test_what_runs_where(pools: dict[str, Any]) -> None:
    executor = lz.futures(pools["threads"], buffer_size=3)
    assert lz.explain(lz.source(range(9)) | lz.map(square), executor).layout.splitlines() == [
        "source(range(0, 9))",
        "| map(square)  as tasks of a ThreadPoolExecutor, each item from its own state"
        "; 3 items ahead",
    ]
    assert lz.explain(lz.source(Stream(9)) | lz.map(square), executor).layout.splitlines() == [
        "source(<Stream>)  in one thread beside the consumer; nothing ahead",
        "map(square)       as tasks of a ThreadPoolExecutor, item by item; 7 items ahead",
    ]


def test_arguments(pools: dict[str, Any]) -> None:
    with pytest.raises(lz.ArgumentError, match=r"must be a concurrent.futures.Executor"):
        lz.futures(4, buffer_size=1)
    with pytest.raises(lz.ArgumentError, match=r"must be a concurrent.futures.Executor"):
        lz.futures(ThreadPoolExecutor, buffer_size=1)
    with pytest.raises(lz.ArgumentError, match="buffer_size"):
        lz.futures(pools["threads"])  # type: ignore[call-arg]
    with pytest.raises(lz.ArgumentError, match="buffer_size must be an int >= 1"):
        lz.futures(pools["threads"], buffer_size=0)
    with pytest.raises(lz.ArgumentError, match=r"write futures\("):
        lz.run(lz.source([1]), executor=pools["threads"])


def test_large_items_into_tasks(pool: Any) -> None:
    pipeline = lz.source(Images()) | lz.map(doubled)
    with lz.run(pipeline, executor=lz.futures(pool, buffer_size=2)) as run:
        assert same(list(run), list(pipeline))


class Images:
    def __iter__(self) -> Iterator[Any]:
        return map(image, range(5))


def doubled(item: dict[str, Any]) -> Any:
    item["pixels"] *= 2  # as it may where no other process is
    return item["pixels"], item["box"]
