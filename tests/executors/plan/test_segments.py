"""Executors as values, what they say will run where, and how far ahead they go."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Semaphore
from typing import Any, NamedTuple

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.executors.plan.segments import takes_time


class Stream:
    def __iter__(self) -> Iterator[int]:
        return iter(range(100))


def odd(x: int) -> int:
    return x % 2


def double(x: int) -> int:
    return 2 * x


def total(items: list[int]) -> int:
    return sum(items)


NUMBERS = lz.source(range(100))
HERE = "in one ... beside the consumer"  # a thread or a process

RUNS = "each item with what comes of it"


@dataclass(frozen=True)
class Unhashable:
    numbers: list[int]

    def __call__(self, items: list[Any]) -> int:
        return len(items)


@lz.composite
def named(n: int) -> Any:
    return lz.map(double) | lz.batch(n)


PLANS = {
    "seekable, whole": (
        NUMBERS | lz.shuffle(seed=0) | lz.map(double) | lz.batch(2),
        ["each item from its own state"],
    ),
    "item by item, whole": (NUMBERS | lz.filter(odd), [RUNS]),
    "item by item, then a stream": (
        NUMBERS | lz.map(double) | lz.filter(odd) | lz.batch(3),
        [RUNS, HERE],
    ),
    "what counts items": (
        NUMBERS | lz.filter(odd) | lz.random_map(lambda rng, x: x, seed=0) | lz.map(double),
        [RUNS, "item by item"],
    ),
    "what ends all": (
        NUMBERS | lz.map(double) | lz.take_while(odd) | lz.flat_map(range) | lz.map(double),
        ["each item from its own state", HERE, "item by item"],
    ),
    "a composite among them": (
        NUMBERS | named(2) | lz.unbatch() | lz.filter(odd) | lz.map(double),
        [RUNS],
    ),
    "joined": (
        lz.mix([NUMBERS | lz.map(double), NUMBERS | lz.flat_map(range)], [1, 2], seed=0)
        | lz.batch(2),
        ["each item from its own state", RUNS, HERE],
    ),
    "joined twice": (
        lz.concat(lz.interleave(NUMBERS | lz.filter(odd), NUMBERS), NUMBERS) | lz.tap(odd),
        [RUNS, HERE, HERE, HERE, HERE, "item by item"],
    ),
    "joined for nothing": (lz.concat(lz.source(Stream()), NUMBERS), ["as one stream"]),
    "data behind what joins": (
        lz.zip(NUMBERS | lz.map(double), NUMBERS) | lz.group_by(odd),
        ["each item from its own state", HERE],
    ),
    "a collate": (lz.source(Stream()) | lz.batch(2, collate=total), [HERE, "item by item"]),
    "stack is sooner done than sent": (
        lz.source(Stream()) | lz.batch(2, collate=lz.stack),
        ["as one stream"],
    ),
    "a collate that is no key": (
        lz.source(Stream()) | lz.batch(2, collate=Unhashable([1])),
        [HERE, "item by item"],
    ),
    "stack behind what workers make": (
        lz.source(Stream()) | lz.map(double) | lz.batch(2, collate=lz.stack) | lz.map(double),
        [HERE, "item by item", HERE, "item by item"],
    ),
    "between streams": (
        NUMBERS | lz.map(double) | lz.group_by(odd) | lz.tap(odd) | lz.take_while(odd),
        ["each item from its own state", HERE, "item by item", HERE],
    ),
    "nothing to do": (lz.source(Stream()) | lz.enumerate() | lz.batch(2), ["as one stream"]),
}


def segments(pipeline: lz.Pipeline[Any], executor: lz.Executor | None = None) -> list[str]:
    """A line for each segment, however long."""
    said = lz.explain(pipeline, executor).layout
    return re.sub(r"\n *(\| |  in )", r" \1", said).splitlines()


@pytest.mark.parametrize("name", PLANS)
def test_what_runs_where(name: str) -> None:
    pipeline, expected = PLANS[name]
    for executor in (lz.threads(2), lz.processes(2)):
        lines = segments(pipeline, executor)
        assert len(lines) == len(expected)
        for line, part in zip(lines, expected, strict=True):
            assert re.search(part.replace("...", r"\w+") + r"; (\d+ items|nothing) ahead$", line)
    for one in (lz.threads(), lz.processes()):
        assert "in one " in segments(pipeline, one)[-1]
    *_, line = segments(pipeline)
    assert line.endswith("in the consumer's thread, when asked for; nothing ahead")


def fails(items: list[int]) -> int:
    raise ValueError(items)


@pytest.mark.parametrize(
    "executor",
    [lz.inline(), lz.threads(2), lz.processes(2)],
    ids=["inline", "threads", "processes"],
)
def test_an_error_in_a_collate_that_runs_apart_names_the_stage(executor: lz.Executor) -> None:
    pipeline = lz.source(Stream()) | lz.batch(2, collate=fails)
    with lz.run(pipeline, executor=executor) as run, pytest.raises(ValueError, match="0, 1") as got:
        next(run)
    assert got.value.__notes__[0].startswith("lazyckpt: in batch(2, collate=fails), built at ")


class Scaled(NamedTuple):
    factor: int

    def __call__(self, x: int) -> int:
        return self.factor * x


def test_only_plain_data_take_no_time() -> None:
    calls = (NUMBERS | lz.skip(2) | lz.map(Scaled(3))).calls
    assert not takes_time(calls[:2])
    assert takes_time(calls[2:])


def test_executors_are_values() -> None:
    a, b = lz.threads(2, buffer_size=4), lz.threads(2, buffer_size=4)
    assert a == b
    assert hash(a) == hash(b)
    assert a != lz.threads(2)
    assert lz.threads(2) != lz.processes(2)
    assert lz.inline() == lz.inline()
    assert repr(a) == "threads(workers=2, buffer_size=4)"
    assert repr(lz.processes(start_method="spawn")) == "processes(start_method='spawn')"
    for each in (a, lz.inline(), lz.processes(3, worker_init=odd)):
        assert pickle.loads(pickle.dumps(each)) == each
        with pytest.raises(AttributeError, match="is a value"):
            each.arguments = {}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lz.threads(0), "threads: workers must be an int >= 1, got workers=0"),
        (lambda: lz.threads(True), "workers=True"),
        (lambda: lz.processes(2.0), "workers=2.0"),  # type: ignore[arg-type]
        (lambda: lz.processes(buffer_size=0), "buffer_size=0"),
        (lambda: lz.processes(start_method="thread"), "'fork' or 'forkserver' or 'spawn'"),
        (lambda: lz.threads(timeout=0), "a number of seconds above 0"),
        (lambda: lz.threads(timeout=float("nan")), "timeout=nan"),
        (lambda: lz.processes(worker_init=3), "worker_init must be callable"),  # type: ignore[arg-type]
        (lambda: lz.threads(1, 2), "threads: too many positional"),  # type: ignore[call-arg]
        (lambda: lz.threads(num_workers=2), "num_workers"),  # type: ignore[call-arg]
        (lambda: lz.run(NUMBERS, executor=4), r"write threads\(4\) or processes\(4\)"),  # type: ignore[arg-type]
        (lambda: lz.run(NUMBERS, executor=lz.threads), r"write threads\(\)"),  # type: ignore[arg-type]
        (lambda: lz.run(NUMBERS, executor="threads"), "got 'threads'"),  # type: ignore[arg-type]
        (lambda: lz.explain(lz.batch(2), lz.threads()), r"write source\(data\)"),
    ],
)
def test_bad_arguments(make: Any, message: str) -> None:
    with pytest.raises(lz.ArgumentError, match=message):
        make()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("buffer_size", [1, 2, 7])
@pytest.mark.parametrize("is_stream", [False, True])
def test_how_far_ahead_large_items_are_made(
    workers: int, buffer_size: int, is_stream: bool
) -> None:
    begun = Semaphore(0)

    def large(x: int) -> Any:
        begun.release()
        return np.empty(1 << 20, np.uint8)

    pipeline = NUMBERS | lz.filter(double) if is_stream else NUMBERS
    with lz.run(
        pipeline | lz.map(large), executor=lz.threads(workers, buffer_size=buffer_size)
    ) as run:
        made = 0
        for delivered, _ in enumerate(run, 1):
            while begun.acquire(blocking=False):
                made += 1
            # A worker may have half a buffer in hand, and beside streams one more has it all.
            most = buffer_size + workers * max(1, buffer_size // 2)
            assert made - delivered <= most * (1 + (is_stream and workers > 1)) + buffer_size


@pytest.mark.parametrize(("workers", "buffer_size"), [(1, 2), (1, 8), (3, 2)])
def test_memory_holds_the_buffer_and_some_for_each_worker(workers: int, buffer_size: int) -> None:
    most = buffer_size + 3 * workers + 4  # with those that the consumer has at hand
    command = [sys.executable, "-c", MEMORY, str(workers), str(buffer_size)]
    for _ in range(3):  # each worker keeps what it once needed, and who needs most varies
        done = subprocess.run(command, capture_output=True, text=True)
        if float(done.stdout or "inf") <= most:
            return
    pytest.fail(f"{done.stdout} of {most} items: {done.stderr}")


# Of a process that has little else: workers come to own what they share with it at first.
MEMORY = r"""
import multiprocessing, re, sys
from pathlib import Path
import numpy as np
import lazyckpt as lz

def large(x):
    return np.full(1 << 23, 1, np.uint8)

def memory():
    '''In items, of this process and its workers, with what they share counted once.'''
    pids = ["self", *(str(child.pid) for child in multiprocessing.active_children())]
    found = (Path("/proc", pid, "smaps_rollup").read_text() for pid in pids)
    return sum(int(re.findall(r"^Pss: +(\d+) kB", text, re.M)[0]) for text in found) / 8192

workers, buffer_size = map(int, sys.argv[1:])
executor = lz.processes(workers, buffer_size=buffer_size, start_method="fork")
with lz.run(lz.source(range(40)) | lz.map(large), executor=executor) as run:
    before = memory()
    print(max(memory() for _ in run) - before)
"""
