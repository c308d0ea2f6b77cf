"""`cached_property` without a lock, which a forked process might find locked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801  # like functools and property
    """A property that is computed on first access.

    Until Python 3.12, the one in functools has a lock for all instances. Here, two threads that
    read the property for the first time may both compute it; both get the same value.
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
