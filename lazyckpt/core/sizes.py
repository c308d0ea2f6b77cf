"""Approximate sizes of items."""

from __future__ import annotations

import sys
from collections import deque
from itertools import islice
from typing import Any

UNKNOWN_BYTES = 1 << 20  # assumed size of an item if unknown
_FLAT = {int, float, bool, complex, str, bytes, bytearray, type(None), range}


def item_bytes(items: list[Any]) -> float:
    """Return the approximate bytes per item: of the first one, or of the last if that is larger."""
    try:
        size = _bytes(items[0]) if items else 0
        return size if len(items) < 2 else max(size, _bytes(items[-1]))
    except Exception:  # attributes that a class computes
        return UNKNOWN_BYTES


def _bytes(item: Any, depth: int = 0) -> float:
    kind = type(item)
    if kind in _FLAT:
        return sys.getsizeof(item)
    if depth > 8 or getattr(getattr(item, "dtype", None), "hasobject", False):
        return UNKNOWN_BYTES
    size = getattr(item, "nbytes", None)  # arrays, tensors, NumPy's numbers
    if isinstance(size, int):
        return size + 128
    if isinstance(item, (list, tuple, set, frozenset, dict, deque)):
        values = item.values() if isinstance(item, dict) else item
        some = [*islice(values, 8)]
        is_flat = _FLAT.issuperset(map(type, some))
        sizes = map(sys.getsizeof, some) if is_flat else [_bytes(each, depth + 1) for each in some]
        return sys.getsizeof(item) + (sum(sizes) / len(some) * len(item) if some else 0)
    if getattr(kind, "__dict__", None) is not None and hasattr(item, "__dict__"):
        return _bytes(vars(item), depth + 1)
    return UNKNOWN_BYTES
