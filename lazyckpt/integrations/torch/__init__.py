"""A dataset for torch's DataLoader, and a loader where none is needed: `lz.torch`."""

from __future__ import annotations

try:
    import torch  # noqa: F401  # what the rooms below need
except ImportError as error:
    raise ImportError(f'lz.torch: pip install "lazyckpt[torch]" ({error})') from None

from lazyckpt.compat.samplers import sampler
from lazyckpt.integrations.torch.dataset import Dataset, dataset, state
from lazyckpt.integrations.torch.loader import Loader, loader
from lazyckpt.integrations.torch.shared import shared

__all__ = ["Dataset", "Loader", "dataset", "loader", "sampler", "shared", "state"]
