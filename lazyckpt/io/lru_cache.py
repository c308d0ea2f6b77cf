"""What was used last, kept in memory up to so many bytes."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet


class _HasSize(Protocol):
    @property
    def size(self) -> int: ...


T = TypeVar("T", bound=_HasSize)


class _Place(Generic[T]):
    """Where a value is, once a thread has made it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: T | None = None
        self.size = 0


class LRUCache(Generic[T]):
    """Values by keys, those used last, of so many bytes in all; one in any case.

    One thread makes a value, and others wait for it. A forked process, and one that gets a
    pickle, begins without any.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._places: OrderedDict[Any, _Place[T]] = OrderedDict()
        self.renew()
        _caches.add(self)

    def renew(self) -> None:
        self._forked = self._places  # to close what a thread holds may never end
        self._lock = threading.Lock()
        self._places = OrderedDict()
        self._size = 0
        self._left: Any = None  # the key that was left last

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """What is kept, or else what `make` gives."""
        with self._lock:
            place = self._places.setdefault(key, _Place())
            self._places.move_to_end(key)
        with place.lock:
            if place.value is None:
                try:
                    place.value = make()
                finally:
                    self._made(key, place)
            return place.value

    def _made(self, key: Any, place: _Place[T]) -> None:
        with self._lock:
            if self._places.get(key) is not place:  # dropped meanwhile
                return
            if place.value is None:  # but an error
                del self._places[key]
                return
            place.size = place.value.size
            self._size += place.size
            while self._size > self.most and len(self._places) > 1:
                self._size -= self._places.popitem(last=False)[1].size

    def leave(self, key: Any, count: float) -> None:
        """A value was read to its end, in order, as one of about so many.

        Of these the last two stay, where not all of them fit: the others would be dropped before
        they are read again.
        """
        with self._lock:
            place = self._places.get(key)
            if place is not None and place.size * count > self.most and self._left != key:
                if (left := self._places.pop(self._left, None)) is not None:
                    self._size -= left.size
                self._left = key

    def values(self) -> list[T]:
        """What is kept."""
        with self._lock:
            return [place.value for place in self._places.values() if place.value is not None]

    def __reduce__(self) -> tuple[Any, ...]:
        return LRUCache, (self.most,)


_caches: WeakSet[LRUCache[Any]] = WeakSet()


def _renew_all() -> None:
    for cache in _caches:
        cache.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
