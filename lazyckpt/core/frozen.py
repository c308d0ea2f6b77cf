"""`Frozen`: values, whose attributes nothing sets once they are made."""

from __future__ import annotations

from typing import Any


class Frozen:
    """A value. It is filled by way of `object.__setattr__`, or of its `__dict__`."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: {name} cannot be deleted")
