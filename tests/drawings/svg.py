"""Drawings as SVG: shapes of a few kinds, for light and dark pages, wide and narrow.

A drawing has a ground of its own, so that it can be read on a page whose colours were chosen by
hand, whatever the system prefers.
"""

from __future__ import annotations

from html import escape

WIDTH = 480  # units; a phone shows one in 0.75 px, and a wide page in 1.25
_SCALE, _MARGIN = 1.25, 8
_CODE = 7.25  # units that a character of code takes

# In light and in dark: the ground, what is written and drawn on it, and four kinds of boxes.
_COLOURS = {
    "paper": ("#ffffff", "#16191d"),
    "ink": ("#1f2328", "#e6e8eb"),
    "quiet": ("#59636e", "#a9b1bb"),
    "line": ("#a0a9b4", "#606a76"),
    "face": ("#f2f4f7", "#23282f"),
    "blue": ("#0b5cc4", "#78b6f7"),
    "blue-face": ("#d9e8fb", "#1c3654"),
    "orange": ("#a64b00", "#f2a766"),
    "orange-face": ("#fde6d0", "#4d3015"),
    "green": ("#166c2f", "#74d18b"),
    "green-face": ("#d8f1de", "#193f25"),
}
_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  fill: var(--ink) }
.code { font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }
.small { font-size: 11px }
.bold { font-weight: 650 }
rect { fill: var(--face); stroke: var(--line) }
path { fill: none; stroke: var(--line); stroke-width: 1.5 }
.paper { fill: var(--paper); stroke: none }
.none { fill: none }
.faint { stroke-width: 1; opacity: .45 }
.dashed { stroke-dasharray: 4 3 }
.head { fill: var(--line); stroke: none }
text.quiet { fill: var(--quiet) }
""" + "".join(
    f"text.{each} {{ fill: var(--{each}) }} path.{each} {{ stroke: var(--{each}) }}\n"
    f"rect.{each} {{ fill: var(--{each}-face); stroke: var(--{each}) }}\n"
    for each in ("blue", "orange", "green")
)


class Drawing:
    """Shapes one after another. `kind` is some of the names in the style, apart by spaces.

    Attributes:
        alt: The drawing in words.
        height: Units from the top to the bottom.
    """

    def __init__(self, alt: str, height: float = 0) -> None:
        self.alt, self.height = alt, height
        self._shapes: list[str] = []

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        """A line of text whose foot is at y; `anchor` is start, middle or end."""
        self._shapes.append(
            f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">'
            f"{escape(text, quote=False)}</text>"
        )

    def box(
        self, x: float, y: float, width: float, height: float, text: str = "", kind: str = ""
    ) -> None:
        """A box with a text in its middle."""
        self._shapes.append(
            f'<rect x="{x + 0.5:g}" y="{y + 0.5:g}" width="{width - 1:g}" height="{height - 1:g}" '
            f'rx="4" class="{kind}"/>'
        )
        if text:
            self.text(x + width / 2, y + height / 2 + 4.5, text, "code", "middle")

    def add(self, markup: str) -> None:
        """Anything else."""
        self._shapes.append(markup)

    def line(self, points: str, kind: str = "") -> None:
        """A line in the language of SVG's paths, such as `M0 0H20`."""
        self._shapes.append(f'<path d="{points}" class="{kind}"/>')

    def right(self, x: float, y: float, length: float) -> None:
        """An arrow to the right."""
        end = x + length
        self.line(f"M{x:g} {y:g}H{end - 5:g}")
        self.line(f"M{end:g} {y:g}l-7 -4v8z", "head")

    def down(self, x: float, y: float, length: float) -> None:
        """An arrow downwards."""
        end = y + length
        self.line(f"M{x:g} {y:g}V{end - 5:g}")
        self.line(f"M{x:g} {end:g}l-4 -7h8z", "head")

    def svg(self, style: str = "") -> str:
        """The file."""
        width, height = WIDTH + 2 * _MARGIN, self.height + 2 * _MARGIN
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width * _SCALE:g}" '
            f'height="{height * _SCALE:g}" '
            f'viewBox="{-_MARGIN} {-_MARGIN} {width:g} {height:g}">\n'
            f"<title>{escape(self.alt, quote=False)}</title>\n"
            f"<style>\n{_colours(0)}\n"
            f"@media (prefers-color-scheme: dark) {{ {_colours(1)} }}{_STYLE}{style}</style>\n"
            f'<rect x="{-_MARGIN}" y="{-_MARGIN}" width="{width:g}" height="{height:g}" rx="8" '
            'class="paper"/>\n' + "\n".join(self._shapes) + "\n</svg>\n"
        )


def _colours(scheme: int) -> str:
    found = " ".join(f"--{name}: {pair[scheme]};" for name, pair in _COLOURS.items())
    return f"svg {{ {found} }}"


def code_width(text: str) -> float:
    """Units that a text takes as code."""
    return _CODE * len(text)
