"""Items of a chunk on their way to the consumer, as pickles that share nothing.

In one pickle an object that several items hold, such as an array of a cache, would come as
one again: who writes into an item would change those after it.
"""

from __future__ import annotations

import pickle
from typing import Any

from lazyckpt.executors.ipc.pickler import Pickler

_VALUES = {int, float, complex, bool, str, bytes, type(None), range}  # nobody writes into


class Items:
    """Items, each of which is pickled by itself; their large buffers stay with the message."""

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
    """Items as they are pickled: a list of them comes out."""
    is_safe = len(items) < 2 or _VALUES.issuperset(map(type, items))
    return [*items] if is_safe else Items(items)


def _opened(pickles: bytes, starts: list[int], large: list[Any]) -> list[Any]:
    view, buffers = memoryview(pickles), iter(large)
    return [pickle.loads(view[start:], buffers=buffers) for start in starts]
