"""torch DCP and two gloo ranks: a run is `Stateful`, with a state of all ranks or of its own."""

from __future__ import annotations

import sys
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # which a model of ranks imports: once, before they are forked
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.stateful import Stateful
from torch.nn.parallel import DistributedDataParallel

import lazyckpt as lz
from tests.world.integrations.forks import KEPT
from tests.world.integrations.trainer_cases import (
    BATCH,
    LENGTH,
    SAVES,
    STEPS,
    epoch_of,
    floats,
    kill_and_resume,
    noted,
    numbers_of,
    pipeline_of,
    runs,
    trained,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning"),
]

RANKS = 2


def odd_ones(index: int) -> lz.Pipeline[dict[str, Any]]:
    """Each rank drops a different number of these, so each has its own state."""
    ranks = lz.shard(num_shards=RANKS, index=index)
    numbers = lz.source(range(LENGTH)) | lz.shuffle(seed=0) | lz.repeat() | ranks
    return numbers | lz.filter(lambda x: x % 4 != 2) | lz.batch(BATCH, collate=floats)


KINDS = {"global": partial(pipeline_of, RANKS), "own": odd_ones, "group": odd_ones}


def train(folder: Path, kind: str, rank: int) -> None:
    """Checkpoints by DCP, and the data's state once more, by rank 0 alone."""
    saved = sorted(folder.glob("step-*/.metadata"))
    meeting = f"file://{folder}/meeting-{len(saved)}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    KEPT.append(model)
    group = dist.group.WORLD if kind == "group" else None
    batches = lz.torch.loader(KINDS[kind](rank), group=group)
    kept: dict[str, Any] = {"model": model.state_dict(), "data": batches}
    if saved:
        dcp.load(kept, checkpoint_id=saved[-1].parent)
        model.load_state_dict(kept["model"])
        of_first = torch.load(folder / "rank0.pt", weights_only=True)
        if kind == "own" and rank > 0:
            with pytest.raises(lz.StateMismatch, match="rank 0 of 2 alone"):
                lz.torch.loader(odd_ones(rank), state=of_first)
        elif kind == "group":
            assert (
                lz.torch.loader(odd_ones(rank), state=of_first, group=group).state == batches.state
            )
        else:
            assert batches.state_dict() == of_first
    for batch in batches:
        loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= 0.1 * weight.grad
                weight.grad = None
        step = batches.state.items
        trained(folder, step, batch, rank)
        if step == STEPS:
            dist.barrier()
            dist.destroy_process_group()
            return
        if step % SAVES == 0:
            kept["model"] = model.state_dict()
            dcp.save(kept, checkpoint_id=folder / f"step-{step:02}")
            if rank == 0:
                torch.save(batches.state_dict(), folder / "rank0.pt")


def test_two_ranks_killed_and_resumed(tmp_path: Path) -> None:
    runs(__file__, tmp_path)
    for kind, make in KINDS.items():
        for rank in range(RANKS):
            assert noted(tmp_path / kind, rank) == numbers_of(make(rank)), kind


def test_a_run_and_a_loader_are_stateful(tmp_path: Path) -> None:
    run, loader = lz.run(epoch_of()), lz.torch.loader(epoch_of())
    assert isinstance(run, Stateful)
    assert isinstance(loader, Stateful)
    next(run)
    dcp.save({"data": run}, checkpoint_id=tmp_path)
    dcp.load({"data": loader}, checkpoint_id=tmp_path)
    assert loader.state == run.state


def test_a_state_of_other_ranks_says_how_to_go_on(tmp_path: Path) -> None:
    two, three = lz.run(pipeline_of(2)), lz.run(pipeline_of(3))
    next(two)
    dcp.save({"data": two}, checkpoint_id=tmp_path)
    found = {"data": two.state_dict()}
    dcp.load(found, checkpoint_id=tmp_path)
    with pytest.raises(lz.StateMismatch, match=r"lz\.rebase\(state, pipeline\)"):
        three.load_state_dict(found["data"])
    three.load_state_dict(lz.rebase(found["data"], pipeline_of(3)))
    assert three.state.items == 1


