"""`case` and `switch`, beyond the laws."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt import testing
from tests.helpers import Costly


def test_case_computes_the_chosen_one_alone() -> None:
    data = [Costly(6) for _ in range(3)]
    parts = [lz.source(each) for each in data]
    pipeline = lz.case(lz.source([2, 0, 2, 1, 1]), *parts)
    assert list(pipeline) == [0, 10, 20, 30, 40]
    assert [each.read for each in data] == [[1], [3, 4], [0, 2]]
    assert pipeline[1] == 10
    assert [each.read for each in data] == [[1, 1], [3, 4], [0, 2]]
    assert len(pipeline) == 5


@pytest.mark.parametrize(
    ("selector", "error", "message"),
    [
        (2, ValueError, "case: selector 2 is out of range for 2 pipelines"),
        (-1, ValueError, "case: selector -1 is out of range for 2 pipelines"),
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
