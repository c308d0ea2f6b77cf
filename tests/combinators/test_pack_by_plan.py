"""Rows by a plan: a source with random access, and lengths that are wrong."""

from __future__ import annotations

from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream


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


def test_a_row_is_from_its_documents_which_are_not_read_for_that() -> None:
    rows = planned([3, 8, 5, 2, 6])
    plan, data = rows.calls[1].arguments["plan"], rows.calls[0].arguments["data"]
    for number, pieces in enumerate(plan):
        found = lz.trace(rows | lz.repeat(), number)
        assert [origin.index for origin in found] == [piece.document for piece in pieces]
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
            match="document 2 has 3 tokens, but the plan was made for 4; make a new plan",
        ):
            next(run)
    assert run.state.items == place
    data[2] = [3] * 4
    assert len(list(run)) == 4 - place


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda plan: [[1]] | lz.pack_by_plan(plan), "1 documents, but the plan is for 2"),
        (lambda plan: Stream([[1], [2]]) | lz.pack_by_plan(plan), "has no random access"),
        (lambda plan: lz.count() | lz.pack_by_plan(plan), "is endless"),
        (lambda plan: lz.pack_by_plan([1, 2]), r"plan must be a PackingPlan from plan_packing"),
    ],
)
def test_what_does_not_go_together_is_refused(make: Any, message: str) -> None:
    with pytest.raises(lz.ArgumentError, match=f"pack_by_plan: .*{message}"):
        list(make(lz.plan_packing([1, 1], 4, seed=0)))


def test_no_document_is_left_out_of_a_plan_that_has_it() -> None:
    rows = [[1], [2]] | lz.map(list) | lz.pack_by_plan(lz.plan_packing([1, 1], 4, seed=0))
    with pytest.raises(lz.ArgumentError, match="out of the plan, because on_error"):
        lz.run(rows, on_error="skip")


def test_what_is_no_document_is_named() -> None:
    plan = lz.plan_packing([1, 1], 4, seed=0)
    with pytest.raises(TypeError, match=r"or a mapping of such, got 3"):
        list([3, 3] | lz.pack_by_plan(plan))
    with pytest.raises(ValueError, match="has features"):
        list([[1], {"x": [1]}] | lz.pack_by_plan(plan))
