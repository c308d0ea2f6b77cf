"""Hugging Face's Trainer on a loader: as on torch's own, and resumed as if never stopped."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch.utils.data import DataLoader, Dataset
from transformers import (
    PretrainedConfig,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_jit_checkpoint import JITCheckpointCallback

import lazyckpt as lz
from tests.helpers import until

BATCH, LENGTH = 2, 14  # 7 batches an epoch
X = np.linspace(-1, 1, LENGTH, dtype=np.float32)[:, None]
ROWS = {"x": X, "y": 2 * X}


class Model(PreTrainedModel):
    """A model whose weights depend on each batch, their order and the random numbers drawn."""

    config_class = PretrainedConfig

    def __init__(self) -> None:
        super().__init__(PretrainedConfig())
        torch.manual_seed(0)
        self.layer, self.seen = torch.nn.Linear(1, 1), []  # type: ignore[var-annotated]
        self.post_init()

    def forward(self, x: Any, y: Any) -> dict[str, Any]:
        self.seen.append(x.flatten().tolist())
        dropped = torch.nn.functional.dropout(self.layer(x), 0.5, self.training)
        return {"loss": torch.nn.functional.mse_loss(dropped, y)}


class Events(TrainerCallback):
    """The events of a training run, with the step and the epoch that the Trainer logs."""

    def __init__(self) -> None:
        self.found: list[tuple[Any, ...]] = []

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def noted(args: Any, state: Any, control: Any, **others: Any) -> None:
            self.found.append((name, state.global_step, state.epoch))

        return noted


class Trained(NamedTuple):
    batches: list[list[float]]
    events: list[tuple[Any, ...]]
    logs: list[dict[str, Any]]
    weights: list[float]

    @property
    def steps(self) -> list[tuple[Any, ...]]:
        """The events from the first step on."""
        return self.events[[name for name, *_ in self.events].index("on_step_begin") :]

    @property
    def step_ends(self) -> list[tuple[Any, ...]]:
        return [event for event in self.events if event[0] == "on_step_end"]


class Rows(Dataset[Any]):
    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: values[index] for name, values in ROWS.items()}

    def __len__(self) -> int:
        return LENGTH


def trainer_of(
    folder: Path, pipeline: lz.Pipeline[Any] | None, options: dict[str, Any], **loading: Any
) -> Trainer:
    """A Trainer on a pipeline, or without one on torch's DataLoader."""
    quiet: dict[str, Any] = {"report_to": [], "disable_tqdm": True, "use_cpu": True}
    logs: dict[str, Any] = {"logging_strategy": "steps", "logging_steps": 1}
    args = TrainingArguments(str(folder), **{**quiet, **logs, **options})
    trainer = Trainer(Model(), args, eval_dataset=Rows(), callbacks=[Events])
    if pipeline is None:
        rows = trainer.accelerator.prepare(DataLoader(Rows(), batch_size=BATCH))
        trainer.get_train_dataloader = lambda: rows
    else:
        lz.transformers.feed(trainer, lz.torch.loader(pipeline, **loading))
    return trainer


def trained(
    folder: Path,
    pipeline: lz.Pipeline[Any] | None,
    options: dict[str, Any],
    resume: Path | None = None,
    **loading: Any,
) -> Trained:
    """The result of a training run."""
    trainer = trainer_of(folder, pipeline, options, **loading)
    trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    return result_of(trainer)


def result_of(trainer: Trainer) -> Trained:
    (events,) = [each for each in trainer.callback_handler.callbacks if isinstance(each, Events)]
    logs = [each for each in trainer.state.log_history if "loss" in each]
    weights = torch.cat([each.flatten() for each in trainer.model.parameters()])
    return Trained(trainer.model.seen, events.found, logs, weights.tolist())


def in_order() -> lz.Pipeline[Any]:
    return lz.columns(**ROWS) | lz.batch(BATCH, collate=lz.stack)


def shuffled() -> lz.Pipeline[Any]:
    return lz.columns(**ROWS) | lz.shuffle(seed=0) | lz.batch(BATCH, collate=lz.stack)


