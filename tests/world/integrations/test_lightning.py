"""Lightning: it saves and restores a loader by itself, in the middle of an epoch too."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint, OnExceptionCheckpoint
from lightning.pytorch.utilities import CombinedLoader

import lazyckpt as lz
from tests.world.integrations.trainer_cases import floats, pipeline_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]


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
        return torch.optim.SGD(self.parameters(), lr=0.1)


# --- loops that end early ---


class Seeing(Model):
    """The batches of training and validation, a list per loop."""

    def __init__(self) -> None:
        super().__init__()
        self.trained: list[list[Any]] = []
        self.validated: list[list[Any]] = []

    def on_train_epoch_start(self) -> None:
        self.trained.append([])

    def training_step(self, batch: Any, number: int) -> Any:
        if not self.trained:  # after a resume in the middle of an epoch
            self.trained.append([])
        self.trained[-1].append(batch)
        return self.layer(torch.ones(1, 1)).sum()

    def on_validation_epoch_start(self) -> None:
        self.validated.append([])

    def validation_step(self, batch: Any, number: int) -> None:
        self.validated[-1].append(batch)


def fitted(data: Any, val: Any = None, ckpt: Path | None = None, **options: Any) -> Seeing:
    model, saves = Seeing(), bool(options.get("callbacks"))
    trainer_of(enable_checkpointing=saves, **options).fit(model, data, val, ckpt_path=ckpt)
    return model


def five() -> lz.torch.Loader[int]:
    return lz.torch.loader(lz.source(range(5)))


SAVING: dict[str, dict[str, Any]] = {
    "every step": {"every_n_train_steps": 1},
    "every epoch": {"every_n_epochs": 1, "save_on_train_epoch_end": True},
}
SHUFFLED = lz.source(range(10)) | lz.shuffle(seed=0)
ORDERS = [list(lz.run(SHUFFLED, lz.init(SHUFFLED, epoch=epoch))) for epoch in range(3)]


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
class TestLoops:
    def test_a_sanity_check_eats_no_validation(self) -> None:
        assert fitted(five(), five(), max_epochs=2).validated == [[0, 1], *[[*range(5)]] * 2]

    def test_limited_validations(self) -> None:
        found = fitted(five(), five(), max_epochs=2, limit_val_batches=3)
        assert found.validated == [[0, 1], [0, 1, 2], [0, 1, 2]]

    def test_overfitting(self) -> None:
        found = fitted(five(), five(), max_epochs=2, overfit_batches=2, num_sanity_val_steps=0)
        assert found.trained == found.validated == [[0, 1]] * 2

    @pytest.mark.parametrize(
        ("mode", "letters"),
        [
            ("min_size", "abc"),
            ("max_size_cycle", "abcab"),
            ("max_size", ["a", "b", "c", None, None]),
        ],
    )
    def test_combined_loaders(self, mode: Any, letters: Any) -> None:
        both = {"number": five(), "letter": lz.torch.loader(lz.source([*"abc"]))}
        found = fitted(CombinedLoader(both, mode), max_epochs=2)
        pairs = [{"number": n, "letter": c} for n, c in zip(range(5), letters, strict=False)]
        assert found.trained == [pairs, pairs]

    @pytest.mark.parametrize("saving", ["every step", "every epoch"])
    @pytest.mark.parametrize("size", [None, 3])
    def test_checkpoints_of_combined_loaders(
        self, saving: str, size: int | None, tmp_path: Path
    ) -> None:
        """The shorter one begins a new pass in each epoch, and again within it."""
        three = lz.source([*"abc"]) | lz.shuffle(seed=0)

        def both() -> CombinedLoader:
            short = three if size is None else three | lz.repeat()
            loaders = {"number": five(), "letter": lz.torch.loader(short, epoch_size=size)}
            return CombinedLoader(loaders, "max_size_cycle")

        def train(ckpt: Path | None = None) -> list[Any]:
            saves = ModelCheckpoint(tmp_path, "{step:02}", save_top_k=-1, **SAVING[saving])
            callbacks = [saves, lz.lightning.PipelineCallback()]
            found = fitted(both(), ckpt=ckpt, callbacks=callbacks, max_epochs=3)
            return [batch for loop in found.trained for batch in loop]

        whole = train()
        saved = sorted(tmp_path.glob("*.ckpt"))
        for path in saved[1:6] if saving == "every step" else saved[:2]:
            assert train(path) == whole[int(path.stem.removeprefix("step=")) :]

    def test_a_second_fit_begins_the_next_epoch(self) -> None:
        batches = lz.torch.loader(SHUFFLED)
        assert fitted(batches, max_steps=4).trained == [ORDERS[0][:4]]
        assert fitted(batches, max_epochs=2).trained == ORDERS[1:]

    @pytest.mark.parametrize(
        ("loader", "saving", "limit"),
        [
            ("indexed", "every step", 3),
            ("a stream", "every step", 3),
            ("of a size", "every step", 3),
            ("endless", "every step", 3),
            ("indexed", "every epoch", 3),
            ("of a size", "every epoch", 3),
            ("indexed", "every epoch", 10),
            ("endless", "every epoch", 10),
        ],
    )
    def test_checkpoints_of_limited_epochs(
        self, loader: str, saving: str, limit: int, tmp_path: Path
    ) -> None:
        """Lightning restores no state of a loader at the end of an epoch, but tells its number."""
        stages: Any = lz.map(int) if loader != "a stream" else lz.flat_map(lambda x: [x])
        pipeline = SHUFFLED | (lz.repeat() | stages if loader == "endless" else stages)
        size = None if loader in ("indexed", "a stream") else 10

        def data() -> lz.torch.Loader[int]:
            return lz.torch.loader(pipeline, epoch_size=size)

        saves = ModelCheckpoint(tmp_path, "{step:02}", save_top_k=-1, **SAVING[saving])
        limits: dict[str, Any] = {"max_epochs": 3, "limit_train_batches": limit}
        whole = fitted(data(), callbacks=[saves], **limits)
        expected = [x for loop in whole.trained for x in loop]
        if loader != "endless":
            assert expected == [x for order in ORDERS for x in order[:limit]]
        for saved in sorted(tmp_path.glob("*.ckpt"))[-4:]:
            step = int(saved.stem.removeprefix("step="))
            resumed = fitted(data(), ckpt=saved, **limits)
            assert [x for loop in resumed.trained for x in loop] == expected[step:]


def test_without_a_length_a_batch_is_lost(tmp_path: Path) -> None:
    """Lightning's doing: it pulls one ahead, to know which is the last."""

    def train(steps: int, ckpt: Path | None = None) -> list[list[Any]]:
        saves = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=4)
        data = lz.torch.loader(SHUFFLED | lz.repeat())
        return fitted(data, ckpt=ckpt, callbacks=[saves], max_steps=steps).trained

    assert train(4) == [ORDERS[0][:4]]
    assert train(8, tmp_path / "step=4.ckpt") == [ORDERS[0][5:9]]


