"""States of all ranks as those of a different number of ranks."""

from __future__ import annotations

import itertools
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import State
from lazyckpt.testing.laws import Stream
from tests.state.cases import DATA, PIPELINE


def global_rank(num_shards: int, index: int) -> lz.Pipeline[Any]:
    ranks = lz.shard(num_shards=num_shards, index=index)
    return DATA | lz.shuffle(seed=0) | lz.shuffle(5, seed=1) | ranks | lz.map(str) | lz.batch(2)


def test_a_global_state_is_that_of_any_number_of_ranks() -> None:
    states = [lz.state_at(global_rank(2, index), 3) for index in range(2)]
    for forms in (states, states[:1], [state.to_json() for state in states]):
        ranks = [global_rank(3, index) for index in range(3)]
        three = lz.reshard(forms, ranks[1])
        assert len(three) == 3
        assert {(state.position, state.items) for state in three} == {(states[0].position, 3)}
        assert {state.rebased for state in three} == {(3, 2)}
        found = [list(lz.run(rank, state)) for rank, state in zip(ranks, three, strict=True)]
        done = [list(islice(global_rank(2, index), 3)) for index in range(2)]
        items = [x for rank in done + found for batch in rank for x in batch]
        assert sorted(items, key=int) == list(map(str, range(40)))
    assert lz.reshard(states, global_rank(2, 0)) == states
    back = lz.reshard(three, global_rank(2, 0))
    assert [(s.stages, s.position) for s in back] == [(s.stages, s.position) for s in states]
    assert lz.reshard([lz.init(PIPELINE)] * 2, PIPELINE) == [lz.init(PIPELINE)]


STAGES = [
    lz.map(lambda x: x), lz.filter(lambda x: x[1] % 3), lz.shuffle(3, seed=1) | lz.repeat(2),
    lz.flat_map(lambda x: [(*x, n) for n in range(x[1] % 3)]), lz.block_shuffle(4, seed=0),
    lz.take(5), lz.skip(2), lz.batch(2) | lz.unbatch(), lz.batch(2) | lz.starmap(lambda *x: x[0]),
]  # fmt: skip


@st.composite
def laned(draw: st.DrawFn) -> list[lz.Pipeline[Any]]:
    """Lanes of unequal lengths, each with whatever stages."""
    found: list[lz.Pipeline[Any]] = []
    for lane in range(draw(st.integers(1, 6))):
        rows = [(lane, n) for n in range(draw(st.integers(0, 8)))]
        pipeline: Any = lz.source(draw(st.sampled_from([rows, Stream(rows)])))
        for stage in draw(st.lists(st.sampled_from(STAGES), max_size=2)):
            pipeline = pipeline | stage
        found.append(pipeline)
    return found


BEHIND = [None, lz.map(lambda x: x), lz.filter(lambda x: True), lz.batch(1)]


@given(laned(), st.data())
def test_lanes_are_dealt_again_and_again_and_nothing_is_lost(
    pipelines: list[lz.Pipeline[Any]], data: st.DataObject
) -> None:
    behind = data.draw(st.sampled_from(BEHIND))

    def ranks(num_shards: int) -> list[lz.Pipeline[Any]]:
        made = [lz.lanes(pipelines, num_shards=num_shards, index=n) for n in range(num_shards)]
        return [rank if behind is None else rank | behind for rank in made]

    sizes = st.integers(1, len(pipelines))
    size = data.draw(sizes)
    states = [lz.init(rank) for rank in ranks(size)]
    given: list[Any] = []
    for _ in range(3):
        after = []
        for rank, state in zip(ranks(size), states, strict=True):
            run = lz.run(rank, state)
            given += islice(run, data.draw(st.integers(0, 7)))
            after.append(run.state)
        total = sum(state.items for state in after)
        following = data.draw(sizes)
        last = ranks(following)[-1]
        states = lz.reshard([state.to_json() for state in after], last)
        assert sum(state.items for state in states) == total == len(given)
        assert following != size or states == after
        assert lz.reshard(states, last) == states
        size = following
    for rank, state in zip(ranks(size), states, strict=True):
        given += lz.run(rank, state)
    items = given if behind != lz.batch(1) else [x for batch in given for x in batch]
    wanted = [list(lane) for lane in pipelines]
    assert sorted(map(repr, items)) == sorted(map(repr, itertools.chain(*wanted)))
    for lane, expected in enumerate(wanted):
        mine = [x for x in items if (x[0] if isinstance(x[0], int) else x[0][0]) == lane]
        assert mine == expected


