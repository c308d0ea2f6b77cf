"""`case` and `switch`: what the laws can't see of them."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.testing.laws import Stream
from tests.helpers import Costly, wants


def test_case_computes_the_chosen_one_alone() -> None:
    data = [Costly(6) for _ in range(3)]
    parts = [lz.source(each) for each in data]
    pipeline = lz.case(lz.source([2, 0, 2, 1, 1]), *parts)
    assert list(pipeline) == [0, 10, 20, 30, 40]
    assert [each.read for each in data] == [[1], [3, 4], [0, 2]]
    assert pipeline[1] == 10
    assert [each.read for each in data] == [[1, 1], [3, 4], [0, 2]]
    assert len(pipeline) == 5


def test_case_over_streams_keeps_pace() -> None:
    streams = [lz.source(Stream(range(n, n + 5))) for n in (0, 100)]
    assert list(lz.case(lz.source([0, 1, 0, 1]), *streams)) == [0, 101, 2, 103]
    mixed = lz.case(lz.source(Stream([0, 1, 0])), streams[0], lz.count(7))
    assert list(mixed) == [0, 8, 2]
    testing.check_pipeline(mixed | lz.repeat(2))


def test_case_and_switch_end_with_the_shortest() -> None:
    short, long = lz.source([1]), lz.source([5, 6])
    assert list(lz.case(lz.source([1, 1, 1]), short, long)) == [5]
    assert list(lz.switch(lz.source([0, 0]), lz.source([]), long)) == []
    assert list(lz.switch(lz.once("true"), long, short)) == [5]


@pytest.mark.parametrize(
    ("selector", "error", "message"),
    [
        (2, ValueError, "case: selector 2 is not within 2 pipelines"),
        (-1, ValueError, "case: selector -1 is not within 2 pipelines"),
        (0.0, TypeError, r"case: a selector must be an int, got 0.0 \(float\)"),
        (True, TypeError, "case: a selector must be an int, got True"),
        (None, TypeError, "case: a selector must be an int, got None"),
        (np.array([0]), TypeError, "case: a selector must be an int"),
    ],
)
def test_a_wrong_selector_is_an_error_that_names_it(
    selector: Any, error: type[Exception], message: str
) -> None:
    pipeline = lz.case(lz.source([0, selector]), lz.count(), lz.count(10))
    run = lz.run(pipeline)
    assert next(run) == 0
    for _ in range(2):
        with pytest.raises(error, match=message):
            next(run)
    with pytest.raises(error, match=message):
        pipeline[1]


def test_case_takes_numpy_selectors_and_none_as_an_item() -> None:
    selector = lz.source(np.array([1, 0, 1], np.uint8))
    assert list(lz.case(selector, lz.count(), lz.source([None] * 3))) == [None, 1, None]


def test_switch_picks_by_truth() -> None:
    truths = lz.source([1, "", None, [0], np.bool_(False)])
    assert list(lz.switch(truths, lz.count(), lz.count(100))) == [0, 101, 102, 3, 104]


@pytest.mark.parametrize("at", [0, 1, 2_047, 2_048, 2_500])
def test_what_is_neither_true_nor_false_is_an_error_at_its_place(at: int) -> None:
    selectors: list[Any] = [i % 2 for i in range(3_000)]
    expected = [i if i % 2 else -i for i in range(3_000)]
    selectors[at] = np.array([0, 1])
    items, others = lz.source(range(3_000)), lz.source(range(0, -3_000, -1))
    run, found = lz.run(lz.switch(lz.source(selectors), items, others)), list[int]()
    for _ in range(2):
        with pytest.raises(ValueError, match="truth value") as info:
            found.extend(run)
        assert "lazyckpt: in switch" in info.value.__notes__[0]
        assert found == expected[:at]
        assert run.state.items == at
    selectors[at] = at % 2
    assert [*found, *run] == expected


def test_a_switch_of_what_is_there_has_a_place_before_each_item() -> None:
    n = 5_000
    pipeline = lz.switch(
        lz.source([i % 3 for i in range(n)]), lz.count(), lz.source(range(n, 3 * n))
    )
    testing.check_pipeline(pipeline, limit=30)
    for cut in (0, 1, 2_047, 2_048, 2_049, n - 1, n):
        run = lz.run(pipeline)
        found = list(islice(run, cut))
        assert run.state == lz.state_at(pipeline, cut)
        assert [*found, *lz.run(pipeline, run.state)] == [i if i % 3 else n + i for i in range(n)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: lz.case(lz.count()), "case: at least one pipeline to pick from is needed"),
        (lambda: lz.case([0], lz.count()), r"case: every argument must be a pipeline, got \[0\]"),
        (lambda: lz.switch(lz.count(), [1], lz.count()), "switch: every argument must be a pip"),
        (lambda: lz.switch(lz.count(), lz.count()), "if_false"),
        (lambda: lz.take_while(None), "take_while: predicate must be callable"),
        (lambda: lz.drop_while(3), "drop_while: predicate must be callable"),
        (lambda: lz.gather(), "indices"),
    ],
)
def test_bad_arguments_are_refused(build: Any, message: str) -> None:
    wants(message, build)


def test_random_draws_may_choose() -> None:
    """`random_indices` and `case` mix sources by weight, with random access."""
    mixed = lz.case(lz.random_indices([1, 3], seed=0), lz.count(), lz.count(1000))
    some = list(islice(mixed, 400))
    assert 60 < sum(item < 1000 for item in some) < 140
    assert mixed[399] == some[399]
