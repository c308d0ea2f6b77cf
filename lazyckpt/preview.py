"""`head`: a preview of the first items of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from lazyckpt.core.call import runnable
from lazyckpt.core.checks import checked, plural, positive
from lazyckpt.core.lines import columns
from lazyckpt.core.secrets import masked
from lazyckpt.pictures.html import caption, framed
from lazyckpt.pictures.tables import Table
from lazyckpt.pictures.values import Told, lines
from lazyckpt.pipeline import Pipeline
from lazyckpt.run import Run

T = TypeVar("T")

_SHOWN = 50  # items per table
_NAMES = ("item", "type", "shape", "dtype", "size", "values")


@dataclass(frozen=True, repr=False, eq=False)
class Head(Generic[T]):
    """The first items of a pipeline, as returned by `head`.

    Attributes:
        items: The items.
        error: The error raised by the item after them, if any.
    """

    items: list[T]
    error: Exception | None = None

    @property
    def _title(self) -> str:
        count = len(self.items)
        return f"first {plural(count, 'item')}" if count > 1 else ("no items", "first item")[count]

    def _table(self) -> Table:
        rows: list[Told] = []
        for number, item in enumerate(self.items[:_SHOWN]):
            rows += lines(str(number), item)
        if (more := len(self.items) - _SHOWN) > 0:
            rows.append(Told("...", plural(more, "more item"), "", "", "", ""))
        if self.error is not None:
            name, told = type(self.error).__name__, _message(self.error)
            rows.append(Told(str(len(self.items)), name, "", "", "", told))
        return Table(_NAMES, rows)

    def to_text(self, width: int = 80) -> str:
        """Return the table for a terminal of a given number of columns."""
        return f"{self._title}\n{self._table().to_text(width, '  ')}"

    def __str__(self) -> str:
        return self.to_text(min(80, columns(80)))

    def __repr__(self) -> str:
        return self.to_text(columns(80))

    def _repr_html_(self) -> str:
        return framed(caption(self._title) + self._table().to_html(code="values"), self._title)

    def __rich__(self) -> Any:
        return self._table().to_rich(self._title)


def head(pipeline: Pipeline[T], n: int = 3) -> Head[T]:
    """Show the first items with their types, shapes, dtypes, sizes and first values.

    It reads only the data for these items. If an item raises, the items before it are shown, and
    the error in its place.

    Args:
        pipeline: The pipeline to look at.
        n: Number of items, an int >= 1.

    Returns:
        A `Head`: a table in a notebook, in a terminal and as `str`; its `items` are the items.
        Bytes are those of the values: of arrays and strings, without Python's overhead.

    >>> import lazyckpt as lz
    >>> print(lz.head(lz.source(["a b", "c"]) | lz.map(str.split)))
    first 2 items
      item  type  shape  dtype  size  values
      0     list  len 2         2 B   ['a', 'b']
      1     list  len 1         1 B   ['c']
    """
    n = checked("head", "n", n, positive)
    run: Run[T] = Run(runnable("head", pipeline))
    items: list[T] = []
    error: Exception | None = None
    with run:
        try:
            items += islice(run, n)
        except Exception as raised:
            error = raised
    return Head(items, error)


def _message(error: Exception) -> str:
    try:
        return masked(str(error))
    except Exception:  # a user's own __str__
        return ""
