"""`explain` for several ranks: the stages that each runs for all items, and the advice."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from tests.executors.sharing.ranks import Hub, on_ranks, shared_by

SIZE, COUNT = 3, 24
SOURCE = lz.source(range(COUNT))
SHARD = lz.shard(num_shards=1, index=0)
BOTH = (SOURCE | lz.map(str), SOURCE | lz.map(int))

Counted = Callable[..., Any]


def dealt(size: int, rank: int, remainder: Any = "pad") -> lz.Pipeline[Any]:
    return lz.shard(num_shards=size, index=rank, remainder=remainder)


class Count:
    """A function of one stage that counts its calls in a file, from any thread or process."""

    def __init__(self, folder: Path, stage: str, result: Any) -> None:
        self.path, self.result = str(folder / stage), result

    def __call__(self, *given: Any) -> Any:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, b".")
        os.close(file)
        return given[-1] if self.result is None else self.result


def rows(count: Counted, place: str) -> lz.Pipeline[Any]:
    return SOURCE | lz.map(count(f"{place}.2")) | lz.filter(count(f"{place}.3", True))


def table(count: Counted, place: str) -> lz.Pipeline[Any]:
    return SOURCE | lz.shuffle(seed=0) | lz.map(count(f"{place}.3"))


def mixed(*pipelines: lz.Pipeline[Any]) -> lz.Pipeline[Any]:
    return lz.mix(pipelines, [2, 1], seed=0, stop="all_exhausted_without_replacement")


def tables(count: Counted) -> lz.Pipeline[Any]:
    return mixed(table(count, "1[0]"), table(count, "1[1]"))


PIPELINES: dict[str, tuple[Callable[[Counted, Any], lz.Pipeline[Any]], set[str]]] = {
    "a stream": (
        lambda c, shard: SOURCE | lz.map(c("2")) | lz.filter(c("3", True))
        | lz.scan(c("4", (0, 0)), 0) | lz.map(c("5")) | shard | lz.map(c("7")),
        {"5"},
    ),
    "random access": (
        lambda c, shard: SOURCE | lz.shuffle(seed=0) | lz.map(c("3")) | lz.sliding_window(2)
        | lz.map(c("5")) | lz.batch(2, collate=c("6")) | shard | lz.map(c("8")),
        set(),
    ),
    "map after a filter": (
        lambda c, shard: SOURCE | lz.filter(c("2", True)) | lz.map(c("3")) | shard,
        {"3"},
    ),
    "map after expansion": (
        lambda c, shard: SOURCE | lz.flat_map(c("2", [1, 2])) | lz.map(c("3")) | shard,
        {"3"},
    ),
    "collate": (
        lambda c, shard: SOURCE | lz.filter(c("2", True)) | lz.batch(2, collate=c("3")) | shard,
        {"3"},
    ),
    "packing": (
        lambda c, shard: SOURCE | lz.map(c("2", [1] * 3)) | lz.pack_first_fit(8, num_bins=2)
        | lz.map(c("4")) | shard | lz.map(c("6")),
        {"4"},
    ),
    "mix": (lambda c, shard: tables(c) | shard | lz.map(c("3")), set()),
    "mix, repeat": (lambda c, shard: tables(c) | lz.repeat(2) | shard, set()),
    "mix, map": (
        lambda c, shard: tables(c) | lz.map(c("2")) | shard,
        {"1[0].3", "1[1].3", "2"},
    ),
    "mix, shuffle": (lambda c, shard: tables(c) | lz.shuffle(8, seed=0) | shard, set()),
    "mix, block_shuffle": (lambda c, shard: tables(c) | lz.block_shuffle(8, seed=0) | shard, set()),
    "mix, filter": (lambda c, shard: tables(c) | lz.filter(c("2", True)) | shard, set()),
    "mix, batch": (lambda c, shard: tables(c) | lz.batch(2) | shard, set()),
    "mix of mixes": (
        lambda c, shard: mixed(mixed(SOURCE | lz.map(c("1[0].1[0].2")), SOURCE), SOURCE) | shard,
        {"1[0].1[0].2"},
    ),
    "mix of a stream": (
        lambda c, shard: mixed(rows(c, "1[0]"), table(c, "1[1]")) | shard,
        {"1[1].3"},
    ),
    "mix of streams": (
        lambda c, shard: mixed(rows(c, "1[0]"), rows(c, "1[1]")) | lz.scan(c("2", (0, 0)), 0)
        | shard,
        set(),
    ),
    "mix after shard": (
        lambda c, shard: mixed(rows(c, "1[0]") | shard, table(c, "1[1]") | shard),
        set(),
    ),
    "mix of mixes after shard": (
        lambda c, shard: mixed(
            tables(lambda place, *more: c(f"1[0].{place}", *more)) | shard, SOURCE | shard
        ),
        set(),
    ),
    "interleave": (lambda c, shard: lz.interleave(table(c, "1[0]"), SOURCE) | shard, set()),
    "zip": (lambda c, shard: lz.zip(rows(c, "1[0]"), table(c, "1[1]")) | shard, set()),
    "multiplex": (
        lambda c, shard: lz.multiplex(
            lz.source([0, 1] * COUNT) | lz.filter(c("1[0].2", True)),
            [table(c, "1[1]"), table(c, "1[2]")],
        ) | shard,
        set(),
    ),
}  # fmt: skip
"""Pipelines, and their stages that run without workers only for the items that a rank yields."""


CASES = [(name, executor) for name in PIPELINES for executor in ("inline", "threads", "shared")]
CASES += [(name, "processes") for name in ("mix", "mix of a stream", "packing")]
EVEN = [case for case in CASES if case != ("mix after shard", "shared")]  # which wants equal parts


@pytest.mark.parametrize(
    ("name", "executor", "remainder"),
    [*((*case, "pad") for case in CASES), *((*case, None) for case in EVEN)],
)
def test_ranks_compute_what_it_says(
    name: str, executor: str, remainder: Any, tmp_path: Path
) -> None:
    """The calls of all ranks in sum, relative to those of one rank."""
    pipeline, late = PIPELINES[name]
    hub = Hub(SIZE)
    executors: dict[str, Callable[[int], lz.Executor]] = {
        "inline": lambda rank: lz.inline(),
        "threads": lambda rank: lz.threads(2),
        "processes": lambda rank: lz.processes(2),
        "shared": lambda rank: shared_by(hub, rank, lz.threads(2)),
    }

    def calls(size: int) -> Counter[str]:
        folder = tmp_path / str(size)
        folder.mkdir()

        def run(rank: int) -> None:
            made = pipeline(
                lambda stage, result=None: Count(folder, stage, result),
                dealt(size, rank, remainder),
            )
            chosen = executors[executor if size > 1 or executor != "shared" else "threads"]
            with lz.run(made, executor=chosen(rank)) as items:
                for _ in items:
                    pass

        assert on_ranks(size, run) == [None] * size
        return Counter({each.name: each.stat().st_size for each in folder.iterdir()})

    one, all_ranks = calls(1), calls(SIZE)
    made = pipeline(
        lambda stage, result=None: Count(tmp_path, stage, result), dealt(1, 0, remainder)
    )
    said = {each.stage: each.ranks for each in lz.explain(made, ranks=SIZE).stages}
    times = {"its part": 1, "all, or shared": 1 if executor == "shared" else SIZE, "all": SIZE}
    for stage, count in one.items():
        is_late = executor == "inline" and stage in late
        assert all_ranks[stage] == count * (1 if is_late else times[said[stage]]), stage


SAYS: list[tuple[lz.Pipeline[Any], list[str]]] = [
    (SOURCE | lz.filter(bool) | SHARD | lz.batch(2), ["all, or shared"] * 2 + ["its part"] * 2),
    (SOURCE | lz.map(str) | SHARD | lz.filter(bool), ["its part"] * 4),
    (SOURCE | lz.filter(bool) | SHARD | lz.filter(bool), ["all"] * 2 + ["its part"] * 2),
    (lz.lanes(BOTH, num_shards=1, index=0), ["its part"] * 5),
    (lz.mix(BOTH, [1, 1], seed=0) | SHARD, ["its part"] * 6),
    (lz.interleave(*BOTH) | SHARD, ["its part"] * 6),
    (
        lz.interleave(BOTH[0] | lz.filter(bool) | dealt(1, 0), BOTH[1]),
        ["its part", *["all, or shared"] * 3, "its part", *["all, or shared"] * 2],
    ),
    (
        SOURCE | lz.filter(bool) | lz.shard(num_shards=1, index=0, remainder="repeat"),
        ["all", "all", "its part"],
    ),
]


@pytest.mark.parametrize(("pipeline", "expected"), SAYS)
def test_stages(pipeline: lz.Pipeline[Any], expected: list[str]) -> None:
    """Also of pipelines for one rank, as those of all ranks."""
    assert [each.ranks for each in lz.explain(pipeline, ranks=8).stages] == expected


def test_without_ranks_nothing_is_said_of_them() -> None:
    found = lz.explain(SOURCE | lz.filter(bool) | SHARD)
    assert not found.sharing
    assert not found.costs
    assert not any(each.ranks for each in found.stages)
    assert "each rank" not in str(found)


def test_the_figures_are_those_of_the_ranks() -> None:
    pipeline = SOURCE | lz.filter(bool) | lz.scan(int, 0) | SHARD
    text = " ".join(str(lz.explain(pipeline, ranks=64)).split())
    assert (
        "Each of 64 ranks computes all items of source, filter and scan: 64 times the work and "
        "1,536 source items read in an epoch of 24. Sharing divides source and filter."
    ) in text
    assert "warning: 64 ranks repeat each other's work before shard, in source and" in text


PACKED = SOURCE | lz.filter(bool) | lz.pack_first_fit(8, num_bins=2)


@pytest.mark.parametrize(
    ("pipeline", "received", "connections"),
    [
        (PACKED | SHARD, "its rows, 25 to 192 B per item", True),
        (
            lz.mix([PACKED, PACKED], [1, 1], seed=0) | SHARD | lz.batch(2, drop_last=True),
            "its rows, 25 to 192 B per item",
            True,
        ),
        (PACKED | lz.map(str) | SHARD, "up to all items", True),
        (lz.concat(PACKED | dealt(1, 0), PACKED | dealt(1, 0)), "up to all items", False),
        (SOURCE | SHARD, "", False),
        (PACKED | SHARD | lz.filter(bool), "", False),
    ],
)
def test_what_each_way_costs(pipeline: lz.Pipeline[Any], received: str, connections: bool) -> None:
    found = lz.explain(pipeline, ranks=64)
    table = {row[0]: row[1:] for row in found.ways}
    if not received:
        assert not table
        return
    assert table["receives"][-1] == received
    assert ('readers="node"' in table["cost"]) == connections
    assert table["connections"][-1] == "63"
    assert found.costs in str(found)
    assert received in found._repr_html_()


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
    pipeline = SOURCE | lz.filter(bool) | SHARD | lz.filter(bool)
    assert "Sharing would save none of it" in lz.explain(pipeline, ranks=2).sharing


def test_a_pipeline_without_shard() -> None:
    found = lz.explain(SOURCE | lz.filter(bool), ranks=64)
    assert found.warnings == ("the pipeline has no shard: each rank gets all items",)


@pytest.mark.parametrize("ranks", [0, -1, 1.5, "64", True])
def test_bad_numbers_of_ranks(ranks: Any) -> None:
    with pytest.raises(lz.ArgumentError, match="ranks"):
        lz.explain(SOURCE, ranks=ranks)
