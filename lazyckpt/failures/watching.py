"""Watched functions: which call a worker has not survived, and how to skip it.

A task is computed twice in the same way, from the same position. So a call is known by its
number within the task. If it raises an error instead of running, the stage that skips failing
items skips this one, in the same place and with the same states.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from pickle import Pickler
from types import SimpleNamespace
from typing import Any, TypeAlias

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.content import is_reader
from lazyckpt.failures.guards import Guarded

Record: TypeAlias = tuple[Any, ...]  # the number of a function, and what it was called with

_END: Any = object()


class Watch:
    """Numbers calls as they begin, from 1, and raises an error instead of some of them."""

    def __init__(self, cell: memoryview, errors: Mapping[int, Exception]) -> None:
        """Begin to count.

        Args:
            cell: Memory for the number of the current call; 0 between calls.
            errors: The errors to raise, by number.

        Attributes:
            lost: The records in place of which it has raised an error, by name.
        """
        self.lost: dict[int, Exception] = {}
        self._cell, self._errors = cell, errors
        self._count, self._owner = 0, os.getpid()
        self.is_over = False

    def call(self, record: Record, fn: Callable[..., Any], *args: Any) -> Any:
        """Return the function's result for these arguments of this record."""
        if self.is_over or os.getpid() != self._owner:  # in a worker process of this one
            return fn(*args)
        self._count += 1
        if self._count in self._errors:
            error = self._errors[self._count]
            if (name := name_of(record)) is not None:
                self.lost[name] = _anew(error)
            raise _anew(error)
        before, self._cell[0] = self._cell[0], self._count
        try:
            return fn(*args)
        finally:
            self._cell[0] = before


class _LeftOut:
    """Raises an error instead of calls at which workers were lost before."""

    def __init__(self, lost: Mapping[int, Exception]) -> None:
        self._lost = lost

    def call(self, record: Record, fn: Callable[..., Any], *args: Any) -> Any:
        """Return the function's result for these arguments of this record."""
        name = name_of(record)
        if name is not None and name in self._lost:
            raise _anew(self._lost[name])
        return fn(*args)


def _anew(error: Exception) -> Exception:
    """Return the same error unraised: a raised one has a traceback, which grows."""
    return type(error)(*error.args)


def name_of(record: Record) -> int | None:
    """Return a number below `LOST_NAMES`, equal in all processes; None if it can't be pickled."""
    digest = import_module("hashlib").blake2b(digest_size=5)  # slow to import, seldom wanted
    pickler = Pickler(SimpleNamespace(write=digest.update), 5)
    pickler.fast = True  # so that one object twice pickles like two equal ones
    try:
        pickler.dump(record)
    except Exception:
        return None
    return int.from_bytes(digest.digest(), "little")


class _Watched:
    """A function, or indexable data, whose calls are watched. It pickles as the original.

    Attributes:
        record: The beginning of the name of each of its records.
    """

    def __init__(self, fn: Any, watch: Watch | _LeftOut, record: Record) -> None:
        self.fn, self.watch, self.record = fn, watch, record

    def __call__(self, *args: Any) -> Any:
        return self.watch.call((*self.record, *args), self.fn, *args)

    def __getitem__(self, index: Any) -> Any:
        return self.watch.call((*self.record, index), self.fn.__getitem__, index)

    def __len__(self) -> int:
        return len(self.fn)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fn, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self.fn,)


def _itself(fn: Any) -> Any:
    return fn


class _WatchedRows(_Watched):
    """A reader, whose rows are skipped one by one."""

    @property
    def source_identity(self) -> Any:
        return self.fn.source_identity


class _WatchedExpansion(_Watched):
    """A function that returns iterables, each step of which is watched too."""

    def __call__(self, *args: Any) -> Any:
        found = super().__call__(*args)
        record: Record = (*self.record, *args)
        if (name := name_of(record)) is not None:  # shorter, because its steps are named after it
            record = (*self.record, name)
        if is_reader(found):
            return _WatchedRows(found, self.watch, record)
        if isinstance(found, (list, tuple, Chain)):
            return found
        if getattr(type(found), "goes_on", False) is True:
            found.watch(lambda fn: _Watched(fn, self.watch, record))
            return found
        return self._steps(found, record)

    def _steps(self, found: Any, record: Record) -> Iterator[Any]:
        call, steps = self.watch.call, count()
        items = call((*record, next(steps)), iter, found)
        while (item := call((*record, next(steps)), next, items, _END)) is not _END:
            yield item


@contextmanager
def watched(calls: tuple[Call, ...], watch: Watch) -> Iterator[None]:
    """Context that watches the functions whose items may be skipped."""
    functions = [(each, each.fn) for each in guarded_in(calls)]
    try:
        for each, fn in functions:
            each.fn = _watched(each, fn, watch)
        yield
    finally:
        watch.is_over = True
        for each, fn in functions:
            each.fn = fn


def leave_out(functions: list[Guarded], lost: Mapping[int, Exception]) -> None:
    """Have the records with these names skipped with these errors, without another try."""
    left_out = _LeftOut(lost) if lost else None
    for each in functions:
        fn = each.fn
        if isinstance(fn, _Watched) and isinstance(fn.watch, _LeftOut):
            fn = fn.fn
        each.fn = _watched(each, fn, left_out) if left_out else fn


def _watched(guarded: Guarded, fn: Any, watch: Watch | _LeftOut) -> _Watched:
    kind = _WatchedExpansion if guarded.expands else _Watched
    return kind(fn, watch, (guarded.number,))


def guarded_in(calls: tuple[Call, ...]) -> list[Guarded]:
    """Yield the functions that may return holes, each once."""
    found: dict[int, Guarded] = {}

    def look(calls: tuple[Call, ...]) -> None:
        for call in calls:
            for value in call.arguments.values():
                for each in value if isinstance(value, tuple) else (value,):
                    if isinstance(each, Guarded):
                        found[id(each)] = each
                    elif isinstance(each, Chain):
                        look(each.calls)

    look(calls)
    return [*found.values()]
