"""Whose a state is: of all ranks, or of one, which others refuse."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import State
from lazyckpt.errors import ArgumentError, InvalidState, StateMismatch
from lazyckpt.testing.strategies import INSTEAD, JOINS, STAGES, has_room, pipelines
from tests.state.cases import signed

BEHIND = sorted(name for name in STAGES if not name.startswith("shard("))
JOINED = sorted(name for name in JOINS if not name.startswith("lanes"))


@st.composite
def all_ranks(draw: st.DrawFn) -> list[lz.Pipeline[Any]]:
    """One pipeline for each rank, which differ in the index of a shard alone."""
    count = draw(st.integers(2, 3))
    remainder = draw(st.sampled_from([None, "drop", "pad", "repeat"]))
    before = draw(pipelines(max_stages=2))
    ranks = [
        before | lz.shard(num_shards=count, index=n, remainder=remainder) for n in range(count)
    ]
    if draw(st.booleans()):
        name, other = draw(st.sampled_from(JOINED)), draw(pipelines(max_stages=1))
        ranks = [JOINS[name](rank, other) for rank in ranks]
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(BEHIND))
        assume(all(has_room(name, rank) for rank in ranks))
        if name in INSTEAD and not all(_has_access(rank) for rank in ranks):
            name = INSTEAD[name]
        stage = draw(STAGES[name])
        ranks = [rank | stage for rank in ranks]
    return ranks


def _has_access(pipeline: lz.Pipeline[Any]) -> bool:
    return pipeline.machine.skip is not None and isinstance(pipeline.machine.length, int)


def states(pipeline: lz.Pipeline[Any]) -> list[State]:
    """The states of a run, from the beginning, as far as it comes."""
    run = lz.run(pipeline)
    found = [run.state]
    try:
        found += [state for _, state in islice(run.with_state(), 40)]
    except Exception:  # of a stage that wants other items
        assume(False)
    return found


@given(all_ranks())
def test_a_state_is_that_of_all_ranks_or_says_whose_it_is(ranks: list[lz.Pipeline[Any]]) -> None:
    try:
        found = [states(rank) for rank in ranks]
    except ArgumentError:  # of a stage that wants items of another kind
        assume(False)
    for together in zip(*found, strict=False):
        owners = [state.rank for state in together]
        assert len({*owners}) in (1, len(ranks))
        if len({*owners}) == 1:
            assert len({state.to_json() for state in together}) == 1
        else:
            with pytest.raises(StateMismatch):
                lz.run(ranks[1], together[0])


def rank(index: int, *behind: Any, remainder: Any = "drop", count: int = 2) -> Any:
    """Rank `index` of so many, with further stages."""
    found = lz.source(range(40)) | lz.shard(num_shards=count, index=index, remainder=remainder)
    for stage in behind:
        found = found | stage
    return found


def is_odd(number: int) -> int:
    return number % 4 != 2


@pytest.mark.parametrize(
    ("behind", "remainder"),
    [
        ([lz.batch(2)], None),
        ([lz.shuffle(seed=0), lz.repeat(), lz.batch(2)], None),
        ([lz.map(str), lz.shuffle(5, seed=0)], None),
        ([lz.random_map(lambda x, rng: x, seed=0), lz.take(9)], None),
        ([lz.enumerate(), lz.sliding_window(3)], None),
        ([lz.repeat(2), lz.batch(3)], "pad"),
    ],
)
def test_states_of_all_ranks(behind: list[Any], remainder: Any) -> None:
    states = [lz.state_at(rank(n, *behind, remainder=remainder), 4) for n in range(2)]
    assert states[0] == states[1]
    assert states[0].rank is None


@pytest.mark.parametrize("stage", [lz.enumerate(), lz.random_map(lambda rng, x: x, seed=0)])
@pytest.mark.parametrize("remainder", [None, "drop", "pad"])
def test_a_stage_that_counts_a_stream_is_rank_invariant(stage: Any, remainder: Any) -> None:
    stream = lz.source(range(40)) | lz.filter(is_odd)
    ranks = [lz.shard(num_shards=2, index=n, remainder=remainder) for n in range(2)]
    states = [lz.state_at(stream | rank | stage | lz.batch(2), 4) for rank in ranks]
    assert states[0] == states[1]
    assert states[0].rank is None


def odd_ones(index: int) -> Any:
    return rank(index, lz.filter(is_odd), remainder=None)


def test_the_state_of_one_rank_is_refused_by_another() -> None:
    found = [lz.state_at(odd_ones(n), 5) for n in range(2)]
    assert [state.rank for state in found] == [(0, 2), (1, 2)]
    assert "rank 0 of 2" in repr(found[0])
    other, whole = odd_ones(1), lz.source(range(40)) | lz.filter(is_odd)
    takers = [
        lambda: lz.run(other, found[0]),
        lambda: lz.run(other).load_state_dict(lz.run(odd_ones(0), found[0]).state_dict()),
        lambda: lz.step(other, found[0]),
        lambda: lz.rebase(found[0], rank(1, lz.filter(is_odd), lz.map(str), remainder=None)),
        lambda: lz.run(whole).load_state_dict(found[0].to_dict()),
    ]
    for take in takers:
        with pytest.raises(StateMismatch):
            take()
    with pytest.raises(StateMismatch, match=r"rank 0 of 2 alone.*that of rank 1"):
        lz.run(other, found[0].to_json())
    assert next(lz.run(other, found[0], strict=False)) == 19


def test_states_of_ranks_that_were_merged() -> None:
    runs = [lz.run(odd_ones(n)) for n in range(2)]
    for run in runs:
        list(islice(run, 3))
    rest = [list(lz.run(odd_ones(n), run.state)) for n, run in enumerate(runs)]
    merged = runs[0].state_dict() | runs[1].state_dict()
    assert [list(lz.run(odd_ones(n), merged)) for n in range(2)] == rest
    with pytest.raises(InvalidState, match=r"2 ranks, not one.*found\['rank 0 of 2'\]"):
        State.from_dict(merged)
    assert lz.reshard([*merged.values()], odd_ones(0)) == [run.state for run in runs]


def test_a_collate_that_may_be_skipped_makes_states_of_ranks() -> None:
    def at_step_2(count: int, last: Any) -> tuple[lz.Pipeline[Any], State]:
        rows = lz.source(range(24)) | lz.map(lambda n: [12 // (n - 5)]) | lz.concat_then_split(2)
        pipeline = rows | lz.shard(num_shards=count, index=0) | last
        run = lz.run(pipeline, on_error="skip")
        assert [len(batch) for batch in islice(run, 2)]
        return pipeline, run.state

    other, _ = at_step_2(3, lz.batch(2, collate=lz.stack))
    _, of_rank = at_step_2(2, lz.batch(2, collate=lz.stack))
    with pytest.raises(StateMismatch, match=r'may fail under on_error="skip", as a collate may'):
        lz.rebase(of_rank, other)
    other, _ = at_step_2(3, lz.batch(2))
    _, of_all = at_step_2(2, lz.batch(2))
    assert (of_rank.rank, of_all.rank) == ((0, 2), None)
    assert next(lz.run(other, lz.rebase(of_all, other), on_error="skip"))


def test_a_rank_of_its_own_is_one_through_every_change() -> None:
    state = lz.state_at(odd_ones(1), 5)
    assert State.from_json(state.to_json()) == state
    assert lz.advance(odd_ones(1), state, 2).rank == (1, 2)
    more = rank(1, lz.filter(is_odd), lz.batch(2), remainder=None)
    assert lz.rebase(state, more).rank == (1, 2)
    assert lz.tracked(lz.run(odd_ones(1), state), max_in_flight=2).state.rank == (1, 2)
    divided = [odd_ones(1) | lz.shard(num_shards=3, index=n) for n in range(3)]
    assert {lz.rebase(state, each).rank for each in divided} == {(1, 2)}  # the state of all three
    assert divided[2].own_rank == (1, 2)
    assert (divided[2] | lz.filter(is_odd)).own_rank == (5, 6)
    with pytest.raises(StateMismatch, match="rank 1 of 2 alone"):
        lz.rebase(state, odd_ones(0) | lz.shard(num_shards=3, index=2))
    run = lz.run(rank(1))
    next(run)
    run.change(rank(1, lz.filter(is_odd)))
    assert run.state.rank == (1, 2)


@pytest.mark.parametrize("executor", [None, lz.threads(2), lz.processes(2)])
def test_who_leaves_out_items_is_a_rank_of_its_own(executor: Any) -> None:
    bad = [1, "x", 3, 4, 5, 6, 7, 8]

    def parsed(index: int) -> Any:
        return lz.source(bad) | lz.shard(num_shards=2, index=index) | lz.map(int)

    with lz.run(parsed(1), on_error="skip", executor=executor) as run:
        assert next(run) == 4
        state = run.state
    assert state.rank == (1, 2)
    with pytest.raises(StateMismatch, match="rank 1 of 2 alone"):
        lz.run(parsed(0), state)
    for known in ([state], [lz.run(parsed(0), on_error="skip").state]):
        with pytest.raises(StateMismatch, match="needs the states of 2 ranks, got 1"):
            lz.reshard(known, parsed(1))
    later = lz.run(parsed(1), state)
    assert list(later) == [6, 8]
    assert later.state.rank == (1, 2)
    with lz.run(parsed(1)) as fresh:
        assert fresh.state.rank is None


def test_what_all_ranks_leave_out_leaves_their_states_equal() -> None:
    def parsed(index: int) -> Any:
        numbers = lz.source(["x", *"123456789"]) | lz.map(int) | lz.filter(bool)
        return numbers | lz.shard(num_shards=2, index=index) | lz.batch(2)

    runs = [lz.run(parsed(n), on_error="skip") for n in range(2)]
    assert [next(run) for run in runs] == [[1, 3], [2, 4]]
    assert runs[0].state == runs[1].state
    assert (runs[0].state.rank, runs[0].skipped) == (None, 1)


@pytest.mark.parametrize("wrong", [[2, 2], [0], [0, "2"], [-1, 2], {}, 5, [0, 2, 1]])
def test_a_rank_that_is_none(wrong: Any) -> None:
    with pytest.raises(InvalidState):
        State.from_json(signed(lz.state_at(odd_ones(0), 1).to_dict(), rank=wrong))


@pytest.mark.parametrize("size", [1, 2])
def test_the_dict_of_a_state_as_json_is_the_state(size: int) -> None:
    """Also after a stage that gives each rank a position of its own."""
    numbers = lz.source(range(20)) | lz.shard(num_shards=size, index=size - 1) | lz.filter(bool)
    run = lz.run(numbers)
    found = [next(run), next(run)]
    text = json.dumps(run.state_dict())
    assert lz.State.from_json(text) == run.state
    assert [*found, *lz.run(numbers, text)] == [*numbers]
