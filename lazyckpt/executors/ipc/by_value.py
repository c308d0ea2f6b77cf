"""Pickle what cloudpickle doesn't: functions with a cache, items of the main module's classes."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from functools import cache, cached_property, lru_cache, update_wrapper
from io import BytesIO
from operator import attrgetter
from typing import Any

from toolz import identity

MAIN = ("__main__", "__mp_main__")  # the second in a process that multiprocessing has spawned
CachedFunction = type(lru_cache(identity))


def reduce_cached(fn: Any) -> Any:
    """Return the name of a function with a cache, or how to make it again with an empty cache.

    A function of the main module, or one that its name doesn't find, has no name in a worker.
    """
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", "")
    if module in sys.modules and module not in MAIN:
        try:
            if attrgetter(name)(sys.modules[module]) is fn:
                return name
        except AttributeError:
            pass
    return _empty, (fn.cache_parameters(),), fn.__wrapped__, None, None, _fill


class _Later:
    """A function that is filled in, as it may refer to the one with a cache."""

    fn: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def _empty(parameters: Mapping[str, Any]) -> Any:
    return lru_cache(**parameters)(_Later())


def _fill(cached: Any, fn: Callable[..., Any]) -> None:
    cached.__wrapped__.fn = fn
    update_wrapper(cached, fn)


def reduce_property(found: cached_property[Any]) -> Any:
    """Return how to make a property again, without the lock that it has on Python 3.11."""
    return _property, (found.attrname,), found.func, None, None, _fill_property


def _property(name: str | None) -> cached_property[Any]:
    found = cached_property[Any](identity)
    if name is not None:
        found.__set_name__(object, name)
    return found


def _fill_property(found: cached_property[Any], fn: Callable[[Any], Any]) -> None:
    found.func, found.__doc__ = fn, fn.__doc__


@cache
def answering(pickler: Any) -> Any:
    """Return a class of cloudpickle's picklers for what goes back to the main module.

    Its classes are pickled by name, as cloudpickle would set all of their attributes anew there.
    They are pickled by value next to that, for names that don't lead there.
    """

    class Answering(pickler):  # type: ignore[misc]  # a class that is given
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, type):
                if value.__module__ in MAIN and "<locals>" not in value.__qualname__:
                    return _class_of_main, (value.__qualname__, _dumped(pickler, value))
            elif (reduced := _without_dict(value)) is not None:
                return reduced
            return super().reducer_override(value)

    return Answering


@cache
def _dumped(pickler: Any, kind: type) -> bytes:
    file = BytesIO()
    pickler(file, 5).dump(kind)
    return file.getvalue()


def _class_of_main(name: str, dumped: bytes) -> Any:
    try:
        found = attrgetter(name)(sys.modules["__main__"])
    except AttributeError:
        found = None
    is_it = isinstance(found, type) and found.__qualname__ == name
    return found if is_it else pickle.loads(dumped)


def _without_dict(value: Any) -> Any:
    """Return how to make an object with slots again, as cloudpickle's copy of its class has none.

    None for other objects.
    """
    is_ours = type(value).__module__ in MAIN and hasattr(value, "__slots__")
    if not is_ours or hasattr(value, "__setstate__"):
        return None
    reduced = value.__reduce_ex__(5)
    if isinstance(reduced, str) or len(reduced) < 3 or not isinstance(reduced[2], tuple):
        return None
    attributes, slots = reduced[2]
    return (*reduced[:2], (None, {**(attributes or {}), **slots}), *reduced[3:])