@given(laned(), st.lists(st.integers(1, 6), min_size=3, max_size=3))
def test_dealing_twice_is_dealing_once(pipelines: list[Any], sizes: list[int]) -> None:
    one, two, three = (min(size, len(pipelines)) for size in sizes)
    first, second, third = (lz.lanes(pipelines, num_shards=n, index=0) for n in (one, two, three))
    states = []
    for number in range(one):
        rank = lz.lanes(pipelines, num_shards=one, index=number)
        run = lz.run(rank)
        list(islice(run, number + 2))
        states.append(run.state)
    assert lz.reshard(states, first) == states
    if three != one:
        assert lz.reshard(lz.reshard(states, second), third) == lz.reshard(states, third)


LANES = [lz.source(range(n, n + 9)) for n in range(0, 60, 10)]


def laned_states(num_shards: int = 3, behind: Any = None) -> list[lz.State]:
    ranks = [lz.lanes(LANES, num_shards=num_shards, index=n) for n in range(num_shards)]
    return [lz.state_at(r if behind is None else r | behind, n) for n, r in enumerate(ranks)]


def test_what_lanes_refuse() -> None:
    pair = lz.lanes(LANES, num_shards=2, index=0)
    one, two, three = laned_states()
    for states, reason, *behind in (
        ([one, two], "lanes(num_shards=3) needs the states of 3 ranks, got 2"),
        ([one, two, three, one], "of 3 ranks, got 4"),
        ([one, three, two], "expected the state of rank 1, got that of rank 2"),
        ([one, one, three], "expected the state of rank 1, got that of rank 0"),
        ([one, two, lz.init(DATA)], "0 and 2 have different pipelines:\n    lanes\n -> source"),
        ([one, *laned_states(2)], "ranks 0 and 1 have different pipelines"),
        (laned_states(), "states belong to a different pipeline:\n    lanes\n -> ", lz.take(30)),
        *(
            (laned_states(behind=stage), reason, stage)
            for stage, reason in (
                (lz.shuffle(3, seed=0), "shuffle(buffer_size=3, seed=0) after them counts or"),
                (lz.take(30), "take(30) after them counts or holds"),
                (lz.shard(num_shards=2, index=0), "divided again, by shard"),
            )
        ),
    ):
        pipeline = pair | behind[0] if behind else pair
        with pytest.raises(lz.StateMismatch) as caught:
            lz.reshard(states, pipeline)
        assert reason in str(caught.value)
    with pytest.raises(lz.StateMismatch, match=r"rank 1 of 3 alone.*that of rank 0 of 3"):
        lz.run(lz.lanes(LANES, num_shards=3, index=0), two)
    with pytest.raises(lz.StateMismatch, match=r"num_shards=3\) -> lanes\(num_shards=2"):
        lz.run(lz.lanes(LANES, num_shards=2, index=0), one)
    with pytest.raises(lz.StateMismatch, match=r"use lz\.reshard with the states of all ranks"):
        lz.rebase(one, lz.lanes(LANES, num_shards=2, index=0))
    for position in (
        *((0, 0), ((), 0, 0), 3, None, (3, 0, 0), (((0, 1),), 0, 0, 0)),
        (two.position[0], *one.position[1:]),
    ):
        with pytest.raises(lz.InvalidState):
            lz.reshard([State(one.stages, 0, position), two, three], pair)
    for bad in (one, one.to_json(), [], None, 3, {}):
        with pytest.raises(lz.ArgumentError, match="states must be a list of states"):
            lz.reshard(bad, pair)  # type: ignore[arg-type]
    with pytest.raises(lz.InvalidState, match="format 4"):
        lz.reshard([{**one.to_dict(), "lazyckpt": 4}], pair)
    with pytest.raises(lz.ArgumentError, match="6 lanes leave some of num_shards=7"):
        lz.lanes(LANES, num_shards=7, index=0)
    with pytest.raises(lz.ArgumentError, match="index must be below num_shards=2, got index=2"):
        lz.lanes(LANES, num_shards=2, index=2)


