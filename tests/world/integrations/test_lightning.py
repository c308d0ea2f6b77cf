"""Lightning: it saves and restores a loader by itself, in the middle of an epoch too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import lazyckpt as lz
from tests.world.integrations.trainer_cases import (
    EPOCH,
    SAVES,
    STEPS,
    epoch_of,
    killed_and_resumed,
    noted,
    numbers_of,
    once,
    pipeline_of,
    trained,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]


def train(folder: Path, batches: Iterable[Any], steps: int) -> None:
    class Note(pl.Callback):
        def on_train_batch_end(self, trainer: Any, *rest: Any) -> None:
            trained(folder, trainer.global_step, rest[2])

    saves = ModelCheckpoint(folder, "{step:02}", every_n_train_steps=SAVES, save_top_k=-1)
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        accelerator="cpu", max_steps=steps, callbacks=[Note(), saves], logger=False, **quiet
    )
    saved = sorted(folder.glob("*.ckpt"))
    trainer.fit(Model(), batches, ckpt_path=saved[-1] if saved else None)


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any, number: int) -> Any:
        return torch.nn.functional.mse_loss(self.layer(batch["x"]), batch["y"])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_killed_and_resumed(tmp_path: Path) -> None:
    assert killed_and_resumed(__file__, tmp_path) == numbers_of(pipeline_of())


def at_an_end_of_an_epoch() -> lz.torch.Loader[Any]:
    return lz.torch.loader(epoch_of())


def with_epochs_of_a_size() -> lz.torch.Loader[Any]:
    return lz.torch.loader(pipeline_of(), epoch_size=7)


@pytest.mark.parametrize("loader", [at_an_end_of_an_epoch, with_epochs_of_a_size])
def test_a_fresh_trainer_goes_on(loader: Callable[[], Iterable[Any]], tmp_path: Path) -> None:
    for steps in (EPOCH, STEPS):
        train(tmp_path, loader(), steps)
    assert once(noted(tmp_path), EPOCH) == numbers_of(pipeline_of())


def test_without_a_length_a_batch_is_lost(tmp_path: Path) -> None:
    """Lightning's doing: it pulls one ahead, to know which is the last."""
    for steps in (EPOCH, STEPS):
        train(tmp_path, lz.torch.loader(pipeline_of()), steps)
    notes = noted(tmp_path)[EPOCH:]
    expected = numbers_of(pipeline_of(), STEPS + 1)[EPOCH + 1 :]
    assert [numbers for _, numbers in notes] == expected


if __name__ == "__main__":
    train(Path(sys.argv[1]), lz.torch.loader(epoch_of(), lz.threads(1)), STEPS)
