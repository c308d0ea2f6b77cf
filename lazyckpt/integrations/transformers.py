"""Hugging Face's Trainer, with the state of the data in its checkpoints: `lz.transformers`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from operator import itemgetter
from typing import Any

from lazyckpt.core.checks import Unfit, checked
from lazyckpt.errors import ArgumentError, PipelineError

try:
    from torch.utils.data import DataLoader, Dataset
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_callback import ExportableState
    from transformers.trainer_utils import has_length

    from lazyckpt.integrations.torch import Loader
    from lazyckpt.integrations.torch.loader import torch_loader
except ImportError as error:
    raise ImportError(f'lz.transformers: pip install "lazyckpt[transformers]" ({error})') from None

__all__ = ["PipelineCallback", "feed"]


def feed(trainer: Trainer, loader: Loader[Any]) -> None:
    """Train a Trainer, of any class, on a loader, and save the loader's state in its checkpoints.

    `train(resume_from_checkpoint=True)` continues with exactly the next batch and reads no earlier
    one. Batches, steps, logged epochs, events and weights are those of a run that never stopped,
    with any `gradient_accumulation_steps`.

    Each epoch of the Trainer has `len(loader)` batches. A loader without a length needs
    `max_steps`, and the Trainer then has one epoch of that many steps. To evaluate, log or save by
    epoch, give the loader an `epoch_size`.

    The Trainer computes its epoch from the number of steps. If a resume changes the number of items
    per step, or sets `ignore_data_skip`, the data still continue with the next batch, but the
    Trainer's epochs no longer begin with the epochs of the data.

    If a callback sets `control.should_epoch_stop`, the next epoch begins a new pass, as after a
    `break` out of a loop over the loader. A run that is resumed from the end of such an epoch
    trains on the rest of it first, and logs the epoch computed from the steps.

    The saved state is that after the last step of the optimizer. So a checkpoint on a SIGTERM
    (`enable_jit_checkpoint`) is exact too. The Trainer saves nothing on an exception.

    Only rank 0 writes the checkpoint's state; `lz.shard` gives each rank its batches. The Trainer
    doesn't prepare the loader, so no batch is drawn ahead, and `per_device_train_batch_size` and
    `dataloader_num_workers` have no effect.

    Args:
        trainer: A `transformers.Trainer`.
        loader: A loader from `lz.torch.loader`.

    Raises:
        ArgumentError: If the Trainer is set to evaluate, log or save by epoch and the loader has no
            length.
        PipelineError: From `train`, if the checkpoint has no state of the data.

    Example:
        trainer = Trainer(model, TrainingArguments("out", max_steps=1000))
        lz.transformers.feed(trainer, lz.torch.loader(pipeline, lz.threads(4)))
        trainer.train(resume_from_checkpoint=True)
    """
    trainer = checked("feed", "trainer", trainer, _trainer)
    loader = checked("feed", "loader", loader, torch_loader)
    _check_epochs(trainer.args, loader)
    numbers: Any = _Numbers(loader)
    batches = DataLoader(_Batches(loader), batch_sampler=numbers, collate_fn=itemgetter(0))
    trainer.get_train_dataloader = lambda: batches
    trainer.remove_callback(PipelineCallback)
    trainer.add_callback(PipelineCallback())


def _trainer(value: Any) -> Trainer:
    if not isinstance(value, Trainer):
        raise Unfit("a transformers.Trainer")
    return value


def _check_epochs(args: Any, loader: Loader[Any]) -> None:
    if has_length(loader):
        return
    for name in ("eval_strategy", "logging_strategy", "save_strategy"):
        if getattr(args, name) == "epoch":
            raise ArgumentError(
                f"feed: {name}='epoch', but the loader has no length, so the Trainer has no "
                "epochs; make it with lz.torch.loader(..., epoch_size=...)"
            )


class _Numbers:
    """The numbers of an epoch's batches; a resumed Trainer skips them without reading batches."""

    def __init__(self, loader: Loader[Any]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[list[int]]:
        found: Iterable[int] = range(len(self)) if has_length(self) else count()
        return ([number] for number in found)

    def __len__(self) -> int:
        return len(self._loader)


class _Batches(Dataset[Any]):
    """A dataset that returns the loader's next batch, whatever the number in the epoch."""

    def __init__(self, loader: Loader[Any]) -> None:
        self.loader = loader
        self.restart()

    def restart(self) -> None:
        """Leave the loop over the loader, and begin a new one."""
        self._stream = _stream(self.loader)

    def __getitem__(self, number: int) -> Any:
        return next(self._stream)


def _stream(loader: Loader[Any]) -> Iterator[Any]:
    """Yield the batches of consecutive loops, until one is empty."""
    is_empty = False
    while not is_empty:
        is_empty = True
        for batch in loader:
            is_empty = False
            yield batch


class PipelineCallback(TrainerCallback, ExportableState):
    """Save and restore the state of the Trainer's loader; added by `feed`.

    The state is that after the last step, because on a SIGTERM the Trainer saves in the middle of
    batches.
    """

    def __init__(self) -> None:
        self.loader: Loader[Any] | None = None
        self._data: dict[str, Any] | None = None

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"data": self._data}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        batches = others["train_dataloader"].dataset
        self.loader = loader = batches.loader
        if state.global_step:  # else the callbacks' states don't come from a checkpoint
            saved = state.stateful_callbacks.get("PipelineCallback", {"attributes": {}})
            data = saved["attributes"].get("data")
            if data is None:
                raise PipelineError(
                    f"the checkpoint of step {state.global_step} has no state of the data: "
                    "no loader was fed to the Trainer that wrote it"
                )
            loader.load_state_dict(data)
        batches.restart()
        self._data = loader.state_dict()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        assert self.loader is not None
        self._data = self.loader.state_dict()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if control.should_epoch_stop:
            others["train_dataloader"].dataset.restart()
