"""How far ahead of the consumer workers are, compared with `explain` and with the next items."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import threading
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from tests.executors.cases import Stream
from tests.executors.faults import every_other, keep
from tests.helpers import until

pytestmark = pytest.mark.usefixtures("nothing_left")

LARGE, MEDIUM, SMALL = 3 << 20, 400 << 10, 1 << 10  # bytes of an item


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


ENDLESS = Stream(10**6)
SHAPES: dict[str, Callable[[Made], lz.Pipeline[Any]]] = {
    "random access": lambda made: lz.source(range(10**6)) | lz.map(made),
    "a stream": lambda made: lz.source(ENDLESS) | lz.map(made) | lz.enumerate(),
    "items of a stream": lambda made: lz.source(ENDLESS) | lz.map(made),
    "what comes of items": lambda made: lz.source(range(10**6)) | lz.flat_map(made.several),
    "chosen": lambda made: lz.case(
        lz.source(ENDLESS) | lz.map(lambda x: x % 4), *[SHAPES["random access"](made)] * 4
    ),
    "one chosen": lambda made: lz.case(
        lz.source(ENDLESS) | lz.map(lambda x: 0), SHAPES["random access"](made)
    ),
    "joined": lambda made: lz.mix(
        [SHAPES[shape](made) for shape in ("random access", "what comes of items")], [1, 2], seed=0
    ),
}
EXECUTORS: dict[str, Callable[[], lz.Executor]] = {
    "one thread": lambda: lz.threads(1),
    "threads": lambda: lz.threads(3),
    "one process": lambda: lz.processes(1),
    "processes": lambda: lz.processes(2),
    "more ready": lambda: lz.threads(2, buffer_size=9),
    "tasks": lambda: lz.futures(ThreadPoolExecutor(2), buffer_size=4),
}
SINGLE = [*EXECUTORS][:4]  # which make large items one by one


@pytest.fixture
def executor(request: pytest.FixtureRequest) -> Iterator[lz.Executor]:
    found = EXECUTORS[request.param]()
    yield found
    if (pool := found.arguments.get("executor")) is not None:
        pool.shutdown()


def told(pipeline: lz.Pipeline[Any], executor: lz.Executor) -> int:
    """The items that are ahead, as `explain` counts them in all parts together."""
    lines = lz.explain(pipeline, executor).layout
    return sum(map(int, re.findall(r"; prefetch (\d+)", lines)))


def sentence(pipeline: lz.Pipeline[Any], executor: lz.Executor) -> str:
    return " ".join(lz.explain(pipeline, executor).memory.partition("memory: ")[2].split())


def held(pipeline: lz.Pipeline[Any], executor: lz.Executor, made: Made, least: int) -> int:
    """The number of items ahead of 3 delivered ones, once there are `least`."""
    with lz.run(pipeline, executor=executor) as run:
        for _ in range(3):
            next(run)
        until(lambda: made.count() >= 3 + least)
    return made.count() - 3


def test_it_says_what_is_made_what_is_on_its_way_and_what_is_ready() -> None:
    pipeline = SHAPES["random access"](Made(Path(os.devnull), 1))
    assert {name: told(pipeline, make()) for name, make in EXECUTORS.items()} == {
        "one thread": 1 + 2,
        "threads": 3 + 2,
        "one process": 1 + 1 + 2,
        "processes": 2 + 1 + 2,
        "more ready": 2 + 9,
        "tasks": 4,
    }


@pytest.mark.parametrize("executor", SINGLE, indirect=True)
@pytest.mark.parametrize("shape", [*SHAPES][:3])
def test_as_many_large_items_are_ahead_as_it_says(
    shape: str, executor: lz.Executor, tmp_path: Path
) -> None:
    made = Made(tmp_path / "made", LARGE)
    pipeline = SHAPES[shape](made)
    expected = told(pipeline, executor)
    assert held(pipeline, executor, made, expected) == expected


@pytest.mark.parametrize(
    ("shape", "executor"), every_other(SHAPES, EXECUTORS), indirect=["executor"]
)
def test_no_more_are_ahead_than_it_says(shape: str, executor: lz.Executor, tmp_path: Path) -> None:
    made = Made(tmp_path / "made", MEDIUM)
    pipeline = SHAPES[shape](made)
    least, most = executor.arguments["buffer_size"], told(pipeline, executor)
    with lz.run(pipeline, executor=executor) as run:
        for delivered, _ in enumerate(islice(run, 40), 1):
            assert made.count() - delivered <= most
            if delivered == 3:
                until(lambda: made.count() >= 3 + least)


@pytest.mark.parametrize("buffer_size", [2, 8])
def test_small_items_are_in_no_more_chunks_than_it_says(buffer_size: int) -> None:
    made, executor = set[int](), lz.threads(2, buffer_size=buffer_size)

    def make(number: int) -> Any:
        if threading.current_thread() is not threading.main_thread():  # which keeps none ahead
            made.add(number)
        return np.full(SMALL, number % 251, np.uint8)

    pipeline = lz.source(range(10**6)) | lz.map(make)
    chunks = r"at most (\d+) ([KM])iB .* 3 chunks per worker, 2 more chunks, and (\d+) more items"
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
    assert lz.explain(pipeline).layout.endswith("; no prefetch")
    assert held(pipeline, lz.inline(), made, 0) == 0
    made.path.unlink()
    gated = lz.threads(2, gated=True)
    assert "items are prefetched only within run.allow_buffering" in sentence(pipeline, gated)
    assert held(pipeline, gated, made, 0) == 0


def test_what_it_says_beside_the_counts() -> None:
    joined = SHAPES["joined"](Made(Path(os.devnull), 1))
    assert sentence(joined, lz.processes(2)) == (
        "stages have their own buffers; items below 256 KiB travel in chunks of at most 256 KiB "
        "and 16,384 items, with 3 chunks per worker, 2 more chunks, and 2 more items; the outputs "
        "of one input travel in parts of at most 1 MiB or one item, with 4.5 MiB per worker; "
        "joined pipelines share these limits, with at least one item each; large arrays and "
        "messages lie in 24 slots of shared memory per worker, each as large as the worker's "
        "largest message"
    )
    assert "slots" not in sentence(joined, lz.processes(2, shared_memory=False))
    assert "slots" not in sentence(joined, lz.threads(2))
    plain = lz.source(ENDLESS) | lz.map(str)
    assert "in parts" not in sentence(plain, lz.threads(2))
    assert "joined" not in sentence(plain, lz.threads(2))
    assert sentence(plain, lz.inline()) == ""


def large(x: Any) -> Any:
    return np.empty(1 << 20, np.uint8)


def test_what_all_segments_have_under_way_finds_room_in_shared_memory(tmp_path: Path) -> None:
    """Even if one worker makes all of it, while the other is at an item that takes long."""
    made = tmp_path / "made"

    def array(x: int) -> Any:
        if x == 30:  # once the other one has made all that it may
            sizes: list[int] = []
            until(lambda: sizes.append(made.stat().st_size) or sizes[-40:] == [sizes[-1]] * 40)
        with made.open("ab") as file:
            file.write(b".")
        return np.full(30_000, x)

    parts = [lz.source(range(100)) | lz.map(array) for _ in range(2)]
    executor = lz.processes(2, buffer_size=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with lz.run(lz.interleave(*parts), executor=executor) as run:
            assert [int(item[0]) for item in run] == [x for x in range(100) for _ in parts]


def numbers(x: int) -> Iterator[int]:
    return (x + n for n in range(10**6))


def test_the_parts_of_small_outputs_hold_no_more_than_it_says() -> None:
    """Their positions count too: they take more memory than a number."""
    pipeline, executor = lz.source(range(1_000, 2_000)) | lz.flat_map(numbers), lz.threads(2)
    found = re.search(r"one item, with ([\d.]+) MiB per worker", sentence(pipeline, executor))
    assert found is not None
    tracemalloc.start()
    try:
        with lz.run(pipeline, executor=executor) as run:
            assert sum(1 for _ in islice(run, 200_000)) == 200_000
            ready: list[int] = []
            until(lambda: ready.append(run.stats.ready) or ready[-40:] == [ready[-1]] * 40)
            assert tracemalloc.get_traced_memory()[0] <= 2 * (float(found[1]) + 2) * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("workers", "buffer_size"), [(1, 8), (3, 2)])
def test_memory_holds_the_buffer_and_some_for_each_worker(workers: int, buffer_size: int) -> None:
    most = buffer_size + 3 * workers + 4  # with those that the consumer has at hand
    command = [sys.executable, "-c", MEMORY, str(workers), str(buffer_size)]
    for _ in range(3):  # each worker keeps the memory it once needed, and the largest one varies
        done = subprocess.run(command, capture_output=True, text=True)
        if float(done.stdout or "inf") <= most:
            return
    pytest.fail(f"{done.stdout} of {most} items: {done.stderr}")


# Of a process that has little else: workers come to own the pages they share with it at first.
MEMORY = r"""
import re, sys
from pathlib import Path
import numpy as np
import lazyckpt as lz
from tests.helpers import parent_of, worker_pids

