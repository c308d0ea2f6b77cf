"""Global generators of random numbers in workers, which a fork would give the same state."""

from __future__ import annotations

import random
import sys
from typing import Any

_torch_is_seeded = False  # in this process, or in one that it was forked from


def seed_generators() -> None:
    """Seed the global generators of this process, which is a worker, by chance.

    Python's and NumPy's have begun that way, and a process that is forked from one has its
    state; torch's begins with the same seed everywhere.
    """
    global _torch_is_seeded
    random.seed()
    if "numpy.random" in sys.modules:  # which NumPy imports when it is first used
        sys.modules["numpy.random"].seed()
    if _torch_is_seeded := "torch" in sys.modules:
        sys.modules["torch"].seed()


def seed_torch() -> None:
    """Seed torch's generator by chance, if it was imported meanwhile and nobody has seeded it."""
    global _torch_is_seeded
    torch: Any = sys.modules.get("torch")
    if _torch_is_seeded or not hasattr(torch, "initial_seed"):
        return
    _torch_is_seeded = True
    if torch.initial_seed() == torch.Generator().initial_seed():
        torch.seed()
