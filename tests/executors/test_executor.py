"""Every executor gives the same items and, byte for byte, the same states; any goes on from any."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.executors.pool_executor import LastStageExecutor
from lazyckpt.testing import equal, strategies
from tests.helpers import until, workers

pytestmark = pytest.mark.usefixtures("nobody")


@pytest.fixture
def nobody() -> None:
    """No thread of an earlier test's run is left, as a process is not to be forked beside one."""
    gc.collect()
    until(lambda: not workers())


numbers = st.integers(1, 9)
threads = st.builds(lz.threads, st.integers(1, 4), buffer_size=numbers)
forks = st.builds(
    lz.processes, st.integers(1, 3), buffer_size=numbers, start_method=st.just("fork")
)


def steps(run: lz.Run[Any], count: int) -> list[tuple[Any, str]]:
    with run:
        return [(item, state.to_json()) for item, state in islice(run.with_state(), count)]


def holds(pipeline: lz.Pipeline[Any], one: lz.Executor, other: lz.Executor, cut: int) -> None:
    expected = steps(lz.run(pipeline), 40)
    found = steps(lz.run(pipeline, executor=one), 40)
    assert equal(found, expected)
    if cut < len(expected):
        rest = steps(lz.run(pipeline, found[cut][1], executor=other), 39 - cut)
        assert equal(rest, expected[cut + 1 :])


@given(strategies.pipelines(), threads, threads, st.integers(0, 39))
def test_threads(
    pipeline: lz.Pipeline[Any], one: lz.Executor, other: lz.Executor, cut: int
) -> None:
    holds(pipeline, one, other, cut)


@given(strategies.pipelines(), forks, threads, st.integers(0, 39))
@settings(max_examples=60)
def test_processes(
    pipeline: lz.Pipeline[Any], one: lz.Executor, other: lz.Executor, cut: int
) -> None:
    holds(pipeline, one, other, cut)
    holds(pipeline, other, one, cut)


@pytest.mark.parametrize("buffer_size", [90, 1000])
def test_more_tasks_than_a_pipe_holds(buffer_size: int) -> None:
    executor = lz.processes(buffer_size=buffer_size)
    with lz.run(lz.source(range(5000)) | lz.map(abs), executor=executor) as run:
        assert list(run) == list(range(5000))


class Pair(NamedTuple):
    image: Any
    label: int


def made(rng: np.random.Generator, x: int) -> Any:
    image = rng.normal(size=(60, 70))
    return [
        Pair(image, x),
        {"a": np.full(5000, x), "b": [None, "text", image.T]},
        image[::2],
        np.float32(x),
    ][x % 4]


SOURCES: dict[str, lz.Pipeline[int]] = {
    "seekable": lz.source(range(37)) | lz.shuffle(seed=1),
    "stream": lz.source(range(37)) | lz.filter(lambda x: x % 5),
}


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("name", SOURCES)
def test_arrays(name: str, method: str) -> None:
    come_alike(SOURCES[name] | lz.random_map(made, seed=2), method, equal)


def come_alike(pipeline: lz.Pipeline[Any], method: str, alike: Callable[[Any, Any], bool]) -> None:
    expected = steps(lz.run(pipeline), 99)
    for count, shared in ((1, True), (2, True), (2, False)):
        executor = lz.processes(count, start_method=method, shared_memory=shared, buffer_size=6)
        found = steps(lz.run(pipeline, executor=executor), 99)
        assert [state for _, state in found] == [state for _, state in expected]
        assert all(alike(a, b) for (a, _), (b, _) in zip(found, expected, strict=True))


def test_epochs_go_on_in_workers() -> None:
    pipeline = lz.source(range(10)) | lz.shuffle(seed=3) | lz.map(str) | lz.batch(3)
    plain = lz.run(pipeline)
    expected = [list(plain.epoch()), list(plain.epoch(7)), list(plain.epoch())]
    for executor in (lz.threads(), lz.threads(3), lz.processes(2)):
        with lz.run(pipeline, executor=executor) as run:
            assert [list(run.epoch()), list(run.epoch(7)), list(run.epoch())] == expected
            assert run.state == plain.state


@pytest.mark.parametrize("workers", [lz.threads(2), lz.processes(1), lz.processes(2)])
def test_the_last_stage_alone_is_for_workers(workers: lz.Executor) -> None:
    readers: list[int] = []

    def read(x: int) -> int:
        readers.append(threading.get_ident())
        return x

    pipeline = lz.source(range(30)) | lz.shuffle(seed=0) | lz.map(read) | lz.batch(3) | lz.map(sum)
    expected = steps(lz.run(pipeline), 99)
    del readers[:]
    last = LastStageExecutor(workers.public, workers.arguments)
    assert steps(lz.run(pipeline, executor=last), 99) == expected
    assert readers == [threading.get_ident()] * 30


@pytest.fixture
def run() -> Iterator[lz.Run[int]]:
    with lz.run(lz.source(range(100)) | lz.map(abs), executor=lz.threads(2)) as run:
        yield run


def test_loops_share_a_run_and_loading_moves_them(run: lz.Run[int]) -> None:
    one, other = iter(run), iter(run)
    assert [next(one), next(other), next(run), next(one)] == [0, 1, 2, 3]
    there = lz.state_at(lz.source(range(100)) | lz.map(abs), 50)
    run.load_state_dict(there)
    assert [next(one), next(other), next(run)] == [50, 51, 52]
    run.load_state_dict(there.to_dict())
    assert list(one) == list(range(50, 100))
    assert list(other) == []


def test_a_billion_items_at_once(run: lz.Run[int]) -> None:
    big = lz.source(range(10**9)) | lz.shuffle(seed=0) | lz.batch(2)
    state = lz.state_at(big, 123_456_789)
    with lz.run(big, state, executor=lz.threads(3)) as there:
        assert next(there) == big[123_456_789]