def checkpoints(folder: Path) -> Iterator[tuple[int, Path]]:
    """The checkpoints in a folder, with the steps before them."""
    return ((int(path.name.split("-")[1]), path) for path in folder.glob("checkpoint-*"))


def some(found: list[tuple[int, Path]]) -> list[tuple[int, Path]]:
    """A third of many checkpoints, the first one among them; all in the deep profile."""
    is_long = len(found) > 3 and settings.default.max_examples < 1_000
    return found[::3] if is_long else found


def check_resumes(
    folder: Path, pipeline: lz.Pipeline[Any], options: dict[str, Any], **loading: Any
) -> Trained:
    """A training run that is resumed from its checkpoints continues as if never stopped."""
    whole = trained(folder, pipeline, options, **loading)
    events = [event for event in whole.events if event[0] != "on_save"]
    *found, (ends, _) = sorted(checkpoints(folder))
    assert found
    for step, path in some(found):
        rest = {**options, "save_strategy": "no"}
        again = trained(folder, pipeline, rest, path, **loading)
        assert again.batches == whole.batches[-len(again.batches) :]
        assert again.steps == events[-len(again.steps) :]
        assert again.steps[0] == ("on_step_begin", step, whole.logs[step - 1]["epoch"])
        assert (again.logs, again.weights) == (whole.logs, whole.weights)
    assert whole.logs[-1]["step"] == ends
    return whole


BY_STEP: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1}
BY_EPOCH: dict[str, Any] = {"save_strategy": "epoch"}


@pytest.mark.parametrize(
    ("batches", "epochs", "saved"),
    [
        *((batches, epochs, BY_STEP) for batches, epochs in [(3, 1), (1, 2.5), (3, 2.5)]),
        *((batches, 3, BY_EPOCH) for batches in (1, 3, 7, 8)),
    ],
)
def test_as_on_a_loader_of_torch_and_resumed_anywhere(
    batches: int, epochs: float, saved: dict[str, Any], tmp_path: Path
) -> None:
    options = {"gradient_accumulation_steps": batches, "num_train_epochs": epochs, **saved}
    whole = check_resumes(tmp_path / "in-order", in_order(), options)
    assert whole == trained(tmp_path / "plain", None, options)


def test_shuffled_with_workers(tmp_path: Path) -> None:
    options = {"gradient_accumulation_steps": 3, "num_train_epochs": 2.5, **BY_STEP}
    check_resumes(tmp_path, shuffled(), options, executor=lz.threads(2))


