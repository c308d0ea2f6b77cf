"""The warnings of `explain`: each for its cases, and not for similar pipelines."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream

NUMBERS = lz.source(range(10))
SHUFFLED = NUMBERS | lz.shuffle(seed=0)


STREAM = lz.source(Stream(range(9)))
MIXED = STREAM | lz.shuffle(4, seed=0)
RANDOM = lz.mix([NUMBERS, NUMBERS | lz.map(str)], [1, 2], seed=0)
LISTS = lz.source([[1, 2]] * 9) | lz.map(list)
PACKED = LISTS | lz.pack_first_fit(4, num_bins=2)
SHARD = lz.shard(num_shards=2, index=0)


def pick(rng: Any, item: Any) -> Any:
    return rng.random()


def half(pipeline: lz.Pipeline[Any], *, behind: Any, remainder: Any = None) -> lz.Pipeline[Any]:
    return pipeline | lz.shard(num_shards=2, index=0, remainder=remainder) | behind


@pytest.mark.parametrize(
    ("pipeline", "stage"),
    [
        (half(NUMBERS, behind=lz.filter(bool)) | lz.batch(2), "filter(bool)"),
        (half(STREAM, behind=lz.flat_map(range)), "flat_map(range)"),
        (half(STREAM, behind=lz.repeat()), "repeat()"),
        (lz.lanes([STREAM] * 2, num_shards=2, index=0) | lz.batch(2), "lanes(...)"),
        (lz.zip(half(NUMBERS, behind=lz.scan(max, 0)), STREAM), "scan(max, 0)"),
    ],
)
def test_states_of_one_rank_alone_are_warned_of(pipeline: lz.Pipeline[Any], stage: str) -> None:
    assert (
        f"each rank has its own state, because ranks are at different positions after {stage}:"
        in (warned(pipeline))
    )


@pytest.mark.parametrize(
    "pipeline",
    [
        half(NUMBERS, behind=lz.batch(2)),
        half(NUMBERS, behind=lz.shuffle(seed=0)) | lz.repeat(),
        half(STREAM | lz.filter(bool), behind=lz.repeat(), remainder="drop"),
        NUMBERS | lz.filter(bool),
    ],
)
def test_states_of_all_ranks_are_not(pipeline: lz.Pipeline[Any]) -> None:
    assert "its own state" not in warned(pipeline)


def warned(pipeline: lz.Pipeline[Any], executor: lz.Executor | None = None) -> str:
    return "\n".join(lz.explain(pipeline, executor).warnings)


@pytest.mark.parametrize(
    ("pipeline", "cut"),
    [
        (SHUFFLED | lz.batch(2) | lz.take(2), "take(2)"),
        ((SHUFFLED | lz.batch(2))[:3], "take(3)"),
        (SHUFFLED | lz.skip(2), "skip(2)"),
        (lz.source(Stream(range(9))) | lz.shuffle(40, seed=0) | lz.take(2), "take(2)"),
        (NUMBERS | lz.block_shuffle(4, seed=0) | lz.map(str) | lz.take(2), "take(2)"),
    ],
)
def test_a_subset_that_changes_with_the_epoch_is_warned_of(
    pipeline: lz.Pipeline[Any], cut: str
) -> None:
    first, second = (list(pipeline.machine.flow(pipeline.machine.init(e))) for e in (0, 1))
    assert sorted(map(str, first)) != sorted(map(str, second))
    for executor in (None, lz.threads(2)):
        said = lz.explain(pipeline, executor).warnings[0]
        assert said.startswith(f"{cut} yields a different subset in each epoch, because ")
        assert "shuffle(" in said
        assert f"to keep one subset, put {cut[:4]} before" in said


@pytest.mark.parametrize(
    "pipeline",
    [
        NUMBERS | lz.take(3) | lz.shuffle(seed=0) | lz.batch(2),
        SHUFFLED | lz.take(10),
        SHUFFLED | lz.take(99),
        SHUFFLED | lz.repeat() | lz.take(3),
        SHUFFLED | lz.shard(num_shards=2, index=0) | lz.batch(2, drop_last=True),
        SHUFFLED | lz.shard(num_shards=2, index=0, contiguous=True),
        SHUFFLED | lz.sliding_window(3) | lz.lru_cache(3) | lz.filter(bool) | lz.enumerate(),
        SHUFFLED | lz.repeat(2) | lz.scan(lambda s, x: (s, x), 0),
    ],
)
def test_nothing_else_is(pipeline: lz.Pipeline[Any]) -> None:
    assert "subset" not in warned(pipeline)


CASES = {
    "shuffles batches, not items": (
        [
            NUMBERS | lz.batch(2) | lz.shuffle(seed=0),
            STREAM | lz.batch(2, collate=lz.stack) | lz.map(str) | lz.shuffle(4, seed=0),
            NUMBERS | lz.batch(2) | lz.filter(bool) | lz.block_shuffle(4, seed=0),
        ],
        [
            SHUFFLED | lz.batch(2),
            NUMBERS | lz.batch(2) | lz.unbatch() | lz.shuffle(4, seed=0),
            NUMBERS | lz.batch(1) | lz.shuffle(seed=0),
            NUMBERS | lz.bucket_batch(2, key=abs, window_size=4, seed=0) | lz.shuffle(4, seed=1),
        ],
    ),
    "draw the same random numbers": (
        [
            SHUFFLED | lz.shuffle(seed=0),
            lz.zip(SHUFFLED, lz.source(range(20)) | lz.shuffle(seed=0)),
            lz.concat(*[STREAM | lz.shuffle(4, seed=7)] * 5) | lz.map(str),
            NUMBERS | lz.random_map(pick, seed=1) | lz.random_map(pick, seed=1),
        ],
        [
            SHUFFLED | lz.shuffle(seed=1),
            SHUFFLED | lz.shuffle(4, seed=0),
            SHUFFLED | lz.random_map(pick, seed=0),
            lz.mix([SHUFFLED, NUMBERS | lz.shuffle(seed=1)], [1, 1], seed=0),
        ],
    ),
    "every rank reads all items": (
        [MIXED | SHARD, MIXED | lz.map(str) | SHARD],
        [
            SHUFFLED | SHARD,
            NUMBERS | SHARD | lz.filter(bool) | lz.shuffle(4, seed=0),
            STREAM | SHARD,
        ],
    ),
    "there is no random access after it": (
        [NUMBERS | lz.filter(bool) | SHARD, NUMBERS | lz.flat_map(range) | lz.batch(2) | SHARD],
        [NUMBERS | SHARD | lz.filter(bool), SHUFFLED | lz.repeat() | SHARD],
    ),
    "put shard before it": (
        [NUMBERS | lz.filter(bool) | SHARD, NUMBERS | lz.flat_map(range) | lz.batch(2) | SHARD],
        [PACKED | SHARD, LISTS | lz.concat_then_split(4) | lz.batch(2) | SHARD],
    ),
    "this keeps one state for all ranks; to divide the work as well, share it": (
        [PACKED | SHARD, LISTS | lz.unbatch() | lz.map(range) | lz.concat_then_split(4) | SHARD],
        [NUMBERS | lz.filter(bool) | SHARD, LISTS | SHARD | lz.concat_then_split(4)],
    ),
    "with workers, every rank reads all items before mix(...), including": (
        [RANDOM | lz.map(str) | SHARD, RANDOM | lz.map(str) | lz.repeat() | SHARD],
        [
            RANDOM | SHARD,
            RANDOM | lz.repeat() | SHARD,
            lz.mix([NUMBERS], [1], deterministic=True) | SHARD,
            RANDOM | lz.enumerate() | SHARD,
            NUMBERS | lz.filter(bool) | SHARD,
        ],
    ),
    "never starts again": (
        [lz.count() | lz.repeat(), NUMBERS | lz.repeat() | lz.map(str) | lz.repeat(2)],
        [lz.count() | lz.take(5) | lz.repeat(), NUMBERS | lz.repeat(2) | lz.repeat()],
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_each_warning_is_there_and_not_where_a_pipeline_is_close(text: str) -> None:
    bad, good = CASES[text]
    for pipeline in bad:
        assert text in warned(pipeline), pipeline
    for pipeline in good:
        assert text not in warned(pipeline), pipeline


def test_stages_that_draw_the_same_do_so() -> None:
    one, other = SHUFFLED, lz.source(range(20)) | lz.shuffle(seed=0)
    assert [x for x in other if x < 10] == list(one)


def test_many_that_draw_the_same_are_one_warning() -> None:
    several = lz.mix([SHUFFLED] * 50, [1] * 50, seed=1)
    assert lz.explain(several).warnings == (
        "50 stages draw the same random numbers, because they have the same seed: "
        "shuffle(seed=0) as stages 1[0].2, 1[1].2, 1[2].2, ...; use a different seed for each",
    )


def test_a_function_without_a_name_is_warned_of_where_no_worker_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = NUMBERS | lz.map(lambda x: x)
    text = "<lambda> in map has no name that a worker can import"
    clean = lz.processes(2)
    assert text not in warned(pipeline, clean)
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    assert text in warned(pipeline, clean)
    for executor in (lz.processes(2, start_method="fork"), lz.threads(2), None):
        assert text not in warned(pipeline, executor)
    assert text not in warned(NUMBERS | lz.map(str), clean)


@pytest.mark.parametrize(
    "stage",
    [lz.hash_range(0, 0.5, seed=1), lz.sample([1.0] * 9, seed=1)],
    ids=lambda s: s.calls[0].name,
)
def test_stages_that_order_whole_epochs_are_built_for_no_others(stage: Any) -> None:
    lz.explain(lz.source(range(9)) | lz.shuffle(seed=0) | stage)
