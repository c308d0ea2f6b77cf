"""Items of a chunk on their way to the consumer, as pickles that share nothing.

In one pickle an object that several items hold, such as an array of a cache, would come as
one again: who writes into an item would change those after it.
"""

from __future__ import annotations

import pickle
from io import BytesIO
from typing import Any

from lazyckpt.executors.ipc.reducers import reducers
from lazyckpt.executors.ipc.transport import LARGE

_VALUES = {int, float, complex, bool, str, bytes, type(None), range}  # nobody writes into


class Items:
    """Items, each of which is pickled by itself; their large buffers stay with the message."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __reduce__(self) -> tuple[Any, ...]:
        file, starts, large = BytesIO(), list[int](), list[pickle.PickleBuffer]()

        def small(buffer: pickle.PickleBuffer) -> bool:
            if len(buffer.raw()) < LARGE:
                return True
            large.append(buffer)
            return False

        pickler = pickle.Pickler(file, 5, buffer_callback=small)
        pickler.dispatch_table = reducers()
        for item in self._items:
            starts.append(file.tell())
            pickler.dump(item)
            pickler.clear_memo()
        return _opened, (file.getvalue(), starts, large)


def apart(items: list[Any]) -> Any:
    """Items as they are pickled: a list of them comes out."""
    return [*items] if _VALUES.issuperset(map(type, items)) else Items(items)


def _opened(pickles: bytes, starts: list[int], large: list[Any]) -> list[Any]:
    view, buffers = memoryview(pickles), iter(large)
    return [pickle.loads(view[start:], buffers=buffers) for start in starts]