# --- checkpoints on an exception ---


class Failing(Model):
    """It fails at a place of a batch, unless that is None."""

    def __init__(self, place: str | None = None, batch: int = 0) -> None:
        super().__init__()
        torch.nn.init.constant_(self.layer.weight, 0.5)
        torch.nn.init.constant_(self.layer.bias, 0.5)
        self.place, self.batches, self.batch = place, 0, batch

    def fail(self, place: str) -> None:
        if place == self.place and self.batches == self.batch:
            raise RuntimeError(place)

    def training_step(self, batch: Any, number: int) -> Any:
        self.batches += 1
        self.fail("before the step")
        return super().training_step(batch, number)

    def on_train_epoch_start(self) -> None:
        self.fail("at the epoch's beginning")

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        self.fail("after the step")

    def on_train_batch_end(self, *_: Any) -> None:
        self.fail("at the batch's end")

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


ROWS = lz.source(range(20)) | lz.shuffle(seed=0) | lz.batch(4, collate=floats)


def finished(model: Model, saves: Any, ckpt: Path | None = None, every: int = 1) -> dict[str, Any]:
    trainer = trainer_of(
        max_epochs=2,
        accumulate_grad_batches=every,
        callbacks=[saves, lz.lightning.PipelineCallback()],
        enable_checkpointing=isinstance(saves, Checkpoint),
    )
    trainer.fit(model, lz.torch.loader(ROWS), ckpt_path=ckpt)
    (schedule,) = trainer.lr_scheduler_configs
    learned = {"lr": schedule.scheduler.get_last_lr(), "step": trainer.global_step}
    return {**learned, **{name: value.tolist() for name, value in model.state_dict().items()}}


@cache
def undisturbed(every: int) -> dict[str, Any]:
    return finished(Failing(), pl.Callback(), every=every)


@pytest.mark.parametrize("batch", [1, 4, 5, 8])
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("place", ["before the step", "after the step", "at the batch's end"])
def test_a_checkpoint_on_an_exception(place: str, every: int, batch: int, tmp_path: Path) -> None:
    if place == "after the step" and every == 2 and batch in (1, 8):
        return  # there is no optimizer step
    saves = OnExceptionCheckpoint(tmp_path)
    with pytest.raises(RuntimeError, match=place):
        finished(Failing(place, batch), saves, every=every)
    resumed = finished(Failing(), saves, tmp_path / "on_exception.ckpt", every)
    assert resumed == undisturbed(every)


class Requeued(Failing):
    """It saves at a place of a batch, as Lightning does on a signal of SLURM, in its handler."""

    def __init__(self, place: str, batch: int, file: Path) -> None:
        super().__init__(place, batch)
        self.file = file

    def fail(self, place: str) -> None:
        if place == self.place and self.batches == self.batch:
            self.trainer.save_checkpoint(self.file)


