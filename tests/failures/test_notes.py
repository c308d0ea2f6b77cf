"""Errors in the user's functions: located, without losing items, and the same item tried again."""

from __future__ import annotations

import functools
import inspect
import signal
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing import equal, strategies
from lazyckpt.testing.laws import Stream


class Flaky:
    """The identity, but some of its calls raise: those with certain numbers, or the first of 6."""

    def __init__(self, error: Callable[[], BaseException], calls: frozenset[int] | None) -> None:
        self.error, self.calls, self.called, self.failed = error, calls, 0, 0

    def __call__(self, item: Any) -> Any:
        self.called += 1
        if self.called in self.calls if self.calls is not None else item == 6 and not self.failed:
            self.failed += 1
            raise self.error()
        return item


def flaky_source(fail: Callable[[Any], Any], method: str) -> Any:
    class Data:
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> Any:
            return fail(index)

        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [fail(index) for index in indices]

    class Iterable:
        def __iter__(self) -> Iterator[Any]:
            return (fail(index) for index in range(10))

    if method == "__getitem__":
        del Data.__getitems__
    return Iterable() if method == "__iter__" else Data()


Failing = Callable[[Callable[[Any], Any]], lz.Pipeline[Any]]
DATA = lz.source(range(10))
FAILING: dict[str, tuple[str, Failing]] = {
    "map": ("map", lambda f: DATA | lz.map(f)),
    "map of many": ("map", lambda f: DATA | lz.map(int) | lz.map(f) | lz.map(int)),
    "map by partial": ("map", lambda f: DATA | lz.map(functools.partial(f))),
    "map of a stream": ("map", lambda f: lz.source(Stream(range(10))) | lz.map(f)),
    "filter": ("filter", lambda f: DATA | lz.filter(lambda x: f(x) >= 0)),
    "flat_map": ("flat_map", lambda f: DATA | lz.flat_map(lambda x: [f(x)])),
    "within flat_map": ("flat_map", lambda f: DATA | lz.flat_map(lambda x: (f(y) for y in [x]))),
    "scan": ("scan", lambda f: DATA | lz.scan(lambda s, x: (s, f(x)), 0)),
    "collate": ("batch", lambda f: DATA | lz.batch(1, collate=lambda items: f(items[0]))),
    "collate rows": (
        "batch",
        lambda f: (
            lz.source(flaky_source(int, "__getitems__")) | lz.batch(1, collate=lambda b: f(*b))
        ),
    ),
    "__getitem__": ("source", lambda f: lz.source(flaky_source(f, "__getitem__"))),
    "__getitems__": ("source", lambda f: lz.source(flaky_source(f, "__getitems__")) | lz.batch(1)),
    "__iter__": ("source", lambda f: lz.source(flaky_source(f, "__iter__"))),
    "in a join": ("map", lambda f: lz.concat(DATA | lz.map(f))),
}


def scanned(seen: int, item: Any) -> tuple[int, Any]:
    return seen + 1, (seen, item)


BEHIND: list[lz.Stage[Any, Any]] = [
    lz.map(str), lz.filter(lambda x: True), lz.batch(3), lz.shuffle(4, seed=1),
    lz.block_shuffle(4, seed=1), lz.repeat(3), lz.take(9), lz.skip(2), lz.batch(2) | lz.unbatch(),
    lz.flat_map(lambda x: [x, x]), lz.scan(scanned, 0), lz.repeat() | lz.take(25),
    lz.shard(num_shards=1, index=0),
]  # fmt: skip


def retried(pipeline: lz.Pipeline[Any]) -> tuple[list[Any], list[BaseException]]:
    """All items, asking again after each error, and the errors."""
    run, found, errors = lz.run(pipeline), list[Any](), list[BaseException]()
    while True:
        try:
            for item in run:
                found.append(item)
            return found, errors
        except BaseException as error:
            assert len(errors) < 20, "it fails again and again"
            errors.append(error)
            assert run.state.items == len(found)
            assert list(islice(lz.run(pipeline, run.state), 0)) == []


@pytest.mark.parametrize("kind", FAILING)
def test_an_error_keeps_its_type_and_says_where(kind: str) -> None:
    stage, build = FAILING[kind]
    line = inspect.getsourcelines(build)[1] if kind not in ("collate", "collate rows") else None
    _, (error,) = retried(build(Flaky(lambda: LookupError("mine"), None)))
    assert type(error) is LookupError
    assert error.args == ("mine",)
    note, _ = error.__notes__
    assert f"in {stage}(" in note
    assert " or " not in note
    assert __file__ in note
    assert line is None or f"{__file__}:{line}," in note
    assert note.endswith("after 6 delivered items")


def no_six(item: Any) -> Any:
    if item == 6:
        raise ValueError
    return item


