"""Fourteen rows of x and y, as torch's DataLoader reads them, and as batches of a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np

import lazyckpt as lz
from tests.helpers import Indexed

BATCH, LENGTH, BATCHES = 2, 14, 7
X = np.linspace(-1, 1, LENGTH, dtype=np.float32)[:, None]
ROWS = {"x": X, "y": 2 * X}
TABLE: Any = Indexed(LENGTH, lambda index: {name: values[index] for name, values in ROWS.items()})


def in_order() -> lz.Pipeline[Any]:
    return lz.columns(**ROWS) | lz.batch(BATCH, collate=lz.stack)
