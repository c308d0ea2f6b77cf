"""A state written later, by torch's `async_save` or a thread, is the state of its own step."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

import lazyckpt as lz

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning"),
]


def with_what_came_before(seen: list[int], item: int) -> tuple[list[int], list[int]]:
    """Changes its state in place, and passes it on."""
    seen.append(item)
    del seen[:-3]
    return seen, seen


def fails_at_fives(item: int) -> int:
    if item % 5 == 4:
        raise ValueError(item)
    return item


def pipeline(num_shards: int = 2) -> lz.Pipeline[Any]:
    """Behind windows, with a state of the user's own, and records that fail."""
    numbers = lz.source(range(60)) | lz.map(fails_at_fives) | lz.shuffle(7, seed=0)
    sharded = numbers | lz.shard(num_shards=num_shards, index=0)
    return sharded | lz.scan(with_what_came_before, []) | lz.batch(2, collate=str)


EXECUTORS: dict[str, Callable[[], lz.Executor | None]] = {
    "inline": lambda: None,
    "threads": lambda: lz.threads(2),
    "a stream": lambda: lz.threads(1),
}


class SlowWriter(FileSystemWriter):
    """Writes nothing until it may."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun, self.may_write = Event(), Event()

    def write_data(self, plan: Any, planner: Any) -> Any:
        self.begun.set()
        assert self.may_write.wait(60)
        return super().write_data(plan, planner)


def items_left(state: Any) -> list[Any]:
    return list(lz.run(pipeline(), state, on_error="skip"))


@pytest.mark.parametrize("staging", ["blocking", "in a thread"])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_async_save_writes_the_step_it_belongs_to(
    executor: str, staging: str, tmp_path: Path
) -> None:
    expected = list(lz.run(pipeline(), on_error="skip"))
    loader = lz.torch.loader(pipeline(), EXECUTORS[executor](), on_error="skip")
    stager = None
    if staging != "blocking":
        stager = DefaultStager(StagingOptions(False, False, True, False))
    saved: list[tuple[int, lz.State, SlowWriter, Any]] = []
    with loader:
        for step, _ in enumerate(loader, 1):
            if step in (3, 8):
                writer = SlowWriter(tmp_path / str(step))
                future = dcp.async_save(
                    {"data": loader, "states": loader.state_dict()},
                    storage_writer=writer,
                    async_stager=stager,
                )
                saved.append((step, loader.state, writer, future))
    assert loader.state.items == len(expected) > 10
    for step, state, writer, future in saved:
        assert writer.begun.wait(60)
        writer.may_write.set()
        getattr(future, "upload_completion", future).result(60)
        again = lz.torch.loader(pipeline(), on_error="skip")
        found = {"data": again, "states": again.state_dict()}
        dcp.load(found, checkpoint_id=writer.path)
        assert lz.State.from_dict(found["states"]) == again.state == state
        assert list(again) == expected[step:] == items_left(state)
    if stager is not None:
        stager.close()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_thread_that_pickles_later(executor: str) -> None:
    expected = list(lz.run(pipeline(), on_error="skip"))
    may_write = Event()

    def pickled(states: Any) -> bytes:
        assert may_write.wait(60)
        return pickle.dumps(states)

    with ThreadPoolExecutor(1) as writer:
        with lz.run(pipeline(), executor=EXECUTORS[executor](), on_error="skip") as run:
            futures = [writer.submit(pickled, (run.state_dict(), run.state)) for _ in run]
        may_write.set()
        states = [pickle.loads(future.result()) for future in futures]
    assert len(states) == len(expected)
    for step, (as_dict, state) in enumerate(states, 1):
        assert lz.State.from_dict(as_dict) == state
        assert state.items == step
        assert items_left(state) == expected[step:]


def test_what_the_writer_has_is_not_what_the_loader_changes() -> None:
    """Nor the other way round: the run doesn't see a checkpointer's changes of a dict."""
    run = lz.run(pipeline(), on_error="skip")
    next(run)
    found, before = run.state_dict(), run.state
    assert {type(value) for value in found.values()} <= {int, str}  # which nothing can change
    found.clear()
    assert run.state == before == lz.State.from_dict(run.state_dict())
