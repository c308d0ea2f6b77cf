"""Pickle messages, with the large buffers of arrays and tensors kept outside of the pickle."""

from __future__ import annotations

import pickle
from typing import Any

from lazyckpt.executors.ipc.reducers import reducers

LARGE = 1 << 14  # bytes from which a slot is faster than a pickle


class LargeBuffers(list[memoryview]):
    """The large buffers of a pickle: the pickler's callback for buffers."""

    def __call__(self, buffer: pickle.PickleBuffer) -> bool:
        """Return whether a buffer is small and so stays in the pickle; keep it otherwise."""
        view = buffer.raw()
        if len(view) < LARGE:
            return True
        self.append(view)
        return False


class _Parts(list[bytes]):
    """The parts that a pickler writes."""

    write = list.append


class Pickler:
    """A pickler for many messages: creating one takes as long as pickling 100 ints.

    It must not be used again after an error.
    """

    def __init__(self) -> None:
        self._parts, self._large = _Parts(), LargeBuffers()
        self._pickler = pickle.Pickler(self._parts, 5, buffer_callback=self._large)

    def dump(self, message: Any) -> tuple[bytes, list[memoryview]]:
        """Return a pickle and the buffers outside of it."""
        self._pickler.dispatch_table = reducers()
        self._pickler.dump(message)
        self._pickler.clear_memo()
        pickled, large = b"".join(self._parts), self._large[:]
        self._parts.clear()
        self._large.clear()
        return pickled, large
