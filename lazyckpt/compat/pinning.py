"""Batches in page-locked memory, from which they are copied to a device sooner."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np


def has_device() -> bool:
    """Whether torch is loaded, and finds a device that memory is pinned for."""
    torch: Any = sys.modules.get("torch")
    if torch is None or torch.backends.mps.is_available():  # which has none to pin
        return False
    return bool(getattr(torch, "accelerator", torch.cuda).is_available())


def pinned(batch: Any, arrays: bool = False) -> Any:
    """The batch with its tensors pinned, in dicts, lists and tuples too; the rest as it is.

    Args:
        batch: Anything.
        arrays: Whether NumPy's numeric arrays are pinned as well.
    """
    if hasattr(batch, "pin_memory"):
        is_elsewhere = getattr(getattr(batch, "device", None), "type", "cpu") != "cpu"
        return batch if is_elsewhere else batch.pin_memory()
    if arrays and isinstance(batch, np.ndarray) and batch.dtype.kind in "biuf":
        found = np.require(batch, requirements="W")  # torch warns of what is read-only
        return sys.modules["torch"].from_numpy(found).pin_memory().numpy()
    if isinstance(batch, Mapping) and hasattr(batch, "copy"):
        moved: Any = batch.copy()
        moved.update({key: pinned(value, arrays) for key, value in batch.items()})
        return moved
    if isinstance(batch, tuple) and hasattr(batch, "_make"):
        return batch._make(pinned(each, arrays) for each in batch)
    if type(batch) in (list, tuple):
        return type(batch)(pinned(each, arrays) for each in batch)
    return batch
