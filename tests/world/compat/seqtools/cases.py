"""Data for the tests that compare a `DataLoader` with torch's."""

from __future__ import annotations

from torch.utils.data import IterableDataset

from tests.compat.seqtools import cases


class IterableTen(cases.IterableTen, IterableDataset[int]):
    """A stream that torch knows as one."""
