"""Loops over loaders of a group begin and end as those over torch's DataLoader do, together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import pytest
import torch
import torch.distributed as dist

import lazyckpt as lz
from tests.world.integrations.ranks import divided_unevenly, items, on_ranks


def own(rank: int, epoch: int = 0) -> Iterator[int]:
    pipeline = lz.source(range(10 * rank, 10 * rank + 5 + rank)) | lz.shuffle(seed=0)
    return iter(lz.run(pipeline, lz.init(pipeline, epoch=epoch)))


def ranked(rank: int, group: dist.ProcessGroup, **options: Any) -> lz.torch.Loader[int]:
    data = lz.source(range(10 * rank, 10 * rank + 5 + rank)) | lz.shuffle(seed=0)
    return lz.torch.loader(data, group=group, timeout=60, **options)


def test_ranks_begin_the_next_epoch_together_after_a_loop_left_early() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> list[list[int]]:
        batches = ranked(rank, group)
        loops = [list(islice(batches, 2)), list(islice(batches, 3)), list(batches)]
        saved = batches.state
        again = ranked(rank, group, state=saved)
        loops.append(list(again))
        return loops

    for rank, (first, second, third, fourth) in enumerate(on_ranks(2, act)):
        assert first == list(islice(own(rank), 2))
        assert second == list(islice(own(rank, 1), 3))
        epochs = [x for epoch in (2, 3) for x in own(rank, epoch)]
        assert third + fourth == epochs[:10]


@pytest.mark.parametrize("takes", [5, 6])
def test_a_loop_that_the_group_ended_is_not_one_left_early(takes: int) -> None:
    """Also if it took all items, and didn't ask for more."""

    def act(rank: int, group: dist.ProcessGroup) -> list[int]:
        batches = ranked(rank, group)
        assert len(batches) == 5
        return [x for _ in range(3) for x in islice(batches, takes)]

    for rank, found in enumerate(on_ranks(2, act)):
        assert found == [x for epoch in range(3) for x in own(rank, epoch)][:15]


def test_ranks_that_are_told_their_epoch_begin_it_together() -> None:
    """As in a trainer whose limited epoch had ended at the checkpoint."""

    def act(rank: int, group: dist.ProcessGroup) -> list[list[int]]:
        batches = ranked(rank, group)
        list(islice(batches, 3))
        saved, loops = batches.state_dict(), []
        for epoch in (0, 1, 2):
            resumed = ranked(rank, group, state=saved)
            resumed.batch_sampler.set_epoch(epoch)
            loops.append(list(islice(resumed, 2)))
        return loops

    for rank, loops in enumerate(on_ranks(2, act)):
        begins = [list(islice(own(rank, epoch), 3 * (epoch == 0), None)) for epoch in range(3)]
        assert loops == [each[:2] for each in begins]


def test_ranks_leave_together_what_is_left_after_a_resume() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> list[list[int]]:
        options: dict[str, Any] = {"epoch_size": 4, "keep_rest": False}
        batches = ranked(rank, group, **options)
        list(islice(batches, 3))
        resumed = ranked(rank, group, state=batches.state_dict(), **options)
        resumed.leave()
        return [list(batches), list(resumed)]

    for undisturbed, found in on_ranks(2, act):
        assert found == undisturbed


@pytest.mark.parametrize("loops", [0, 1, 2])
@pytest.mark.parametrize("takes", [1, 4, 5])
def test_a_resumed_loop_is_left_as_the_one_before(loops: int, takes: int) -> None:
    """In any epoch, and if a rank was at the end of its epoch."""

    def act(rank: int, group: dist.ProcessGroup) -> list[list[int]]:
        batches = ranked(rank, group)
        for _ in range(loops):
            list(batches)
        list(islice(batches, takes))
        resumed = ranked(rank, group, state=batches.state_dict())
        resumed.leave()
        return [list(batches), list(resumed)]

    for undisturbed, found in on_ranks(2, act):
        assert found == undisturbed


@pytest.mark.parametrize("keep_rest", [True, False])
def test_ranks_with_epochs_of_a_size(keep_rest: bool) -> None:
    def act(rank: int, group: dist.ProcessGroup) -> list[list[int]]:
        batches = ranked(rank, group, epoch_size=4, keep_rest=keep_rest)
        loops = [list(islice(batches, 3)), list(batches), list(islice(batches, 1))]
        again = ranked(rank, group, state=batches.state, epoch_size=4, keep_rest=keep_rest)
        return [*loops, list(again)]

    for rank, loops in enumerate(on_ranks(2, act)):
        everything = [x for epoch in range(3) for x in own(rank, epoch)]
        second = 3 if keep_rest else 4
        assert loops[:2] == [everything[:3], everything[second : second + 4]]
        assert loops[2] + loops[3] == everything[second + 4 : second + 8]


