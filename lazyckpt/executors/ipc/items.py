"""Pickle the items of a chunk separately, so that they arrive as independent objects.

In a single pickle, an object that several items share, such as a cached array, would arrive as
one object: a write into one item would change later items.
"""

from __future__ import annotations

import pickle
from typing import Any

from lazyckpt.executors.ipc.pickler import Pickler

_VALUES = {int, float, complex, bool, str, bytes, type(None), range}  # immutable


class Items:
    """Items that are pickled one by one; their large buffers belong to the whole message."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __reduce__(self) -> tuple[Any, ...]:
        pickler = Pickler()
        pickles, starts, large = bytearray(), list[int](), list[pickle.PickleBuffer]()
        for item in self._items:
            starts.append(len(pickles))
            pickled, buffers = pickler.dump(item)
            pickles += pickled
            large += map(pickle.PickleBuffer, buffers)
        return _opened, (bytes(pickles), starts, large)


def apart(items: list[Any]) -> Any:
    """Return an object to pickle in place of a list of items; unpickling it returns the list."""
    is_safe = len(items) < 2 or _VALUES.issuperset(map(type, items))
    return [*items] if is_safe else Items(items)


def _opened(pickles: bytes, starts: list[int], large: list[Any]) -> list[Any]:
    view, buffers = memoryview(pickles), iter(large)
    return [pickle.loads(view[start:], buffers=buffers) for start in starts]
