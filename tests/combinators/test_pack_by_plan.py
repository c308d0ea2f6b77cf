"""Rows by a plan: a source with random access, and lengths that are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing import check_pipeline, equal
from lazyckpt.testing.laws import Stream

LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=40)


class Documents:
    """Documents of these lengths, each of its own number; it counts those that are read."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> list[int]:
        self.read.append(number)
        return [number] * self.lengths[number]


def planned(lengths: list[int], length: int = 8) -> Any:
    plan = lz.plan_packing(lengths, length, seed=0, overflow="split")
    return lz.source(Documents(lengths)) | lz.pack_by_plan(plan)


def tokens(rows: Any) -> Iterator[tuple[int, ...]]:
    return (tuple(row["tokens"].tolist()) for row in rows)


@given(lengths=LENGTHS, length=st.integers(1, 12), overflow=st.sampled_from(["split", "truncate"]))
def test_rows_have_the_pieces_that_the_plan_says(
    lengths: list[int], length: int, overflow: Any
) -> None:
    data = [np.arange(size) for size in lengths]
    plan = lz.plan_packing(lengths, length, seed=0, overflow=overflow)
    rows = data | lz.pack_by_plan(plan)
    assert len(rows) == len(plan)
    for row, pieces in zip(rows, plan, strict=True):
        for number, (document, start, stop) in enumerate(pieces, 1):
            here = row["segment_ids"] == number
            assert row["tokens"][here].tolist() == data[document][start:stop].tolist()
            assert row["positions"][here].tolist() == list(range(stop - start))
        assert row["tokens"].shape == row["segment_ids"].shape == (length,)
        assert row["segment_ids"].dtype == row["positions"].dtype == np.int32
    assert equal([rows[i] for i in range(len(rows))], list(rows))


