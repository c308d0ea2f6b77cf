"""Hugging Face's Trainer, with the state of its data in its checkpoints: `lz.transformers`."""

from __future__ import annotations

from typing import Any

from lazyckpt.core.checks import Unfit, checked
from lazyckpt.errors import PipelineError

try:
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_callback import ExportableState

    from lazyckpt.integrations.torch import Loader
except ImportError as error:
    raise ImportError(f'lz.transformers: pip install "lazyckpt[transformers]" ({error})') from None

__all__ = ["PipelineCallback", "feed"]


def feed(trainer: Trainer, loader: Loader[Any]) -> None:
    """Train a Trainer, of whatever class, on a loader, and save its state in the checkpoints.

    `train(resume_from_checkpoint=True)` then continues with exactly the next batch,
    and skips none: `feed` sets `ignore_data_skip`, without which the Trainer would
    skip the batches before once more. Only rank 0 writes the checkpoint's
    state: `lz.shard` gives each rank its batches. The Trainer doesn't wrap the
    loader, so it draws no batch ahead; `per_device_train_batch_size` and
    `dataloader_num_workers` do nothing.

    Where `gradient_accumulation_steps` doesn't divide an epoch, a resume in its
    middle accumulates the last batches of it into the next one.

    `train` raises a `PipelineError` where the checkpoint has no state of the data.

    Args:
        trainer: A `transformers.Trainer`.
        loader: From `lz.torch.loader`. Where its length is known the Trainer has
            epochs; else it needs `max_steps`.

    Example:
        trainer = Trainer(model, TrainingArguments("out", max_steps=1000))
        lz.transformers.feed(trainer, lz.torch.loader(pipeline, lz.threads(4)))
        trainer.train(resume_from_checkpoint=True)
    """
    trainer = checked("feed", "trainer", trainer, _trainer)
    loader = checked("feed", "loader", loader, _loader)
    trainer.get_train_dataloader = lambda: loader
    trainer.args.ignore_data_skip = True
    trainer.remove_callback(PipelineCallback)
    trainer.add_callback(PipelineCallback())


def _trainer(value: Any) -> Trainer:
    if not isinstance(value, Trainer):
        raise Unfit("a transformers.Trainer")
    return value


def _loader(value: Any) -> Loader[Any]:
    if not isinstance(value, Loader):
        raise Unfit("what lz.torch.loader gives")
    return value


class PipelineCallback(TrainerCallback, ExportableState):
    """The state of the Trainer's loader, saved and restored. `feed` adds it."""

    def __init__(self) -> None:
        self.loader: Loader[Any] | None = None

    def state(self) -> dict[str, Any]:
        found = None if self.loader is None else self.loader.state_dict()
        return {"args": {}, "attributes": {"data": found}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.loader = loader = others["train_dataloader"]
        saved = state.stateful_callbacks.get("PipelineCallback", {"attributes": {}})
        if data := saved["attributes"].get("data"):
            loader.load_state_dict(data)
        elif state.global_step:
            raise PipelineError(
                f"the checkpoint of step {state.global_step} has no state of the data: "
                "no loader was fed to the Trainer that wrote it"
            )