def lanes_of(num_shards: int, index: int) -> lz.Pipeline[str]:
    lanes = [lz.source([f"{name}{n}" for n in range(5)]) for name in "abcdef"]
    return lz.lanes(lanes, num_shards=num_shards, index=index)


def odd_ones_of(num_shards: int, index: int) -> lz.Pipeline[int]:
    ranks = lz.shard(num_shards=num_shards, index=index)
    return lz.source(range(LENGTH)) | ranks | lz.filter(lambda x: x % 4 != 2)


def saved_by_two(folder: Path, make: Any) -> tuple[list[Any], list[Any]]:
    """The items of two ranks, and the states that three can read in their checkpoint."""
    two = [lz.run(make(2, index)) for index in range(2)]
    had = [item for run in two for item in islice(run, 4)]
    merged = {name: text for run in two for name, text in run.state_dict().items()}
    dcp.save({"data": merged}, checkpoint_id=folder)
    with pytest.raises(CheckpointException, match=r"Missing key .*data.rank 0 of 3"):
        dcp.load({"data": lz.run(make(3, 0))}, checkpoint_id=folder)
    found = {"data": {name: "" for run in two for name in run.state_dict()}}
    dcp.load(found, checkpoint_id=folder)
    with pytest.raises(lz.errors.InvalidState, match=r"lz\.reshard for a different number"):
        lz.run(make(3, 0), found["data"])
    return had, list(found["data"].values())


def test_the_states_of_two_ranks_are_resharded_for_three(tmp_path: Path) -> None:
    had, states = saved_by_two(tmp_path, lanes_of)
    for index, state in enumerate(lz.reshard(states, lanes_of(3, 0))):
        had += lz.run(lanes_of(3, index), state)
    assert sorted(had) == [f"{name}{n}" for name in "abcdef" for n in range(5)]


def test_states_of_ranks_that_cannot_change_say_so(tmp_path: Path) -> None:
    _, states = saved_by_two(tmp_path, odd_ones_of)
    with pytest.raises(lz.StateMismatch, match=r"filter\(.*\) after shard .*before shard, or"):
        lz.reshard(states, odd_ones_of(3, 0))


@pytest.mark.parametrize(("before", "after"), [("raise", "skip"), ("skip", "raise")])
def test_a_job_that_begins_to_skip_loads_into_a_run_as_before(
    before: Any, after: Any, tmp_path: Path
) -> None:
    """If one rank skips a record, its state becomes its own, under a different key."""
    pipeline = lz.source([*"0123456789"]) | lz.shard(num_shards=2, index=1) | lz.map(int)
    run = lz.run(pipeline, on_error=before)
    assert list(islice(run, 2)) == [1, 3]
    dcp.save({"data": run}, checkpoint_id=tmp_path)
    new = lz.torch.loader(pipeline, on_error=after)
    with pytest.raises(CheckpointException, match="Missing key"):
        dcp.load({"data": new}, checkpoint_id=tmp_path)
    again = lz.run(pipeline, on_error=before)
    dcp.load({"data": again}, checkpoint_id=tmp_path)
    new.load_state_dict(again.state)
    assert list(new) == list(run) == [5, 7, 9]


def test_what_was_rebased_or_left_out_is_loaded_by_a_run_that_knows_nothing_of_it(
    tmp_path: Path,
) -> None:
    def numbers(num_shards: int) -> lz.Pipeline[list[int]]:
        ranks = lz.shard(num_shards=num_shards, index=0)
        return lz.source([*"1b3456789"]) | lz.map(int) | lz.filter(bool) | ranks | lz.batch(1)

    run = lz.run(numbers(3), on_error="skip")
    assert [next(run), next(run)] == [[1], [5]]
    rebased = lz.run(numbers(2), lz.rebase(run.state, numbers(2)))
    assert next(rebased) == [8]
    assert (rebased.skipped, rebased.state.rebased is not None) == (1, True)
    dcp.save({"data": rebased}, checkpoint_id=tmp_path)
    again = lz.run(numbers(2))
    dcp.load({"data": again}, checkpoint_id=tmp_path)
    assert again.state == rebased.state
    assert list(again) == list(rebased) == []


if __name__ == "__main__":
    kill_and_resume(train, Path(sys.argv[1]), KINDS, RANKS)
