"""A small model for Lightning, and a trainer on the CPU that shows nothing."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch


def trainer_of(**options: Any) -> pl.Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return pl.Trainer(accelerator="cpu", **quiet, **options)


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any, number: int) -> Any:
        return torch.nn.functional.mse_loss(self.layer(batch["x"]), batch["y"])

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.1)
