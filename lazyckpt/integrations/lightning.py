"""Lightning, with the exact state of the data in every checkpoint: `lz.lightning`."""

from __future__ import annotations

from typing import Any

try:
    from lightning.fabric.utilities.data import has_len
    from lightning.pytorch import Callback
    from lightning.pytorch.utilities import CombinedLoader

    from lazyckpt.errors import PipelineError
    from lazyckpt.integrations.torch import Loader
except ImportError as error:
    raise ImportError(f'lz.lightning: pip install "lazyckpt[lightning]" ({error})') from None

__all__ = ["PipelineCallback"]


class PipelineCallback(Callback):
    """Make those checkpoints of Lightning exact that are not exact by themselves.

    Lightning saves and restores loaders itself in most checkpoints. With this callback, training
    continues with exactly the next batch from these checkpoints too:

    - on an exception, such as `OnExceptionCheckpoint` writes: the state is that after the last step
      of the optimizer. The current batch is delivered again, and so are batches whose gradients
      were only accumulated. If the exception came after the optimizer's step, no batch is repeated.
    - during a batch, such as Lightning writes on a signal of SLURM: the batch is delivered again.
    - at the end of an epoch: Lightning restores no loader from it if `max_epochs` ended the
      training run, and in a `CombinedLoader` a loader that was restarted would not start again.
    - at the end of a run with `max_steps`, and at the end of its epochs: Lightning would count an
      epoch twice, and pass over the data of one.

    Raises:
        PipelineError: From `fit`, if a loader has no length.

    Example:
        saves = OnExceptionCheckpoint(folder)
        trainer = pl.Trainer(callbacks=[lz.lightning.PipelineCallback(), saves])
        trainer.fit(model, lz.torch.loader(pipeline))
    """

    def __init__(self) -> None:
        self._loaders: list[Loader[Any]] = []
        self._states: list[Any] = []  # loaded, not yet restored
        self._done: list[Any] = []  # the loaders' states after the last finished batch
        self._has_batch = False  # True while a batch is being trained on
        self._is_training = False

    def state_dict(self) -> dict[str, Any]:
        if not self._has_batch:
            self._note_done()
        return {"data": self._done}

    def _note_done(self) -> None:
        self._done = [loader.state_dict() for loader in self._loaders]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._states = state_dict["data"]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        found = CombinedLoader(trainer.train_dataloader).flattened
        self._loaders = [each for each in found if isinstance(each, Loader)]
        if not all(map(has_len, self._loaders)):
            raise PipelineError(
                "PipelineCallback: a loader has no length, so Lightning draws a batch ahead of its "
                "state, and a resume loses it; make it with lz.torch.loader(..., epoch_size=...)"
            )
        if trainer.fit_loop.restarting or self._states:
            _settle(trainer.fit_loop)
        progress = trainer.fit_loop.epoch_loop.batch_progress
        if self._states and progress.current.ready > progress.current.processed:
            progress.is_last_batch = False  # it was being trained on, and is delivered again
        for loader, state in zip(self._loaders, self._states, strict=bool(self._states)):
            loader.load_state_dict(state)
            if progress.is_last_batch:
                loader.leave()  # a loader that was restarted in the epoch may have batches left
        for loader in self._loaders:
            loader.follow(*trainer.optimizers)
        self._states, self._is_training = [], True
        self._note_done()

    def on_train_batch_start(self, *_: Any) -> None:
        self._has_batch = True

    def on_train_batch_end(self, *_: Any) -> None:
        self._has_batch = False
        self._note_done()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self._loaders and self._is_training:
            back = max(each.state.items - each.trained.items for each in self._loaders)
            loop = trainer.fit_loop.epoch_loop
            _count(loop, loop.batch_progress.current.ready - back)
            for loader in self._loaders:
                loader.rewind()
        self._end()

    def _end(self) -> None:
        self._is_training = self._has_batch = False
        for loader in self._loaders:
            loader.follow()


def _settle(loop: Any) -> None:
    """Let a restored loop begin the next epoch, or continue an epoch that has batches left."""
    epochs, batches = loop.epoch_progress, loop.epoch_loop.batch_progress
    is_between = not loop.restarted_mid_epoch and batches.current.ready > 0
    if is_between and batches.is_last_batch:
        for count in (epochs.current, epochs.total):
            count.ready = count.started = count.completed = count.processed
        loop.epoch_loop.restarting = False
        loop.reset_restart_stage()
    elif is_between and epochs.total.processed == epochs.total.started:  # ended by max_steps
        for count in (epochs.current, epochs.total):
            count.completed = count.processed = count.started - 1
        loop.restarting = True
        loop.update_restart_stage()


def _count(loop: Any, included: int) -> None:
    """Set a loop's counters to the number of batches of the epoch that the weights include."""
    progress = loop.batch_progress
    if progress.current.ready > included:  # a batch is being trained on
        progress.is_last_batch = False
    if included > progress.current.processed:  # an exception after the optimizer's step
        loop.update_lr_schedulers("step", update_plateau_schedulers=False)
        progress.increment_processed()
        steps = loop.automatic_optimization.optim_progress.optimizer.step
        if steps.total.completed < steps.total.ready:
            steps.increment_completed()
    elif back := progress.current.processed - included:  # batches with accumulated gradients
        for count in (progress.current, progress.total):
            left = count.processed - back
            count.ready = count.started = count.processed = count.completed = left
