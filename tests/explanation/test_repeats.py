"""`explain` for several ranks: the stages that each runs for all items, and the advice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import lazyckpt as lz
from tests.executors.sharing.ranks import Hub, on_ranks, shared_by

SIZE, COUNT = 3, 24
SOURCE = lz.source(range(COUNT))
SHARD = lz.shard(num_shards=1, index=0)
BOTH = (SOURCE | lz.map(str), SOURCE | lz.map(int))

Counted = Callable[[str], Any]


def dealt(size: int, rank: int) -> lz.Pipeline[Any]:
    return lz.shard(num_shards=size, index=rank)


def streamed(count: Counted, shard: Any) -> lz.Pipeline[Any]:
    rows = SOURCE | lz.map(count("map")) | lz.filter(count("filter")) | lz.sliding_window(2)
    return rows | lz.map(count("map")) | lz.scan(count("scan"), 0) | shard | lz.map(count("own"))


def indexed(count: Counted, shard: Any) -> lz.Pipeline[Any]:
    return SOURCE | lz.shuffle(seed=0) | lz.map(count("own")) | shard | lz.map(count("own"))


def mixed(count: Counted, shard: Any) -> lz.Pipeline[Any]:
    parts = [SOURCE | lz.map(count("map")) | lz.filter(count("filter")) for _ in range(2)]
    rows = lz.mix(parts, [1, 1], seed=0, stop="all_exhausted_without_replacement")
    return rows | lz.scan(count("scan"), 0) | shard | lz.batch(2)


@pytest.mark.parametrize("made", [streamed, indexed, mixed])
def test_each_rank_makes_what_it_says(made: Callable[[Counted, Any], lz.Pipeline[Any]]) -> None:
    """With each rank alone, and with ranks that share work."""
    lock = threading.Lock()

    def calls(executor: Callable[[int], lz.Executor | None]) -> Counter[str]:
        found: Counter[str] = Counter()

        def count(name: str) -> Any:
            def called(*given: Any) -> Any:
                with lock:
                    found[name] += 1
                return (0, given) if name == "scan" else True

            return called

        def run(rank: int) -> None:
            with lz.run(made(count, dealt(SIZE, rank)), executor=executor(rank)) as items:
                for _ in items:
                    pass

        assert on_ranks(SIZE, run) == [None] * SIZE
        return found

    kinds = {}
    for stage in reversed(lz.explain(made(lambda name: str, SHARD), ranks=SIZE).stages):
        kinds[stage.name] = stage.ranks  # of those with one name, the first
    hub = Hub(SIZE)
    alone, shared = (
        calls(lambda rank: None),
        calls(lambda rank: shared_by(hub, rank, lz.threads(2))),
    )
    for name in alone.keys() - {"own"}:
        times = {"all, or shared": SIZE, "all": 1}[kinds[name]]
        assert alone[name] == times * shared[name], name
    assert alone["own"] == shared["own"]


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        (SOURCE | lz.filter(bool) | SHARD | lz.batch(2), ["all, or shared"] * 2 + ["its part"] * 2),
        (SOURCE | lz.map(str) | SHARD | lz.filter(bool), ["its part"] * 4),
        (lz.lanes(BOTH, num_shards=1, index=0), ["its part"] * 5),
        (lz.mix(BOTH, [1, 1], seed=0) | SHARD, ["all", *["all, or shared"] * 4, "its part"]),
        (lz.interleave(*BOTH) | SHARD, ["its part"] * 6),
        (
            lz.interleave(BOTH[0] | lz.filter(bool) | SHARD, BOTH[1]),
            ["its part", *["all, or shared"] * 3, "its part", *["all, or shared"] * 2],
        ),
    ],
)
def test_stages(pipeline: lz.Pipeline[Any], expected: list[str]) -> None:
    assert [each.ranks for each in lz.explain(pipeline, ranks=8).stages] == expected


def test_without_ranks_nothing_is_said_of_them() -> None:
    found = lz.explain(SOURCE | lz.filter(bool) | SHARD)
    assert not found.sharing
    assert not any(each.ranks for each in found.stages)
    assert "each rank" not in str(found)


def test_the_figures_are_those_of_the_ranks() -> None:
    text = " ".join(str(lz.explain(streamed(lambda _: str, SHARD), ranks=64)).split())
    assert (
        "Each of 64 ranks computes all items of source, map, filter, sliding_window and scan: 64 "
        "times the work and 1,536 source items read in an epoch of 24. Shared, source, map and "
        "filter would run once: 1/64 on each rank, which would receive at most the other 63/64 of "
        "the results. sliding_window and scan would still run for all items: on one rank of each "
        'host, or on each rank with readers="rank" and on Ray.'
    ) in text
    assert "warning: 64 ranks repeat each other's work before shard, in source, map" in text


def test_there_is_one_warning_with_all_remedies() -> None:
    pipeline = SOURCE | lz.filter(bool) | lz.shard(num_shards=4, index=0)
    (warned,) = lz.explain(pipeline, ranks=4).warnings
    for remedy in ("lz.torch.shared", "plan_packing", "lanes"):
        assert remedy in warned


def test_no_warning_where_the_work_is_shared_or_divided() -> None:
    pipeline = SOURCE | lz.filter(bool) | SHARD
    shared = lz.explain(pipeline, shared_by(Hub(2), 0, lz.threads(2)), ranks=2)
    assert shared.sharing
    assert not shared.warnings
    assert not lz.explain(pipeline, ranks=1).warnings
    assert not lz.explain(SOURCE | SHARD, ranks=64).warnings


def test_ranks_at_places_of_their_own_cannot_share() -> None:
    shard = lz.shard(num_shards=2, index=0)
    pipeline = SOURCE | lz.filter(bool) | shard | lz.filter(bool)
    found = lz.explain(pipeline, ranks=2)
    assert [each.ranks for each in found.stages] == ["all", "all", "its part", "its part"]
    assert "Sharing would save none of it" in found.sharing


def test_a_pipeline_without_shard() -> None:
    found = lz.explain(SOURCE | lz.filter(bool), ranks=64)
    assert found.warnings == ("the pipeline has no shard: each rank gets all items",)


@pytest.mark.parametrize("ranks", [0, -1, 1.5, "64", True])
def test_bad_numbers_of_ranks(ranks: Any) -> None:
    with pytest.raises(lz.ArgumentError, match="ranks"):
        lz.explain(SOURCE, ranks=ranks)
