"""torch: its DataLoader, torchdata's StatefulDataLoader, and a loader of our own."""

from __future__ import annotations

import pickle
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import lazyckpt as lz
from lazyckpt import testing
from tests.world.integrations.trainer_cases import (
    SAVES,
    STEPS,
    epoch_of,
    kill_and_resume,
    noted,
    numbers_of,
    pipeline_of,
    runs,
    trained,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),  # torchdata's
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # few cores
]


KINDS = ["loader", "workers"]


def train(folder: Path, kind: str, rank: int) -> None:
    """With a loader or two workers; the checkpoint is torch's own, read with `weights_only`."""
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches: Any = lz.torch.loader(pipeline_of(), lz.threads(2))
    if kind == "workers":
        batches = StatefulDataLoader(
            lz.torch.dataset(pipeline_of()), batch_size=None, num_workers=2
        )
    kept = {"model": model, "optimizer": optimizer, "data": batches}
    step = 0
    if (folder / "last.pt").exists():
        found = torch.load(folder / "last.pt", weights_only=True)
        step = found.pop("step")
        for name, value in kept.items():
            value.load_state_dict(found[name])
    for batch in batches:
        loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        trained(folder, step, batch)
        if step == STEPS:
            return
        if step % SAVES == 0:
            states = {name: value.state_dict() for name, value in kept.items()}
            torch.save({"step": step, **states}, folder / "new.pt")
            (folder / "new.pt").rename(folder / "last.pt")


def test_killed_and_resumed(tmp_path: Path) -> None:
    runs(__file__, tmp_path)
    for kind in KINDS:
        assert noted(tmp_path / kind) == numbers_of(pipeline_of()), kind


# --- loader ---


def test_arrays_come_as_tensors_without_a_copy() -> None:
    arrays = [{"x": np.arange(3), "n": 7}]
    (item,) = lz.torch.loader(lz.source(arrays))
    assert isinstance(item["x"], torch.Tensor)
    assert np.shares_memory(item["x"].numpy(), arrays[0]["x"])
    assert item["n"] == 7
    assert isinstance(arrays[0]["x"], np.ndarray)


def numbers(batches: Any) -> list[list[int]]:
    return [batch["number"].tolist() for batch in batches]


def test_no_length_where_the_pipeline_has_none() -> None:
    with pytest.raises(TypeError, match="endless"):
        len(lz.torch.loader(pipeline_of()))
    with pytest.raises(TypeError, match="without reading the data"):
        len(lz.torch.loader([1, 2] | lz.filter(bool)))


def test_a_loader_can_be_closed_and_entered_again() -> None:
    with lz.torch.loader(epoch_of(), lz.threads(2), keep_rest=True) as batches:
        before = numbers(islice(batches, 3))
    for _ in range(2):
        with pytest.raises(lz.PipelineError, match="closed"):
            next(iter(batches))
    with batches:
        assert before + numbers(batches) == numbers_of(pipeline_of(), 10)
    batches.close()
    assert repr(batches).endswith("10 items delivered>>")


def test_bad_records_are_left_out_of_a_loader() -> None:
    pipeline = lz.source(["1", "b", "3"]) | lz.map(int)
    batches = lz.torch.loader(pipeline, on_error="skip")
    assert (list(batches), batches.skipped) == ([1, 3], 1)
    changed = lz.source(["x", "4", "5", "6"]) | lz.map(int)
    with pytest.raises(lz.StateMismatch):
        lz.torch.loader(changed, state=batches.state)
    assert list(lz.torch.loader(changed, state=batches.state, strict=False)) == [6]


