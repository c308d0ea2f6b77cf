"""Batches in page-locked memory, for faster copies to a device."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np

from lazyckpt.executors.device import map_values


def has_device() -> bool:
    """Return whether torch is imported, and finds a device for which memory can be pinned."""
    torch: Any = sys.modules.get("torch")
    if torch is None or torch.backends.mps.is_available():  # MPS has no pinned memory
        return False
    return bool(getattr(torch, "accelerator", torch.cuda).is_available())


def pinned(batch: Any, arrays: bool = False) -> Any:
    """Return the batch with its tensors pinned, and with `arrays` also NumPy's numeric arrays."""
    if hasattr(batch, "pin_memory"):
        is_elsewhere = getattr(getattr(batch, "device", None), "type", "cpu") != "cpu"
        return batch if is_elsewhere else batch.pin_memory()
    if arrays and isinstance(batch, np.ndarray) and batch.dtype.kind in "biuf":
        found = np.require(batch, requirements="W")  # torch warns about read-only arrays
        return sys.modules["torch"].from_numpy(found).pin_memory().numpy()
    return map_values(partial(pinned, arrays=arrays), batch)
