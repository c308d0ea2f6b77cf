"""A rank that is lost and replaced continues from its position, as the others report it."""

from __future__ import annotations

import json
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from tests.world.integrations import replaced_rank
from tests.world.integrations.ranks import LONG, RANKS, filtered, items, on_ranks, outcomes
from tests.world.integrations.trainer_cases import runs

few = settings(max_examples=max(3, settings.default.max_examples // 15))


def own_files(rank: int) -> lz.Pipeline[str]:
    names = [f"{rank}-{n}" for n in range(6 if rank == 1 else 3)]
    return lz.source(names) | lz.flat_map(lambda name: [name + c for c in "ab"])


def divided(rank: int) -> lz.Pipeline[int]:
    """One state on all ranks."""
    return lz.source(range(20)) | lz.shuffle(seed=1) | lz.shard(num_shards=RANKS, index=rank)


PIPELINES: Any = {"filtered": filtered, "own_files": own_files, "divided": divided}


def loader(pipeline: Any, group: dist.ProcessGroup, **options: Any) -> Any:
    return lz.torch.loader(pipeline, group=group, timeout=LONG, **options)


@few
@given(
    st.sampled_from(sorted(PIPELINES)),
    st.sets(st.integers(0, RANKS - 1), min_size=1, max_size=RANKS - 1),
    st.integers(0, 14),
    st.lists(st.integers(0, 1), min_size=RANKS, max_size=RANKS),
    st.integers(1, 4),
)
def test_lost_ranks_are_replaced(
    name: str, lost: set[int], trained: int, more: list[int], agree_ahead: int
) -> None:
    """Some had an item more, on which the model was not trained, and get it again."""
    make = PIPELINES[name]

    def whole(rank: int, group: dist.ProcessGroup) -> list[Any]:
        batches = loader(make(rank), group)
        return [list(batches) for _ in range(6)]

    loops = on_ranks(RANKS, whole)
    is_within = trained % agree_ahead > 0 and trained < len(loops[0][0])  # within agreed items

    def before(rank: int, group: dist.ProcessGroup) -> tuple[Any, list[Any]]:
        batches = loader(make(rank), group, agree_ahead=agree_ahead)
        pulled = items(batches)
        found = list(islice(pulled, trained))
        if more[rank] if is_within else all(more):
            next(pulled)
        return batches, found

    def after(rank: int, group: dist.ProcessGroup) -> list[Any]:
        if rank in lost:
            return list(items(loader(make(rank), group, agree_ahead=agree_ahead)))
        loaders[rank].join(group, trained)
        return list(items(loaders[rank]))

    loaders, first = zip(*on_ranks(RANKS, before), strict=True)
    for one, other, wanted in zip(first, on_ranks(RANKS, after), loops, strict=True):
        expected = [*chain.from_iterable(wanted)]
        assert (one + other)[: len(expected)] == expected


def lost_and_replaced(make: Any, steps: int, state: Any = None, **joining: Any) -> list[Any]:
    """The results of two ranks that continue, and of a third that is new."""

    def before(rank: int, group: dist.ProcessGroup) -> Any:
        batches = loader(make(rank), group)
        next(items(batches), None) if steps else None
        return batches

    loaders = on_ranks(RANKS, before)

    def after(rank: int, group: dist.ProcessGroup) -> Any:
        if rank == 2:
            return list(loader(make(rank), group))
        if state is not None:
            loaders[rank].load_state_dict(state(rank))
        loaders[rank].join(group, **joining)
        return list(loaders[rank])

    return outcomes(RANKS, after)


def test_a_state_of_all_ranks_is_that_of_a_new_one() -> None:
    found = lost_and_replaced(divided, 1, lambda rank: lz.state_at(divided(rank), 4))
    assert found == [list(divided(rank))[4:6] for rank in range(RANKS)]


def test_a_loader_without_a_state_gets_it_from_those_that_have_one() -> None:
    saved = lz.state_at(divided(0), 4)

    def act(rank: int, group: dist.ProcessGroup) -> list[int]:
        return list(loader(divided(rank), group, state=saved if rank == 1 else None))

    assert on_ranks(RANKS, act) == [list(divided(rank))[4:6] for rank in range(RANKS)]


@pytest.mark.parametrize("make", [filtered, own_files])
def test_a_place_that_nobody_knows_is_an_error_on_all(make: Any) -> None:
    for error in lost_and_replaced(make, 1, lambda rank: lz.state_at(make(rank), 2)):
        assert type(error) is lz.PipelineError
        assert "rank 2 came without a state" in str(error)
        assert "load the state of each rank" in str(error)


def test_a_place_of_long_ago_is_an_error_on_all() -> None:
    def before(rank: int, group: dist.ProcessGroup) -> Any:
        batches = loader(filtered(rank), group, agree_ahead=1)
        list(islice(batches, 6))
        return batches

    loaders = on_ranks(RANKS, before)
    for error in outcomes(RANKS, lambda rank, group: loaders[rank].join(group, 2)):
        assert "items=2 is before the last two agreements" in str(error)


def test_a_new_rank_that_fails_on_its_way_is_named() -> None:
    def rank_of(rank: int, is_new: bool) -> lz.Pipeline[int]:
        part = lz.shard(num_shards=RANKS, index=rank)
        return lz.source(range(20)) | part | lz.map(lambda x: 1 // (not is_new))

    def before(rank: int, group: dist.ProcessGroup) -> Any:
        batches = loader(rank_of(rank, False), group)
        list(islice(batches, 2))
        return batches

    loaders = on_ranks(RANKS, before)

    def after(rank: int, group: dist.ProcessGroup) -> Any:
        if rank == 1:
            return loader(rank_of(rank, True), group)
        return loaders[rank].join(group)

    first, new, last = outcomes(RANKS, after)
    assert first.ranks == last.ranks == (1,)
    assert "rank 1: ZeroDivisionError" in str(first)
    assert isinstance(new, ZeroDivisionError)


def test_ranks_keep_their_numbers() -> None:
    loaders = on_ranks(RANKS, lambda rank, group: loader(divided(rank), group))
    for rank, error in enumerate(outcomes(2, lambda rank, group: loaders[rank].join(group))):
        assert f"this was rank {rank} of 3, and is rank {rank} of 2" in str(error)


def test_what_joining_refuses() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> None:
        with pytest.raises(lz.PipelineError, match="the loader has no group"):
            lz.torch.loader(divided(rank)).join(group)
        batches = loader(divided(rank), group)
        with pytest.raises(lz.ArgumentError, match="items must be an int <= 0"):
            batches.join(group, 1)
        with pytest.raises(lz.ArgumentError, match="group must be a process group"):
            batches.join(None)

    on_ranks(1, act)


def test_a_process_that_was_killed_is_replaced(tmp_path: Path) -> None:
    runs(replaced_rank.__file__, tmp_path)
    found = [json.loads(line) for line in (tmp_path / "trained").read_text().splitlines()]

    def whole(rank: int, group: dist.ProcessGroup) -> list[Any]:
        return list(islice(items(loader(filtered(rank), group)), 20))

    for rank, expected in enumerate(on_ranks(RANKS, whole)):
        assert [item for who, item in found if who == rank] == expected