def test_ranks_go_back_together_to_what_the_weights_include() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> list[list[int]]:
        batches = ranked(rank, group)
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
        batches.follow(optimizer)
        list(batches)
        for number, _ in enumerate(islice(batches, 4), 1):
            if number == 2:
                optimizer.step()
        batches.rewind()
        saved = batches.state_dict()
        assert "ranks" in saved  # the positions of all ranks, whichever saves it
        return [list(ranked(rank, group, state=saved)), list(batches)]

    for rank, (resumed, rest) in enumerate(on_ranks(2, act)):
        epochs = [x for epoch in range(3) for x in own(rank, epoch)]
        assert resumed == rest == epochs[7:10]


def test_ranks_go_back_together_further_than_they_agree_ahead() -> None:
    """As after a long accumulation of gradients: all ranks still share the state."""

    def act(rank: int, group: dist.ProcessGroup) -> list[list[int]]:
        batches = ranked(rank, group, agree_ahead=1)
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
        batches.follow(optimizer)
        for number, _ in enumerate(islice(batches, 7)):
            if number == 1:
                optimizer.step()
        batches.rewind()
        saved = batches.state_dict()
        assert "ranks" in saved
        return [list(ranked(rank, group, state=saved)), list(batches)]

    for rank, (resumed, rest) in enumerate(on_ranks(2, act)):
        assert resumed == rest
        assert resumed[:3] == list(islice(own(rank), 2, 5))


def test_a_length_of_ranks_follows_a_change() -> None:
    def act(rank: int, group: dist.ProcessGroup) -> list[int]:
        rows = lz.source(range(12 + 6 * rank))
        batches = lz.torch.loader(rows | lz.batch(2), group=group, timeout=60)
        before = len(batches)
        list(islice(batches, 3))
        batches.change(rows | lz.batch(3))
        with pytest.raises(TypeError, match="can't be known without reading"):
            len(batches)
        return [before, len(list(batches)), len(batches)]

    assert on_ranks(2, act) == [[6, 4, 4]] * 2


@pytest.mark.parametrize("size", [1, 3, 5])
def test_ranks_may_cross_the_end_of_the_stream_at_different_steps(size: int) -> None:
    """The state of one of them is then not that of all, although they have a global stream."""
    every = [divided_unevenly(2, rank) for rank in range(2)]

    def act(rank: int, group: dist.ProcessGroup) -> tuple[list[Any], list[dict[str, Any]]]:
        batches = lz.torch.loader(
            every[rank], group=group, timeout=60, epoch_size=size, keep_rest=True
        )
        pairs = [(item, batches.state_dict()) for item in islice(items(batches), 20)]
        return [item for item, _ in pairs], [saved for _, saved in pairs]

    (one, states), (other, same) = on_ranks(2, act)
    assert states == same

    for cut, saved in enumerate(states, 1):

        def resumes(rank: int, group: dist.ProcessGroup, saved: Any = saved) -> list[Any]:
            again = lz.torch.loader(
                every[rank], group=group, timeout=60, state=saved, epoch_size=size, keep_rest=True
            )
            return list(islice(items(again), size))

        for whole, rest in zip((one, other), on_ranks(2, resumes), strict=True):
            assert rest[: len(whole) - cut] == whole[cut : cut + size]


def test_at_the_end_of_a_loop_a_global_state_is_before_what_is_left() -> None:
    """It is equal on all ranks, and goes on with another number of ranks."""

    def begin(rank: int, group: dist.ProcessGroup) -> tuple[list[int], dict[str, Any]]:
        batches = lz.torch.loader(divided_unevenly(2, rank), group=group, timeout=60)
        return list(batches), batches.state_dict()

    (one, state), (other, same) = on_ranks(2, begin)
    assert state == same
    assert (len(one), len(other)) == (3, 3)

    def end(rank: int, group: dist.ProcessGroup) -> list[int]:
        pipeline = divided_unevenly(3, rank)
        return list(islice(lz.run(pipeline, lz.rebase(state, pipeline)), 3))

    assert sorted([*one, *other, *chain.from_iterable(on_ranks(3, end))]) == list(range(7))


def test_loading_a_state_at_the_end_of_a_loop_ends_it() -> None:
    """As in a loop without a group."""

    def act(rank: int, group: dist.ProcessGroup) -> list[int]:
        batches = ranked(rank, group)
        last = len(list(batches))
        for _ in batches:
            if batches.state.items == 2 * last:
                batches.load_state_dict(batches.state_dict())
        return [batches.state.items - 2 * last, len(list(batches))]

    assert on_ranks(2, act) == [[0, 5], [0, 5]]