@pytest.mark.parametrize("batch", [1, 5, 8])
@pytest.mark.parametrize("place", ["before the step", "at the batch's end"])
def test_a_checkpoint_within_a_batch(place: str, batch: int, tmp_path: Path) -> None:
    file = tmp_path / "requeued.ckpt"
    assert finished(Requeued(place, batch, file), pl.Callback()) == undisturbed(1)
    assert finished(Failing(), pl.Callback(), file) == undisturbed(1)


def test_a_checkpoint_on_an_exception_between_epochs(tmp_path: Path) -> None:
    saves = OnExceptionCheckpoint(tmp_path)
    with pytest.raises(RuntimeError, match="beginning"):
        finished(Failing("at the epoch's beginning", 5), saves)
    assert finished(Failing(), saves, tmp_path / "on_exception.ckpt") == undisturbed(1)


@pytest.mark.parametrize("longer", [{"max_steps": 23}, {"max_epochs": 3}], ids=str)
@pytest.mark.parametrize("shorter", [{"max_steps": 7}, {"max_steps": 10}, {"max_epochs": 1}])
@pytest.mark.parametrize("has_validation", [False, True], ids=str)
def test_a_finished_run_continues(
    has_validation: bool, shorter: dict[str, int], longer: dict[str, int], tmp_path: Path
) -> None:
    """Lightning counts an epoch that `max_steps` ended as a whole one, or begins it twice."""

    def train(options: dict[str, int], ckpt: Path | None = None) -> tuple[pl.Trainer, list[Any]]:
        options = {"max_epochs": -1, "enable_checkpointing": False, **options}
        trainer = trainer_of(callbacks=[lz.lightning.PipelineCallback()], **options)
        model, val = Seeing(), five() if has_validation else None
        trainer.fit(model, lz.torch.loader(SHUFFLED), val, ckpt_path=ckpt)
        return trainer, [batch for loop in model.trained for batch in loop]

    trainer, first = train(shorter)
    trainer.save_checkpoint(tmp_path / "first.ckpt")
    whole, expected = train(longer)
    resumed, rest = train(longer, tmp_path / "first.ckpt")
    assert first + rest == expected
    assert resumed.current_epoch == whole.current_epoch


def test_a_model_checkpoint_on_an_exception(tmp_path: Path) -> None:
    saves = ModelCheckpoint(tmp_path, "last", save_on_exception=True, every_n_epochs=9)
    with pytest.raises(RuntimeError, match="after the step"):
        finished(Failing("after the step", 3), saves)
    assert finished(Failing(), saves, tmp_path / "last.ckpt") == undisturbed(1)


def test_an_error_of_the_pipeline_counts_no_batch_twice(tmp_path: Path) -> None:
    """Nor does it lose the one at which it came."""
    broken = [False]

    def fail_once(batch: Any) -> Any:
        if 7 in batch["number"] and broken:
            raise ValueError(broken.pop())
        return batch

    class Data(pl.LightningDataModule):
        def train_dataloader(self) -> Any:
            return lz.torch.loader(ROWS | lz.map(fail_once))

    def train(ckpt: Path | None = None) -> list[Any]:
        model, saves = Failing(), OnExceptionCheckpoint(tmp_path)
        trainer = trainer_of(max_epochs=2, callbacks=[saves, lz.lightning.PipelineCallback()])
        trainer.fit(model, Data(), ckpt_path=ckpt)
        return [value.tolist() for value in model.parameters()]

    broken.clear()
    expected = train()
    broken.append(True)
    with pytest.raises(ValueError, match="True"):
        train()
    assert train(tmp_path / "on_exception.ckpt") == expected


def test_the_callback_refuses_a_loader_without_a_length() -> None:
    with pytest.raises(lz.PipelineError, match=r"has no length, .*epoch_size="):
        fitted(lz.torch.loader(pipeline_of()), callbacks=[lz.lightning.PipelineCallback()])


def test_with_the_callback_a_state_is_restored_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    """The position of an endless pipeline after limited epochs is only in its state."""
    limits: dict[str, Any] = {"max_epochs": 3, "limit_train_batches": 3}

    def train(ckpt: Path | None = None) -> list[list[Any]]:
        data = lz.torch.loader(SHUFFLED | lz.repeat(), epoch_size=5)
        saves = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, save_on_train_epoch_end=True)
        callbacks = [saves, lz.lightning.PipelineCallback()]
        return fitted(data, ckpt=ckpt, callbacks=callbacks, **limits).trained

    whole = train()
    assert [x for loop in whole for x in loop] == ORDERS[0][:9]
    assert train(tmp_path / "step=3.ckpt") == whole[1:]
