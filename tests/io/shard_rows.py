"""The rows of the shards in `data`, which others' writers made."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data"

MDS = {
    "bytes": "bytes", "str": "str", "int": "int", "u8": "uint8", "i32": "int32", "u64": "uint64",
    "f16": "float16", "f32": "float32", "f64": "float64", "str_int": "str_int",
    "str_float": "str_float", "str_decimal": "str_decimal", "json": "json", "array": "ndarray",
    "typed": "ndarray:int16", "fixed": "ndarray:float32:2,3",
}  # fmt: skip


def mds_sample(n: int) -> dict[str, Any]:
    """Sample number `n` of MDS, as it was written, without its images and pickled values."""
    return {
        "bytes": bytes(range(n)),
        "str": "ä" * n,
        "int": n - 3,
        "u8": np.uint8(n),
        "i32": np.int32(-n),
        "u64": np.uint64(n << 60),
        "f16": np.float16(n / 2),
        "f32": np.float32(n / 4),
        "f64": np.float64(n / 10),
        "str_int": 10 ** (20 + n),
        "str_float": n / 3,
        "str_decimal": Decimal(n) / 4,
        "json": {"n": [n, None]},
        "array": np.arange(n + 1, dtype=np.uint16).reshape(1, n + 1),
        "typed": np.arange(n + 1, dtype=np.int16),
        "fixed": np.full((2, 3), n, np.float32),
    }
