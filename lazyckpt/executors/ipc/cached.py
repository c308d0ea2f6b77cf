"""Pickle functions and properties with a cache, of `functools`, for processes without them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache, update_wrapper
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
