"""Ranks of a process group that change their pipeline: all of them, or one alone."""

from __future__ import annotations

import json
from itertools import chain, islice
from operator import add
from typing import Any

import pytest
import torch.distributed as dist

import lazyckpt as lz
from tests.world.integrations.ranks import LONG, on_ranks, outcomes


def wanted(least: int, item: int) -> bool:
    return item % 4 > 0 and item >= least


def part(rank: int, ranks: int = 2, *, least: int = 0, more: int = 0) -> lz.Pipeline[int]:
    """A part of common data, of which each rank drops others."""
    shard = lz.shard(num_shards=ranks, index=rank)
    return lz.source(range(60)) | shard | lz.filter(wanted, least) | lz.map(add, more)


def loader(pipeline: lz.Pipeline[int], group: dist.ProcessGroup, state: Any = None) -> Any:
    return lz.torch.loader(pipeline, state=state, group=group, timeout=LONG, agree_ahead=4)


def test_ranks_that_change_alike_go_on_together() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> list[list[int]]:
        batches, found = loader(part(rank), group), []
        for item in batches:
            found.append(item)
            if batches.state.items == 3:
                batches.change(part(rank, more=100))
            if batches.state.items == 6:
                batches.change(part(rank, more=100, least=50))
        batches.change(part(rank))
        return [found, list(islice(batches, 3))]

    for rank, (found, after) in enumerate(on_ranks(2, act)):
        run = lz.run(part(rank))
        expected = list(islice(run, 3))
        run.change(part(rank, more=100))
        expected += islice(run, 3)
        run.change(part(rank, more=100, least=50))
        rest = list(run)
        assert found == expected + rest[: len(found) - 6]
        assert (len(found), len(after)) == (6 + 3, 3)


def test_a_resume_goes_on_as_what_it_was_changed_to() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> list[Any]:
        batches = loader(part(rank), group)
        loop = iter(batches)
        list(islice(loop, 3))
        batches.change(part(rank, more=100))
        again = loader(part(rank, more=100), group, batches.state_dict())
        return [list(islice(again, 4)), list(islice(loop, 4))]

    for rest, undisturbed in on_ranks(2, act):
        assert rest == undisturbed
        assert min(rest) > 100


def test_what_any_rank_saves_after_a_change_is_the_state_of_all() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> tuple[dict[str, Any], list[int]]:
        batches = loader(part(rank), group)
        loop = iter(batches)
        list(islice(loop, 3))
        batches.change(part(rank, more=100))
        return batches.state_dict(), list(islice(loop, 4))

    (saved, _), (same, _) = found = on_ranks(2, act)
    assert saved == same

    def resumes(rank: int, group: dist.ProcessGroup) -> list[int]:
        return list(islice(loader(part(rank, more=100), group, saved), 4))

    assert on_ranks(2, resumes) == [rest for _, rest in found]


def test_if_one_rank_cannot_change_none_does() -> None:
    """A shuffle of another seed waits for the end of the epoch, which one rank has reached."""

    def files(rank: int, seed: int) -> lz.Pipeline[int]:
        return lz.source(range(10 * rank, 10 * rank + 3 + rank)) | lz.shuffle(seed=seed)

    def act(rank: int, group: dist.ProcessGroup) -> list[Any]:
        batches = loader(files(rank, 0), group)
        begun = list(batches)
        with pytest.raises((lz.StateMismatch, lz.errors.RankFailed)) as refusal:
            batches.change(files(rank, 1))
        return [begun, list(batches), refusal.value]

    (one, two, failed), (three, four, mismatch) = on_ranks(2, act)
    assert type(mismatch) is lz.StateMismatch
    assert type(failed) is lz.errors.RankFailed
    assert failed.ranks == (1,)
    assert one + two == [*files(0, 0), *lz.run(files(0, 0), lz.init(files(0, 0), epoch=1))]
    assert three + four == [
        *files(1, 0), *islice(lz.run(files(1, 0), lz.init(files(1, 0), epoch=1)), 2)
    ]  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_that_changes_alone_is_named_at_the_next_agreement(ranks: int) -> None:
    def act(rank: int, group: dist.ProcessGroup) -> None:
        batches = lz.torch.loader(part(rank, ranks), group=group, timeout=LONG, agree_ahead=2)
        for _ in batches:
            if rank == 1 and batches.state.items == 2:
                batches.change(part(rank, ranks, more=5))

    found = outcomes(ranks, act)
    for each in found:
        assert isinstance(each, lz.StateMismatch)
        assert "the pipelines of the ranks differ" in str(each)
        assert "map" in str(each)
    assert len(set(map(str, found))) == 1
    assert ranks == 2 or "rank 1, unlike rank 0" in str(found[0])


def lanes(ranks: int, rank: int) -> lz.Pipeline[str]:
    names = [lz.source([f"{name}{n}" for n in range(4)]) for name in "abcdef"]
    return lz.lanes(names, num_shards=ranks, index=rank)


def test_the_lanes_of_two_ranks_go_on_as_those_of_three() -> None:
    def before(rank: int, group: dist.ProcessGroup) -> tuple[list[str], dict[str, Any]]:
        batches = loader(lanes(2, rank), group)
        return list(islice(batches, 5)), batches.state_dict()

    (first, saved), (second, _) = on_ranks(2, before)
    for error in outcomes(3, lambda rank, group: loader(lanes(3, rank), group, saved)):
        assert isinstance(error, lz.StateMismatch)
        assert "lz.advance(pipeline, each, state['steps'])" in str(error)
    places = enumerate(json.loads(saved["ranks"]))
    two = [lz.advance(lanes(2, rank), place, saved["steps"]) for rank, place in places]
    three = lz.reshard(two, lanes(3, 0))

    def after(rank: int, group: dist.ProcessGroup) -> list[str]:
        return list(loader(lanes(3, rank), group, three[rank]))

    rest = [list(lz.run(lanes(3, rank), three[rank])) for rank in range(3)]
    together = on_ranks(3, after)
    assert together == [each[: len(together[0])] for each in rest]
    assert saved["steps"] == 1
    expected = [f"{name}{n}" for name in "abcdef" for n in range(4)]
    assert sorted([*first, *second, *chain(*rest)]) == expected