class Stopped(TrainerCallback):
    """Ends a training run after its first step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        control.should_training_stop = True


def test_stopped_after_every_step(tmp_path: Path) -> None:
    options = {"gradient_accumulation_steps": 3, "num_train_epochs": 2, **BY_STEP}
    whole = trained(tmp_path / "whole", shuffled(), options)
    batches: list[Any] = []
    for step in range(6):
        trainer = trainer_of(tmp_path / "stopped", shuffled(), options)
        trainer.add_callback(Stopped)
        trainer.train(resume_from_checkpoint=step > 0)
        batches += trainer.model.seen
    assert result_of(trainer)._replace(batches=batches, events=whole.events) == whole


def test_there_is_as_little_to_do_after_the_last_step(tmp_path: Path) -> None:
    for epochs in (1, 1.5):
        options = {"gradient_accumulation_steps": 3, "num_train_epochs": epochs, **BY_STEP}
        plain = trained(tmp_path / "plain", None, options)
        assert trained(tmp_path / "fed", in_order(), options) == plain
        (_, path), (_, fed) = (max(checkpoints(tmp_path / name)) for name in ("plain", "fed"))
        again = trained(tmp_path, in_order(), {**options, "save_strategy": "no"}, fed)
        assert again == trained(tmp_path, None, {**options, "save_strategy": "no"}, path)


def without_a_length() -> lz.Pipeline[Any]:
    """Of 4 batches a pass."""
    kept = lz.columns(**ROWS) | lz.shuffle(seed=0) | lz.filter(lambda row: row["x"][0] > -0.5)
    return kept | lz.batch(3, collate=lz.stack)


def endless() -> lz.Pipeline[Any]:
    found = lz.columns(**ROWS) | lz.shuffle(seed=0) | lz.repeat()
    return found | lz.batch(BATCH, collate=lz.stack)


@pytest.mark.parametrize("pipeline", [without_a_length(), endless()], ids=["filter", "repeat"])
def test_without_a_length_the_training_is_one_epoch(
    pipeline: lz.Pipeline[Any], tmp_path: Path
) -> None:
    options = {"gradient_accumulation_steps": 3, "max_steps": 6, **BY_STEP}
    whole = check_resumes(tmp_path, pipeline, options)
    assert [each["epoch"] for each in whole.logs] == [(step + 1) / 6 for step in range(6)]
    assert sum(name == "on_epoch_end" for name, *_ in whole.events) == 1
    batches = lz.torch.loader(pipeline, epoch_size=18)
    assert whole.batches == [batch["x"].flatten().tolist() for batch in batches]


@pytest.mark.parametrize("name", ["eval_strategy", "logging_strategy", "save_strategy"])
def test_by_epoch_needs_a_length(name: str, tmp_path: Path) -> None:
    options = {name: "epoch", "max_steps": 4, "eval_steps": 1, "gradient_accumulation_steps": 3}
    with pytest.raises(lz.ArgumentError, match=f"feed: {name}='epoch', but the loader has no len"):
        trainer_of(tmp_path, without_a_length(), options)
    trainer_of(tmp_path, without_a_length(), options, epoch_size=4)
    trainer_of(tmp_path, in_order(), options)


def test_an_epoch_of_epoch_size_batches(tmp_path: Path) -> None:
    options = {"gradient_accumulation_steps": 3, "num_train_epochs": 3, **BY_EPOCH}
    whole = check_resumes(tmp_path, without_a_length(), options, epoch_size=5)
    assert len(whole.batches) == 15


def of_ranks(num_shards: int) -> lz.Pipeline[Any]:
    numbers = lz.columns(**ROWS) | lz.shuffle(seed=0) | lz.shard(num_shards=num_shards, index=0)
    return numbers | lz.batch(1, collate=lz.stack)


def test_on_fewer_ranks_with_as_many_items_a_step(tmp_path: Path) -> None:
    lasting = {"num_train_epochs": 2, **BY_STEP}
    two = trained(tmp_path / "2", of_ranks(2), {"gradient_accumulation_steps": 2, **lasting})
    options = {"gradient_accumulation_steps": 4, **lasting}
    whole = trained(tmp_path / "1", of_ranks(1), options)
    assert two.step_ends == whole.step_ends
    for step, path in some(sorted(checkpoints(tmp_path / "2"))):
        one = trained(tmp_path / "1", of_ranks(1), options, path, strict=False)
        assert one.batches == whole.batches[LENGTH * (step // 4) + 4 * (step % 4) :]
        assert not one.batches or one.steps == whole.events[-len(one.steps) :]


@pytest.mark.parametrize(
    "options", [{"gradient_accumulation_steps": 2}, {"ignore_data_skip": True}]
)
def test_the_data_continue_if_the_trainers_epochs_do_not(
    options: dict[str, Any], tmp_path: Path
) -> None:
    lasting = {"max_steps": 20, **BY_STEP}
    whole = trained(tmp_path / "whole", shuffled(), lasting)
    again = trained(
        tmp_path / "again", shuffled(), {**lasting, **options}, tmp_path / "whole/checkpoint-5"
    )
    assert again.batches[:15] == whole.batches[5:]


def in_epochs(loader: Any, sizes: list[int]) -> list[list[float]]:
    """The batches of loops over a loader, each left after a number of batches."""
    return [batch["x"].flatten().tolist() for size in sizes for batch in islice(loader, size)]


def test_a_state_within_an_epoch_and_no_checkpoint(tmp_path: Path) -> None:
    state = lz.state_at(shuffled(), 5)
    options = {"gradient_accumulation_steps": 3, "num_train_epochs": 2}
    found = trained(tmp_path, shuffled(), options, state=state)
    assert found.batches == in_epochs(lz.torch.loader(shuffled(), state=state), [2, 7, 5])


class Terminated(TrainerCallback):
    """Sends a SIGTERM at an event after the first step, and waits until the Trainer knows of it."""

    def __init__(self, event: str) -> None:
        setattr(self, event, self.terminate)

    def terminate(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.global_step == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            assert until(lambda: self.manager.is_checkpoint_requested)

    def set_trainer(self, trainer: Trainer) -> None:
        (found,) = (
            each.jit_manager
            for each in trainer.callback_handler.callbacks
            if isinstance(each, JITCheckpointCallback)
        )
        self.manager: Any = found
        self.manager.kill_wait = 0


@pytest.mark.parametrize("event", ["on_substep_end", "on_step_end"])
def test_a_checkpoint_on_a_signal(event: str, tmp_path: Path) -> None:
    """It is written while batches are drawn, or accumulated, that no step includes."""
    options = {"gradient_accumulation_steps": 3, "num_train_epochs": 2, **BY_STEP}
    whole = trained(tmp_path / "whole", shuffled(), options)
    options = {**options, "save_strategy": "no", "enable_jit_checkpoint": True}
    trainer = trainer_of(tmp_path / "stopped", shuffled(), options)
    callback = Terminated(event)
    callback.set_trainer(trainer)
    trainer.add_callback(callback)
    trainer.train()
    ((step, path),) = checkpoints(tmp_path / "stopped")
    assert step == 1
    again = trained(
        tmp_path / "again", shuffled(), {**options, "enable_jit_checkpoint": False}, path
    )
    assert again.batches == whole.batches[3:]
    if event == "on_step_end":  # else random numbers were drawn after the last step
        assert (again.logs, again.weights) == (whole.logs, whole.weights)


class EpochStopped(TrainerCallback):
    """Ends each epoch after 3 steps."""

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        control.should_epoch_stop = state.global_step % 3 == 0


def test_an_epoch_that_is_stopped_early(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, shuffled(), {"num_train_epochs": 2, **BY_EPOCH})
    trainer.add_callback(EpochStopped)
    trainer.train()
    again = trainer_of(tmp_path, shuffled(), {"num_train_epochs": 2})
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    passes = in_epochs(lz.torch.loader(shuffled()), [7, 7])
    assert trainer.model.seen == [*passes[:3], *passes[7:10]]
    assert again.model.seen == passes[3:]
    assert result_of(again).logs[3]["epoch"] == 4 / 7


def test_epochs_and_trainings_begin_as_loops_over_the_loader(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, shuffled(), {"max_steps": 10})
    trainer.add_callback(EpochStopped)
    trainer.train()
    trainer.remove_callback(EpochStopped)
    trainer.train()
    loops = in_epochs(lz.torch.loader(shuffled()), [3, 3, 7, 7])
    assert trainer.model.seen[:14] == loops[:14]


def test_a_checkpoint_without_a_state_of_the_data_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, None, {"max_steps": 5, "save_strategy": "steps", "save_steps": 5})
    with pytest.raises(lz.PipelineError, match="checkpoint of step 5 has no state of the data"):
        trained(tmp_path, in_order(), {"max_steps": 6}, tmp_path / "checkpoint-5")


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(lz.ArgumentError, match=r"must be a loader from lz.torch.loader, got"):
        lz.transformers.feed(trainer_of(tmp_path, None, {}), in_order())  # type: ignore[arg-type]
    with pytest.raises(lz.ArgumentError, match=r"trainer must be a transformers.Trainer"):
        lz.transformers.feed(Model(), lz.torch.loader(in_order()))  # type: ignore[arg-type]


def test_where_transformers_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "lazyckpt.integrations.transformers", raising=False)
    with pytest.raises(ImportError, match=r'pip install "lazyckpt\[transformers\]"'):
        _ = lz.transformers