@given(
    laned(),
    st.sampled_from([None, lz.repeat(2), lz.map(lambda x: x) | lz.repeat(3) | lz.batch(1)]),
    st.booleans(),
    st.data(),
)
def test_lanes_change_ranks_in_every_epoch_alike_or_say_so(
    pipelines: list[Any], behind: Any, is_within: bool, data: st.DataObject
) -> None:
    if behind is not None and is_within:
        pipelines, behind = [lane | behind for lane in pipelines], None

    def ranks(num_shards: int) -> list[Any]:
        made = [lz.lanes(pipelines, num_shards=num_shards, index=n) for n in range(num_shards)]
        return made if behind is None else [rank | behind for rank in made]

    sizes = st.integers(1, len(pipelines))
    old, new = data.draw(sizes), data.draw(sizes)
    given: list[Any] = []
    states, passes = [], set()  # the pass of a later repeat, or none without items
    for index, rank in enumerate(ranks(old)):
        run = lz.run(rank)
        some = [*islice(run, data.draw(st.integers(0, 30)))]
        once = sum(1 for _ in lz.lanes(pipelines, num_shards=old, index=index))
        passes.add(len(some) // once if once else None)
        given += some
        states.append(run.state)
    epochs = {rank.machine.epoch(s.position) for rank, s in zip(ranks(old), states, strict=True)}
    try:
        dealt = lz.reshard(states, ranks(new)[0])
    except lz.StateMismatch as refusal:
        assert not is_within
        assert "put repeat() into each lane, not after" in str(refusal)  # noqa: PT017  # or it is dealt
        assert len({s.epoch for s in states}) > 1 or len(epochs) > 1 or len(passes) > 1
        return
    for rank, state in zip(ranks(new), dealt, strict=True):
        given += lz.run(rank, state)
    wanted = [item for rank in ranks(1) for item in rank]
    assert sorted(map(repr, given)) == sorted(map(repr, wanted))


def test_ranks_in_two_epochs_are_not_dealt() -> None:
    def rank(num_shards: int, index: int, count: int = 2, within: int = 1) -> Any:
        lines = [lz.source([f"{name}{n}" for n in range(2)]) | lz.repeat(within) for name in "ab"]
        return lz.lanes(lines, num_shards=num_shards, index=index) | lz.repeat(count)

    for ahead in (0, 1):
        states = [lz.state_at(rank(2, n), 3 if n == ahead else 1) for n in range(2)]
        with pytest.raises(
            lz.StateMismatch, match=r"ranks 0 and 1 are in epochs .* repeat\(\) into"
        ):
            lz.reshard(states, rank(1, 0))
        assert lz.reshard(states, rank(2, 0)) == states
    ends = [lz.state_at(rank(2, n), n + 1) for n in range(2)]  # one has ended the epoch, one not
    (state,) = lz.reshard(ends, rank(1, 0))
    assert sorted(lz.run(rank(1, 0), state)) == ["a0", "a1", "a1", "b0", "b1"]
    later = [lz.state_at(rank(2, n), n + 3) for n in range(2)]
    (state,) = lz.reshard(later, rank(1, 0))
    assert sorted(lz.run(rank(1, 0), state)) == ["a1"]
    inside = [lz.state_at(rank(2, n, count=1, within=2), 3 * n) for n in range(2)]
    (state,) = lz.reshard(inside, rank(1, 0, count=1, within=2))
    assert sorted(lz.run(rank(1, 0, count=1, within=2), state)) == ["a0", "a0", "a1", "a1", "b1"]
    runs = [lz.run(rank(2, n, count=1)) for n in range(2)]
    list(runs[0].epoch(3))
    with pytest.raises(lz.StateMismatch, match="ranks 0 and 1 are in epochs 1 and 0"):
        lz.reshard([run.state for run in runs], rank(1, 0, count=1))


def test_ranks_that_disagree_are_told_by_how_much() -> None:
    states = [lz.state_at(global_rank(3, 0), n) for n in (4, 4, 6)]
    with pytest.raises(
        lz.StateMismatch, match=r"(?s)ranks 0 and 2 disagree: \+2 items.stage 2, .*stage 3, shu"
    ):
        lz.reshard(states, global_rank(2, 0))
    with pytest.raises(lz.StateMismatch, match="needs the states of 3 ranks, got 2"):
        lz.reshard(states[:2], global_rank(2, 0))
    pair = [lz.state_at(PIPELINE, n) for n in (4, 5)]
    with pytest.raises(lz.StateMismatch, match=r"ranks 0 and 1 disagree: \+1 items"):
        lz.reshard(pair, PIPELINE)


def test_ranks_that_go_at_their_own_pace_keep_to_their_number() -> None:
    def rank(num_shards: int, index: int) -> lz.Pipeline[int]:
        return DATA | lz.shard(num_shards=num_shards, index=index) | lz.filter(lambda x: x > 8)

    states = [lz.state_at(rank(2, n), n + 1) for n in range(2)]
    assert lz.reshard(states, rank(2, 0)) == states
    with pytest.raises(lz.StateMismatch, match="needs the states of 2 ranks, got 1"):
        lz.reshard(states[:1], rank(2, 0))
    for found in (states, [lz.init(rank(2, n)) for n in range(2)]):
        with pytest.raises(lz.StateMismatch, match=r"filter\(.*\) after shard counts .* lanes"):
            lz.reshard(found, rank(3, 0))


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda n: DATA | lz.shard(num_shards=n, index=0, contiguous=True), "are contiguous"),
        (lambda n: lz.zip(DATA, DATA | lz.shard(num_shards=n, index=0)), "different pipeline"),
        (
            lambda n: (
                lz.zip(DATA, DATA | lz.shard(num_shards=2, index=0))
                | lz.shard(num_shards=n, index=0)
            ),
            "put shard after zip",
        ),
        (
            lambda n: DATA | lz.shard(num_shards=2, index=0) | lz.shard(num_shards=n, index=0),
            "sharded more than once",
        ),
    ],
)
def test_which_pipelines_keep_to_their_ranks(made: Any, reason: str) -> None:
    with pytest.raises(lz.StateMismatch, match=reason):
        lz.reshard([lz.init(made(2))] * 2, made(3))


def test_many_lanes_keep_their_number_of_ranks_in_a_state() -> None:
    many = [lz.source(range(n)) | lz.shuffle(3, seed=n) | lz.repeat(2) for n in range(1, 65)]
    ranks = [lz.lanes(many, num_shards=4, index=n) | lz.batch(2) for n in range(4)]
    states = [lz.state_at(rank, 50) for rank in ranks]
    two = [lz.lanes(many, num_shards=2, index=n) | lz.batch(2) for n in range(2)]
    found = lz.reshard(states, two[0])
    left = sum(sum(map(len, lz.run(r, s))) for r, s in zip(two, found, strict=True))
    assert left == sum(map(len, many)) * 1 - 4 * 100
