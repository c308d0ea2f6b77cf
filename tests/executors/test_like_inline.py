"""Every executor yields equal items and, byte for byte, equal states, which any other resumes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.executors.cases import MOST, like_inline, told, trace
from tests.executors.graphs import GRAPHS
from tests.executors.table import NAMES, ROWS
from tests.helpers import IS_DEEP

pytestmark = pytest.mark.usefixtures("nothing_left")


def stride(at_least: int, number: int = 0) -> int:
    """Some stopping points, others for each number; in the profile `deep` all of them."""
    return 1 if IS_DEEP else at_least + number % 11


# Each with every how-manieth row of the table, and how many stopping points lie between two.
EXECUTORS: dict[str, tuple[lz.Executor, int, int]] = {
    "threads": (lz.threads(), 1, 25),
    "threads3": (lz.threads(3, buffer_size=20), 1, 25),
    "processes2": (lz.processes(2, buffer_size=4), 2, MOST),
    "one thread ahead": (lz.threads(2, buffer_size=1), 3, 15),
    "gated": (lz.threads(2, gated=True), 3, 15),
    "processes": (lz.processes(), 4, 45),
    "fork": (lz.processes(2, start_method="fork"), 12, MOST),
    "through pipes": (
        lz.processes(2, buffer_size=1, shared_memory=False, retries=1),
        4,
        45,
    ),
    "spawn": (lz.processes(2, start_method="spawn"), 36, MOST),
}
PAIRS = [
    pytest.param(*each, executor, stride(apart, number), id=f"{name}-{NAMES[number]}")
    for turn, (name, (executor, step, apart)) in enumerate(EXECUTORS.items())
    for number, each in list(enumerate(ROWS))[turn % step :: step]
]


@pytest.mark.parametrize(("row", "on_error", "executor", "apart"), PAIRS)
def test_the_table(row: Any, on_error: Any, executor: lz.Executor, apart: int) -> None:
    like_inline(row[1], executor, apart, on_error)


numbers = st.integers(1, 9)
threads = st.builds(lz.threads, st.integers(1, 4), buffer_size=numbers)
processes = st.builds(lz.processes, st.integers(1, 3), buffer_size=numbers)


# Stages that can't have items left out before them are among any.
ON_ERROR = {kind: st.sampled_from(["raise", "skip"]) for kind in GRAPHS} | {
    "any": st.just("raise"),
    "left out": st.just("skip"),
}


def holds(
    pipeline: lz.Pipeline[Any], one: lz.Executor, other: lz.Executor, cut: int, on_error: Any
) -> None:
    """In one go, closed and reopened, and from a state on under a different executor."""
    expected = trace(pipeline, on_error=on_error)
    cut = min(cut, len(expected) - 1)
    with lz.run(pipeline, executor=one, on_error=on_error) as run:
        assert equal(told(run, cut)[:cut], expected[:cut])
    with run:
        assert equal(told(run, MOST - cut), expected[cut:])
    state = expected[cut - 1][1] if cut else None
    assert equal(trace(pipeline, other, state, MOST - cut, on_error), expected[cut:])


@pytest.mark.parametrize("kind", GRAPHS)
@given(st.data(), threads, threads, st.integers(0, 39))
def test_threads(
    kind: str, data: st.DataObject, one: lz.Executor, other: lz.Executor, cut: int
) -> None:
    pipeline, on_error = data.draw(GRAPHS[kind]), data.draw(ON_ERROR[kind])
    holds(pipeline, one, other, cut, on_error)


@pytest.mark.parametrize("kind", GRAPHS)
@given(st.data(), processes, threads, st.integers(0, 39))
@settings(max_examples=max(4, settings().max_examples // 8))
def test_processes(
    kind: str, data: st.DataObject, one: lz.Executor, other: lz.Executor, cut: int
) -> None:
    pipeline, on_error = data.draw(GRAPHS[kind]), data.draw(ON_ERROR[kind])
    holds(pipeline, one, other, cut, on_error)
    holds(pipeline, other, one, cut, on_error)


def test_epochs_go_on_in_workers() -> None:
    pipeline = lz.source(range(10)) | lz.shuffle(seed=3) | lz.map(str) | lz.batch(3)
    plain = lz.run(pipeline)
    expected = [list(plain.epoch()), list(plain.epoch(7)), list(plain.epoch())]
    for executor in (lz.threads(), lz.threads(3), lz.processes(2)):
        with lz.run(pipeline, executor=executor) as run:
            assert [list(run.epoch()), list(run.epoch(7)), list(run.epoch())] == expected
            assert run.state == plain.state


def test_loops_share_a_run_and_loading_moves_them() -> None:
    pipeline = lz.source(range(100)) | lz.map(abs)
    there = lz.state_at(pipeline, 50)
    with lz.run(pipeline, executor=lz.threads(2)) as run:
        one, other = iter(run), iter(run)
        assert [next(one), next(other), next(run), next(one)] == [0, 1, 2, 3]
        run.load_state_dict(there)
        assert [next(one), next(other), next(run)] == [50, 51, 52]
        run.load_state_dict(there.to_dict())
        assert list(one) == list(range(50, 100))
        assert list(other) == []
