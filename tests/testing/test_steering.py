"""The laws of steered pipelines, and that they can fail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

import lazyckpt as lz
from lazyckpt.core.steered import Steering
from lazyckpt.state import steering
from lazyckpt.testing import check_steering, functions, strategies

Case = tuple[lz.Pipeline[Any], list[tuple[int, str, Any]]]
EXAMPLE = (
    lz.source(range(60))
    | lz.filter(functions.above, lz.control(0, name="level"))
    | lz.map(functions.labelled, lz.control(0, name="level"))
    | lz.shuffle(8, seed=0)
    | lz.batch(2)
)
PLAIN = lz.source(range(20)) | lz.map(functions.labelled, lz.control(0, name="level"))
SETTINGS = [(3, "level", 5), (5, "level", 2)]


@settings(max_examples=settings.default.max_examples // 5)
@given(strategies.steered_pipelines())
def test_random_pipelines_are_steered(case: Case) -> None:
    check_steering(*case, limit=12)


@pytest.mark.parametrize("executor", [lz.threads(), lz.threads(2), lz.threads(2, gated=True)])
def test_threads_give_the_same(executor: lz.Executor) -> None:
    check_steering(EXAMPLE, SETTINGS, executors=[executor])
    labelled = lz.map(functions.labelled, lz.control("a", name="label"))
    pipeline = lz.count() | labelled | lz.repeat(2) | lz.batch(2) | lz.take(20)
    check_steering(pipeline, [(2, "label", "b"), (2, "label", "c")], executors=[executor])


def test_processes_give_the_same() -> None:
    check_steering(EXAMPLE, SETTINGS, limit=12, executors=[lz.processes(2)])


def always_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is read again is made of the value that holds now."""
    monkeypatch.setattr(Steering, "number", lambda self, epoch, item: len(self.starts))
    monkeypatch.setattr(Steering, "until", lambda self, number, epoch: None)


def from_the_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change holds where a resume begins to read, not behind what it reads again."""
    begins = lambda call, machine, here: steering.held(machine, here)[0].position  # noqa: E731
    monkeypatch.setattr(steering, "_upstream", begins)


def one_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow that goes on takes another value one item too late."""
    until = Steering.until
    monkeypatch.setattr(
        Steering,
        "until",
        lambda *args: None if (found := until(*args)) is None else found + 1,
    )


@pytest.mark.parametrize(
    ("breaking", "pipeline"),
    [(always_current, EXAMPLE), (from_the_anchor, EXAMPLE), (one_late, PLAIN)],
)
def test_the_laws_can_fail(
    breaking: Any, pipeline: lz.Pipeline[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_steering(pipeline, SETTINGS)
    breaking(monkeypatch)
    with pytest.raises(AssertionError):
        check_steering(pipeline, SETTINGS)
