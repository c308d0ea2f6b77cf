"""Values: attributes that can't be set, properties computed once, comparison."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar, overload

import numpy as np

from lazyckpt.core.checks import Shown

T = TypeVar("T")


class Frozen:
    """An immutable value. Its constructor uses `object.__setattr__`, or its `__dict__`."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: {name} cannot be deleted")


class cached_property(Generic[T]):  # noqa: N801  # like functools and property
    """A property that is computed on first access, without a lock.

    Until Python 3.12, the one in functools has a lock for all instances, which a forked process
    might find locked. Here, two threads that read the property for the first time may both compute
    it; both get the same value.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> cached_property[T] | T:
        if instance is None:
            return self
        found: T = instance.__dict__.setdefault(self._name, self._compute(instance))
        return found


def same(a: Any, b: Any) -> bool:
    """Compare by value; by identity if the values can't be compared."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, np.memmap):
        return (a.filename, a.offset, a.shape, a.dtype) == (b.filename, b.offset, b.shape, b.dtype)
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    try:
        return bool(a == b)
    except Exception:  # a tensor or a frame: its == is not a bool
        equal = getattr(a, "equals", None) or getattr(a, "equal", None)
    with suppress(Exception):  # of tensors on two devices
        return callable(equal) and bool(equal(b))
    return False


def hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((k, hashable(v)) for k, v in value.items())
    return value


def is_function(value: Any) -> bool:
    """Return whether a value is meant to be called, unlike a stage."""
    return callable(value) and not isinstance(value, Shown)
