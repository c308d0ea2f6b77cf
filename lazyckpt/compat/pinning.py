"""Batches in page-locked memory, from which they are copied to a device sooner."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np

from lazyckpt.executors.device import map_values


def has_device() -> bool:
    """Whether torch is loaded, and finds a device that memory is pinned for."""
    torch: Any = sys.modules.get("torch")
    if torch is None or torch.backends.mps.is_available():  # which has none to pin
        return False
    return bool(getattr(torch, "accelerator", torch.cuda).is_available())


def pinned(batch: Any, arrays: bool = False) -> Any:
    """The batch with its tensors pinned, and with `arrays` NumPy's numeric ones too."""
    if hasattr(batch, "pin_memory"):
        is_elsewhere = getattr(getattr(batch, "device", None), "type", "cpu") != "cpu"
        return batch if is_elsewhere else batch.pin_memory()
    if arrays and isinstance(batch, np.ndarray) and batch.dtype.kind in "biuf":
        found = np.require(batch, requirements="W")  # torch warns of what is read-only
        return sys.modules["torch"].from_numpy(found).pin_memory().numpy()
    return map_values(partial(pinned, arrays=arrays), batch)