def again(error: BaseException) -> Callable[[lz.Pipeline[Any]], Any]:
    """What a note says makes the item again."""
    (note,) = [each for each in error.__notes__ if "recomputes it" in each]
    call, _, state = note.removeprefix("lazyckpt: ").partition(" recomputes it; state = ")
    return lambda pipeline: eval(call, {"lz": lz, "pipeline": pipeline, "state": eval(state)})


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.parametrize("behind", [None, *BEHIND], ids=str)
def test_a_note_tells_how_to_make_the_item_again(
    kind: str, behind: lz.Stage[Any, Any] | None
) -> None:
    good, bad = (
        made if behind is None else made | behind for made in map(FAILING[kind][1], (int, no_six))
    )
    run, found = lz.run(bad), []
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # it has no words
        found.extend(run)
    replayed = again(caught.value)
    assert replayed(good) == list(good)[run.state.items]
    with pytest.raises(ValueError):  # noqa: PT011
        replayed(bad)
    if behind is None:
        with pytest.raises(ValueError) as stepped:  # noqa: PT011
            lz.step(bad, lz.state_at(good, 6))
        assert again(stepped.value)(good) == list(good)[6]


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.parametrize("value", [(), (3,)])
def test_stop_iteration_is_an_error_not_the_end(kind: str, value: tuple[int, ...]) -> None:
    good, bad = (FAILING[kind][1](f) for f in (int, Flaky(lambda: StopIteration(*value), None)))
    found, (error,) = retried(bad)
    assert found == list(good)
    assert type(error) is lz.PipelineError
    assert isinstance(error.__cause__, StopIteration)
    assert f"in {FAILING[kind][0]}(" in error.__notes__[0]
    state = lz.state_at(good, 6)
    again = FAILING[kind][1](Flaky(lambda: StopIteration(*value), None))
    with pytest.raises(lz.PipelineError, match="StopIteration"):
        lz.step(again, state)


def interrupt() -> BaseException:
    signal.raise_signal(signal.SIGINT)
    raise AssertionError("the handler has raised")


@pytest.mark.parametrize("error", [KeyboardInterrupt, interrupt, lambda: SystemExit(3)])
@pytest.mark.parametrize("kind", FAILING)
def test_an_interrupt_leaves_a_good_state(kind: str, error: Callable[[], BaseException]) -> None:
    found, (caught,) = retried(FAILING[kind][1](Flaky(error, None)))
    assert found == list(FAILING[kind][1](int))
    assert type(caught) in (KeyboardInterrupt, SystemExit)


@given(data=st.data())
def test_retries_lose_nothing_wherever_a_function_fails(data: st.DataObject) -> None:
    pipeline = data.draw(strategies.pipelines(max_stages=5))
    place = data.draw(st.integers(1, len(pipeline.calls)))
    numbers = data.draw(st.frozensets(st.integers(1, 40), max_size=4))
    within = data.draw(st.sampled_from([None, lz.zip, lz.concat]))

    def mapped(fn: Callable[[Any], Any]) -> lz.Pipeline[Any]:
        head: lz.Pipeline[Any] = lz.Pipeline(pipeline.calls[:place]) | lz.map(fn)
        head = within(DATA, head) | lz.take(50) if within else head  # it may end in a repeat()
        return lz.Pipeline(head.calls + (pipeline.calls[place:] if within is None else ()))

    flaky = Flaky(ValueError, numbers)
    run, found, failed = lz.run(mapped(flaky)), list[Any](), 0
    while failed <= len(numbers):
        try:
            found.extend(run)
            break
        except ValueError:
            failed += 1
    assert equal(found, list(mapped(lambda item: item)))
    assert failed == flaky.failed


@pytest.mark.parametrize("stage", [lz.map, lz.filter, lz.take_while])
def test_a_function_of_other_arguments_is_told_where(stage: Any) -> None:
    for fn in (lambda item: item, int):  # the first fails in no frame of its own, nor the second
        call = stage(fn, 2)
        with pytest.raises(TypeError) as caught:
            list(lz.source(["x"]) | lz.map(str) | call | lz.batch(2))
        assert repr(call) in caught.value.__notes__[0]


def test_errors_of_our_own_stages_name_them() -> None:
    for stage, name in (
        (lz.unbatch(), "unbatch()"),
        (lz.batch(2, collate=lz.stack), "batch(2, collate=stack)"),
        (lz.flat_map(lambda x: 3), "flat_map("),
        (lz.scan(lambda s, x: 3, 0), "scan("),
        (lz.map(int), "map(int)"),
        (lz.filter(len), "filter(len)"),
    ):
        with pytest.raises(TypeError) as caught:
            list(lz.source([None, 1]) | lz.map(lambda x: x) | stage | lz.map(str))
        assert name in caught.value.__notes__[0], stage


@pytest.mark.parametrize("own", ["x" * 10_000, [10**400_000]])
def test_a_state_of_a_users_own_that_makes_no_note(own: Any) -> None:
    """It's too long for one, or can't be written."""
    pipeline = lz.source([1, 2]) | lz.scan(lambda state, item: (state, 1 // (item - 2)), own)
    run = lz.run(pipeline)
    assert next(run) == -1
    with pytest.raises(ZeroDivisionError) as caught:
        next(run)
    [note] = caught.value.__notes__
    assert "after 1 delivered items" in note


def fails_midway(state: int, item: int) -> Any:
    return state, outputs(item)


def outputs(item: int) -> Iterator[int]:
    yield item
    raise ValueError(item)


@pytest.mark.parametrize("tail", [lz.take(9), lz.map(str)], ids=str)
def test_outputs_that_fail_are_the_transitions(tail: Any) -> None:
    run = lz.run(lz.source(range(3)) | lz.flat_scan(fails_midway, 0) | tail)
    next(run)
    with pytest.raises(ValueError, match="0") as caught:
        next(run)
    assert "in flat_scan(fails_midway" in caught.value.__notes__[0]
    assert " or " not in caught.value.__notes__[0]
