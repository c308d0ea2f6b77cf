"""Hugging Face's Trainer: its checkpoints keep the data's state, and it skips nothing twice."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

import lazyckpt as lz
from tests.world.integrations.trainer_cases import (
    EPOCH,
    SAVES,
    STEPS,
    epoch_of,
    noted,
    numbers_of,
    once,
    pipeline_of,
    trained,
)

feed = lz.transformers.feed


class Model(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self) -> None:
        super().__init__(PretrainedConfig())
        self.layer = torch.nn.Linear(1, 1)
        self.post_init()

    def forward(self, x: Any, y: Any, number: Any = None) -> dict[str, Any]:
        return {"loss": torch.nn.functional.mse_loss(self.layer(x), y)}


def trainer_of(folder: Path, steps: int = STEPS, **options: Any) -> Trainer:
    class Noting(Trainer):
        def training_step(self, model: Any, batch: Any, *rest: Any) -> Any:
            trained(folder, self.state.global_step + 1, batch)
            return super().training_step(model, batch, *rest)

    quiet: dict[str, Any] = {"report_to": [], "disable_tqdm": True, "use_cpu": True}
    saves: dict[str, Any] = {"save_strategy": "steps", "save_steps": SAVES}
    args = TrainingArguments(str(folder), max_steps=steps, **quiet, **saves, **options)
    return Noting(Model(), args)


def train(folder: Path, pipeline: lz.Pipeline[Any], steps: int, **options: Any) -> None:
    trainer = trainer_of(folder, steps, **options)
    feed(trainer, lz.torch.loader(pipeline))
    trainer.train(resume_from_checkpoint=any(folder.glob("checkpoint-*")))


@pytest.mark.parametrize("pipeline", [epoch_of(), pipeline_of()], ids=["epochs", "endless"])
def test_a_fresh_trainer_goes_on_where_an_epoch_ended(
    pipeline: lz.Pipeline[Any], tmp_path: Path
) -> None:
    for steps in (EPOCH, STEPS):
        train(tmp_path, pipeline, steps, restore_callback_states_from_checkpoint=True)
    assert once(noted(tmp_path), EPOCH) == numbers_of(pipeline_of())


def test_a_checkpoint_without_a_state_of_the_data_is_refused(tmp_path: Path) -> None:
    before = trainer_of(tmp_path, SAVES)
    before.get_train_dataloader = lambda: lz.torch.loader(epoch_of())  # type: ignore
    before.train()
    after = trainer_of(tmp_path)
    feed(after, lz.torch.loader(epoch_of()))
    with pytest.raises(lz.PipelineError, match="checkpoint of step 5 has no state of the data"):
        after.train(resume_from_checkpoint=True)


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(lz.ArgumentError, match=r"must be a loader from lz.torch.loader, got"):
        feed(trainer_of(tmp_path), epoch_of())  # type: ignore[arg-type]
    with pytest.raises(lz.ArgumentError, match=r"trainer must be a transformers.Trainer"):
        feed(Model(), lz.torch.loader(epoch_of()))  # type: ignore[arg-type]


def test_where_transformers_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "lazyckpt.integrations.transformers")
    with pytest.raises(ImportError, match=r'pip install "lazyckpt\[transformers\]"'):
        _ = lz.transformers
