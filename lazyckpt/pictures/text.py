"""Figures as plain text, for terminals of any width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lazyckpt.core.lines import filled
from lazyckpt.pictures.figure import Figure, Node, legible

_LONG = 60  # most characters of an argument


def figure_text(figure: Figure, width: int) -> str:
    """Return a figure in lines of at most `width` characters."""
    head = ", ".join([figure.title, *figure.facts, *_done(figure)])
    return "\n".join([*filled(head, "", "  ", width), *_lines(figure.nodes, "  ", width)])


def written(node: Node) -> str:
    """Return a stage as code, without the pipelines that it joins."""
    if not node.is_stage:
        return f"... {node.name}"
    parts = [legible(text, _LONG) for text in node.arguments]
    return f"{node.name}({', '.join(['...'] * bool(node.branches) + parts)})"


def mark_words(node: Node) -> list[str]:
    """Return the properties of a stage, in words."""
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
            yield from filled(", ".join(mark_words(node)), f"{margin}  ", f"{margin}    ", width)
        for number, branch in enumerate(node.branches):
            label = branch.label or str(number)
            yield from filled(f"+ {label}", f"{margin}  ", f"{margin}  | ", width)
            yield from _lines(branch.nodes, f"{margin}  | ", width)
