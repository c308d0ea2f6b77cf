"""Data for the tests of a `DataLoader` beside torch's."""

from __future__ import annotations

import pytest
from torch.utils.data import IterableDataset

from tests.compat.seqtools import cases

# Torch's loaders leave threads for a while.
FORKS_AMONG_THREADS = pytest.mark.filterwarnings(
    "ignore:processes. workers are forked while:RuntimeWarning"
)


class IterableTen(cases.IterableTen, IterableDataset[int]):
    """A stream that torch knows as one."""
