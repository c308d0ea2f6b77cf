"""Ranks of a process group whose controls are set: on all, or on one alone."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch.distributed as dist

import lazyckpt as lz
from tests.core.test_control import at_least, plus
from tests.world.integrations.ranks import LONG, on_ranks, outcomes


def part(rank: int, ranks: int = 2) -> lz.Pipeline[int]:
    """A part of common data, of which each rank drops others."""
    shard = lz.shard(num_shards=ranks, index=rank)
    least, more = lz.control(0, name="least"), lz.control(0, name="more")
    return (
        lz.source(range(60))
        | shard
        | lz.filter(lambda low, x: x % 4 > 0 and at_least(low, x), least)
        | lz.map(plus, more)
    )


def loader(rank: int, group: dist.ProcessGroup, state: Any = None) -> Any:
    return lz.torch.loader(part(rank), state=state, group=group, timeout=LONG, agree_ahead=4)


def test_ranks_that_set_the_same_go_on_together() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> list[list[int]]:
        batches, found = loader(rank, group), []
        for item in batches:
            found.append(item)
            if batches.state.items == 3:
                batches.set("more", 100)
                batches.set("more", 100)
            if batches.state.items == 6:
                batches.set("least", 50)
        batches.set("more", 0)
        return [found, list(islice(batches, 3))]

    for rank, found in enumerate(on_ranks(2, act)):
        run = lz.run(part(rank))
        expected = list(islice(run, 3))
        run.set("more", 100)
        expected += islice(run, 3)
        run.set("least", 50)
        rest = list(run)
        assert found[0] == expected + rest[: len(found[0]) - 6]
        assert len(found[0]) == 6 + 3
    assert [len(each[1]) for each in on_ranks(2, act)] == [3, 3]


def test_a_resume_has_what_was_set() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> list[Any]:
        batches = loader(rank, group)
        loop = iter(batches)
        found = [next(loop) for _ in range(3)]
        batches.set("more", 100)
        again = loader(rank, group, batches.state_dict())
        rest = list(islice(again, 4))
        return [found, rest, list(islice(loop, 4))]

    for _, rest, undisturbed in on_ranks(2, act):
        assert rest == undisturbed
        assert min(rest) > 100


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_that_sets_alone_is_named_at_the_next_agreement(ranks: int) -> None:
    def act(rank: int, group: dist.ProcessGroup) -> None:
        batches = lz.torch.loader(part(rank, ranks), group=group, timeout=LONG, agree_ahead=2)
        for _ in batches:
            if rank == 1 and batches.state.items == 2:
                batches.set("more", 5)

    found = outcomes(ranks, act)
    wanted = r"the ranks have set controls otherwise: rank \d has .*'more': \d.*set them on all"
    for each in found:
        assert isinstance(each, lz.PipelineError)
        with pytest.raises(lz.PipelineError, match=wanted):
            raise each
    assert len(set(map(str, found))) == 1
    assert ranks == 2 or "rank 1 has {'least': 0, 'more': 5}" in str(found[0])
