"""A loader for torch, datasets and samplers for its DataLoader, and shared work: `lz.torch`."""

from __future__ import annotations

try:
    import torch  # noqa: F401  # the modules below need it
except ImportError as error:
    raise ImportError(f'lz.torch: pip install "lazyckpt[torch]" ({error})') from None

from lazyckpt.compat.samplers import sampler
from lazyckpt.integrations.torch.dataset import Dataset, dataset, state
from lazyckpt.integrations.torch.loader import Loader, loader
from lazyckpt.integrations.torch.shared import shared

__all__ = ["Dataset", "Loader", "dataset", "loader", "sampler", "shared", "state"]
