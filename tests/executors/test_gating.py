"""When items are prefetched: not before they may be, and not twice."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from tests.executors.faults import after_a_stream, before_a_stream, each, keep, seekable
from tests.helpers import HANGS, until, workers


class Counting:
    """The identity, which tells of each call, in whatever process; and a gate of its own."""

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        self.calls.touch()

    def __call__(self, item: int) -> int:
        with self.calls.open("a") as file:
            file.write(f"{item}\n")
        return item

    @property
    def made(self) -> list[int]:
        return sorted(map(int, self.calls.read_text().split()))


@pytest.fixture
def counting(tmp_path: Path) -> Counting:
    return Counting(tmp_path)


def between(fn: Any, n: int) -> lz.Pipeline[Any]:
    return lz.source(range(n)) | lz.flat_map(lambda item: [item]) | lz.map(fn) | lz.filter(keep)


SHAPES = [seekable, after_a_stream, before_a_stream, between]
FAR = 40  # items in order: more than workers may prefetch


def executors(**options: Any) -> dict[str, lz.Executor]:
    return {
        **{f"threads{n}": lz.threads(n, buffer_size=4, **options) for n in (1, 2)},
        **{f"processes{n}": lz.processes(n, buffer_size=4, **options) for n in (1, 2)},
    }


def pairs(is_gated: bool) -> Any:
    """Each executor with two of the shapes, and each shape with two of the executors."""
    found = [
        pytest.param(executor, shape, id=f"{name}-{shape.__name__}")
        for row, (name, executor) in enumerate(executors(gated=is_gated).items())
        for number, shape in enumerate(SHAPES)
        if (row + number + row // 2) % 2 == 0
    ]
    return pytest.mark.parametrize(("executor", "shape"), found)


gated = each(executors(gated=True))


def count(executor: lz.Executor) -> int:
    return int(executor.arguments["workers"])


def settled(counting: Counting) -> list[int]:
    """The number of items computed, once none is added for a tenth of a second.

    A busy machine may add more later: the tests want no more than this.
    """
    made, since = counting.made, monotonic()

    def is_quiet() -> bool:
        nonlocal made, since
        if counting.made != made:
            made, since = counting.made, monotonic()
        return monotonic() - since > 0.1

    until(is_quiet)
    return made


@pairs(True)
def test_nothing_is_made_before_it_may_be(
    executor: lz.Executor, shape: Any, counting: Counting
) -> None:
    with lz.run(shape(counting, 100), executor=executor) as run:
        assert settled(counting) == []
        assert next(run) == 0  # which was waited for
        assert len(settled(counting)) <= 1 + count(executor)
        with run.allow_buffering:
            with run.allow_buffering:
                pass
            until(lambda: len(counting.made) >= 5)
        made = settled(counting)
        for item in range(1, len(made) + 3):
            assert next(run) == item
        found = counting.made
        assert found == sorted(set(found)), "made once"
        assert [*run] == list(range(len(made) + 3, 100))
    until(lambda: not workers())


@pairs(True)
def test_only_what_was_begun_is_made_after_it_closes(
    executor: lz.Executor, shape: Any, counting: Counting
) -> None:
    with lz.run(shape(counting, 100), executor=executor) as run:
        for _ in range(5):
            next(run)
            with run.allow_buffering, run.allow_buffering:
                pass
        for item in range(5, 100):
            assert next(run) == item
            assert item < FAR or len(counting.made) <= item + 1 + count(executor)


class Waiting(Counting):
    """Makes nothing but the first item before a file of the item's name is there."""

    def __call__(self, item: int) -> int:
        super().__call__(item)
        until(lambda: item == 0 or self.go(item).exists() or self.go("all").exists())
        return item

    def go(self, item: Any) -> Path:
        return self.calls.with_name(f"go {item}")


@pairs(False)
def test_what_is_waited_for_is_made_though_others_pause(
    executor: lz.Executor, shape: Any, tmp_path: Path
) -> None:
    waiting = Waiting(tmp_path)
    with lz.run(shape(waiting, 100), executor=executor) as run:
        found = [next(run)]
        consumer = threading.Thread(target=found.extend, args=(run,))
        consumer.start()
        until(lambda: 1 in waiting.made)
        run.pause()
        waiting.go("all").touch()
        consumer.join(HANGS)
        assert found == list(range(100))


class Large(Counting):
    """Makes items that are handed on one by one."""

    def __call__(self, item: int) -> Any:
        return np.full(1 << 19, super().__call__(item), np.uint8)


@pairs(False)
def test_pausing_a_run_that_is_not_gated(executor: lz.Executor, shape: Any, tmp_path: Path) -> None:
    large = Large(tmp_path)
    with lz.run(shape(large, 100), executor=executor) as run:
        assert next(run)[0] == 0
        run.pause()
        run.pause()
        run.unpause()  # as often as it was paused
        for item in range(1, 60):
            assert next(run)[0] == item
            assert item < FAR or len(large.made) <= item + 1 + count(executor)
        run.unpause()
        assert next(run)[0] == 60
        until(lambda: len(large.made) >= 61 + 4)
        made = large.made  # of which there are more by and by
        assert len(made) == len({*made}), "made once"


@pairs(False)
def test_buffers_survive_leaving_and_entering(
    executor: lz.Executor, shape: Any, counting: Counting
) -> None:
    run = lz.run(shape(counting, 40), executor=executor)
    with run:
        found = [next(run)]
        until(lambda: run.stats.ready >= 4)
        ready = run.stats.ready
    until(lambda: not workers())
    with run:
        found.extend(run)
    assert found == list(range(40))
    assert all(counting.made.count(item) == 1 for item in range(1 + ready)), "made once"


@gated
def test_allowing_a_closed_run_starts_nobody(executor: lz.Executor, counting: Counting) -> None:
    run = lz.run(seekable(counting, 100), executor=executor)
    with run:
        next(run)
    with run.allow_buffering:
        assert not workers()
    with run, run.allow_buffering:
        assert [*run] == list(range(1, 100))


@gated
def test_an_error_while_allowing_loses_nothing(executor: lz.Executor, tmp_path: Path) -> None:
    """Workers that can't start say so to who asks for an item, and the first one is not lost."""
    has_files = executor.public is lz.processes
    with lz.run(seekable(Counting(tmp_path), 100), executor=executor) as run:
        with few_files() if has_files else nullcontext():
            with run.allow_buffering:
                pass
            if has_files:
                with pytest.raises(OSError, match="open files"):
                    next(run)
        assert [*run] == list(range(100))


@contextmanager
def few_files() -> Iterator[None]:
    """A context in which this process can't open more files."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_gate_counts_what_threads_wait_for(tmp_path: Path) -> None:
    """The consumer waits, and so does the thread that works for it: neither shuts the other out."""
    pipeline = before_a_stream(int, 3000) | lz.map(int)
    for executor in (lz.threads(2, gated=True), lz.processes(2, gated=True)):
        with lz.run(pipeline, executor=executor) as run:
            assert [*run] == list(range(3000))
    assert not [t for t in threading.enumerate() if t.name.startswith("lazyckpt-")]
