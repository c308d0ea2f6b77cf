"""Accelerate, with the ends of a loader's epochs: `lz.accelerate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import length_hint
from typing import Any, Generic, TypeVar

from lazyckpt.core.checks import Unfit, checked

try:
    from accelerate import Accelerator
    from accelerate.data_loader import DataLoaderStateMixin
    from accelerate.state import GradientState

    from lazyckpt.integrations.torch import Loader
    from lazyckpt.integrations.torch.loader import torch_loader
except ImportError as error:
    raise ImportError(f'lz.accelerate: pip install "lazyckpt[accelerate]" ({error})') from None

__all__ = ["Prepared", "prepare"]

T = TypeVar("T")


def prepare(accelerator: Accelerator, loader: Loader[T]) -> Prepared[T]:
    """Register a loader with an Accelerator, for its epochs and its checkpoints.

    `accelerator.accumulate` then steps at the last batch of each epoch, as with a prepared
    DataLoader, even if `gradient_accumulation_steps` doesn't divide the epoch. `save_state` and
    `load_state` include the loader's state, which is the one after the current batch: no batch is
    drawn ahead.

    The last batch is batch `len(loader)` of its epoch. No batch counts as the last if the length is
    unknown, or if an epoch has fewer batches because of `on_error="skip"` or the other ranks of a
    `group`. The remaining gradients then accumulate with the first batches of the next epoch. A
    loader with an `epoch_size` has a length.

    `lz.shard` gives each rank its batches, and the executor `lz.to_device(...)` moves them.

    Args:
        accelerator: An `accelerate.Accelerator`.
        loader: A loader from `lz.torch.loader`.

    Returns:
        The loader for loops within `accelerator.accumulate`.

    Example:
        batches = lz.accelerate.prepare(accelerator, lz.torch.loader(pipeline))
        for batch in batches:
            with accelerator.accumulate(model):
                ...
    """
    found = Prepared(checked("prepare", "loader", loader, torch_loader))
    checked("prepare", "accelerator", accelerator, _accelerator)
    accelerator.register_for_checkpointing(found)
    return found


def _accelerator(value: Any) -> Accelerator:
    if not isinstance(value, Accelerator):
        raise Unfit("an accelerate.Accelerator")
    return value


class Prepared(DataLoaderStateMixin, Generic[T]):
    """A loader that tells Accelerate where its epochs end; made by `prepare`.

    Attributes:
        loader: The loader.
    """

    def __init__(self, loader: Loader[T]) -> None:
        self.loader, self.gradient_state = loader, GradientState()
        self._number = 0

    def __iter__(self) -> Iterator[T]:
        length = length_hint(self.loader)  # 0 if it is unknown
        self.begin()
        self._number = self.loader.start
        try:
            for batch in self.loader:
                self._number += 1
                self.end_of_dataloader = self._number == length
                yield batch
        finally:
            self.end()

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state, for any checkpointer."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move the loader to a state; a running loop continues from there."""
        self.loader.load_state_dict(state)
        self._number = self.loader.start
