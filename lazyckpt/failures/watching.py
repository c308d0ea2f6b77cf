"""Functions that are watched: which call of theirs a worker has not survived, and leaving it out.

A task is made twice in the same way, from the same position. So a call is known by its
number within the task. Where it raises an error in place of being made, whatever leaves
out items that fail leaves out this one, in the same place and with the same states.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.frames import is_reader
from lazyckpt.failures.skipping import Guarded

_END: Any = object()


class Watch:
    """Numbers calls as they begin, from 1, and raises in place of some of them."""

    def __init__(self, cell: memoryview, errors: Mapping[int, Exception]) -> None:
        """Begin to count.

        Args:
            cell: Where the number of the call under way is written; 0 between calls.
            errors: What to raise, by number.
        """
        self._cell, self._errors = cell, errors
        self._count, self._owner = 0, os.getpid()
        self.is_over = False

    def call(self, fn: Callable[..., Any], *args: Any) -> Any:
        """What the function gives for these arguments."""
        if self.is_over or os.getpid() != self._owner:  # in a worker of this one
            return fn(*args)
        self._count += 1
        if self._count in self._errors:
            raise self._errors[self._count]
        before, self._cell[0] = self._cell[0], self._count
        try:
            return fn(*args)
        finally:
            self._cell[0] = before


class _Watched:
    """A function, or data with indices, of which each call is watched. It pickles as what it is."""

    def __init__(self, fn: Any, watch: Watch) -> None:
        self.fn, self.watch = fn, watch

    def __call__(self, *args: Any) -> Any:
        return self.watch.call(self.fn, *args)

    def __getitem__(self, index: Any) -> Any:
        return self.watch.call(self.fn.__getitem__, index)

    def __len__(self) -> int:
        return len(self.fn)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fn, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self.fn,)


def _itself(fn: Any) -> Any:
    return fn


class _WatchedRows(_Watched):
    """A reader, whose rows are left out one by one."""

    @property
    def source_identity(self) -> Any:
        return self.fn.source_identity


class _WatchedExpansion(_Watched):
    """A function that gives iterables, of which each step is watched too."""

    def __call__(self, *args: Any) -> Any:
        found = super().__call__(*args)
        if is_reader(found):
            return _WatchedRows(found, self.watch)
        if isinstance(found, (list, tuple, Chain)):
            return found
        if getattr(type(found), "goes_on", False) is True:
            found.watch(lambda fn: _Watched(fn, self.watch))
            return found
        return self._steps(found)

    def _steps(self, found: Any) -> Iterator[Any]:
        call = self.watch.call
        items = call(iter, found)
        while (item := call(next, items, _END)) is not _END:
            yield item


@contextmanager
def watched(calls: tuple[Call, ...], watch: Watch) -> Iterator[None]:
    """Watch what stages may leave out, for a while."""
    functions = [(each, each.fn) for each in guarded_in(calls)]
    try:
        for each, fn in functions:
            each.fn = (_WatchedExpansion if each.expands else _Watched)(fn, watch)
        yield
    finally:
        watch.is_over = True
        for each, fn in functions:
            each.fn = fn


def guarded_in(calls: tuple[Call, ...]) -> list[Guarded]:
    """The functions in place of which holes may come, each once."""
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
