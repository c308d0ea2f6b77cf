"""Seed the global random generators of workers, which have equal states after a fork."""

from __future__ import annotations

import random
import sys
from typing import Any

_torch_is_seeded = False  # in this process, or in a process that it was forked from


def seed_generators() -> None:
    """Seed the global generators of this process, a worker, with random seeds.

    Python's and NumPy's generators start with a random seed, which a forked process inherits.
    torch's generator starts with the same seed in every process.
    """
    global _torch_is_seeded
    random.seed()
    if "numpy.random" in sys.modules:  # NumPy imports it on first use
        sys.modules["numpy.random"].seed()
    if _torch_is_seeded := "torch" in sys.modules:
        sys.modules["torch"].seed()


def seed_torch() -> None:
    """Seed torch's generator randomly, if torch was imported since and has its default seed."""
    global _torch_is_seeded
    torch: Any = sys.modules.get("torch")
    if _torch_is_seeded or not hasattr(torch, "initial_seed"):
        return
    _torch_is_seeded = True
    if torch.initial_seed() == torch.Generator().initial_seed():
        torch.seed()
