"""Sources that are made of arguments, beyond the laws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz


def test_unfold_asks_no_more_after_its_end() -> None:
    asked = []

    def step(state: int) -> tuple[int, int] | None:
        asked.append(state)
        return None if state == 2 else (state + 1, state)

    run = lz.run(lz.unfold(step, 0))
    assert list(run) == [0, 1]
    assert list(lz.run(lz.unfold(step, 0), run.state)) == []
    assert asked == [0, 1, 2]


def test_unfold_gives_none_as_an_item() -> None:
    assert list(lz.unfold(lambda n: (n + 1, None) if n < 2 else None, 0)) == [None, None]


def test_unfold_refuses_a_state_that_is_no_value() -> None:
    run = lz.run(lz.unfold(lambda state: ({1}, 1), 0))
    next(run)
    with pytest.raises(lz.InvalidState, match=r"unfold.*set"):
        _ = run.state


def test_uniform_is_uniform_and_its_epochs_and_seeds_are_independent() -> None:
    n = 100_000
    first, second = np.array(list(lz.random_floats(seed=0) | lz.take(n) | lz.repeat(2))).reshape(
        2, n
    )
    other = np.array(list(lz.random_floats(seed=1) | lz.take(n)))
    for drawn in (first, second, other):
        assert 0 <= drawn.min() < 1e-3 < 1 - 1e-3 < drawn.max() < 1
        assert abs(drawn.mean() - 0.5) < 5 * (1 / 12 / n) ** 0.5
        counts = np.histogram(drawn, 100, (0, 1))[0]
        assert ((counts - n / 100) ** 2 / (n / 100)).sum() < 170  # chi square, 99 degrees
    for a, b in ((first, second), (first, other), (first[1:], first[:-1])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / n**0.5


def test_choices_come_as_often_as_they_weigh() -> None:
    n, weights = 100_000, [1, 0, 2.5, np.float32(0.5), 0]
    found = Counter(lz.random_indices(weights, seed=3) | lz.take(n))
    assert found[1] == found[4] == 0
    for index, weight in enumerate(weights):
        share = float(weight) / 4
        assert abs(found[index] - n * share) <= 5 * (n * share * (1 - share)) ** 0.5


@pytest.mark.parametrize(
    "weights", [(1, 3), [2, 6], np.array([0.5, 1.5]), [1e-300, 3e-300], [True, 3]]
)
def test_choices_depend_on_the_proportions_alone(weights: Any) -> None:
    expected = list(lz.random_indices([1, 3], seed=0) | lz.take(50))
    assert list(lz.random_indices(weights, seed=0) | lz.take(50)) == expected


def test_choices_of_extreme_weights_end_and_stay_within() -> None:
    huge = lz.random_indices([1e308, 1e308, 0], seed=0) | lz.take(1000)
    assert set(huge) == {0, 1}
    assert set(lz.random_indices([0, 0, 5e-324, 0], seed=0) | lz.take(1000)) == {2}
    assert set(lz.random_indices([7], seed=0) | lz.take(10)) == {0}


def test_endless_sources_jump() -> None:
    for endless in (lz.count(3), lz.random_floats(seed=0), lz.random_indices([1, 2], seed=0)):
        state = lz.state_at(endless, 70_000)
        assert next(lz.run(endless, state)) == next(islice(endless, 70_000, None))
        with pytest.raises(lz.ArgumentError, match="endless"):
            endless | lz.shuffle(seed=0)


def test_golden_draws() -> None:
    """Orders are promises: these must never change."""
    assert list(lz.random_floats(seed=7) | lz.take(3)) == UNIFORM
    assert list(lz.random_indices([3, 1, 2], seed=7) | lz.take(12)) == CHOICES


UNIFORM = [0.1079161173654104, 0.08394227781137831, 0.536217490002717]
CHOICES = [2, 2, 0, 2, 0, 0, 2, 0, 1, 2, 0, 0]


ENDLESS: list[Any] = [
    lz.count(), lz.count(3, -2), lz.random_floats(seed=0), lz.random_indices([1, 2], seed=0),
    lz.source(range(7)) | lz.repeat() | lz.enumerate(), lz.count() | lz.enumerate(),
]  # fmt: skip


@pytest.mark.parametrize("endless", ENDLESS, ids=str)
@pytest.mark.parametrize("beyond", [1, 2, 2**60, 2**70])
def test_a_place_that_is_not_counted_is_refused_wherever_it_is_asked_for(
    endless: Any, beyond: int
) -> None:
    far = lz.state_at(endless, 2**60 - 1)
    last, item = lz.step(endless, far)
    assert next(lz.run(endless, far.to_json())) == item == endless[2**60 - 1]
    assert lz.run(endless, last.to_json()).state == last == lz.state_at(endless, 2**60)
    refusing: list[Any] = [
        lambda: lz.state_at(endless, 2**60 + beyond),
        lambda: lz.advance(endless, last, beyond),
        lambda: lz.step(endless, last),
        lambda: endless[2**60 + beyond],
        lambda: list(endless | lz.skip(2**60 + beyond) | lz.take(2)),
        lambda: next(iter(endless | lz.shard(num_shards=2**60, index=0) | lz.batch(20))),
    ]
    for refuse in refusing:
        with pytest.raises(IndexError, match=f"items are more than it can count, {2**60}"):
            refuse()


def test_floats_of_a_rank_among_too_many() -> None:
    ranks = lz.random_floats(seed=0) | lz.shard(num_shards=2**60, index=0)
    with pytest.raises(IndexError, match="random_floats: 23058430092136939520 items are more than"):
        list(ranks | lz.batch(20, collate=lz.stack) | lz.take(1))


def test_a_generator_function_is_called_for_each_epoch() -> None:
    calls = []

    def letters(count: int) -> Iterator[str]:
        calls.append(count)
        yield from "abcdef"[:count]

    pipeline = lz.from_generator(letters, 3)
    assert (list(pipeline | lz.repeat(2)), calls) == (list("abcabc"), [3, 3])
    assert pipeline != lz.from_generator(letters, 4)
    state = lz.state_at(pipeline, 2)
    assert list(lz.run(pipeline, state)) == ["c"]
    with pytest.raises(lz.StateMismatch, match="from_generator"):
        lz.run(lz.from_generator(letters, 2), state)


def test_what_a_generator_function_must_give() -> None:
    with pytest.raises(TypeError, match=r"from_generator: abs\(3\) must return an iterable, got 3"):
        list(lz.from_generator(abs, 3))
    given = [1, 2, 3]
    pipeline = lz.from_generator(lambda: given)
    state = lz.state_at(pipeline, 3)
    given.pop()
    with pytest.raises(lz.SourceChanged, match=r"from_generator: the state is after item 3"):
        list(lz.run(pipeline, state))
