"""Orbax in two processes of JAX: the states that it keeps, and the errors of a load."""

from __future__ import annotations

import sys
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import grain
import jax
import orbax.checkpoint as ocp
import pytest
import torch.distributed as dist

import lazyckpt as lz
from tests.world.integrations.forks import codes, forked
from tests.world.integrations.trainer_cases import runs

RANKS = 2


def common(rank: int) -> lz.Pipeline[int]:
    """All ranks share its state."""
    numbers = lz.source(range(40)) | lz.shuffle(seed=0)
    return numbers | lz.shard(num_shards=RANKS, index=rank)


def own(rank: int) -> lz.Pipeline[int]:
    """Of which each rank leaves out others."""
    return common(rank) | lz.filter(lambda x: x % 4 != 2)


def check(folder: Path, rank: int) -> None:
    meeting = f"unix:{folder}/s"
    jax.distributed.initialize(meeting, RANKS, rank, coordinator_bind_address=meeting)
    store = dist.FileStore(f"{folder}/torch", RANKS)
    group = dist.ProcessGroup(store, rank, RANKS)  # type: ignore[call-arg]

    def saved(name: str, args: Any, restore: Any, **handlers: Any) -> Any:
        """The restored value."""
        with ocp.CheckpointManager(folder / name, item_handlers=handlers or None) as manager:
            manager.save(1, args=ocp.args.Composite(data=args))
            manager.wait_until_finished()
            return manager.restore(1, args=ocp.args.Composite(data=restore)).data

    def as_json(name: str, feed: Any, **handlers: Any) -> Any:
        list(islice(feed, 5))
        args = ocp.args.JsonSave(feed.state_dict())
        return saved(name, args, ocp.args.JsonRestore(), **handlers)

    run, again = lz.run(common(rank)), lz.run(common(rank))
    again.load_state_dict(as_json("common", run))
    assert list(again) == list(run) == list(common(rank))[5:]

    loader, other = (lz.torch.loader(own(rank), group=group) for _ in range(2))
    other.load_state_dict(as_json("group", loader))
    assert other.state_dict() == loader.state_dict()
    loader.load_state_dict(loader.state_dict())  # the loop was left, and continues
    assert list(other) == list(loader)

    run, again = lz.run(own(rank)), lz.run(own(rank))
    of_first = as_json("first", run)
    if rank == 0:
        again.load_state_dict(of_first)
    else:
        with pytest.raises(lz.StateMismatch, match=r"rank 0 of 2 alone.* one state per rank"):
            again.load_state_dict(of_first)

    run, again = lz.run(own(rank)), lz.run(own(rank))
    each = ocp.options.MultiprocessingOptions(primary_host=None)
    handler = ocp.JsonCheckpointHandler(f"rank{rank}.json", multiprocessing_options=each)
    again.load_state_dict(as_json("each", run, data=handler))
    assert list(again) == list(run) == list(own(rank))[5:]

    iterator, fresh = (iter(lz.grain.dataset(own(rank))) for _ in range(2))
    list(islice(iterator, 5))
    saved(
        "grain",
        grain.checkpoint.CheckpointSave(iterator),
        grain.checkpoint.CheckpointRestore(fresh),
    )
    assert list(fresh) == list(iterator) == list(own(rank))[5:]


def test_two_processes(tmp_path: Path) -> None:
    runs(__file__, tmp_path)


if __name__ == "__main__":
    ranks = [forked(partial(check, Path(sys.argv[1]), rank)) for rank in range(RANKS)]
    assert codes(ranks) == [0] * RANKS