@given(
    lengths=LENGTHS,
    shards=st.integers(1, 4),
    others=st.integers(1, 4),
    cut=st.integers(0, 9),
)
def test_another_number_of_ranks_goes_on_exactly(
    lengths: list[int], shards: int, others: int, cut: int
) -> None:
    rows = planned(lengths) | lz.shuffle(seed=1) | lz.repeat(2)

    def part(num_shards: int, index: int) -> Any:
        return rows | lz.shard(num_shards=num_shards, index=index)

    steps = min(cut, len(rows) // shards)
    runs = [lz.run(part(shards, index)) for index in range(shards)]
    before = [row for run in runs for row in islice(run, steps)]
    assert len({run.state.to_json() for run in runs}) == 1
    after: list[Any] = []
    for index in range(others):
        pipeline = part(others, index)
        after += lz.run(pipeline, lz.rebase(runs[0].state, pipeline))
    assert sorted(tokens(before + after)) == sorted(tokens(rows))


def test_only_documents_of_the_rows_asked_for_are_read() -> None:
    rows = planned([3, 8, 5, 2, 6, 4] * 5)
    data = rows.calls[0].arguments["data"]
    plan = rows.calls[1].arguments["plan"]
    rows[7]
    assert sorted(data.read) == sorted(piece.document for piece in plan[7])
    data.read.clear()
    list(rows | lz.skip(4) | lz.shard(num_shards=3, index=0))
    wanted = [piece.document for row in range(4, len(plan), 3) for piece in plan[row]]
    assert sorted(data.read) == sorted(wanted)


def test_it_keeps_the_laws_over_shuffles_and_executors() -> None:
    rows = planned([3, 8, 5, 2, 6, 0, 14, 4])
    check_pipeline(rows | lz.shuffle(seed=3) | lz.batch(2))
    check_pipeline(rows | lz.repeat(2) | lz.shard(num_shards=2, index=1))
    expected = list(tokens(rows))
    for executor in (lz.threads(2), lz.processes(1)):
        with lz.run(rows, executor=executor) as run:
            found = [(row["tokens"].tolist(), state) for row, state in run.with_state()]
        assert [tuple(row) for row, _ in found] == expected
        assert [state for _, state in found] == [s for _, s in lz.run(rows).with_state()]


def test_documents_may_be_features_of_mapped_items() -> None:
    def tokenized(text: str) -> dict[str, Any]:
        ids = np.frombuffer(text.encode(), np.uint8)
        return {"tokens": ids, "loss_mask": ids > ord("m")}

    texts = ["to", "be", "or", "not", "to", "be"]
    plan = lz.plan_packing([len(text) for text in texts], 8, seed=0)
    rows = lz.source(texts) | lz.map(tokenized) | lz.pack_by_plan(plan)
    assert all(list(row) == ["tokens", "loss_mask", "segment_ids", "positions"] for row in rows)
    for row in rows:
        assert ((row["tokens"] > ord("m")) == row["loss_mask"]).all()
    assert sum(row["loss_mask"].sum() for row in rows) == sum(
        letter > "m" for text in texts for letter in text
    )


def test_a_row_is_from_its_documents_which_are_not_read_for_that() -> None:
    rows = planned([3, 8, 5, 2, 6])
    plan, data = rows.calls[1].arguments["plan"], rows.calls[0].arguments["data"]
    for number, pieces in enumerate(plan):
        found = lz.trace(rows | lz.repeat(), number)
        assert [origin.place for origin in found] == [piece.document for piece in pieces]
    assert not data.read


def test_a_state_is_a_count_and_knows_the_plan() -> None:
    rows = planned([3, 8, 5, 2, 6])
    state = lz.state_at(rows, 2)
    assert state.position == ((0, 0), 2)
    assert rows.calls[1].arguments["plan"].digest in state.to_json()
    assert lz.resume_cost(rows, state).items == 0
    other = lz.source(Documents([3, 8, 5, 2, 6])) | lz.pack_by_plan(
        lz.plan_packing([3, 8, 5, 2, 6], 8, seed=1)
    )
    with pytest.raises(lz.StateMismatch, match=r'plan={"PackingPlan":"\w{16}"}'):
        lz.run(other, state)


def test_a_wrong_length_is_named_and_nothing_before_it_is_lost() -> None:
    data: list[Any] = [[1] * 4, [2] * 4, [3] * 3, [4] * 4]
    plan = lz.plan_packing([4, 4, 4, 4], 4, seed=0)
    place = [row[0].document for row in plan].index(2)
    run = lz.run(data | lz.pack_by_plan(plan))
    for _ in range(place):
        next(run)
    for _ in range(2):
        with pytest.raises(
            lz.SourceChanged,
            match="document 2 has 3 tokens, where the plan was made for 4; make the plan anew",
        ):
            next(run)
    assert run.state.items == place
    data[2] = [3] * 4
    assert len(list(run)) == 4 - place


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda plan: [[1]] | lz.pack_by_plan(plan), "1 documents, where the plan is of 2"),
        (lambda plan: Stream([[1], [2]]) | lz.pack_by_plan(plan), "has no random access"),
        (lambda plan: lz.count() | lz.pack_by_plan(plan), "is endless"),
        (lambda plan: lz.pack_by_plan([1, 2]), r"plan must be a PackingPlan, as plan_packing"),
    ],
)
def test_what_does_not_go_together_is_refused(make: Any, message: str) -> None:
    with pytest.raises(lz.ArgumentError, match=f"pack_by_plan: .*{message}"):
        list(make(lz.plan_packing([1, 1], 4, seed=0)))


def test_no_document_is_left_out_of_a_plan_that_has_it() -> None:
    rows = [[1], [2]] | lz.map(list) | lz.pack_by_plan(lz.plan_packing([1, 1], 4, seed=0))
    with pytest.raises(lz.ArgumentError, match="leave documents that fail out of the plan, for on"):
        lz.run(rows, on_error="skip")


def test_what_is_no_document_is_named() -> None:
    plan = lz.plan_packing([1, 1], 4, seed=0)
    with pytest.raises(TypeError, match="expected a sequence of tokens, or a dict of such, got 3"):
        list([3, 3] | lz.pack_by_plan(plan))
    with pytest.raises(ValueError, match="has features"):
        list([[1], {"x": [1]}] | lz.pack_by_plan(plan))
