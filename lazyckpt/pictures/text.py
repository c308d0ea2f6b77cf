"""Figures as plain text, for terminals of any width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap

from lazyckpt.pictures.figure import Figure, Node, legible

_LONG = 60  # characters of an argument that is shown
LEAST = 16  # characters that a line has room for, however deep


def figure_text(figure: Figure, width: int) -> str:
    """A figure in lines of at most so many characters, but for the deepest."""
    head = ", ".join([figure.title, *figure.facts, *_done(figure)])
    return "\n".join([*filled(head, "", "  ", width), *_lines(figure.nodes, "  ", width)])


def written(node: Node) -> str:
    """A stage as it would be written, without the pipelines that it joins."""
    if not node.is_stage:
        return f"... {node.name}"
    parts = [legible(text, _LONG) for text in node.arguments]
    return f"{node.name}({', '.join(['...'] * bool(node.branches) + parts)})"


def told(node: Node) -> list[str]:
    """What a stage is, in words."""
    return [mark.word for mark in node.marks]


def _done(figure: Figure) -> Iterator[str]:
    if figure.share is not None:
        yield f"{figure.share:.0%} of the epoch"


def _lines(nodes: Iterable[Node], margin: str, width: int) -> Iterator[str]:
    for node in nodes:
        yield from filled(written(node), margin, f"{margin}    ", width)
        if node.place:
            yield from filled(f"@ {node.place}", f"{margin}  ", f"{margin}    ", width)
        if node.marks:
            yield from filled(", ".join(told(node)), f"{margin}  ", f"{margin}    ", width)
        for number, branch in enumerate(node.branches):
            label = branch.label or str(number)
            yield from filled(f"+ {label}", f"{margin}  ", f"{margin}  | ", width)
            yield from _lines(branch.nodes, f"{margin}  | ", width)


def filled(text: str, first: str, later: str, width: int) -> list[str]:
    """A text in lines of so many characters, behind what is before the first and before others."""
    room = max(width, len(later) + LEAST)
    return wrap(text, room, initial_indent=first, subsequent_indent=later) or [first]
