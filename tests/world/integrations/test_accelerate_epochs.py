"""Accelerate's `accumulate` sees the end of a loader's epochs, resumed or not."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

import lazyckpt as lz

BATCH, LENGTH, BATCHES = 2, 14, 7
X = np.linspace(-1, 1, LENGTH, dtype=np.float32)[:, None]
ROWS = {"x": X, "y": 2 * X}


def in_order() -> lz.Pipeline[Any]:
    return lz.columns(**ROWS) | lz.batch(BATCH, collate=lz.stack)


def without_a_length() -> lz.Pipeline[Any]:
    """Of 7 batches a pass."""
    return lz.columns(**ROWS) | lz.filter(bool) | lz.batch(BATCH, collate=lz.stack)


def no_first_batch(batch: Any) -> Any:
    if batch["x"][0, 0] == -1:
        raise ValueError("the first one")
    return batch


class Rows(Dataset[Any]):
    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: values[index] for name, values in ROWS.items()}

    def __len__(self) -> int:
        return LENGTH


class Trained(NamedTuple):
    batches: list[list[float]]
    steps: list[bool]  # whether a batch is the last one before a step
    weights: list[float]


def trained(
    accumulated: int,
    count: int,
    loader: Any = None,
    *,
    saved: Path | None = None,
    resume: Path | None = None,
) -> Trained:
    """A training run of so many batches, of our loader or of torch's; it saves after each step."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
    torch.manual_seed(0)
    model: Any = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.1))
    if loader is None:
        batches = accelerator.prepare(DataLoader(Rows(), batch_size=BATCH))  # type: ignore[arg-type]
    else:
        batches = lz.accelerate.prepare(accelerator, loader)
    if resume is not None:
        accelerator.load_state(str(resume))
    found = Trained([], [], [])
    while len(found.batches) < count:
        for batch in islice(batches, count - len(found.batches)):
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            found.batches.append(batch["x"].flatten().tolist())
            found.steps.append(accelerator.sync_gradients)
            if saved is not None and accelerator.sync_gradients:
                accelerator.save_state(str(saved / str(len(found.batches))))
    found.weights.extend(model.weight.flatten().tolist())
    return found


@pytest.mark.parametrize("accumulated", [1, 3, 7, 8])
def test_as_a_prepared_loader_of_torch_and_resumed_anywhere(
    accumulated: int, tmp_path: Path
) -> None:
    count = 3 * BATCHES
    whole = trained(accumulated, count, lz.torch.loader(in_order()), saved=tmp_path)
    assert whole == trained(accumulated, count)
    assert whole.steps[BATCHES - 1 :: BATCHES] == [True] * 3
    for path in tmp_path.iterdir():
        done = int(path.name)
        loader = lz.torch.loader(in_order(), lz.threads(1))
        again = trained(accumulated, count - done, loader, resume=path)
        assert again == Trained(whole.batches[done:], whole.steps[done:], whole.weights)


def test_without_a_length_what_is_left_over_goes_with_the_next_epoch() -> None:
    found = trained(3, 9, lz.torch.loader(without_a_length()))
    assert found.steps == [False, False, True] * 3
    found = trained(3, 10, lz.torch.loader(without_a_length(), epoch_size=5))
    assert found.steps == [False, False, True, False, True] * 2
    bad = in_order() | lz.map(no_first_batch)
    skipping = lz.torch.loader(bad, on_error="skip")  # 6 of 7 batches
    assert trained(4, 12, skipping).steps == [False, False, False, True] * 3
    endless = lz.torch.loader(in_order() | lz.repeat())
    assert trained(4, 12, endless).steps == [False, False, False, True] * 3


def test_a_loop_that_is_left_and_one_within_another() -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    outer, inner = (
        lz.accelerate.prepare(accelerator, lz.torch.loader(in_order())) for _ in range(2)
    )
    state: Any = accelerator.gradient_state
    before = state.active_dataloader
    for _ in islice(outer, 4):
        assert state.active_dataloader is outer
    assert state.active_dataloader is before
    ends = []
    for _ in outer:
        for _ in inner:
            assert state.active_dataloader is inner
        assert state.active_dataloader is outer
        ends.append(state.end_of_dataloader)
    assert ends == [False] * (BATCHES - 1) + [True]
    assert state.active_dataloader is before


def test_a_state_loaded_within_a_loop() -> None:
    accelerator = Accelerator(cpu=True)
    batches = lz.accelerate.prepare(accelerator, lz.torch.loader(in_order()))
    saved, ends = {}, []
    for number, _ in enumerate(batches):
        ends.append(batches.end_of_dataloader)
        if number == 2:
            saved = batches.state_dict()
        if number == 4:
            batches.load_state_dict(saved)
    assert ends == [False] * 8 + [True]


def test_a_run_and_a_loader_are_registered_as_they_are(tmp_path: Path) -> None:
    for make in (lz.run, lz.torch.loader):
        kept: list[Any] = [make(in_order() | lz.repeat()) for _ in range(2)]
        for feed in kept:
            accelerator = Accelerator(cpu=True)
            accelerator.register_for_checkpointing(feed)
            if feed is kept[0]:
                list(islice(feed, 10))
                accelerator.save_state(str(tmp_path / make.__name__))
            else:
                accelerator.load_state(str(tmp_path / make.__name__))
        one, other = (next(iter(feed))["x"].tolist() for feed in kept)
        assert one == other == X[20 % LENGTH : 20 % LENGTH + BATCH].tolist()


def test_accelerate_leaves_a_loader_as_it_is() -> None:
    loader: Any = lz.torch.loader(in_order())
    assert Accelerator(cpu=True).prepare(loader) is loader


def test_what_is_refused() -> None:
    with pytest.raises(lz.ArgumentError, match=r"must be a loader from lz.torch.loader, got"):
        lz.accelerate.prepare(Accelerator(cpu=True), in_order())
    with pytest.raises(lz.ArgumentError, match=r"accelerator must be an accelerate.Accelerator"):
        lz.accelerate.prepare(None, lz.torch.loader(in_order()))


def test_where_accelerate_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    monkeypatch.delitem(sys.modules, "lazyckpt.integrations.accelerate", raising=False)
    with pytest.raises(ImportError, match=r'pip install "lazyckpt\[accelerate\]"'):
        _ = lz.accelerate
