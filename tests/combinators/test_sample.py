"""`sample`, `sample_balanced`, `oversample`: draws, their frequencies, and refused arguments."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz

CLASSES = st.lists(st.sampled_from("abcd"), min_size=1, max_size=40)
SEEDS = st.integers(0, 2**64)


def test_an_item_comes_as_often_as_its_weight_says() -> None:
    weights = np.array([1, 0, 2, 5, 0.5])
    pipeline = lz.source(range(5)) | lz.sample(weights, seed=3, num_samples=100_000)
    shares = np.bincount(list(pipeline), minlength=5) / 100_000
    expected = weights / weights.sum()
    assert shares[1] == 0
    np.testing.assert_allclose(shares, expected, atol=5 * math.sqrt(0.25 / 100_000))


def test_without_replacement_each_next_one_is_drawn_by_weight() -> None:
    weights = [1, 2, 3, 4]
    stage = lz.sample(weights, seed=5, replacement=False, num_samples=2)
    pairs = lz.source(range(4)) | stage | lz.repeat() | lz.batch(2) | lz.take(5_000)
    for (first, second), times in Counter(map(tuple, pairs)).items():
        expected = weights[first] / 10 * weights[second] / (10 - weights[first])
        assert abs(times / 5_000 - expected) < 5 * math.sqrt(expected / 5_000)


@given(CLASSES, SEEDS, st.integers(1, 90))
def test_every_few_items_have_one_of_each_class(labels: list[str], seed: int, size: int) -> None:
    data = list(enumerate(labels))
    items = list(lz.source(data) | lz.sample_balanced(labels, seed=seed, num_samples=size))
    width = len({*labels})
    assert len(items) == size
    for begin in range(0, size - width + 1, width):
        assert {label for _, label in items[begin : begin + width]} == {*labels}
    for label in {*labels}:
        mine = [item for item in items if item[1] == label]
        all_of_it = labels.count(label)
        assert len({*mine[:all_of_it]}) == min(all_of_it, len(mine))


@given(CLASSES, SEEDS)
def test_oversampling_loses_nothing_and_makes_classes_equal(labels: list[str], seed: int) -> None:
    data = list(enumerate(labels))
    times = Counter(lz.source(data) | lz.oversample(labels, seed=seed))
    assert set(times) == {*data}
    most = max(Counter(labels).values())
    for label in {*labels}:
        each = [times[item] for item in data if item[1] == label]
        assert sum(each) == most
        assert max(each) - min(each) <= 1


def test_a_list_of_labels_and_an_array_are_the_same() -> None:
    labels = [3, 1, 3, 3, 2]
    one, two = (
        list(lz.source(range(5)) | lz.sample_balanced(each, seed=0, num_samples=50))
        for each in (labels, np.array(labels))
    )
    assert one == two


def test_orders_stay_what_they_are() -> None:
    data = lz.source(range(6))
    weights = [0.1, 0.7, 2, 3, 0, 1e-9]
    found: list[Any] = [
        list(data | lz.sample(weights, seed=7)),
        list(data | lz.sample(weights, seed=7, replacement=False)),
        list(data | lz.sample_balanced([0, 1, 0, 0, 0, 1], seed=7)),
        list(data | lz.oversample([0, 1, 0, 0, 0, 1], seed=7)),
    ]
    assert found == GOLDEN


GOLDEN = [
    [3, 3, 3, 2, 3, 2],
    [2, 1, 3, 0, 5],
    [0, 1, 5, 3, 2, 1],
    [1, 4, 5, 2, 0, 5, 1, 3],
]


REFUSED: list[tuple[Any, Any, str]] = [
    ([1, 2], lz.sample([1], seed=0), "1 weights for 2 items"),
    ([1], lz.sample_balanced([1, 2], seed=0), "2 labels for 1 items"),
    ([1], lz.oversample([], seed=0), "0 labels for 1 items"),
    ([1, 2], lz.sample([1, 0], seed=0, replacement=False, num_samples=2), "num_samples=2"),
    ([1, 2], lz.sample_balanced([1, [2]], seed=0), "labels must be hashable"),
    (iter([1]), lz.sample([1], seed=0), "has no random access"),
    (iter([1]), lz.sample_balanced([1], seed=0), "has no random access"),
]


@pytest.mark.parametrize(("data", "stage", "message"), REFUSED)
def test_what_does_not_go_together_is_refused(data: Any, stage: Any, message: str) -> None:
    source = lz.source(data) if isinstance(data, list) else lz.unfold(lambda s: None, 0)
    with pytest.raises(lz.ArgumentError, match=message):
        _ = (source | stage).machine


@pytest.mark.parametrize("labels", [None, 3, "ab", {"a": 1}, np.zeros((2, 2))], ids=repr)
def test_bad_labels(labels: Any) -> None:
    with pytest.raises(lz.ArgumentError, match="labels must be"):
        lz.sample_balanced(labels, seed=0)


def test_a_state_holds_no_weights() -> None:
    weights = np.arange(100_000)
    pipeline = lz.source(range(100_000)) | lz.sample(weights, seed=0) | lz.repeat()
    assert len(lz.state_at(pipeline, 250_000).to_json()) < 400
