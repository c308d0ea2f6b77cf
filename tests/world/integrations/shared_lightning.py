"""A rank of a Lightning trainer under torchrun, whose loader shares work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import ModelCheckpoint

import lazyckpt as lz
from tests.world.integrations.documents import pipeline


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.found: list[Any] = []

    def train_dataloader(self) -> Any:
        """Called once there is a process group."""
        own = pipeline(dist.get_world_size(), dist.get_rank())
        executor = lz.torch.shared(lz.threads(2), dist.group.WORLD, chunk_size=8)
        return lz.torch.loader(own, executor, epoch_size=50)

    def training_step(self, batch: Any, number: int) -> Any:
        self.found.append(batch["tokens"].tolist())
        return self.layer(torch.ones(1, 1)).sum()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(folder: Path, size: int, steps: int) -> None:
    model, last = Model(), folder / "last.ckpt"
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=size,
        strategy="ddp",
        max_steps=steps,
        callbacks=[ModelCheckpoint(folder, every_n_train_steps=steps, save_last=True)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(model, ckpt_path=last if last.exists() else None)
    (folder / f"{steps}-{trainer.global_rank}").write_text(json.dumps([model.found, ""]))
