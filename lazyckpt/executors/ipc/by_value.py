"""Pickle what cloudpickle doesn't: functions with a cache, items of the main module's classes."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache, cached_property, lru_cache, update_wrapper
from importlib import import_module
from io import BytesIO
from operator import attrgetter
from types import MemberDescriptorType
from typing import Any

from toolz import identity

MAIN = ("__main__", "__mp_main__")  # the second in a process that multiprocessing has spawned
CachedFunction = type(lru_cache(identity))


def dumped(pickler: Any, content: Any, buffer_callback: Any = None) -> bytes:
    """Return a pickle, made by a new pickler of a class."""
    file = BytesIO()
    pickler(file, 5, buffer_callback=buffer_callback).dump(content)
    return file.getvalue()


def reduce_cached(fn: Any) -> Any:
    """Return the name of a function with a cache, or how to make it again with an empty cache.

    A function of the main module, or one that its name doesn't find, has no name in a worker.
    """
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", "")
    if module in sys.modules and module not in MAIN:
        with suppress(AttributeError):
            if attrgetter(name)(sys.modules[module]) is fn:
                return name
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
def with_slots(pickler: Any) -> Any:
    """Return a class of cloudpickle's picklers whose copies of classes have `__slots__`, too.

    cloudpickle 3.1 makes a class without them.
    """

    class WithSlots(pickler):  # type: ignore[misc]  # a class that is given
        def reducer_override(self, value: Any) -> Any:
            found = super().reducer_override(value)
            is_made = isinstance(value, type) and isinstance(found, tuple)
            slots = vars(value).get("__slots__") if is_made else ()
            if not slots or issubclass(value, Enum):
                return found
            make, (meta, name, bases, given, *more), (attributes, rest), *others = found
            given = {**given, "__slots__": slots}
            kept = {
                name: each
                for name, each in attributes.items()
                if name != "__slots__" and not isinstance(each, MemberDescriptorType)
            }
            return make, (meta, name, bases, given, *more), (kept, rest), *others

    return WithSlots


@cache
def answering(pickler: Any) -> Any:
    """Return a class of cloudpickle's picklers for what goes back to the main module.

    It refers to classes of that module, as cloudpickle would overwrite all of their attributes
    there. They are pickled by value next to that, for a process that doesn't have them.
    """

    class Answering(pickler):  # type: ignore[misc]  # a class that is given
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, type) and value.__module__ in MAIN:
                number = _tracker()._get_or_create_tracker_id(value)
                return _class_of_main, (number, value.__qualname__, _copy(pickler, value))
            return super().reducer_override(value)

    return Answering


def _tracker() -> Any:
    """Return the module that numbers the classes that were pickled by value.

    Nothing public tells which class a copy belongs to. `test_modules` fails if this changes.
    """
    return import_module("cloudpickle.cloudpickle")


@cache
def _copy(pickler: Any, kind: type) -> bytes:
    return dumped(pickler, kind)


def _class_of_main(number: str, name: str, copy: bytes) -> Any:
    """Return the class that was sent with a number, or the one of that name, or a copy."""
    found = _tracker()._DYNAMIC_CLASS_TRACKER_BY_ID.get(number)
    if found is None:
        with suppress(AttributeError):
            found = attrgetter(name)(sys.modules["__main__"])
    is_it = isinstance(found, type) and found.__qualname__ == name
    return found if is_it else pickle.loads(copy)
