"""torch: its DataLoader, torchdata's StatefulDataLoader, and a loader of our own."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.integrations.torch.dataset import Turns
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


def test_loops_give_epochs() -> None:
    batches = lz.torch.loader(epoch_of(), lz.threads(1))
    expected = numbers_of(pipeline_of(), 20)
    assert len(batches) == 10
    assert numbers(batches) + numbers(batches) == expected
    assert batches.state.items == 20


def test_a_state_within_an_epoch_or_at_its_end() -> None:
    batches = lz.torch.loader(epoch_of())
    expected = numbers_of(pipeline_of(), 20)
    numbers(islice(batches, 4))
    middle = batches.state_dict()
    assert numbers(batches) == expected[10:]
    batches.load_state_dict(middle)
    assert numbers(batches) == expected[4:10]
    end = batches.state_dict()
    batches.load_state_dict(middle)
    assert numbers(batches) == expected[4:10]
    assert numbers(lz.torch.loader(epoch_of(), state=middle)) == expected[4:10]
    assert numbers(lz.torch.loader(epoch_of(), state=end)) == expected[10:]


def test_epochs_of_a_size_of_ones_own() -> None:
    batches = lz.torch.loader(pipeline_of(), epoch_size=6)
    expected = numbers_of(pipeline_of(), 12)
    assert len(batches) == 6
    assert numbers(batches) == expected[:6]
    numbers(islice(batches, 2))
    resumed = lz.torch.loader(pipeline_of(), state=batches.state, epoch_size=6)
    assert numbers(resumed) == expected[8:12]
    assert len(resumed) == 6


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


def test_what_a_loader_refuses() -> None:
    with pytest.raises(lz.ArgumentError, match="epoch_size must be an int >= 1"):
        lz.torch.loader(epoch_of(), epoch_size=0)
    with pytest.raises(lz.ArgumentError, match=r"executor must be an executor.*threads\(4\)"):
        lz.torch.loader(epoch_of(), 4)  # type: ignore[arg-type]
    with pytest.raises(lz.ArgumentError, match=r"'num_workers'; pass executor=lz.processes\(n\)"):
        lz.torch.loader(epoch_of(), num_workers=2)  # type: ignore[call-arg]
    with pytest.raises(lz.StateMismatch, match="repeat"):
        lz.torch.loader(epoch_of(), state=lz.init(pipeline_of()))


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


def test_where_torch_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "lazyckpt.integrations.torch", raising=False)
    with pytest.raises(ImportError, match=r'pip install "lazyckpt\[torch\]"'):
        _ = lz.torch


# --- turns: the items of each worker ---

PIPELINES: dict[str, Callable[[int], lz.Pipeline[Any]]] = {
    "random access": lambda n: lz.source(range(n)) | lz.shuffle(seed=0) | lz.repeat(2),
    "a stream": lambda n: lz.source(range(n)) | lz.filter(lambda x: x % 3) | lz.shuffle(4, seed=0),
    "batches": lambda n: lz.source(range(n)) | lz.flat_map(lambda x: [x] * (x % 3)) | lz.batch(2),
}


def dealt(turns: list[Iterator[Any]], size: int, first: int = 0) -> Iterator[tuple[int, list[Any]]]:
    """Batches as a DataLoader takes them, from worker `first` on, each with who made it."""
    alive = list(range(first, len(turns))) + list(range(first))
    while alive:
        worker = alive.pop(0)
        if batch := list(islice(turns[worker], size)):
            yield worker, batch
            alive.append(worker)


@given(
    st.sampled_from(sorted(PIPELINES)),
    st.integers(0, 30),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 40),
)
def test_turns_give_the_order_and_the_state_of_the_pipeline(
    name: str, length: int, workers: int, size: int, cut: int
) -> None:
    pipeline = PIPELINES[name](length)
    items = list(pipeline)
    expected = [items[i : i + size] for i in range(0, len(items), size)]
    start = lz.init(pipeline)

    def hired() -> list[Turns[Any]]:
        others = (workers - 1) * size
        return [Turns(pipeline, start, w * size, size, others) for w in range(workers)]

    turns = hired()
    assert [batch for _, batch in dealt([*turns], size)] == expected
    turns, last, states = hired(), workers - 1, [t.state_dict() for t in hired()]
    for worker, _ in islice(dealt([*turns], size), cut):
        last, states[worker] = worker, turns[worker].state_dict()
    resumed = hired()
    for turn, state in zip(resumed, states, strict=True):
        turn.load_state_dict(state)
    after = [batch for _, batch in dealt([*resumed], size, (last + 1) % workers)]
    assert after == expected[cut:]
    state = lz.torch.state({"workers": dict(enumerate(states))})
    assert list(lz.run(pipeline, state)) == items[cut * size :]
    assert state.items == min(cut * size, len(items))


def test_an_error_within_turns_is_tried_again() -> None:
    broken: list[bool] = []

    def fail_once(x: int) -> int:
        if x == 4 and broken:
            raise ValueError(broken.pop())
        return x

    for stage in (lz.map(fail_once), lz.filter(lambda x: fail_once(x) >= 0)):
        pipeline = lz.source(range(9)) | stage
        turns = Turns(pipeline, lz.init(pipeline), 0, 1, 1)
        found = [next(turns), next(turns)]
        broken.append(True)
        with pytest.raises(ValueError, match="True"):
            next(turns)
        assert [*found, *turns] == [0, 2, 4, 6, 8]


# --- dataset ---


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_loader_of_any_number_of_workers_keeps_the_order(workers: int) -> None:
    data = lz.torch.dataset(epoch_of())
    batches = DataLoader(data, batch_size=None, num_workers=workers)
    assert len(batches) == 10
    assert numbers(batches) == numbers_of(epoch_of(), 10)


def test_workers_of_a_stream_keep_the_order() -> None:
    stream = lz.source(range(30)) | lz.filter(lambda x: x % 3) | lz.shuffle(4, seed=0)
    batches = DataLoader(lz.torch.dataset(stream, batch_size=3), batch_size=3, num_workers=2)
    assert [x for batch in batches for x in batch.tolist()] == list(stream)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_the_loader(workers: int) -> None:
    data = lz.torch.dataset(lz.source(range(11)) | lz.shuffle(seed=0), batch_size=3)
    batches = DataLoader(data, batch_size=3, num_workers=workers)
    assert len(batches) == 4
    assert [x for batch in batches for x in batch.tolist()] == list(data)


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


def test_a_state_goes_on_with_another_number_of_workers() -> None:
    """Also one of a snapshot before all workers had their turn, and one at the end."""
    saved, expected = None, numbers_of(epoch_of(), 10)
    for workers, count in [(3, 2), (2, 5), (0, 1), (2, 2)]:
        data = lz.torch.dataset(epoch_of(), saved and lz.torch.state(saved))
        batches = StatefulDataLoader(data, batch_size=None, num_workers=workers)
        assert numbers(islice(batches, count)) == [expected.pop(0) for _ in range(count)]
        saved = batches.state_dict()
    assert not expected
    assert list(lz.run(epoch_of(), lz.torch.state(saved))) == []


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


if __name__ == "__main__":
    kill_and_resume(train, Path(sys.argv[1]), KINDS)


def test_a_sampler_of_torch_is_a_source() -> None:
    generator = torch.Generator().manual_seed(3)
    order = torch.utils.data.RandomSampler(range(7), generator=generator)
    expected = list(order)
    generator.manual_seed(3)
    pipeline = lz.torch.sampler(order) | lz.map(lambda i: i) | lz.batch(2)
    assert [index for batch in pipeline for index in batch] == expected
