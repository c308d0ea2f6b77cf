"""Functions in place of a user's that give a hole where they fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Position
from lazyckpt.core.frames import is_reader
from lazyckpt.errors import InvalidState, SourceChanged, StorageError
from lazyckpt.failures.marks import without_marks
from lazyckpt.failures.notes import Guard

_WHOLE_DATA = (SourceChanged, StorageError)  # errors not of one item, which are raised


class Hole:
    """Stands for an item that is left out, until there is a stage that would look at it."""

    def __init__(self, stage: str, what: str) -> None:
        self.stage, self.what = stage, what

    def told(self, place: Callable[[], Position]) -> str:
        """The stage, the position behind the item, and the error."""
        try:
            where = _cut(brief(without_marks(place())[0]))
        except InvalidState:  # a user's own state which is none
            where = "?"
        return f"{_cut(self.stage)} before {where}: {self.what}"


class Guarded(Guard):
    """A function that gives a hole where it fails, and passes on those that there are.

    Attributes:
        expands: Whether it gives iterables, whose steps may fail as well.
        number: Which function of its pipeline this is.
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


_MOST = 1000  # characters of an error that are looked at
_FOLDERS = re.compile(r"(?:\b\w+://|(?<!\w)/)(?:[^\s/]+/)+")


def _short(error: Exception) -> str:
    """Its type and message; of a path the name, since there is little room."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    if len(text) > _MOST:  # up to a blank: what hides secrets would not know a part of one
        text = f"{text[:_MOST].rsplit(None, 1)[0]} ..."
    return _FOLDERS.sub(".../", text)


def _cut(text: str) -> str:
    return text if len(text) <= 32 else text[:29] + "..."


class Whole(Guard):
    """A judge of items before a stage, which finds all true but holes."""

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def __call__(self, item: Any) -> Any:
        return item if isinstance(item, Hole) else True


class Dropping(Guard):
    """A judge of items before a stage, which finds true what the stage doesn't drop."""

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


WHOLE_ITEMS: dict[str, type[Guarded]] = {"star": Star, "tap": Tap}  # what makes a stage a map


class Predicate(Guarded):
    def made(self, *args: Any) -> Any:
        return bool(self.fn(*args))


class Expansion(Guarded):
    """What comes before a failure within an expansion stays; a hole is the last of it.

    Rows of a reader are left out one by one, and so is what an iterator gives that goes on
    after an error, as it says by `goes_on`.
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
    """Data with indices, some of which fail."""

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
    """The data of a source, also where those of its items that fail are left out."""
    return data.fn if isinstance(data, Data) else data
