"""Trainers on two gloo ranks that are killed: the results of a resume, for all kinds of states."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import lazyckpt as lz
from tests.world.integrations.forks import (
    KEPT,
    codes,
    end_all,
    forked,
    is_where_it_is_killed,
    killed,
)
from tests.world.integrations.trainer_cases import runs

RANKS, STEPS, SAVES, KILLED_AT = 2, 11, 2, 7

# --- what ranks train on ---


def collated(numbers: list[int]) -> dict[str, Any]:
    x = np.array(numbers, np.float32)[:, None] / 100
    return {"x": x, "y": 2 * x}


BATCHES: Any = lz.batch(2, collate=collated)


def numbers(rank: int) -> lz.Pipeline[int]:
    return lz.source(range(24)) | lz.shuffle(seed=0) | lz.shard(num_shards=RANKS, index=rank)


def common(rank: int) -> lz.Pipeline[Any]:
    """All ranks share its state."""
    return numbers(rank) | BATCHES


def uneven(rank: int) -> lz.Pipeline[Any]:
    """Each rank has a different number of these, and so its own state."""
    kept = numbers(rank) | lz.filter(lambda x: x % 5 != 2)
    return kept | lz.flat_map(lambda x: [x, x + 100] if x % 3 else [x]) | BATCHES


def whole(number: int) -> int:
    if number == 4:
        raise ValueError("a bad record")
    return number


def damaged(rank: int) -> lz.Pipeline[Any]:
    """Of which one rank skips a record."""
    return numbers(rank) | lz.map(whole) | BATCHES


def loader(kind: str, rank: int, **options: Any) -> Any:
    """A loader of one kind of a state, whose epochs all ranks end together."""
    name, _, grouped = kind.partition(" ")
    make = {"common": common, "uneven": uneven, "damaged": damaged}[name]
    options |= {"on_error": "skip"} if name == "damaged" else {}
    options |= {"group": dist.group.WORLD} if grouped else {"epoch_size": 5}
    return lz.torch.loader(make(rank), lz.threads(1), **options)


KINDS = ["common", "uneven", "uneven of a group"]


# --- trainers ---


class Note:
    """The batches of a rank, written down; at a step it waits until it is killed."""

    def __init__(self, folder: Path, rank: int, stop: int) -> None:
        self.path, self.rank, self.stop = folder / f"rank{rank}.jsonl", rank, stop

    def __call__(self, step: int, batch: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps([step, batch["x"].flatten().tolist()]) + "\n")
        if step == self.stop:
            is_where_it_is_killed()


def by_lightning(folder: Path, kind: str, rank: int, note: Note, resumes: bool) -> Any:
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            return torch.nn.functional.mse_loss(self.layer(batch["x"]), batch["y"])

        def on_train_batch_end(self, outputs: Any, batch: Any, number: int) -> None:
            note(self.global_step, batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.1)

    class Data(pl.LightningDataModule):
        def train_dataloader(self) -> Any:
            assert (self.trainer.global_rank, self.trainer.world_size) == (rank, RANKS)
            return loader(kind, rank, epoch_size=5)  # without a length Lightning draws one ahead

    model = Model()
    saves = ModelCheckpoint(folder, "{step:02}", every_n_train_steps=SAVES, save_top_k=-1)
    trainer = pl.Trainer(
        accelerator="cpu", devices=RANKS, strategy="ddp",
        max_steps=STEPS, callbacks=[saves], logger=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    KEPT.append(trainer)
    saved = sorted(folder.glob("*.ckpt"))
    trainer.fit(model, datamodule=Data(), ckpt_path=saved[-1] if resumes else None)
    return model


def by_accelerate(folder: Path, kind: str, rank: int, note: Note, resumes: bool) -> Any:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=1)
    model: Any = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.1))
    KEPT.append(model)
    batches = lz.accelerate.prepare(accelerator, loader(kind, rank))
    step = 0
    if resumes:
        saved = sorted(folder.glob("step-*"))[-1]
        accelerator.load_state(str(saved))
        step = int(saved.name.split("-")[1])
    while step < STEPS:
        for batch in batches:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            if step % SAVES == 0:
                accelerator.save_state(str(folder / f"step-{step:02}"))
            note(step, batch)
            if step == STEPS:
                break
    return model


def by_transformers(folder: Path, kind: str, rank: int, note: Note, resumes: bool) -> Any:
    from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

    class Model(PreTrainedModel):
        config_class = PretrainedConfig

        def __init__(self) -> None:
            super().__init__(PretrainedConfig())
            self.layer = torch.nn.Linear(1, 1)
            self.post_init()

        def forward(self, x: Any, y: Any) -> dict[str, Any]:
            return {"loss": torch.nn.functional.mse_loss(self.layer(x), y)}

    class Noting(Trainer):
        def training_step(self, model: Any, batch: Any, *rest: Any) -> Any:
            found = super().training_step(model, batch, *rest)
            note(self.state.global_step + 1, batch)
            return found

    args = TrainingArguments(
        str(folder), max_steps=STEPS, save_steps=SAVES, report_to=[], disable_tqdm=True,
        use_cpu=True, lr_scheduler_type="constant", learning_rate=0.1,
    )  # fmt: skip
    trainer = Noting(Model(), args)
    KEPT.append(trainer)
    lz.transformers.feed(trainer, loader(kind, rank))
    trainer.train(resume_from_checkpoint=resumes)
    return trainer.model


TRAINERS: dict[str, Callable[..., Any]] = {
    "lightning": by_lightning,
    "accelerate": by_accelerate,
    "transformers": by_transformers,
}
OWN_KINDS = {"accelerate": ["damaged of a group"]}  # what is skipped is the loader's to count


# --- ranks, which are forked so that each framework is imported once ---


def rank_of(trainer: str, folder: Path, attempt: str, kind: str, rank: int, stop: int = 0) -> None:
    """Train as a rank, in a process of its own."""
    meeting = f"file://{folder}/{attempt}"
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    os.environ |= {"LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": "1", "GROUP_RANK": "0", "ACCELERATE_USE_CPU": "true"}
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    note = Note(folder, rank, stop)
    try:
        model = TRAINERS[trainer](folder, kind, rank, note, attempt != "first")
    except lz.StateMismatch as error:
        (folder / f"error{rank}").write_text(str(error))
        return
    weights = [each.tolist() for each in model.parameters()]
    (folder / f"weights{rank}").write_text(json.dumps(weights))
    dist.barrier()


def ranks_of(*job: Any, stop: int = 0) -> list[int]:
    return [forked(partial(rank_of, *job, rank, stop)) for rank in range(RANKS)]


def noted(folder: Path) -> list[list[Any]]:
    lines = [(folder / f"rank{rank}.jsonl").read_text().splitlines() for rank in range(RANKS)]
    return [list(map(json.loads, each)) for each in lines]


def learned(folder: Path) -> list[str]:
    return [(folder / f"weights{rank}").read_text() for rank in range(RANKS)]


def check(trainer: str, folder: Path, kind: str) -> None:
    """A job that is killed and resumed has the results of an undisturbed one, or says why not."""
    undisturbed, folder = folder / "undisturbed", folder / "killed"
    folder.mkdir(parents=True)
    killed(ranks_of(trainer, folder, "first", kind, stop=KILLED_AT))
    resumed = ranks_of(trainer, folder, "second", kind)
    if kind == "uneven":
        check_refused(folder, resumed)
        return
    assert codes(resumed) == [0, 0]
    undisturbed.mkdir()
    assert codes(ranks_of(trainer, undisturbed, "first", kind)) == [0, 0]
    for notes, expected in zip(noted(folder), noted(undisturbed), strict=True):
        assert notes[:KILLED_AT] == expected[:KILLED_AT]
        assert notes[KILLED_AT:] == expected[KILLED_AT - KILLED_AT % SAVES :]
    assert learned(folder) == learned(undisturbed)


def check_refused(folder: Path, resumed: list[int]) -> None:
    """Rank 1 takes no state of rank 0; that one waits for it in vain."""
    assert codes(resumed[1:]) == [0]
    killed(resumed[:1], waiting=0)
    told = (folder / "error1").read_text()
    assert "the state is that of rank 0 of 2 alone" in told
    assert "a loader with group= has one for all" in told


@pytest.mark.parametrize("trainer", TRAINERS)
def test_killed_and_resumed(trainer: str, tmp_path: Path) -> None:
    runs(__file__, tmp_path, trainer)


if __name__ == "__main__":
    import torch._dynamo  # what an optimizer imports with its first step

    getattr(lz, sys.argv[2])
    try:
        for each in [*KINDS, *OWN_KINDS.get(sys.argv[2], [])]:
            check(sys.argv[2], Path(sys.argv[1], each), each)
    finally:
        end_all()
