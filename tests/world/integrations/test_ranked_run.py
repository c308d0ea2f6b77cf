"""Ranks that end together: equally many steps on all, nothing lost, from every stopping point."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from itertools import chain, count, islice
from typing import Any

import pytest
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.integrations.torch.ranks import Ranks
from tests.world.integrations.ranks import LONG, divided_unevenly, items, on_ranks, outcomes

few = settings(max_examples=max(3, settings.default.max_examples // 15))


def filtered(ranks: int, rank: int) -> lz.Pipeline[int]:
    """A part of common data, of which each rank drops others."""
    part = lz.shard(num_shards=ranks, index=rank)
    return lz.source(range(23)) | lz.shuffle(seed=1) | part | lz.filter(lambda x: x % 4 > 0)


def packed(ranks: int, rank: int) -> lz.Pipeline[Any]:
    part = lz.shard(num_shards=ranks, index=rank)
    texts = lz.source(range(24)) | part | lz.map(lambda n: [n] * (n % 5 + 1))
    return texts | lz.concat_then_split(7) | lz.map(lambda row: tuple(row["tokens"]))


def own_files(ranks: int, rank: int) -> lz.Pipeline[str]:
    """As many lines on rank 1 as on all others together, and more."""
    names = [f"{rank}-{n}" for n in range(9 if rank == 1 else 2)]
    return (
        lz.source(names) | lz.shuffle(seed=0) | lz.flat_map(lambda name: [name + c for c in "ab"])
    )


def divided_once(ranks: int, rank: int) -> lz.Pipeline[int]:
    some = lz.source(range(17)) | lz.filter(lambda x: x % 3 > 0)
    return some | lz.shard(num_shards=ranks, index=rank) | lz.batch(2, collate=tuple)


def one_is_empty(ranks: int, rank: int) -> lz.Pipeline[int]:
    return lz.source(range(5 * rank))


PIPELINES: dict[str, Callable[[int, int], lz.Pipeline[Any]]] = {
    each.__name__: each
    for each in (filtered, packed, own_files, divided_once, divided_unevenly, one_is_empty)
}
pipelines = st.sampled_from(sorted(PIPELINES))


def loader(pipeline: Any, group: dist.ProcessGroup, **options: Any) -> Any:
    return lz.torch.loader(pipeline, group=group, **{"timeout": LONG, **options})


def epoch_of(pipeline: lz.Pipeline[Any], epoch: int) -> list[Any]:
    return list(lz.run(pipeline, lz.init(pipeline, epoch=epoch)))


def ended_together(every: list[lz.Pipeline[Any]], loops: int) -> list[list[list[Any]]]:
    """The items of each rank in each loop, from lists: the shortest rest of the epoch."""
    epochs, left = [0] * len(every), [epoch_of(each, 0) for each in every]
    found: list[list[list[Any]]] = [[] for _ in every]
    for loop in range(loops):
        for rank, each in enumerate(every):
            if not left[rank] and loop:
                epochs[rank] += 1
                left[rank] = epoch_of(each, epochs[rank])
        last = max(epochs)
        for rank, each in enumerate(every):
            while epochs[rank] < last and len(left[rank]) < 1000:
                epochs[rank] += 1
                left[rank] += epoch_of(each, epochs[rank])
        steps = min(map(len, left))
        for rank in range(len(every)):
            found[rank].append(left[rank][:steps])
            left[rank] = left[rank][steps:]
    return found


@few
@given(pipelines, st.integers(2, 3), st.integers(1, 5))
def test_all_ranks_end_at_the_same_step_and_what_is_left_comes_first(
    name: str, ranks: int, agree_ahead: int
) -> None:
    every = [PIPELINES[name](ranks, rank) for rank in range(ranks)]

    def loops(rank: int, group: dist.ProcessGroup) -> list[list[Any]]:
        batches = loader(every[rank], group, agree_ahead=agree_ahead)
        return [list(batches) for _ in range(5)]

    found = on_ranks(ranks, loops)
    assert found == ended_together(every, 5)
    for each, some in zip(every, map(chain.from_iterable, found), strict=True):
        whole = chain.from_iterable(epoch_of(each, epoch) for epoch in range(6))
        assert all(item == other for item, other in zip(some, whole, strict=False))
    assert len({tuple(map(len, some)) for some in found}) == 1


@few
@given(pipelines, st.integers(2, 3), st.integers(1, 4), st.integers(0, 20))
def test_a_resume_at_any_step_gives_the_rest(
    name: str, ranks: int, agree_ahead: int, cut: int
) -> None:
    every = [PIPELINES[name](ranks, rank) for rank in range(ranks)]

    def whole(rank: int, group: dist.ProcessGroup) -> list[Any]:
        return list(items(loader(every[rank], group, agree_ahead=agree_ahead)))

    def resumed(rank: int, group: dist.ProcessGroup) -> list[Any]:
        batches = loader(every[rank], group, agree_ahead=3)
        before = list(islice(items(batches), cut))
        saved = batches.state.to_json()
        after = loader(every[rank], group, state=saved, agree_ahead=agree_ahead)
        assert after.state == batches.state
        return before + list(items(after))

    for one, other in zip(on_ranks(ranks, whole), on_ranks(ranks, resumed), strict=True):
        assert other[: len(one)] == one


@few
@given(pipelines, st.integers(2, 3), st.integers(1, 4), st.integers(0, 20), st.integers(0, 4))
def test_what_any_rank_saves_is_the_state_of_all(
    name: str, ranks: int, agree_ahead: int, cut: int, more: int
) -> None:
    every = [PIPELINES[name](ranks, rank) for rank in range(ranks)]

    def saves(rank: int, group: dist.ProcessGroup) -> tuple[str, list[Any]]:
        batches = loader(every[rank], group, agree_ahead=agree_ahead)
        loops = items(batches)
        list(islice(loops, cut))
        return json.dumps(batches.state_dict()), list(islice(loops, 30))

    saved = on_ranks(ranks, saves)
    states = {state for state, _ in saved}
    assert len(states) == 1
    state = json.loads(states.pop())

    def resumes(rank: int, group: dist.ProcessGroup) -> tuple[Any, Any, Any]:
        batches = loader(every[rank], group, state=state)
        loops = items(batches)
        some = list(islice(loops, more))
        again = loader(every[rank], group)
        again.load_state_dict(batches.state_dict())
        return some, list(islice(items(again), 30)), list(islice(loops, 30))

    for (_, whole), (some, rest, other) in zip(saved, on_ranks(ranks, resumes), strict=True):
        assert rest[: len(other)] == other
        common = min(len(some) + len(rest), len(whole))  # of as many loops as there were
        assert [*some, *rest][:common] == whole[:common]


def test_a_state_of_all_ranks_that_does_not_fit() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> dict[str, Any]:
        batches = loader(filtered(2, rank), group)
        next(iter(batches))
        saved: dict[str, Any] = batches.state_dict()
        for wrong, error in (
            ({"ranks": json.dumps(json.loads(saved["ranks"])[:1])}, lz.StateMismatch),
            ({"ranks": "5"}, lz.InvalidState),
            ({"ranks": "[5, 6]"}, lz.InvalidState),
            ({"ranks": "["}, lz.InvalidState),
            ({"steps": -1}, lz.InvalidState),
            ({"steps": None}, lz.InvalidState),
        ):
            with pytest.raises(error):
                batches.load_state_dict(saved | wrong)
            assert batches.state_dict() == saved
        with pytest.raises(lz.InvalidState, match="all ranks of a loader with group="):
            lz.run(filtered(2, rank), saved)
        return saved

    one, other = on_ranks(2, act)
    assert one == other
    assert one["steps"] == 1


def test_loading_a_state_in_a_loop_goes_on_from_there() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> list[Any]:
        batches = loader(filtered(2, rank), group)
        found = []
        for item in batches:
            found.append(item)
            if len(found) == 2:
                saved = batches.state_dict()
            if len(found) == 4:
                batches.load_state_dict(saved)
        return found

    for each in on_ranks(2, act):
        assert each[2:4] == each[4:6]
        assert len({*each}) == len(each) - 2


def test_a_state_at_the_end_is_in_the_epoch_that_has_ended() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> tuple[Any, Any]:
        batches = loader(own_files(2, rank), group)
        list(batches)
        return batches.state.items, batches.state.epoch

    assert on_ranks(2, act) == [(4, 0), (4, 0)]


@pytest.mark.parametrize("executor", [lz.threads(2), lz.threads(1)])
def test_an_executor_changes_nothing(executor: lz.Executor) -> None:
    def act(rank: int, group: dist.ProcessGroup) -> list[Any]:
        with loader(filtered(2, rank), group, executor=executor, agree_ahead=2) as batches:
            found = [*batches, *islice(batches, 3)]
            saved = batches.state
        assert batches.state == saved
        with loader(filtered(2, rank), group, state=saved, executor=executor) as batches:
            return [*found, *items(batches)]

    every = [filtered(2, rank) for rank in range(2)]
    loops = [[*chain.from_iterable(some)] for some in ended_together(every, 5)]
    assert [some[: len(loops[0])] for some in on_ranks(2, act)] == loops


def test_a_length_is_that_of_the_shortest_rank() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> list[int]:
        pipeline = lz.source(range(5 + rank))
        whole, sized = loader(pipeline, group), loader(pipeline, group, epoch_size=3)
        assert len([*whole]) == len([*whole]) == len(whole)
        with pytest.raises(TypeError, match="endless"):
            len(loader(pipeline | lz.repeat(), group))
        with pytest.raises(TypeError, match="can't be known without reading"):
            len(loader(pipeline | lz.filter(bool), group))
        return [len(whole), len(sized)]

    assert on_ranks(2, act) == [[5, 3], [5, 3]]


def test_epochs_of_a_size() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> list[Any]:
        batches = loader(own_files(2, rank), group, epoch_size=5)
        loops = [list(batches), list(islice(batches, 2))]
        again = loader(own_files(2, rank), group, state=batches.state, epoch_size=5)
        return [*loops, list(again)]

    for rank, loops in enumerate(on_ranks(2, act)):
        assert [len(loop) for loop in loops] == [5, 2, 3]
        assert [*chain.from_iterable(loops)] == list(lz.run(own_files(2, rank)).epoch(10))


def test_an_epoch_of_a_size_of_nothing_is_an_error_on_all() -> None:
    first, second = outcomes(
        2, lambda rank, group: list(loader(one_is_empty(2, rank), group, epoch_size=2))
    )
    assert type(first) is lz.PipelineError
    assert "an epoch of the stream is empty" in str(first)
    assert second.ranks == (0,)


def test_lanes_go_on_with_another_number_of_ranks() -> None:
    def rank_of(ranks: int, rank: int) -> lz.Pipeline[str]:
        lanes = [lz.source([f"{lane}{n}" for n in range(3 + 2 * lane)]) for lane in range(6)]
        return lz.lanes(lanes, num_shards=ranks, index=rank) | lz.filter(lambda text: text != "31")

    def begin(rank: int, group: dist.ProcessGroup) -> tuple[list[str], lz.State]:
        batches = loader(rank_of(2, rank), group)
        return list(islice(batches, 7)), batches.state

    before = on_ranks(2, begin)
    states = lz.reshard([state for _, state in before], rank_of(3, 0))

    def end(rank: int, group: dist.ProcessGroup) -> tuple[list[str], list[str]]:
        batches = loader(rank_of(3, rank), group, state=states[rank])
        return list(batches), list(lz.run(rank_of(3, rank), batches.state))

    after = on_ranks(3, end)
    assert len({len(items) for items, _ in after}) == 1
    given = [items for items, _ in before] + [items + left for items, left in after]
    expected = [f"{lane}{n}" for lane in range(6) for n in range(3 + 2 * lane)]
    assert sorted(chain.from_iterable(given)) == sorted({*expected} - {"31"})


def test_a_global_state_goes_on_with_another_number_of_ranks() -> None:
    def rank_of(ranks: int, rank: int) -> lz.Pipeline[int]:
        some = lz.source(range(31)) | lz.filter(lambda x: x % 3 > 0)
        return some | lz.shard(num_shards=ranks, index=rank, remainder="drop")

    def begin(rank: int, group: dist.ProcessGroup) -> tuple[list[int], lz.State]:
        batches = loader(rank_of(2, rank), group)
        return list(islice(batches, 4)), batches.state

    (one, state), (other, same) = on_ranks(2, begin)
    assert state == same

    def end(rank: int, group: dist.ProcessGroup) -> list[int]:
        return list(loader(rank_of(3, rank), group, state=lz.rebase(state, rank_of(3, rank))))

    rest = chain.from_iterable(zip(*on_ranks(3, end), strict=True))
    assert [*chain.from_iterable(zip(one, other, strict=True)), *rest] == [
        x for x in range(31) if x % 3
    ]


def test_bad_records_are_left_out_and_counted() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> tuple[list[int], int]:
        texts = ["1", "b", "3", "c", "5"][: 3 + 2 * rank]
        batches = loader(lz.source(texts) | lz.map(int), group, on_error="skip")
        found = list(batches)
        assert lz.State.from_json(batches.state.to_json()) == batches.state
        return found, batches.skipped

    assert on_ranks(2, act) == [([1, 3], 1), ([1, 3], 1)]


# --- errors ---


def test_an_error_of_one_rank_is_an_error_of_all_at_the_same_step() -> None:
    broken = [True]

    def fail_once(x: int) -> int:
        if x == 9 and broken:
            raise ValueError(broken.pop())
        return x

    given: list[list[int]] = [[], []]

    def act(rank: int, group: dist.ProcessGroup) -> Any:
        pipeline = lz.source(range(14)) | lz.shard(num_shards=2, index=rank) | lz.map(fail_once)
        batches = loader(pipeline, group)
        error: Exception | None = None
        try:
            given[rank] += batches
        except Exception as raised:
            error = raised
        given[rank] += batches
        return error

    first, second = outcomes(2, act)
    assert given == [[*range(0, 14, 2)], [*range(1, 14, 2)]]
    assert str(first) == "loader: rank 1 failed; rank 1: ValueError: True"
    assert (type(first), first.ranks) == (lz.errors.RankFailed, (1,))
    assert type(second) is ValueError
    assert "after 4 delivered items" in second.__notes__[0]


def test_an_interrupt_of_all_ranks_loses_nothing() -> None:
    given: list[list[int]] = [[], []]

    def act(rank: int, group: dist.ProcessGroup) -> None:
        broken = [True]

        def interrupted(x: int) -> int:
            if x // 2 == 3 and broken:
                raise KeyboardInterrupt(broken.pop())
            return x

        pipeline = lz.source(range(14)) | lz.shard(num_shards=2, index=rank) | lz.map(interrupted)
        batches = loader(pipeline, group, agree_ahead=2)
        with pytest.raises(KeyboardInterrupt):
            given[rank] += batches
        given[rank] += batches

    on_ranks(2, act)
    assert given == [[*range(0, 14, 2)], [*range(1, 14, 2)]]


def test_ranks_that_do_not_come_are_named() -> None:
    missing = [0, 2]

    def act(rank: int, group: dist.ProcessGroup) -> list[int]:
        batches = loader(filtered(3, rank), group, agree_ahead=1, timeout=2)
        return list(islice(batches, 2 if rank in missing else 5))

    found = outcomes(3, act)
    for rank, each in enumerate(found):
        if rank in missing:
            assert len(each) == 2
        else:
            assert isinstance(each, lz.errors.RankMissing)
            assert each.ranks == tuple(missing)
            assert "within timeout=2 s" in str(each)


def test_a_rank_that_makes_no_loader_is_named() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> Any:
        return loader(filtered(3, rank), group, timeout=2) if rank != 1 else None

    first, _, last = outcomes(3, act)
    assert first.ranks == last.ranks == (1,)
    assert "rank 1 did not come" in str(first)


def test_a_connection_that_is_lost_is_an_error_at_once() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> Any:
        ranks = Ranks(group, LONG)
        if rank == 0:
            return ranks.exchange(b"")
        with pytest.raises(TypeError):
            ranks.exchange(None)  # type: ignore[arg-type]
        return None

    error, _ = outcomes(2, act)
    assert "a connection was lost, although all ranks came" in str(error)
    assert pickle.loads(pickle.dumps(error)).ranks == error.ranks == ()


def test_a_pipeline_unlike_the_others_is_named() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> Any:
        part = lz.shard(num_shards=3, index=rank)
        return loader(lz.source(range(9)) | lz.shuffle(seed=int(rank == 1)) | part, group)

    for error in outcomes(3, act):
        assert type(error) is lz.StateMismatch
        assert "rank 1, unlike rank 0:\n    stage 2: shuffle(seed=0) -> shuffle(seed=1)" in str(
            error
        )


def test_data_of_another_length_are_named_where_they_are_divided() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> Any:
        return loader(lz.source(range(9 + rank)) | lz.shard(num_shards=2, index=rank), group)

    for error in outcomes(2, act):
        assert "source(length=9) -> source(length=10)" in str(error)


def test_own_data_may_be_joined() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> int:
        parts = [lz.source(range(3 + rank)), lz.source(range(5))]
        return len(list(loader(lz.concat(*parts) | lz.batch(2), group)))

    assert on_ranks(2, act) == [4, 4]


def test_ranks_that_are_not_in_step_are_named() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> Any:
        batches = loader(filtered(2, rank), group)
        list(islice(batches, 2 + rank))
        return next(iter(batches))

    for error in outcomes(2, act):
        assert "at the same step: since they agreed, rank 1 has had 3 items, and rank 0 has" in str(
            error
        )


def test_a_state_of_one_rank_alone_is_named() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> Any:
        batches = loader(filtered(2, rank), group)
        if rank:
            batches.load_state_dict(lz.state_at(filtered(2, rank), 2))
        return next(iter(batches))

    for error in outcomes(2, act):
        assert "rank 1 has moved to a different state, and rank 0 has had 0 items" in str(error)


def test_ranks_that_do_not_do_the_same_are_named() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> Any:
        batches = loader(filtered(2, rank), group, agree_ahead=1)
        items = iter(batches)
        next(items)
        return next(iter(batches) if rank else items)

    for error in outcomes(2, act):
        assert "rank 1 asks for an epoch, and rank 0 for its next steps" in str(error)


def test_arguments_of_one_rank_are_named() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> Any:
        return loader(filtered(2, rank), group, agree_ahead=2 + rank)

    for error in outcomes(2, act):
        assert "rank 1 has agree_ahead=3" in str(error)


def test_what_is_refused() -> None:
    with pytest.raises(lz.ArgumentError, match="group must be a process group"):
        lz.torch.loader(filtered(1, 0), group=2)  # type: ignore[arg-type]
    with pytest.raises(lz.ArgumentError, match="agree_ahead must be an int >= 1"):
        lz.torch.loader(filtered(1, 0), agree_ahead=0)
    with pytest.raises(lz.ArgumentError, match="timeout must be a number of seconds above 0"):
        lz.torch.loader(filtered(1, 0), timeout=0)


def test_a_long_message_comes_in_two_rounds() -> None:
    names = [f"{n}-{'x' * 30}" for n in range(90)]

    def act(rank: int, group: dist.ProcessGroup) -> int:
        parts = [lz.source(range(3), name=name) | lz.repeat() for name in names]
        pipeline = lz.mix(parts, [1] * len(parts), seed=0) | lz.shard(num_shards=2, index=rank)
        batches = loader(pipeline, group)
        found = [*zip(count(), islice(batches, 9), strict=False)]
        assert len(batches.state.to_json()) > 2048
        return len(found)

    assert on_ranks(2, act) == [9, 9]
