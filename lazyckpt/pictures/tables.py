"""Tables: the same rows for a terminal of any width, as HTML, and for rich's consoles."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lazyckpt.core.lines import LEAST, filled
from lazyckpt.pictures.console import in_rich, rich_text
from lazyckpt.pictures.figure import legible
from lazyckpt.pictures.html import bdi, escaped


@dataclass(frozen=True)
class Table:
    """Rows of texts under names; a str instead of a row is the heading of the rows after it.

    Attributes:
        names: The names of the columns.
        rows: The rows; spaces before the first text of a row indent it.
        right: The names of right-aligned columns, such as numbers.
        shares: A number from 0 to 1 per row, shown as a bar if there is room.
    """

    names: Sequence[str]
    rows: Sequence[Sequence[str] | str]
    right: Collection[str] = ()
    shares: Sequence[float] = ()

    def to_text(self, width: float = math.inf, margin: str = "") -> str:
        """Return the table in lines of at most `width` characters: in columns if they fit.

        Otherwise each row has its own lines. The last column is cut if it is too long.
        """
        rows = [_shown(row) for row in (self.names, *self.rows)]
        cells = [row for row in rows if not isinstance(row, str)]
        sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
        room = width - len(margin) - sum(sizes[:-1]) - 2 * len(sizes[:-1])
        if room >= min(sizes[-1], LEAST):
            sizes[-1] = int(min(sizes[-1], room))
            return "\n".join([self._line(row, sizes, margin) for row in rows])
        return "\n".join(
            [line for row in rows[1:] for line in self._lines(row, int(width), margin)]
        )

    def _line(self, row: Sequence[str], sizes: Sequence[int], margin: str) -> str:
        if isinstance(row, str):
            return f"{margin}{row}:"
        *others, last = row
        cells = [
            text.rjust(size) if name in self.right else text.ljust(size)
            for name, text, size in zip(
                self.names, (*others, legible(last, sizes[-1], in_data=True)), sizes, strict=True
            )
        ]
        return f"{margin}{'  '.join(cells)}".rstrip()

    def _lines(self, row: Sequence[str], width: int, margin: str) -> Iterator[str]:
        if isinstance(row, str):
            yield from filled(f"{row}:", margin, margin, width)
            return
        first, *others = row
        margin += _indent(first)
        if any(isinstance(each, str) for each in self.rows):
            margin += "  "
        rest = [f"{what} {cell}" for what, cell in zip(self.names[1:], others, strict=True) if cell]
        yield from filled(first.lstrip(" "), margin, f"{margin}    ", width)
        if rest:
            yield from filled(", ".join(rest), f"{margin}  ", f"{margin}  ", width)

    def to_html(self, code: str) -> str:
        """Return the table, one column in a font for code; on a narrow page rows are blocks."""
        heads = "".join(f'<span role="columnheader">{bdi(name)}</span>' for name in self.names)
        shares: Sequence[float | None] = self.shares or [None] * len(self.rows)
        lines = "".join(
            f'<div role="row" class="lzp-row">{self._cells(row, code, share)}</div>'
            for row, share in zip(self.rows, shares, strict=True)
        )
        return (
            f'<div role="table" class="lzp-table" style="--columns:{len(self.names)}">'
            f'<div role="row" class="lzp-row lzp-names">{heads}</div>{lines}</div>'
        )

    def _cells(self, row: Sequence[str] | str, code: str, share: float | None) -> str:
        row = _shown(row)
        if isinstance(row, str):
            return f'<span role="rowheader" class="lzp-section">{bdi(row)}</span>'
        bar = "" if share is None else f'<div class="lzp-share" style="width:{share:.1%}"></div>'
        kinds = ["lzp-code" * (n == code) or "lzp-right" * (n in self.right) for n in self.names]
        return "".join(
            f'<span role="cell" class="{kind}" title="{escaped(name)}">'
            f"{_indent(text)}{bdi(text, in_data=True)}{bar * (name == code)}</span>"
            for kind, name, text in zip(kinds, self.names, row, strict=True)
        )

    def to_rich(self, title: str) -> Any:
        """Return the table for rich's consoles."""
        table = in_rich("table").Table(title=rich_text((title, "bold")), title_justify="left")
        for name in self.names:
            table.add_column(name, overflow="fold")
        for row in self.rows:
            table.add_row(*(rich_text((text, "")) for text in _shown(row)))
        return table


def _shown(row: Sequence[str] | str) -> Sequence[str]:
    """Return legible texts, with their indentation."""
    if isinstance(row, str):
        return legible(row)
    return [_indent(text) + legible(text.lstrip(" "), in_data=True) for text in row]


def _indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip(" "))]
