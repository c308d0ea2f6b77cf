"""Accelerate: `register_for_checkpointing` accepts a run, or a loader, as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from accelerate import Accelerator

import lazyckpt as lz
from tests.world.integrations.trainer_cases import (
    SAVES,
    STEPS,
    killed_and_resumed,
    numbers_of,
    pipeline_of,
    trained,
)


def train(folder: Path) -> None:
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    batches = lz.torch.loader(pipeline_of(), lz.threads(1))
    accelerator.register_for_checkpointing(batches)
    saved = sorted(folder.glob("step-*/custom_checkpoint_0.pkl"))
    if saved:
        accelerator.load_state(str(saved[-1].parent))
    for batch in batches:
        loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        step = batches.state.items
        trained(folder, step, batch)
        if step == STEPS:
            return
        if step % SAVES == 0:
            accelerator.save_state(str(folder / f"step-{step:02}"))


def test_killed_and_resumed(tmp_path: Path) -> None:
    assert killed_and_resumed(__file__, tmp_path) == numbers_of(pipeline_of())


if __name__ == "__main__":
    train(Path(sys.argv[1]))