def large(x):
    return np.full(1 << 23, 1, np.uint8)

def memory():
    '''In items, of this process and its workers, with what they share counted once.'''
    pids = ["self", *map(str, [server, *worker_pids()])]
    found = (Path("/proc", pid, "smaps_rollup").read_text() for pid in pids)
    return sum(int(re.findall(r"^Pss: +(\d+) kB", text, re.M)[0]) for text in found) / 8192

workers, buffer_size = map(int, sys.argv[1:])
executor = lz.processes(workers, buffer_size=buffer_size)
with lz.run(lz.source(range(40)), executor=lz.processes()) as run:
    next(run)
    [server] = {parent_of(pid) for pid in worker_pids()}
with lz.run(lz.source(range(40)) | lz.map(large), executor=executor) as run:
    before = memory()
    print(max(memory() for _ in run) - before)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_slow_stream_is_not_read_far_ahead_before_an_item_comes(workers: int) -> None:
    read: list[int] = []

    def slowly(x: int) -> tuple[int, int]:
        sleep(5e-3)
        read.append(x)
        return x + 1, x

    with lz.run(lz.unfold(slowly, 0) | lz.map(abs), executor=lz.threads(workers)) as run:
        for given, item in enumerate(islice(run, 40), 1):
            assert item == given - 1
            assert len(read) < given + 200


