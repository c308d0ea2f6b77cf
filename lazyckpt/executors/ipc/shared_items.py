"""A source's list in memory that workers share: pickled once, unpickled item by item."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.call import Call
from lazyckpt.core.checks import Shown
from lazyckpt.core.show import show

_SAMPLE = 64  # items to check
_SMALL = 1 << 10  # bytes that an item may repeat of other items


class SharedItems(Shown):
    """A replacement for a list: each item is unpickled on access.

    The arrays of pickled items lie outside of the pickle of this object, as all large arrays do.
    """

    def __init__(self, shown: str, pickles: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self._shown, self._pickles, self._ends = shown, pickles, ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> Any:
        index = range(len(self))[index]
        return pickle.loads(self._pickles[self._ends[index] : self._ends[index + 1]].data)

    def __repr__(self) -> str:
        return self._shown


def shared_call(call: Call, make_pickler: Callable[[BytesIO, int], pickle.Pickler]) -> Call:
    """Replace the data of a call by `SharedItems` if it is a source of a list or tuple."""
    for name, role in call.functions.items():
        data = call.arguments[name]
        if role == "data" and type(data) in (list, tuple) and not _share_much(data, make_pickler):
            return call.replaced(**{name: _shared(data, make_pickler)})
    return call


def _share_much(items: Sequence[Any], make_pickler: Callable[..., pickle.Pickler]) -> bool:
    """Return whether items share a large object, which each item's pickle would repeat."""
    some = items[:: max(1, len(items) // _SAMPLE)]
    apart, _ = _pickled(some, make_pickler)
    together, _ = _pickled([some], make_pickler)
    return len(apart) > 2 * len(together) + _SMALL * len(some)


def _shared(items: Sequence[Any], make_pickler: Callable[..., pickle.Pickler]) -> SharedItems:
    pickles, ends = _pickled(items, make_pickler)
    return SharedItems(show(items), np.frombuffer(pickles, np.uint8), np.array(ends, np.int64))


def _pickled(
    items: Sequence[Any], make_pickler: Callable[..., pickle.Pickler]
) -> tuple[memoryview, list[int]]:
    """Return the pickles of items, one after the other, and where each ends, after a 0."""
    file, ends = BytesIO(), [0]
    pickler = make_pickler(file, 5)
    for item in items:
        pickler.dump(item)
        pickler.clear_memo()
        ends.append(file.tell())
    return file.getbuffer(), ends
