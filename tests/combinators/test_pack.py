"""Rows of tokens: nothing lost or repeated, and the cost of a resume."""

from __future__ import annotations

import tracemalloc
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing.laws import Stream
from tests.helpers import traced

SIZES = st.lists(st.integers(0, 9), max_size=40)


def sequences(sizes: list[int]) -> list[list[int]]:
    """Sequences of these sizes; every token is there once."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [list(range(a + 1, b + 1)) for a, b in pairwise(ends)]


def segments(row: dict[str, Any]) -> list[list[int]]:
    ids = row["segment_ids"]
    return [row["tokens"][ids == i].tolist() for i in range(1, ids.max(initial=0) + 1)]


PACKS = pytest.mark.parametrize("pack", [lz.pack_first_fit, lz.pack_best_fit])


@PACKS
def test_one_much_longer_than_all_rows_begun_is_given_at_once(pack: Any) -> None:
    run = lz.run([[1], [2] * 7, [3], [4] * 4] | pack(2, num_bins=2, overflow="split"))
    states = [(row["tokens"].tolist(), state.position) for row, state in run.with_state()]
    assert states == [
        ([1, 0], ((0, 1), 0)),
        ([2, 2], ((0, 1), 1)),
        ([2, 2], ((0, 1), 2)),
        ([2, 2], ((0, 1), 3)),
        ([2, 3], ((0, 3), 0)),
        ([4, 4], ((0, 3), 1)),
        ([4, 4], ((0, 4), 0)),
    ]


@PACKS
def test_more_bins_leave_less_room_empty(pack: Any) -> None:
    sizes = [(i * 37) % 60 + 1 for i in range(2000)]
    rows = [len(list(sequences(sizes) | pack(64, num_bins=n))) for n in (1, 8, 64)]
    assert rows[0] > rows[1] > rows[2] >= -(-sum(sizes) // 64)


ROWS: dict[str, Any] = {
    "concat_then_split": lambda **pad: lz.concat_then_split(4, **pad),
    "pack_first_fit": lambda **pad: lz.pack_first_fit(4, num_bins=2, **pad),
    "pack_best_fit": lambda **pad: lz.pack_best_fit(4, num_bins=2, **pad),
    "pack_by_plan": lambda **pad: lz.pack_by_plan(PLAN, **pad),
}
PLAN = lz.plan_packing([3], 4, seed=0)


@pytest.mark.parametrize("name", ROWS)
def test_each_feature_is_filled_up_by_what_is_said(name: str) -> None:
    pad = {"labels": -100, "loss_mask": 1.5}
    item = {"tokens": np.array([5, 6, 7], np.uint16), "labels": [6, 7, 8], "loss_mask": np.ones(3)}
    (row,) = lz.source([item]) | ROWS[name](pad=pad)
    assert row["tokens"].tolist() == [5, 6, 7, 0]
    assert row["labels"].tolist() == [6, 7, 8, -100]
    assert row["loss_mask"].tolist() == [1, 1, 1, 1.5]
    assert row["segment_ids"].tolist() == [1, 1, 1, 0]
    assert row["tokens"].dtype == np.uint16
    (alone,) = [[5, 6, 7]] | ROWS[name](pad={"tokens": 9})
    assert alone["tokens"].tolist() == [5, 6, 7, 9]
    assert lz.trace(lz.source([item]) | ROWS[name](pad=pad), 0)
    assert "pad={'tokens': 9}" in repr(ROWS[name](pad={"tokens": 9}))


@pytest.mark.parametrize("name", ROWS)
def test_what_cannot_fill_up_a_feature_is_refused(name: str) -> None:
    item = {"tokens": np.array([5, 6, 7], np.uint16), "labels": [6, 7, 8]}
    for pad, message in {
        ("label", -100): rf"{name}: pad has 'label', but an item has \['tokens', 'labels'\]",
        ("tokens", -100): r"-100\} is not a valid uint16, .* different type, such as int64",
        ("labels", 0.5): r"pad=\{'labels': 0.5\} is not a valid int64",
    }.items():
        with pytest.raises(ValueError, match=message):
            list(lz.source([item]) | ROWS[name](pad=dict([pad])))


def test_features_go_together_and_keep_their_types() -> None:
    items = [
        {"x": np.arange(3, dtype=np.uint16), "y": np.ones((3, 2), np.float32)},
        {"y": np.zeros((2, 2), np.float32), "x": [7, 8]},
    ]
    for stage in (lz.concat_then_split(6), lz.pack_first_fit(6, num_bins=2)):
        (row,) = items | stage
        assert list(row) == ["x", "y", "segment_ids", "positions"]
        assert row["x"].tolist() == [0, 1, 2, 7, 8, 0]
        assert row["y"].shape == (6, 2)
        assert row["y"].dtype == np.float32
    words = [["to", "be"], ["or"]] | lz.concat_then_split(4)
    assert next(iter(words))["tokens"].tolist() == ["to", "be", "or", ""]


def test_a_feature_of_the_sequence_is_one_of_each_token() -> None:
    items = [
        {"weight": 0.5, "tokens": [1, 2, 3], "kind": "web"},
        {"weight": 2, "tokens": [4], "kind": "code"},
    ]
    for row in [*(items | lz.concat_then_split(5)), *(items | ROWS["pack_first_fit"](pad={}))]:
        wanted = {1: 0.5, 2: 0.5, 3: 0.5, 4: 2, 0: 0}
        assert row["weight"].tolist() == [wanted[token] for token in row["tokens"].tolist()]
    plan = lz.plan_packing([3, 1], 4, seed=0)
    (row,) = items | lz.pack_by_plan(plan)
    assert {*zip(row["kind"].tolist(), row["tokens"].tolist(), strict=True)} == {
        *(("web", n) for n in (1, 2, 3)),
        ("code", 4),
    }
    long = {"weight": 1, "tokens": [1] * 9}
    run = lz.run(
        [long, *items] | lz.pack_first_fit(4, num_bins=1, overflow="drop"), on_error="skip"
    )
    assert len(list(run)) == 1
    assert run.skipped == 1


def test_rows_do_not_share_memory_with_the_items() -> None:
    data = np.arange(8).reshape(2, 4)
    for stage in (lz.concat_then_split(4), lz.pack_first_fit(4, num_bins=1)):
        for row in lz.source(data) | stage:
            row["tokens"][:] = -1
    assert data.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


STAGES = [
    lz.concat_then_split(4),
    lz.pack_first_fit(4, num_bins=2),
    lz.pack_best_fit(4, num_bins=2),
]


@pytest.mark.parametrize("stage", STAGES, ids=repr)
@pytest.mark.parametrize(
    ("items", "kind", "message"),
    [
        ([3], TypeError, "expected a sequence of tokens, or a mapping of such, got 3"),
        ([None], TypeError, "got None"),
        (["abc"], TypeError, "got 'abc'"),
        ([{}], TypeError, "got {}"),
        ([{"x": [1], "y": [1, 2]}], ValueError, "unequal lengths {'x': 1, 'y': 2}"),
        ([{"x": 1, "y": 3}], TypeError, "expected a sequence"),
        ([{"positions": [1]}], ValueError, "reserved name 'positions'"),
        ([[1], {"x": [1]}], ValueError, "has features .*others have"),
    ],
)
def test_what_is_no_sequence_is_named(
    stage: Any, items: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        list(items | stage)


def test_a_sequence_too_long_to_pack_is_named_and_nothing_before_it_is_lost() -> None:
    run = lz.run([[1, 2], [3, 4, 5], [6], [7] * 9] | lz.pack_first_fit(4, num_bins=1))
    assert next(run)["tokens"].tolist() == [1, 2, 0, 0]
    for _ in range(2):
        with pytest.raises(ValueError, match=r"of 9 tokens is longer than length=4: .7, 7"):
            next(run)
    assert run.state.items == 1


@pytest.mark.parametrize("stage", STAGES, ids=repr)
def test_rows_of_other_ranks_are_placed_and_not_filled(stage: Any) -> None:
    ragged: Any = [[9], [9, 9], [9], [9]]  # four tokens, of which no array can be made
    rows = lz.source(Stream([[1] * 4, [2] * 4, ragged, [3] * 4])) | stage
    assert_only_row_2_fails(rows, stage)
    assert_only_row_2_fails(rows | lz.repeat(1), stage)
    assert_only_row_2_fails(lz.mix([rows], [1], seed=0), stage)


def assert_only_row_2_fails(rows: Any, stage: Any) -> None:
    for index in (0, 1, 3):
        (row,) = rows | lz.shard(num_shards=4, index=index)
        assert row["tokens"].tolist() == [(1, 2, None, 3)[index]] * 4
    pipeline = rows | lz.shard(num_shards=4, index=2)
    run = lz.run(pipeline)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"inhomogeneous.*") as error:
            next(run)
        assert run.state == lz.init(pipeline)
    assert f"in {stage!r}, built at" in str(error.value.__notes__)


@PACKS
def test_a_long_run_holds_no_more_than_a_short_one(pack: Any) -> None:
    run = lz.run(lz.source([[1]]) | lz.repeat() | pack(1, num_bins=1))
    held = []
    with traced():
        for rows in (100, 3_000):
            assert len([*islice(run, rows)]) == rows
            held.append(tracemalloc.get_traced_memory()[0])
    assert held[1] - held[0] < 50_000


@given(sizes=SIZES, old=st.integers(1, 9), new=st.integers(1, 9), cut=st.integers(0, 5))
def test_another_length_goes_on_where_the_old_one_was(
    sizes: list[int], old: int, new: int, cut: int
) -> None:
    first, second = (lz.source(sequences(sizes)) | lz.concat_then_split(n) for n in (old, new))
    run = lz.run(first)
    rows = list(islice(run, cut))
    rows += lz.run(second, lz.rebase(run.state, second))
    tokens = [token for row in rows for part in segments(row) for token in part]
    assert tokens == list(range(1, sum(sizes) + 1))


def test_a_sequence_that_became_shorter_is_noticed() -> None:
    state = lz.state_at(lz.source([[1] * 9]) | lz.concat_then_split(4), 2)
    with pytest.raises(lz.SourceChanged, match="after token 8 of a sequence that now has 5"):
        list(lz.run(lz.source([[1] * 5]) | lz.concat_then_split(4), state))
    packed = lz.pack_first_fit(4, num_bins=2)
    state = lz.state_at(lz.source(Stream([[1] * 4, [2] * 4])) | packed, 1)
    with pytest.raises(lz.SourceChanged, match="after row 1 of 1"):
        list(lz.run(lz.source(Stream([[1] * 4])) | packed, state))


DROPPING = {
    "pack_first_fit": lz.pack_first_fit(4, num_bins=2, overflow="drop"),
    "pack_best_fit": lz.pack_best_fit(4, num_bins=2, overflow="drop"),
    "token_batch": lz.token_batch(4, key=len, drop_longer=True),
}


def tokens(size: int) -> list[int]:
    return [1] * size


@given(SIZES, st.sampled_from([*DROPPING]), st.integers(0, 9))
def test_what_is_dropped_is_counted_and_named(sizes: list[int], name: str, cut: int) -> None:
    pipeline = lz.source(sizes) | lz.map(tokens) | DROPPING[name]
    run = lz.run(pipeline, on_error="skip")
    found = [*run.with_state()]
    assert [str(item) for item, _ in found] == [str(item) for item in lz.run(pipeline)]
    long = [(place, size) for place, size in enumerate(sizes, 1) if size > 4]
    assert run.skipped == len(long)
    for told, (place, size) in zip(run.skipped.first, long, strict=False):
        assert told.startswith(f"{name}(")
        assert f"before (0, {place}): {size} tokens" in told
    if found:
        rest = lz.run(pipeline, found[min(cut, len(found) - 1)][1].to_json(), on_error="skip")
        assert len([*rest]) == len(found[cut + 1 :])
        assert rest.state == run.state


@given(SIZES, st.integers(0, 6), st.integers(1, 9), st.integers(0, 9))
def test_what_a_changed_budget_drops_is_counted(
    sizes: list[int], turn: int, budget: int, cut: int
) -> None:
    pipeline, after = (
        lz.source(sizes) | lz.map(tokens) | lz.token_batch(most, key=len, drop_longer=True)
        for most in (6, budget)
    )
    plain, run = lz.run(pipeline), lz.run(pipeline, on_error="skip")
    expected = [*islice(plain, turn)]
    before = [*islice(run, turn)]
    for each in (plain, run) if len(before) == turn else ():
        each.change(after)
    expected += plain
    found = [*run.with_state()]
    assert [*before, *(item for item, _ in found)] == expected
    assert run.skipped == len(sizes) - sum(map(len, expected))
    if found:
        state = found[min(cut, len(found) - 1)][1]
        rest = lz.run(run.pipeline, state.to_json(), on_error="skip")
        assert len([*rest]) == len(found[cut + 1 :])
        assert rest.state == run.state


@pytest.mark.parametrize("name", DROPPING)
def test_what_is_dropped_is_counted_by_every_executor(name: str) -> None:
    pipeline = lz.source([1, 7, 2, 9, 3, 3, 8, 1] * 3) | lz.map(tokens) | DROPPING[name]
    here = lz.run(pipeline, on_error="skip")
    states = [state for _, state in here.with_state()]
    for executor in (lz.threads(2), lz.processes(2)):
        with lz.run(pipeline, executor=executor, on_error="skip") as run:
            assert [state for _, state in run.with_state()] == states
            assert (run.skipped, run.skipped.first) == (9, here.skipped.first)


@pytest.mark.parametrize("name", ROWS)
def test_what_fills_up_rows_is_part_of_a_pipeline_and_may_be_rebased(name: str) -> None:
    documents, cut = ([[5, 6, 7]], 0) if name == "pack_by_plan" else ([[5, 6, 7]] * 3, 1)
    data = lz.source(documents)
    old, new = (data | ROWS[name](pad={"tokens": number}) for number in (8, 9))
    same = data | ROWS[name](pad={"tokens": np.int64(8)})
    state = lz.state_at(old, cut)
    assert lz.run(same, state).state == state
    for other in (new, data | ROWS[name]()):
        with pytest.raises(lz.StateMismatch, match=rf"{name}\(.*pad"):
            lz.run(other, state)
        rows = list(lz.run(other, lz.rebase(state, other)))
        assert repr(rows) == repr(list(other)[cut:])