def test_tensors_are_compared_by_value() -> None:
    tensors = lz.source([torch.ones(3) * n for n in range(10)])
    testing.check_resume(tensors | lz.map(lambda x: x + 1))
    testing.check_resume(tensors | lz.map(lambda x: x / 0))
    calls: list[int] = []
    with pytest.raises(AssertionError):
        testing.check_resume(tensors | lz.map(lambda x: x + (calls.append(1) or len(calls))))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch_size": 0}, "epoch_size must be an int >= 1"),
        ({"executor": 4}, r"executor must be an executor.*threads\(4\)"),
        ({"keep_rest": 2}, "keep_rest must be"),
        ({"group": 2}, "group must be a process group"),
        ({"agree_ahead": 0}, "agree_ahead must be an int >= 1"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"state": lz.init(pipeline_of())}, "repeat"),
    ],
)
def test_what_a_loader_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises((lz.ArgumentError, lz.StateMismatch), match=message):
        lz.torch.loader(epoch_of(), **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_pinning_needs_a_gpu() -> None:
    with pytest.raises(lz.ArgumentError, match="pin_memory=True needs a GPU"):
        lz.torch.loader(epoch_of(), pin_memory=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_pinned_tensors_and_those_of_a_gpu() -> None:
    batch = next(iter(lz.torch.loader(epoch_of(), pin_memory=True)))
    assert batch["x"].is_pinned()
    batch["x"].to("cuda", non_blocking=True)
    to_gpu = lz.to_device(lz.threads(1), "cuda")
    batches = lz.torch.loader(epoch_of(), to_gpu, pin_memory=True)
    assert next(iter(batches))["x"].is_cuda
    assert batches.state.items == 1


# --- dataset ---

PIPELINES: dict[str, lz.Pipeline[Any]] = {
    "random access": lz.source(range(11)) | lz.shuffle(seed=0) | lz.repeat(2),
    "a stream": lz.source(range(30)) | lz.filter(lambda x: x % 3) | lz.shuffle(4, seed=0),
    "expanded": lz.source(range(30)) | lz.flat_map(lambda x: [x] * (x % 3)) | lz.map(str),
}


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("size", [1, 3])
def test_order_and_states_are_those_of_the_pipeline(name: str, size: int) -> None:
    """With any number of workers, before all had their turn, and after the last item."""
    pipeline, saved, done = PIPELINES[name], None, 0
    items = list(pipeline)
    for workers, count in [(3, 2), (2, 3), (0, 1), (1, 1), (2, 99)]:
        data = lz.torch.dataset(pipeline, saved, batch_size=size)
        batches = StatefulDataLoader(data, size, num_workers=workers, collate_fn=list)
        found = [item for batch in islice(batches, count) for item in batch]
        assert found == items[done : done + count * size]
        done += len(found)
        again = StatefulDataLoader(data, size, num_workers=workers, collate_fn=list)
        again.load_state_dict(batches.state_dict())
        rest = [item for batch in again for item in batch]
        assert rest == items[done:] or done == len(items)  # where the next epoch begins
        saved = lz.torch.state(batches.state_dict())
        assert saved.items == done
        assert list(lz.run(pipeline, saved)) == items[done:]
    assert done == len(items)


@pytest.mark.parametrize("workers", [0, 2])
def test_lengths_are_those_of_the_loader(workers: int) -> None:
    whole = DataLoader(lz.torch.dataset(epoch_of()), batch_size=None, num_workers=workers)
    assert len(whole) == len(list(whole)) == 10
    cut = lz.torch.dataset(lz.source(range(11)), batch_size=3)
    batches = DataLoader(cut, batch_size=3, num_workers=workers)
    assert len(batches) == len(list(batches)) == 4


@pytest.mark.parametrize("workers", [0, 2])
def test_set_epoch_says_which(workers: int) -> None:
    data = lz.torch.dataset(epoch_of(), lz.state_at(epoch_of(), 7))
    batches = DataLoader(data, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    expected = numbers_of(pipeline_of(), 20)
    assert numbers(batches) == expected[7:10]
    data.set_epoch(0)
    assert numbers(batches) == expected[7:10]
    data.set_epoch(1)
    assert numbers(batches) == expected[10:]


def test_a_finished_loader_resumes_into_the_next_epoch() -> None:
    for workers in (0, 2):
        data = lz.torch.dataset(epoch_of())
        batches = StatefulDataLoader(data, batch_size=None, num_workers=workers)
        numbers(batches)
        data.set_epoch(1)
        resumed = StatefulDataLoader(data, batch_size=None, num_workers=workers)
        resumed.load_state_dict(batches.state_dict())
        assert numbers(resumed) == numbers_of(pipeline_of(), 20)[10:]


def test_an_old_snapshot_is_refused() -> None:
    data = lz.torch.dataset(epoch_of())
    batches = StatefulDataLoader(data, batch_size=None, num_workers=2, snapshot_every_n_steps=4)
    numbers(islice(batches, 6))
    with pytest.raises(lz.ArgumentError, match=r"2 batches old.*snapshot_every_n_steps=1"):
        lz.torch.state(batches.state_dict())
    with pytest.raises(lz.ArgumentError, match=r"no state of a pipeline in {'a': 1}"):
        lz.torch.state({"a": 1})


def test_a_dataset_refuses_and_is_pickled() -> None:
    data = lz.torch.dataset(lz.source(range(3)))
    assert list(pickle.loads(pickle.dumps(data))) == [0, 1, 2]
    with pytest.raises(lz.ArgumentError, match="dataset: pipeline must be a Pipeline"):
        lz.torch.dataset([1, 2])  # type: ignore[arg-type]
    with pytest.raises(lz.ArgumentError, match="batch_size must be an int >= 1"):
        lz.torch.dataset(epoch_of(), batch_size=0)
    with pytest.raises(lz.StateMismatch):
        lz.torch.dataset(epoch_of(), lz.init(pipeline_of()))
    with pytest.raises(lz.ArgumentError, match="epoch must be an int >= 0"):
        data.set_epoch(-1)
    with pytest.raises(TypeError, match="endless"):
        len(lz.torch.dataset(pipeline_of()))


def test_a_sampler_of_torch_is_a_source() -> None:
    generator = torch.Generator().manual_seed(3)
    order = torch.utils.data.RandomSampler(range(7), generator=generator)
    expected = list(order)
    generator.manual_seed(3)
    pipeline = lz.torch.sampler(order) | lz.map(lambda i: i) | lz.batch(2)
    assert [index for batch in pipeline for index in batch] == expected


if __name__ == "__main__":
    kill_and_resume(train, Path(sys.argv[1]), KINDS)
