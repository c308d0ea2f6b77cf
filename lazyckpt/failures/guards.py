"""Replacements for users' functions that return a hole when they fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import brief
from lazyckpt.core.content import is_reader
from lazyckpt.core.flow import Position
from lazyckpt.errors import InvalidState, SourceChanged, StorageError
from lazyckpt.failures.marks import without_marks
from lazyckpt.failures.notes import Guard

_WHOLE_DATA = (SourceChanged, StorageError)  # errors that concern more than one item are raised


class Hole:
    """Stands for a skipped item, up to a stage that would look at it."""

    def __init__(self, stage: str, what: str) -> None:
        self.stage, self.what = stage, what

    def told(self, position: Callable[[], Position]) -> str:
        """Describe the stage, the position after the item, and the error."""
        try:
            where = _cut(brief(without_marks(position())[0]))
        except InvalidState:  # an invalid state of the user's own
            where = "?"
        return f"{_cut(self.stage)} before {where}: {self.what}"


class Guarded(Guard):
    """A function that returns a hole if it fails, and passes existing holes on.

    Attributes:
        expands: Whether it returns iterables, whose steps may fail as well.
        number: Number of the function in its pipeline.
    """

    expands = False

    def __init__(self, fn: Callable[..., Any], stage: str, number: int) -> None:
        self.fn, self.stage, self.number = fn, stage, number

    def __call__(self, *args: Any) -> Any:
        if isinstance(args[-1], Hole):
            return args[-1]
        try:
            return self.made(*args)
        except _WHOLE_DATA:
            raise
        except Exception as error:
            return self.instead(Hole(self.stage, _short(error)))

    def made(self, *args: Any) -> Any:
        return self.fn(*args)

    def instead(self, hole: Hole) -> Any:
        return hole


_MOST = 1000  # characters of an error that are read
_FOLDERS = re.compile(r"(?:\b\w+://|(?<!\w)/)(?:[^\s/]+/)+")


def _short(error: Exception) -> str:
    """Return the type and message of an error; only the name of a path, to save room."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    if len(text) > _MOST:  # up to a blank: a part of a secret would not be recognised
        text = f"{text[:_MOST].rsplit(None, 1)[0]} ..."
    return _FOLDERS.sub(".../", text)


def _cut(text: str) -> str:
    return text if len(text) <= 32 else text[:29] + "..."


class Whole(Guard):
    """A judge of items before a stage: it accepts all but holes."""

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def __call__(self, item: Any) -> Any:
        return item if isinstance(item, Hole) else True


class Dropping(Guard):
    """A judge of items before a stage: it accepts the items that the stage doesn't drop."""

    def __init__(self, why: Callable[[Any], str | None], stage: str) -> None:
        self.why, self.stage = why, stage

    def __call__(self, item: Any) -> Any:
        what = self.why(item)
        return True if what is None else Hole(self.stage, what)


class Star(Guarded):
    def made(self, *args: Any) -> Any:
        return self.fn(*args[0])


class Tap(Guarded):
    def made(self, *args: Any) -> Any:
        self.fn(*args)
        return args[0]


WHOLE_ITEMS: dict[str, type[Guarded]] = {"star": Star, "tap": Tap}  # functions of stages like map


class Predicate(Guarded):
    def made(self, *args: Any) -> Any:
        return bool(self.fn(*args))


class Expansion(Guarded):
    """Keeps the outputs before a failure within an expansion; the last one is a hole.

    Rows of a reader are skipped one by one. So are the items of an iterator that continues after
    an error, which is so if its `goes_on` is True.
    """

    expands = True

    def made(self, *args: Any) -> Any:
        found = self.fn(*args)
        if is_reader(found):
            data = Data(found, self.stage, self.number)
            return (data[index] for index in range(len(data)))
        return found if isinstance(found, (list, Chain)) else self._items(found)

    def _items(self, found: Any) -> Iterator[Any]:
        goes_on = True
        while goes_on:
            try:
                yield from found
                return
            except _WHOLE_DATA:
                raise
            except Exception as error:
                yield Hole(self.stage, _short(error))
                goes_on = getattr(type(found), "goes_on", False) is True

    def instead(self, hole: Hole) -> Any:
        return [hole]


class Data(Guarded):
    """Indexable data, some items of which fail."""

    def __len__(self) -> int:
        return len(self.fn)  # type: ignore[arg-type]  # it is data

    def __getitem__(self, index: int) -> Any:
        return self(index)

    @property
    def block_starts(self) -> Any:
        return getattr(self.fn, "block_starts", None)

    def made(self, *args: Any) -> Any:
        return self.fn[args[0]]  # type: ignore[index]  # likewise


def unguarded(data: Any) -> Any:
    """Return the data of a source, also if its failing items are skipped."""
    return data.fn if isinstance(data, Data) else data
