"""Mixing: counts and proportions, endings, schedules, and refused arguments."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing.laws import Stream
from tests.combinators.test_refusals import BAD_WEIGHTS

ints = st.lists(st.integers(0, 40), min_size=1, max_size=7).filter(any)
floats = st.lists(st.floats(0, 10), min_size=1, max_size=5).filter(lambda w: sum(w) > 1e-3)


def endless(n: int) -> list[lz.Pipeline[int]]:
    return [lz.source([number]) | lz.repeat() for number in range(n)]


@given(ints | floats)
def test_exact_proportions_are_within_one_item_at_every_length(weights: list[float]) -> None:
    mixed = lz.mix(endless(len(weights)), weights, deterministic=True)
    total = sum(map(Fraction, weights))
    most = 1 if total.denominator == 1 or len(weights) < 4 else 2  # without common denominators
    taken = [0] * len(weights)
    for n, number in enumerate(islice(mixed, 300), 1):
        taken[number] += 1
        for count, weight in zip(taken, weights, strict=True):
            assert abs(count - Fraction(weight) / total * n) < most


@given(ints | floats, st.integers(0, 10**12))
def test_exact_proportions_far_out_are_reached_at_once(weights: list[float], n: int) -> None:
    mixed = lz.mix(endless(len(weights)), weights, deterministic=True)
    state = lz.state_at(mixed, n)
    counts = lz.mix_counts(mixed, state)
    assert sum(counts) == n
    total = sum(map(Fraction, weights))
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count - Fraction(weight) / total * n) < 2
    assert list(islice(lz.run(mixed, state), 5)) == [mixed[n + i] for i in range(5)]


@pytest.mark.parametrize("weights", [[0.7, 0.2, 0.1], [1 / 3, 2 / 3, 1], np.array([0.5, 0.25, 2])])
def test_floats_stand_for_the_fractions_that_they_are_next_to(weights: Any) -> None:
    mixed = lz.mix(endless(3), weights, deterministic=True)
    assert mixed.machine.skip is not None
    counts = lz.mix_counts(mixed, lz.state_at(mixed, 6 * 10**9))
    assert counts == tuple(round(6e9 * float(w) / float(sum(weights))) for w in weights)


@pytest.mark.parametrize(
    "weights",
    [[1_000_003, 17, 65_537_000], [0.50123, 0.3, 0.19877], [51.2e9, 17.12345e9], [2**0.5, 1]],
)
def test_shares_without_a_small_denominator_keep_proportions_and_random_access(
    weights: list[float],
) -> None:
    parts = [lz.count(number * 10**15) for number in range(len(weights))]
    mixed = lz.mix(parts, weights, deterministic=True)
    for n in (3_000, 10**12 + 1):
        state = lz.state_at(mixed, n)
        counts = lz.mix_counts(mixed, state)
        for count, weight in zip(counts, weights, strict=True):
            assert abs(count - Fraction(weight) / sum(map(Fraction, weights)) * n) < 1
        assert list(islice(lz.run(mixed, state), 5)) == [mixed[n + i] for i in range(5)]
    some = [float(weight) + max(weights) / 9 for weight in weights]
    ends = lz.mix([lz.source(range(n)) for n in (7, 90, 50)][: len(some)], some, **EXACT_ALL)
    assert len(ends) == len(list(ends))
    assert [ends[n] for n in range(len(ends))] == list(ends)


EXACT_ALL: Any = {"deterministic": True, "stop": "all_exhausted"}


@given(st.integers(0, 40), st.sampled_from(["first_exhausted", "all_exhausted"]))
def test_exact_proportions_follow_a_schedule(cut: int, stop: Any) -> None:
    weights = lz.schedule({0: [1, 0, 1], 8: [0, 3, 1], 24: [0.50123, 1, 1]})
    parts = [
        lz.source([f"{name}{n}" for n in range(size)])
        for name, size in zip("abc", (4, 22, 30), strict=True)
    ]
    mixed = lz.mix(parts, weights, deterministic=True, stop=stop)
    whole = list(mixed)
    assert [*map(len, (whole, mixed))] == [len(whole)] * 2
    for first, last, expected in ((0, 8, "aacc"), (8, 24, "bbbbbbbbbbbbcccc")):
        names = sorted(item[0] for item in whole[first:last])
        assert names == sorted(expected * ((last - first) // len(expected)))
    assert [mixed[n] for n in range(len(whole))] == whole
    state = lz.state_at(mixed, min(cut, len(whole)))
    assert list(lz.run(mixed, state.to_json())) == whole[cut:]


def test_chance_follows_the_weights() -> None:
    n = 20_000
    found = Counter(islice(lz.mix(endless(4), [5, 0, 3.0, 2], seed=0), n))
    assert found[1] == 0
    for number, share in ((0, 0.5), (2, 0.3), (3, 0.2)):
        assert abs(found[number] - n * share) < 5 * math.sqrt(n * share * (1 - share))


def test_a_schedule_is_a_function_of_the_position() -> None:
    fixed = lz.mix(endless(2), [1, 3], seed=7)
    assert list(islice(fixed, 200)) == list(
        islice(lz.mix(endless(2), lambda t: (1, 3), seed=7), 200)
    )
    turning = lz.mix(endless(2), lambda t: [t < 10, t >= 10], seed=0)
    assert list(islice(turning, 20)) == [0] * 10 + [1] * 10
    state = lz.state_at(turning, 10)
    assert lz.mix_counts(turning, state) == (10, 0)
    assert next(lz.run(turning, state.to_json())) == 1


@given(
    st.lists(st.tuples(st.integers(1, 900), ints.map(lambda row: [*row, 1, 2, 3][:3])), max_size=3),
    st.sampled_from([None, "linear"]),
    st.integers(1, 99),
    st.sampled_from([0, 0.3]),
)
def test_many_choices_at_once_are_those_one_by_one(
    points: Any, interpolate: Any, num_shards: int, first: float
) -> None:
    weights: Any = lz.schedule({0: [first, 2, 1], **dict(points)}, interpolate=interpolate)
    known = lz.mix(endless(3), weights, seed=1)
    called = lz.mix(endless(3), lambda t: weights(t), seed=1)
    assert list(islice(known, 1_000)) == list(islice(called, 1_000))
    shard = lz.shard(num_shards=num_shards, index=num_shards // 2)
    own = list(islice(called, num_shards // 2, 1_000, num_shards))
    assert list(islice(known | shard, len(own))) == own


@pytest.mark.parametrize(("weights", "reason"), BAD_WEIGHTS)
def test_weights_that_are_none_are_refused_of_a_function_too(weights: Any, reason: str) -> None:
    run = lz.run(lz.mix(endless(2), lambda t: weights if t == 2 else [1, 1], seed=0))
    assert len([next(run), next(run)]) == 2
    for _ in range(2):
        with pytest.raises(lz.PipelineError, match=rf"weights\(2\) must be .*{reason}"):
            next(run)
    assert run.state.items == 2


def test_what_does_not_go_together_is_refused() -> None:
    two: Any = endless(2)
    for message, build in {
        "expected one weight per pipeline": lambda: lz.mix(two, [1, 2, 3], seed=0),
        "got 0 weights for 2": lambda: lz.mix(two, [], seed=0),
        "seed must be given": lambda: lz.mix(two, [1, 2]),
        "fixed weights": lambda: lz.mix(two, lambda t: [1, 2], deterministic=True),
        "at least one pipeline": lambda: lz.mix([], [1], seed=0),
        "one pipeline is needed, got none": lambda: lz.mix([], [], seed=0),
        "pipelines must be a list": lambda: lz.mix(two[0], [1], seed=0),
        "argument 2 must be a pipeline": lambda: lz.mix([two[0], [1]], [1, 1], seed=0),  # type: ignore[list-item]
        "seed must be": lambda: lz.mix(two, [1, 2], seed=-1),
        "deterministic must be": lambda: lz.mix(two, [1, 2], deterministic=1),  # type: ignore[arg-type]
    }.items():
        with pytest.raises(lz.ArgumentError, match=message):
            build()
    with pytest.raises(lz.PipelineError, match=r"weights\(0\) has 1 for 2"):
        next(iter(lz.mix(two, lambda t: [1], seed=0)))


@pytest.mark.parametrize("stop", ["all_exhausted", "never"])
@pytest.mark.parametrize("chance", [{"seed": 0}, {"deterministic": True}])
def test_what_is_empty_cannot_begin_again(stop: Any, chance: Any) -> None:
    some = lz.source([1, 2])
    with pytest.raises(lz.ArgumentError, match=r"pipelines\[1\] is empty"):
        lz.mix([some, lz.source([])], [1, 1], stop=stop, **chance)
    unknown = lz.mix([some, lz.source(Stream([]))], [1, 1], stop=stop, **chance)
    with pytest.raises(lz.PipelineError, match=r"pipelines\[1\] to repeat forever is empty"):
        list(unknown)
    unweighted = lz.mix([some, lz.source([])], [1, 0], stop=stop, **chance) | lz.take(2)
    assert list(unweighted) == [1, 2]
    turns = "".join(lz.mix([lz.source(["a"] * 3), lz.source(["b"] * 3)], [1, 1], **chance))
    until_it_is_chosen = [1, 2][: turns.index("b")]
    assert list(lz.mix([some, lz.source([])], [1, 1], **chance)) == until_it_is_chosen


EACH_ONCE: Any = {"seed": 0, "stop": "all_exhausted_without_replacement"}


def test_those_that_are_left_keep_their_proportions() -> None:
    ends, *goes_on = lz.source([0] * 10), *endless(3)[1:]
    found = Counter(islice(lz.mix([ends, *goes_on], [1, 3, 1], **EACH_ONCE), 4_000))
    assert found[0] == 10
    assert abs(found[1] - 3_000) < 150
    unweighted = lz.mix([ends, goes_on[0]], [1, 0], **EACH_ONCE)
    assert len(unweighted) == 10
    assert list(unweighted) == [0] * 10
    many = lz.mix([lz.source([n][n % 7 :]) for n in range(500)], [1] * 500, **EACH_ONCE)
    assert sorted(many) == [*range(0, 500, 7)]


def test_a_pipeline_that_has_dropped_out_goes_on_with_what_is_added(tmp_path: Any) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}1\n{name}2\n")
    other = lz.source(["o1", "o2"], name="other")

    def mixed(*files: str) -> lz.Pipeline[str]:
        lines = lz.io.read_text([tmp_path / name for name in files])
        return lz.mix([lz.source(lines, name="files"), other], [1, 1], **EACH_ONCE)

    old, new = mixed("a"), mixed("a", "b")
    for cut in range(5):
        state = lz.state_at(old, cut)
        left = list(lz.run(new, lz.rebase(state, new)))
        assert sorted([*islice(old, cut), *left]) == ["a1", "a2", "b1", "b2", "o1", "o2"]
    alone = lz.mix([other], [1], **EACH_ONCE)
    assert list(lz.run(alone, lz.rebase(lz.state_at(old, 4), alone))) == []


def test_a_schedule_without_weight_for_those_that_are_left_is_an_error() -> None:
    late = lz.schedule({0: [1, 0], 9: [0, 1]})
    run = lz.run(lz.mix([lz.source([1, 2]), lz.source([3])], late, **EACH_ONCE))
    assert [next(run), next(run)] == [1, 2]
    for _ in range(2):
        with pytest.raises(lz.PipelineError, match=r"weights\(2\) .* has not ended, got \(1, 0\)"):
            next(run)
    with pytest.raises(lz.ArgumentError, match="so deterministic=True isn't possible; pass a seed"):
        lz.mix([lz.count()], [1], deterministic=True, **{**EACH_ONCE, "seed": None})


def test_counts_are_read_through_stages_behind() -> None:
    mixed = lz.mix([lz.source(range(99)), lz.source([None, np.arange(2)] * 9)], [3, 1], seed=2)
    for behind, expected in (
        (lz.batch(4), 8),
        (lz.map(str) | lz.take(9), 2),
        (lz.flat_map(lambda x: [x]), 1),  # the second list may have more
        (lz.skip(0), 2),
    ):
        pipeline = mixed | behind
        state = lz.state_at(pipeline, 2)
        counts = lz.mix_counts(pipeline, state.to_json())
        assert counts == lz.mix_counts(mixed, lz.state_at(mixed, expected))
        assert sum(counts) == expected
    exact = lz.mix([lz.source(range(9)), lz.source(range(9))], [1, 1], deterministic=True)
    shuffled = exact | lz.shuffle(seed=0)
    with pytest.raises(lz.ArgumentError, match=r"shuffle\(seed=0\) keeps no counts"):
        lz.mix_counts(shuffled, lz.init(shuffled))
    with pytest.raises(lz.ArgumentError, match="must begin with mix"):
        lz.mix_counts(lz.source([1]), lz.init(lz.source([1])))
    with pytest.raises(lz.StateMismatch):
        lz.mix_counts(mixed, lz.init(exact))


def test_golden_choices() -> None:
    """Orders are promises: these must never change."""
    assert list(islice(lz.mix(endless(3), [1, 2, 3], seed=7), 16)) == GOLDEN["seed 7"]
    assert list(islice(lz.mix(endless(3), [1, 2, 3], deterministic=True), 12)) == GOLDEN["exact"]


GOLDEN = {
    "seed 7": [1, 1, 2, 1, 1, 0, 2, 0, 2, 2, 1, 2, 2, 2, 1, 2],
    "exact": [2, 1, 2, 0, 1, 2, 2, 1, 2, 0, 1, 2],
}
