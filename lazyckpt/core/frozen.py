"""`Frozen`: values whose attributes can't be set once they are built."""

from __future__ import annotations

from typing import Any


class Frozen:
    """An immutable value. Its constructor uses `object.__setattr__`, or its `__dict__`."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: {name} cannot be deleted")
