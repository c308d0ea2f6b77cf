"""`@composite`: one named stage of several; stages as functions."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pytest
import toolz

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.core.checks import positive


@lz.composite
def windows(seconds: float, *, seed: int = 0) -> lz.Stage[Any, Any]:
    """Scaled, and in random order."""
    return lz.map(lambda x: x * seconds) | lz.shuffle(seed=seed)


@lz.composite(checks={"size": positive})
def pairs(size: int) -> lz.Stage[Any, Any]:
    return windows(0.5, seed=3) | lz.batch(size)


@lz.composite
def buffered(size: int) -> lz.Stage[Any, Any]:
    return lz.shuffle(size, seed=0) | lz.batch(size) | lz.filter(len)


@lz.composite
def numbers(n: int) -> lz.Pipeline[int]:
    return lz.source(range(n)) | lz.shuffle(seed=n)


def test_it_reads_as_it_was_written() -> None:
    pipeline = numbers(4) | lz.take(3) | pairs(2) | windows(2, seed=1)
    assert repr(pipeline) == "numbers(4) | take(3) | pairs(2) | windows(2, seed=1)"
    assert [call.name for call in pipeline.calls] == [
        "source", "shuffle", "numbers", "take", "map", "shuffle", "windows", "batch", "pairs",
        "map", "shuffle", "windows",
    ]  # fmt: skip
    assert repr(windows(1) | lz.batch(2)) == "windows(1) | batch(2)"
    assert windows.__doc__ == "Scaled, and in random order."
    assert pipeline == numbers(4) | (lz.take(3) | pairs(2)) | windows(2, seed=1)


def test_what_a_closure_hides_is_part_of_a_state() -> None:
    old, new = ([1, 2, 3] | windows(seconds) | lz.batch(2) for seconds in (0.5, 0.25))
    state = lz.state_at(old, 1)
    assert list(lz.run(old, state.to_json())) == list(old)[1:]
    with pytest.raises(
        lz.StateMismatch, match=r"windows\(seconds=0.5\) -> windows\(seconds=0.25\)"
    ):
        lz.run(new, state)
    with pytest.raises(lz.StateMismatch, match="seconds decides the order"):
        lz.rebase(state, new)


def test_it_keeps_the_laws() -> None:
    testing.check_combinator(buffered(2) | lz.take(5), range(9), limit=20)


def test_it_is_shown_as_it_was_written() -> None:
    pipeline = lz.source(range(9)) | doubled(2) | lz.take(3)
    assert lz.explain(pipeline).layout.startswith(
        "source(range(0, 9)) | doubled(2) | take(3)  in the"
    )
    assert "<bdi>doubled</bdi>" in pipeline._repr_html_()
    assert "map" not in pipeline._repr_html_()
    apart = lz.explain(pipeline, lz.threads(2)).layout
    assert "filter(positive_only)" in apart
    assert "doubled" not in apart


def test_arguments_are_checked_in_its_name() -> None:
    with pytest.raises(lz.ArgumentError, match="pairs: size must be an int >= 1, got size=0"):
        pairs(0)
    with pytest.raises(lz.ArgumentError, match="windows: missing a required argument: 'seconds'"):
        windows()  # type: ignore[call-arg]


def test_what_it_returns_must_be_stages() -> None:
    @lz.composite
    def wrong() -> Any:
        return [1, 2]

    with pytest.raises(
        lz.ArgumentError, match=r"wrong: a composite must return stages, got \[1, 2\]"
    ):
        wrong()


@lz.composite
def doubled(size: int) -> lz.Stage[Any, Any]:
    return lz.map(double) | lz.filter(positive_only) | lz.batch(size, collate=sum) | lz.map(double)


def double(x: int) -> int:
    return 2 * x


def positive_only(x: int) -> bool:
    if x == 14:
        raise ValueError(x)
    return x > 0


def test_it_is_copied_and_pickled() -> None:
    pipeline = lz.source([1, 2, 3]) | doubled(2) | lz.take(1)
    for other in (pickle.loads(pickle.dumps(pipeline)), copy.deepcopy(pipeline)):
        assert other == pipeline
        assert repr(other) == repr(pipeline)
        assert list(other) == list(pipeline)
        assert lz.init(other) == lz.init(pipeline)
    assert pipeline != lz.source([1, 2, 3]) | doubled(3) | lz.take(1)
    assert windows(0.5) == windows(0.5)
    assert windows(0.5) != windows(0.25)
    assert hash(windows(0.5)) == hash(windows(0.5))


@pytest.mark.parametrize(
    "executor",
    [None, lz.threads(2), lz.processes(1), lz.processes(2)],
    ids=repr,
)
def test_it_is_taken_apart_by_executors_and_guards(executor: Any) -> None:
    """Parts of it run in several places, and what its functions refuse is left out."""
    pipeline = lz.source(range(20)) | doubled(4) | doubled(2)
    expected = list(lz.run(pipeline, on_error="skip"))
    with lz.run(pipeline, executor=executor, on_error="skip") as run:
        assert list(run) == expected
        assert run.skipped == 1
    fine = lz.source(range(1, 7)) | doubled(2)
    with lz.run(fine, executor=executor) as run:
        assert list(run) == list(fine) == [12, 28, 44]


def test_names_are_not_registered_and_may_be_used_again() -> None:
    assert not {"windows", "pairs", "numbers"} & set(lz.registry)


def test_stages_are_functions() -> None:
    stage = lz.map(str) | lz.batch(2)
    expected = [["1", "2"], ["3"]]
    for data in ([1, 2, 3], np.arange(1, 4), (1, 2, 3), lz.source([1, 2, 3])):
        assert stage(data) == data | stage
        assert list(stage(data)) == expected
    assert list(toolz.pipe([1, 2, 3], lz.map(str), lz.batch(2))) == expected
    assert list(toolz.compose(lz.batch(2), lz.map(str))([1, 2, 3])) == expected
    assert list(toolz.thread_last([1, 2, 3], lz.map(str), lz.batch(2))) == expected
    assert toolz.compose(lz.batch(2), lz.map(str))(lz.map(int)) == lz.map(int) | stage
    with pytest.raises(lz.ArgumentError, match="source: data must be"):
        stage(3)  # type: ignore[arg-type]


def test_a_stage_is_no_function_among_arguments() -> None:
    with pytest.raises(lz.ArgumentError, match=r"map: fn must be a function; use \| to compose"):
        lz.source([1, 2]) | lz.map(lz.batch(2))  # type: ignore[arg-type]


def test_signatures_show_what_a_user_gets() -> None:
    assert inspect.signature(lz.map).return_annotation == "Stage[A, B]"
    assert inspect.signature(lz.source).return_annotation == "Pipeline[T]"
    assert "Machine" not in str(inspect.signature(lz.mix))
    for name, combinator in lz.registry.items():
        shown = str(inspect.signature(combinator.public))
        assert "Machine" not in shown, name
