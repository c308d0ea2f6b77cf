"""Which of thousands of cheap items a worker died or hung at: earlier items come first."""

from __future__ import annotations

import os
import signal
from time import sleep
from typing import Any

import pytest

import lazyckpt as lz
from tests.executors.faults import LATE, SHAPES, fails, in_a_stream, notes, replayed, seekable

pytestmark = pytest.mark.usefixtures("nothing_left")

MANY = 20_000  # in tasks of thousands


class Deadly:
    """The identity, but a worker does not survive one item, however often it tries."""

    def __init__(self, at: int) -> None:
        self.at, self.here = at, os.getpid()

    def __call__(self, item: int) -> int:
        if item == self.at and os.getpid() != self.here:
            os.kill(os.getpid(), signal.SIGKILL)
        return item


@pytest.mark.parametrize(
    ("shape", "at", "workers"),
    [*zip(SHAPES, [0, 512, 15_001, MANY - 1], [1, 2, 1, 2], strict=True)],
)
def test_one_of_thousands(shape: Any, workers: int, at: int) -> None:
    pipeline = shape(Deadly(at), MANY)
    found: list[int] = []
    with lz.run(pipeline, executor=lz.processes(workers)) as run:
        error = fails(run, found, lz.WorkerDied)
        state = run.state
    assert found == list(range(at))
    assert f"after {at:,} delivered items" in notes(error)
    assert replayed(pipeline, error) == at
    assert [*found, *lz.run(pipeline, state)] == list(range(MANY))


@pytest.mark.parametrize("shape", [seekable, in_a_stream])
def test_one_of_thousands_is_left_out(shape: Any) -> None:
    pipeline = shape(Deadly(MANY - 100), MANY)
    executor = lz.processes(2)
    with lz.run(pipeline, executor=executor, on_error="skip") as run:
        assert list(run) == [item for item in range(MANY) if item != MANY - 100]
        assert run.skipped == 1


def slow_behind_thousands(item: int) -> int:
    if 15_000 <= item < 15_300:
        sleep(0.02)
    return item


def test_slow_items_behind_thousands_are_not_late() -> None:
    """The items of one task together take longer than each may."""
    executor = lz.processes(timeout=LATE)
    runs = [
        lz.run(shape(slow_behind_thousands, MANY), executor=executor)
        for shape in (seekable, in_a_stream)
    ]
    with runs[0], runs[1]:  # both wait simultaneously
        assert [*zip(*runs, strict=True)] == [(item, item) for item in range(MANY)]