# Of pipelines that are joined.

WORKERS, BUFFER = 2, 14


class Numbered:
    """Makes large items of one of the pipelines, and counts them."""

    def __init__(self, number: int, made: Counter[int]) -> None:
        self.number, self.made = number, made

    def __call__(self, x: int) -> Any:
        self.made[self.number] += 1
        return self.number, large(x)


def control(width: int) -> lz.Pipeline[int]:
    return lz.source([n * n % 7 * n % width for n in range(3_000)]) | lz.shuffle(seed=5)


JOINED: dict[str, tuple[int, Callable[[list[Any]], lz.Pipeline[Any]]]] = {
    "skewed": (2, lambda parts: lz.mix(parts, [0.9, 0.1], seed=0)),
    "a rare one": (3, lambda parts: lz.mix(parts, [0.499, 0.499, 0.002], seed=1)),
    "by proportion": (3, lambda parts: lz.mix(parts, [math.pi, 1, math.e], deterministic=True)),
    "a schedule": (
        2,
        lambda parts: lz.mix(parts, lambda t: [1, 0] if t // 40 % 2 else [1, 9], seed=1),
    ),
    "controlled": (3, lambda parts: lz.multiplex(control(3), parts)),
}


def parts(count: int) -> tuple[list[lz.Pipeline[Any]], Counter[int]]:
    made = Counter[int]()
    fns = [Numbered(number, made) for number in range(count)]
    return [lz.source(range(10_000), name=str(fn.number)) | lz.map(fn) for fn in fns], made


@pytest.mark.parametrize("name", JOINED)
def test_what_is_needed_next_is_ready(name: str) -> None:
    count, join = JOINED[name]
    plain = join([lz.source([n] * 10_000) for n in range(count)])
    order = [*islice(plain, 200)]
    several, made = parts(count)
    executor = lz.threads(WORKERS, buffer_size=BUFFER)
    with lz.run(join(several) | lz.filter(keep), executor=executor) as run:
        for place, (number, _) in enumerate(islice(run, 150), 1):
            assert number == order[place - 1]
            if place % 5 == 0:
                needed = Counter(order[: place + BUFFER // 2])
                until(lambda needed=needed: all(made[n] >= needed[n] for n in needed))
            assert made.total() - place <= 2 * (WORKERS + BUFFER + count)


def test_one_that_is_alone_has_all_and_those_that_nothing_chooses_share_alike() -> None:
    several, made = parts(30)
    executor = lz.threads(WORKERS, buffer_size=BUFFER)
    with lz.run(lz.concat(*[each | lz.filter(len) for each in several]), executor=executor) as run:
        next(run)
        until(lambda: made[0] > BUFFER)
        assert made.keys() == {0}
    several, made = parts(6)
    joined = lz.interleave(*[each | lz.filter(len) for each in several])
    with lz.run(joined, executor=executor) as run:
        assert len([*islice(run, 6)]) == 6
        until(lambda: min(made[n] for n in range(6)) > 1)
        assert max(made.values()) <= 3 + 2 * (WORKERS + BUFFER) // 6


class Slowing:
    """Is quick for the first numbers, and notes the others in a file."""

    FIRST = 6_000

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, number: int) -> int:
        if number >= self.FIRST:
            sleep(0.005)
            with self.path.open("ab", buffering=0) as file:
                file.write(b".")
        return number


@pytest.mark.parametrize(
    "executor", [lz.threads(), lz.threads(2), lz.processes(), lz.processes(2)], ids=str
)
@pytest.mark.parametrize(
    "shape",
    [
        lambda slowing: lz.source(range(10_000)) | lz.map(slowing),
        lambda slowing: lz.source(Stream(10_000)) | lz.map(slowing),
        lambda slowing: lz.source(range(10_000)) | lz.map(slowing) | lz.filter(keep_all),
        lambda slowing: (
            lz.source(Stream(10_000)) | lz.map(slowing) | lz.shuffle(seed=0, buffer_size=2)
        ),
    ],
    ids=["random access", "items of a stream", "what comes of items", "a stream"],
)
def test_items_that_become_slow_arrive_before_a_whole_chunk_is_made(
    shape: Callable[[Slowing], lz.Pipeline[int]], executor: lz.Executor, tmp_path: Path
) -> None:
    """Chunks are as large as the quick items before them allow."""
    slowing = Slowing(tmp_path / "made")
    with lz.run(shape(slowing), executor=executor) as run:
        first = next(item for item in run if item >= slowing.FIRST)
        assert slowing.path.stat().st_size < 1_000
        begun = run.state.items - 1
        found = [first, *islice(run, 80)]
    assert found == [*islice(run.pipeline, begun, begun + 81)]
    assert run.state == lz.state_at(run.pipeline, begun + 81)


def keep_all(number: int) -> bool:
    return True
