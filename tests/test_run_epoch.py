"""`Run.epoch`: one pass or a fixed number of items, over ends of the stream and resumes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing import equal, strategies
from lazyckpt.testing.laws import Stream

SHUFFLED = lz.source(range(7)) | lz.shuffle(seed=0)


def epochs(pipeline: lz.Pipeline[Any], count: int) -> list[Any]:
    """All items of the first epochs, from the machine itself."""
    flows = (pipeline.machine.flow(pipeline.machine.init(epoch)) for epoch in range(count))
    return list(chain.from_iterable(flows))


@pytest.mark.parametrize("kind", [list, Stream])
def test_an_epoch_is_one_pass_in_an_order_of_its_own(kind: Callable[[Any], Any]) -> None:
    pipeline = lz.source(kind(range(7))) | lz.shuffle(4, seed=0) | lz.batch(3)
    run = lz.run(pipeline)
    found = [list(run.epoch()) for _ in range(4)]
    assert list(chain.from_iterable(found)) == epochs(pipeline, 4)
    assert [len(epoch) for epoch in found] == [3] * 4
    assert found[0] != found[1]
    assert run.state.items == 12
    assert run.state.epoch == 3


@given(st.lists(st.integers(1, 20), max_size=6), st.booleans())
def test_sizes_span_the_ends_and_carry_on(sizes: list[int], is_resumed: bool) -> None:
    run = lz.run(SHUFFLED)
    whole = iter(epochs(SHUFFLED, 20))
    for size in sizes:
        left = size - run.state.items % size
        found = list(run.epoch(size))
        assert found == list(islice(whole, left))
        assert run.state.items % size == 0
        if is_resumed:
            run = lz.run(SHUFFLED, run.state.to_json())


@given(strategies.pipelines(), st.integers(0, 30))
def test_from_every_state_the_epochs_go_on(pipeline: lz.Pipeline[Any], cut: int) -> None:
    try:
        passes = [epochs(pipeline, n) for n in range(5)]
    except lz.PipelineError:  # a strict zip, even in its first epoch alone
        return
    expected = passes[3]
    if any(len(fewer) == len(more) for fewer, more in pairwise(passes)):
        return
    run = lz.run(pipeline)
    cut = min(cut, len(expected) - 1)
    head = list(islice(run.epoch(len(expected)), cut))
    again = lz.run(pipeline, run.state.to_dict())
    for walk in (run, again):
        rest = list(walk.epoch(len(expected)))
        assert equal(head + rest, expected)
    assert run.state == again.state
    following = next(run.epoch(1))
    assert equal(following, passes[4][len(expected)])


def test_at_the_end_and_at_the_start_of_the_next_the_next_epoch_comes() -> None:
    second = epochs(SHUFFLED, 2)[7:]
    run = lz.run(SHUFFLED)
    assert len(list(run.epoch())) == 7
    assert list(lz.run(SHUFFLED, run.state).epoch()) == second
    assert list(lz.run(SHUFFLED, run.state)) == []
    start = lz.init(SHUFFLED, epoch=1)
    assert list(lz.run(SHUFFLED, start).epoch()) == second
    assert list(run.epoch()) == second


def test_leaving_an_epoch_early_or_at_its_last_item_loses_nothing() -> None:
    pipeline = lz.source(range(5))
    for leave in range(1, 6):
        run = lz.run(pipeline)
        for number, _ in enumerate(run.epoch(), 1):
            if number == leave:
                break
        assert list(run.epoch()) == list(range(leave % 5, 5))
        run = lz.run(pipeline)
        for number, _ in enumerate(run.epoch(5), 1):
            if number == leave:
                break
        assert list(run.epoch(5)) == list(range(leave % 5, 5))
        assert run.state.items == (5 if leave < 5 else 10)


def test_an_epoch_ends_once_and_items_of_any_kind_do_not_end_it() -> None:
    run = lz.run(lz.source([None, np.arange(2), None]))
    one = run.epoch()
    assert len(list(one)) == 3
    assert list(one) == []
    assert run.state.items == 3
    assert [len(list(run.epoch(7))) for _ in range(2)] == [4, 7]


@pytest.mark.parametrize("empty", [lz.source([]), lz.source(range(3)) | lz.filter(lambda x: x > 5)])
def test_an_empty_stream_never_hangs(empty: lz.Pipeline[Any]) -> None:
    run = lz.run(empty)
    assert list(run.epoch()) == []
    assert list(run.epoch()) == []
    for _ in range(2):
        with pytest.raises(lz.PipelineError, match=r"epoch\(size=3\): .* is empty"):
            list(run.epoch(3))


def test_an_error_is_raised_and_tried_again_not_taken_for_an_end() -> None:
    bad = [2]

    def fails(x: int) -> int:
        if x in bad:
            raise ValueError(x)
        return x

    run = lz.run(lz.source(range(4)) | lz.map(fails))
    for _ in range(2):
        with pytest.raises(ValueError, match="2"):
            list(run.epoch(6))
    bad.clear()
    assert list(run.epoch(6)) == [2, 3, 0, 1]
    assert list(run.epoch(6)) == [2, 3, 0, 1, 2, 3]


def test_epochs_and_loops_and_loads_share_one_place() -> None:
    run = lz.run(lz.source(range(4)))
    assert next(run) == 0
    assert list(run.epoch(3)) == [1, 2]
    assert [next(run), *run.epoch()] == [3, 0, 1, 2, 3]
    assert list(run) == []
    run.load_state_dict(lz.state_at(lz.source(range(4)), 3))
    assert list(run.epoch()) == [3]
    run.close()
    with pytest.raises(lz.PipelineError, match="closed"):
        list(run.epoch())
    with run:
        for item in run.epoch():
            run.close()
            assert item == 0


@pytest.mark.parametrize("size", [None, 5, 9])
@pytest.mark.parametrize("executor", [None, lz.threads(2)], ids=str)
def test_an_error_does_not_end_an_epoch(size: int | None, executor: lz.Executor | None) -> None:
    failing = [0, 2, 3]

    def once(item: int) -> int:
        if item in failing:
            failing.remove(item)
            raise KeyError(item)
        return item

    with lz.run(lz.source(range(4)) | lz.map(once), executor=executor) as run:
        items, errors = run.epoch(size), 0
        found: list[int] = []
        while len(found) < (size or 4):
            try:
                found.append(next(items))
            except KeyError:
                errors += 1
        assert next(items, None) is None
    assert found == [n % 4 for n in range(size or 4)]
    assert errors == 3 or executor is not None


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "3"])
def test_a_size_that_is_none_is_refused_at_once(size: Any) -> None:
    with pytest.raises(lz.ArgumentError, match=r"Run\.epoch: size must be an int >= 1"):
        lz.run(lz.source([1])).epoch(size)


def test_epochs_of_endless_repeats_within_another_have_no_bound() -> None:
    inner = lz.source(range(6)) | lz.batch(2) | lz.shuffle(seed=0) | lz.repeat() | lz.take(4)
    outer = inner | lz.repeat() | lz.take(3)
    run = lz.run(outer)
    assert [len(list(run.epoch())) for _ in range(3)] == [3, 3, 3]
    assert lz.State.from_json(run.state.to_json()) == run.state
