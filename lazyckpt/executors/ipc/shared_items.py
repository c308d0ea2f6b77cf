"""A source's list in memory that workers share: pickled once, unpickled item by item."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
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


def shared_call(call: Call, dumps: Callable[[Any], bytes]) -> Call:
    """Replace the data of a call by `SharedItems` if it is a source of a list or tuple."""
    for name, role in call.functions.items():
        data = call.arguments[name]
        if role == "data" and type(data) in (list, tuple) and not _share_much(data, dumps):
            return call.replaced(**{name: _shared(data, dumps)})
    return call


def _share_much(items: Sequence[Any], dumps: Callable[[Any], bytes]) -> bool:
    """Return whether items share a large object, which each item's pickle would repeat."""
    some = items[:: max(1, len(items) // _SAMPLE)]
    apart, together = sum(len(dumps(item)) for item in some), len(dumps(some))
    return apart > 2 * together + _SMALL * len(some)


def _shared(items: Sequence[Any], dumps: Callable[[Any], bytes]) -> SharedItems:
    pickles, ends = bytearray(), [0]
    for item in items:
        pickles += dumps(item)
        ends.append(len(pickles))
    return SharedItems(show(items), np.frombuffer(pickles, np.uint8), np.array(ends, np.int64))
