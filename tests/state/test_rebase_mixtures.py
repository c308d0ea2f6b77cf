"""Mixtures of real size follow a change: weights, additions, removals; in lanes too."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

import lazyckpt as lz


def parse(item: Any) -> Any:
    return item


def source(name: str, size: int = 40) -> lz.Pipeline[Any]:
    """Seven stages."""
    rows = lz.source([f"{name}{i}" for i in range(size)], name=name) | lz.shuffle(seed=1)
    forever = rows | lz.repeat() | lz.map(parse) | lz.filter(bool)
    return forever | lz.shuffle(4, seed=2) | lz.map(parse)


def mixture(names: list[str], weights: list[float], **options: Any) -> lz.Pipeline[Any]:
    mixed = lz.mix([source(name) for name in names], weights, seed=0, **options)
    return mixed | lz.batch(2)


def names(count: int) -> list[str]:
    return [f"data/{number:03}" for number in range(count)]


def given(pipeline: lz.Pipeline[Any], state: lz.State, count: int) -> list[str]:
    return [item for batch in islice(lz.run(pipeline, state), count) for item in batch]


SIZES = [2, 30, 200]


@pytest.mark.parametrize("count", SIZES)
def test_weights_change(count: int) -> None:
    old = mixture(names(count), [1] * count)
    new = mixture(names(count), [1 + n % 3 for n in range(count)])
    state = lz.State.from_json(lz.state_at(old, 60).to_json())
    moved = lz.rebase(state, new)
    assert moved.rebased == (60, None)
    assert lz.mix_counts(new, moved) == lz.mix_counts(old, state)
    for name in names(count)[:3]:
        before, after = (
            [item for item in given(pipeline, start, 600) if item.startswith(name)]
            for pipeline, start in ((old, state), (new, moved))
        )
        short = min(len(before), len(after))
        assert before[:short] == after[:short]


@pytest.mark.parametrize("count", SIZES)
def test_a_source_is_added_and_removed(count: int) -> None:
    first, more = names(count), [*names(count), "new"]
    old, new = mixture(first, [1] * count), mixture(more, [1] * count + [5])
    state = lz.State.from_json(lz.state_at(old, 60).to_json())
    moved = lz.rebase(state, new)
    assert lz.mix_counts(new, moved) == (*lz.mix_counts(old, state), 0)
    later = lz.advance(new, moved, 20)
    back = lz.rebase(lz.State.from_json(later.to_json()), old)
    assert lz.mix_counts(old, back) == lz.mix_counts(new, later)[:count]
    fewer = mixture(first[1:], [1] * (count - 1))
    left = lz.rebase(back, fewer)
    assert lz.mix_counts(fewer, left) == lz.mix_counts(old, back)[1:]


@pytest.mark.parametrize("count", SIZES)
def test_each_stage_of_each_pipeline_adds_little_to_a_state(count: int) -> None:
    pipeline = mixture(names(count), [1] * count)
    text = lz.state_at(pipeline, 1000).to_json()
    assert len(text) < 1024 + 40 * 7 * count
    assert lz.State.from_json(text).to_json() == text


@pytest.mark.parametrize("count", [8, 30, 200])
def test_a_change_of_one_is_told(count: int) -> None:
    """By its name; and it continues from its position."""
    old = mixture(names(count), [1] * count)
    pipelines = [source(name) for name in names(count)]
    pipelines[3] = pipelines[3] | lz.take(7)
    new = lz.mix(pipelines, [1] * count, seed=0) | lz.batch(2)
    state = lz.state_at(old, 5)
    with pytest.raises(lz.StateMismatch, match=r"pipeline 1\[3\] data/003: .* -> .* \| take\n"):
        lz.run(new, state)
    moved = lz.rebase(state, new)
    assert lz.mix_counts(new, moved) == lz.mix_counts(old, state)


def test_names_may_begin_as_digests_do() -> None:
    old, new = (lz.mix([source("#1") | stage], [1], seed=0) for stage in (lz.map(str), lz.batch(2)))
    assert lz.rebase(lz.state_at(old, 5), new).items == 5


def test_a_seed_that_has_not_changed_is_not_blamed() -> None:
    old, new = mixture(names(30), [1] * 30), mixture(names(30), [2] * 30) | lz.take(3)
    with pytest.raises(lz.StateMismatch) as caught:
        lz.run(new, lz.state_at(old, 5))
    assert "seed" not in str(caught.value)


def reader(count: int, weights: list[float], num_shards: int, index: int) -> lz.Pipeline[Any]:
    """Four lanes of mixtures."""
    mixed = [
        lz.mix([source(f"{lane}/{name}") for name in names(count)], weights, seed=lane)
        for lane in range(4)
    ]
    return lz.lanes(mixed, num_shards=num_shards, index=index)


@pytest.mark.parametrize("count", [2, 20])
def test_lanes_of_mixtures_follow_both(count: int) -> None:
    """Different weights within each lane, and then a different number of ranks."""
    even, odd = [1.0] * count, [1.0 + n % 2 for n in range(count)]
    states = [lz.state_at(reader(count, even, 2, rank), 50) for rank in range(2)]
    states = [lz.State.from_json(state.to_json()) for state in states]
    moved = [lz.rebase(state, reader(count, odd, 2, rank)) for rank, state in enumerate(states)]
    for number, rank in enumerate(moved):
        assert rank.position == states[number].position
    dealt = lz.reshard(moved, reader(count, odd, 4, 0))
    for lane, state in enumerate(dealt):
        assert len(list(islice(lz.run(reader(count, odd, 4, lane), state), 10))) == 10
    with pytest.raises(lz.StateMismatch, match=r"use lz\.reshard"):
        lz.rebase(states[0], reader(count, even, 4, 0))


def test_a_lane_that_changes_otherwise_is_refused_by_its_number() -> None:
    lanes = [lz.source(range(9)) | lz.shuffle(seed=lane) for lane in range(3)]
    old = lz.lanes(lanes, num_shards=1, index=0)
    new = lz.lanes([*lanes[:2], lanes[0]], num_shards=1, index=0)
    with pytest.raises(lz.StateMismatch, match=r"pipelines\[2\].*seed=2"):
        lz.rebase(lz.state_at(old, 4), new)


def test_mixtures_within_a_mixture_continue_where_they_are() -> None:
    web, code, books = (lz.source(range(n, n + 60)) for n in (0, 100, 200))

    def nested(*weights: int, more: Any = ()) -> lz.Pipeline[int]:
        part = lz.mix([code, books, *more], weights, seed=0)
        return lz.mix([web, part], [1, 1], seed=0)

    old = nested(1, 1)
    for new in (nested(1, 3), nested(1, 1, 1, more=[lz.source(range(300, 310))])):
        run = lz.run(old)
        found = list(islice(run, 30))
        expected = list(lz.run(new, lz.rebase(run.state, new)))
        run.change(new)
        assert list(run) == expected
        assert len({*found, *expected}) == len(found) + len(expected)
    several = lz.mix([web, lz.concat(code, books)], [1, 1], seed=0)
    longer = lz.mix([web, lz.concat(code, books, books)], [1, 1], seed=0)
    with pytest.raises(lz.StateMismatch, match="to start it from scratch, rebase without it"):
        lz.rebase(lz.state_at(several, 30), longer)
