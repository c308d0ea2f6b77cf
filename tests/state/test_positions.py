"""Whose part of a position is whose: from entries alone, and by the machines."""

from __future__ import annotations

from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.core.checks import positive
from lazyckpt.machines import Machine
from lazyckpt.state.codec import layers

LONG = "x" * 30


def long_pipeline(seed: int = 0, bucketed: bool = True) -> lz.Pipeline[Any]:
    """Of an identity without space for all arguments."""
    lengths = [*range(1, 200, 7)]
    buckets = lz.bucket_by_boundaries(lengths, 4, key=len)
    rows = lz.source([LONG] * 300, name=LONG) | lz.shuffle(8, seed=seed)
    counted = rows
    for number in range(6):
        counted = counted | lz.scan(lambda s, x: (s, x), [LONG + str(number)] * 3)
    return counted | lz.take(200) | (buckets if bucketed else lz.batch(2))


def test_a_difference_names_the_stage_that_moved_however_long_its_identity() -> None:
    pipeline = long_pipeline(bucketed=False)
    moved = lz.diff(lz.init(pipeline), lz.state_at(pipeline, 9)).moves
    names = [(move.stage, move.name) for move in moved]
    assert ("2", "shuffle") in names
    assert ("9", "take") in names
    assert all(name != "source" or stage == "1" for stage, name in names)


def test_long_arguments_are_digests_and_short_ones_are_not() -> None:
    stages = {entry.name: entry.known for entry in lz.init(long_pipeline()).stages}
    assert stages["shuffle"] == {"buffer_size": 8, "seed": 0}
    assert stages["bucket_by_boundaries"]["batch_size"] == 4
    assert str(stages["bucket_by_boundaries"]["boundaries"]).startswith("#")
    with pytest.raises(lz.StateMismatch, match=r"shuffle\(seed=0\) -> shuffle\(seed=1\)"):
        lz.run(long_pipeline(1), lz.init(long_pipeline(0)))


def test_a_stage_in_each_pipeline_has_a_number_of_its_own() -> None:
    parts = [lz.source(range(n)) | lz.shuffle(seed=n) for n in (3, 4)]
    state = lz.init(lz.zip(*parts) | lz.take(2))
    found = [layer.stage for layer in layers(state.stages, state.position)]
    assert found == ["1", "1[0].1", "1[0].2", "1[1].1", "1[1].2", "2"]


def test_a_pipeline_that_is_not_open_has_no_place() -> None:
    chained = lz.concat(lz.source([1, 2]), lz.source([3]) | lz.take(1))
    state = lz.State.from_json(lz.state_at(chained, 1).to_json())
    assert state.to_dict()["stages"][0][3] == [
        [["source", {"length": 2}, [0, 1]]],
        [["source", {"length": 1}, None], ["take", {"n": 1}, None]],
    ]
    assert list(lz.run(chained, state)) == [2, 3]


@lz.combinator(checks={"n": positive}, registered=False)
def lookahead(upstream: Machine[Any], n: int) -> Machine[tuple[Any, ...]]:
    """Every item with the `n` after it, by the machine of another combinator."""
    built: Machine[tuple[Any, ...]] = lz.registry["sliding_window"].build(upstream, n + 1)
    return built


def test_a_machine_of_another_combinator_keeps_what_it_says() -> None:
    testing.check_combinator(lookahead(2), examples=[1, 5, 2, 8, 3])
    pipeline = lz.source(testing.laws.Stream(range(20))) | lookahead(2)
    assert lz.resume_cost(pipeline, lz.state_at(pipeline, 3)).stages[-1].items == 2


def test_a_machine_is_made_on_top_of_the_one_that_is_given() -> None:
    @lz.combinator(registered=False)
    def twice(upstream: Machine[Any]) -> Machine[Any]:
        once = lz.registry["take"].build(upstream, 5)
        built: Machine[Any] = lz.registry["take"].build(once, 3)
        return built

    with pytest.raises(lz.PipelineError, match="twice: its machine must be built on"):
        lz.source([1, 2]) | twice()


@pytest.mark.parametrize(
    "behind",
    [
        lz.lru_cache(8), lz.map(str), lz.sliding_window(2), lz.batch(2),
        lz.random_map(lambda rng, x: x, seed=0),
    ],
)  # fmt: skip
def test_stages_that_take_as_many_for_each_follow_shards(behind: Any) -> None:
    """Also those that never said so: it follows from their rate."""
    old, new = (lz.source(range(40)) | lz.shard(num_shards=n, index=0) | behind for n in (2, 3))
    assert lz.rebase(lz.state_at(old, 3), new).position == lz.state_at(old, 3).position


@pytest.mark.parametrize("behind", [lz.filter(bool), lz.take(9), lz.enumerate(), lz.repeat()])
def test_stages_that_do_not_are_refused(behind: Any) -> None:
    old, new = (lz.source(range(40)) | lz.shard(num_shards=n, index=0) | behind for n in (2, 3))
    remedy = rf"counts its outputs; in a new run put {behind.calls[0].name} before shard"
    with pytest.raises(lz.StateMismatch, match=f"after it {remedy}"):
        lz.rebase(lz.state_at(old, 1), new)


@pytest.mark.parametrize("is_old", [False, True])
def test_a_shard_that_is_left_out_is_a_different_number_of_ranks(is_old: bool) -> None:
    """As in scripts that add it only if there are several ranks."""

    def pair(behind: Any) -> list[lz.Pipeline[Any]]:
        made = [data | behind, data | lz.shard(num_shards=2, index=0) | behind]
        return made[::-1] if is_old else made

    data = lz.source(range(40))
    for behind in (lz.enumerate(), lz.exclude([range(3, 5)]), lz.take(3)):
        old, new = pair(behind)
        with pytest.raises(lz.StateMismatch, match=f"put {behind.calls[0].name} before shard"):
            lz.rebase(lz.state_at(old, 2), new)
    old, new = pair(lz.random_map(lambda rng, x: (x, rng.random()), seed=0))
    whole = [*data | lz.random_map(lambda rng, x: (x, rng.random()), seed=0)]
    place = 6 if is_old else 3
    assert next(lz.run(new, lz.rebase(lz.state_at(old, 3), new))) == whole[place]


def test_ranks_within_joined_pipelines_are_a_different_number_too() -> None:
    def mixed(count: int) -> lz.Pipeline[Any]:
        parts = [lz.source(range(40)) | lz.shard(num_shards=count, index=0) for _ in range(2)]
        return lz.mix(parts, [1, 1], seed=0)

    with pytest.raises(lz.StateMismatch, match="counts its outputs"):
        lz.rebase(lz.state_at(mixed(2) | lz.enumerate(), 4), mixed(3) | lz.enumerate())
    assert lz.rebase(lz.state_at(mixed(2) | lz.batch(2), 2), mixed(3) | lz.batch(2))
