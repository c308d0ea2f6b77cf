"""What `explain` says is ahead, and what executors really hold."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.pools.processes import ProcessPool
from tests.helpers import until

pytestmark = [pytest.mark.usefixtures("nothing_left")]

LARGE, MEDIUM, SMALL = 3 << 20, 400 << 10, 1 << 10  # bytes of an item


class Stream:
    """Items one after another, of which nothing is known."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10**6))


class Made:
    """Makes an array, and notes it in a file: how many were made, in whatever process."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size

    def __call__(self, number: int) -> Any:
        with self.path.open("ab", buffering=0) as file:
            file.write(b".")
        return np.full(self.size, number % 251, np.uint8)

    def several(self, number: int) -> list[Any]:
        return [self(number)]

    def count(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0


SHAPES: dict[str, Callable[[Made], lz.Pipeline[Any]]] = {
    "random access": lambda made: lz.source(range(10**6)) | lz.map(made),
    "what comes of items": lambda made: lz.source(range(10**6)) | lz.flat_map(made.several),
    "a stream": lambda made: lz.source(Stream()) | lz.map(made) | lz.enumerate(),
    "items of a stream": lambda made: lz.source(Stream()) | lz.map(made),
    "joined": lambda made: lz.mix(
        [SHAPES[shape](made) for shape in ("random access", "what comes of items")], [1, 2], seed=0
    ),
}
EXECUTORS: dict[str, Callable[[], Executor]] = {
    "one thread": lambda: lz.threads(1),
    "threads": lambda: lz.threads(3),
    "more ready": lambda: lz.threads(2, buffer_size=9),
    "one process": lambda: lz.processes(1),
    "processes": lambda: lz.processes(2),
    "tasks": lambda: lz.futures(ThreadPoolExecutor(2), buffer_size=4),
}


SINGLE = ["one thread", "threads", "one process", "processes"]  # which make large items one by one


@pytest.fixture
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    found = EXECUTORS[request.param]()
    yield found
    if (pool := found.arguments.get("executor")) is not None:
        pool.shutdown()


def told(pipeline: lz.Pipeline[Any], executor: Executor) -> int:
    """The items that are ahead, as `explain` counts them in all parts together."""
    lines = lz.explain(pipeline, executor).layout
    return sum(map(int, re.findall(r"; (\d+) items? ahead", lines)))


def sentence(pipeline: lz.Pipeline[Any], executor: Executor) -> str:
    return " ".join(lz.explain(pipeline, executor).memory.partition("memory: ")[2].split())


def held(pipeline: lz.Pipeline[Any], executor: Executor, made: Made, least: int) -> int:
    """How many items are ahead of 3 that were delivered, once there are so many."""
    with lz.run(pipeline, executor=executor) as run:
        for _ in range(3):
            next(run)
        until(lambda: made.count() >= 3 + least)
    return made.count() - 3


@pytest.mark.parametrize("executor", SINGLE, indirect=True)
@pytest.mark.parametrize("shape", ["random access", "a stream", "items of a stream"])
def test_as_many_large_items_are_ahead_as_it_says(
    shape: str, executor: Executor, tmp_path: Path
) -> None:
    made = Made(tmp_path / "made", LARGE)
    pipeline = SHAPES[shape](made)
    expected = told(pipeline, executor)
    assert held(pipeline, executor, made, expected) == expected


@pytest.mark.parametrize("executor", EXECUTORS, indirect=True)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_more_are_ahead_than_it_says(shape: str, executor: Executor, tmp_path: Path) -> None:
    made = Made(tmp_path / "made", MEDIUM)
    pipeline = SHAPES[shape](made)
    least = executor.arguments["buffer_size"]
    assert least <= held(pipeline, executor, made, least) <= told(pipeline, executor)


@pytest.mark.parametrize("buffer_size", [2, 8])
def test_small_items_are_in_no_more_chunks_than_it_says(buffer_size: int) -> None:
    made, executor = set[int](), lz.threads(2, buffer_size=buffer_size)

    def make(number: int) -> Any:
        if threading.current_thread() is not threading.main_thread():  # which keeps none ahead
            made.add(number)
        return np.full(SMALL, number % 251, np.uint8)

    pipeline = lz.source(range(10**6)) | lz.map(make)
    chunks = r"chunks of (\d+) ([KM])iB .* 3 for each worker and 2 more, and (\d+) items besides"
    found = re.search(chunks, sentence(pipeline, executor))
    assert found is not None
    bound = (3 * 2 + 2) * int(found[1]) * {"K": 1, "M": 1024}[found[2]] + int(found[3])
    with lz.run(pipeline, executor=executor) as run:
        for delivered, _ in enumerate(islice(run, 9000), 1):
            if delivered % 100 == 0:
                assert sum(number >= delivered for number in made.copy()) <= bound


def test_nothing_is_ahead_where_the_consumer_makes_it_or_it_is_held_back(tmp_path: Path) -> None:
    made = Made(tmp_path / "made", SMALL)
    pipeline = lz.source(range(99)) | lz.map(made)
    assert lz.explain(pipeline).layout.endswith("; nothing ahead")
    assert held(pipeline, lz.inline(), made, 0) == 0
    made.path.unlink()
    gated = lz.threads(2, gated=True)
    assert "so much is ahead only within run.allow_buffering" in sentence(pipeline, gated)
    assert held(pipeline, gated, made, 0) == 0


def test_what_it_says_beside_the_counts() -> None:
    joined = SHAPES["joined"](Made(Path(os.devnull), 1))
    assert sentence(joined, lz.processes(2)) == (
        "stages have their own buffers; items below 256 KiB come in chunks of 256 KiB and 16,384 "
        "items at most, 3 for each worker and 2 more, and 2 items besides; what comes of an item, "
        "in parts of 1 MiB or one item, with 4.5 MiB for each worker; pipelines that are joined "
        "share what is ahead, and have one item each; large arrays and messages lie in 24 slots "
        "of shared memory for each worker, as large as its largest message"
    )
    assert "slots" not in sentence(joined, lz.processes(2, shared_memory=False))
    assert "slots" not in sentence(joined, lz.threads(2))
    plain = lz.source(Stream()) | lz.map(str)
    assert "in parts" not in sentence(plain, lz.threads(2))
    assert "joined" not in sentence(plain, lz.threads(2))
    assert sentence(plain, lz.inline()) == ""


def test_a_worker_has_as_many_slots_of_shared_memory_as_it_says(tmp_path: Path) -> None:
    pipeline, executor = SHAPES["random access"](Made(tmp_path / "made", LARGE)), lz.processes(2)
    with lz.run(pipeline, executor=executor) as run:
        kept = [next(run) for _ in range(9)]
        session = run._delivery.session
        assert session is not None
        (pool,) = session.gate.pools
        assert isinstance(pool, ProcessPool)
        assert f"in {pool._settings.slots} slots" in sentence(pipeline, executor)
    assert [int(item[0]) for item in kept] == [*range(9)]
