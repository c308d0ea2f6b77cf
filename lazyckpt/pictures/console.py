"""Figures in a terminal, rendered by rich."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from lazyckpt.pictures.figure import Figure, Node, legible
from lazyckpt.pictures.text import mark_words, written

_BAR = 24  # characters wide


def figure_rich(figure: Figure) -> Any:
    """Return a figure as a tree for rich's consoles."""
    root = rich_text((figure.title, "bold"), *((f"  {fact}", "dim") for fact in figure.facts))
    if figure.share is not None:
        full = round(figure.share * _BAR)
        root.append(f"  {'━' * full}", "blue").append("━" * (_BAR - full), "dim")
        root.append(f" {figure.share:.0%}")
    tree = in_rich("tree").Tree(root, guide_style="dim")
    _add(tree, figure.nodes)
    return tree


def _add(tree: Any, nodes: Iterable[Node]) -> None:
    for node in nodes:
        _, call, arguments = written(node).partition("(")
        name = legible(node.name) if node.is_stage else written(node)
        parts = [(name, "bold" if node.is_stage else "dim italic"), (f"{call}{arguments}", "")]
        parts += [(f"  {node.place}", "blue")] if node.place else []
        parts += [(f"  {', '.join(mark_words(node))}", "dim")] if node.marks else []
        grown = tree.add(rich_text(*parts))
        for number, branch in enumerate(node.branches):
            _add(grown.add(rich_text((branch.label or str(number), "cyan"))), branch.nodes)


def rich_text(*parts: tuple[str, str]) -> Any:
    """Return a text for rich's consoles, from parts with styles."""
    return in_rich("text").Text.assemble(*parts)


def in_rich(module: str) -> Any:
    """Import a module of rich."""
    try:
        return import_module(f"rich.{module}")
    except ImportError as error:
        remedy = 'pip install "lazyckpt[rich]"'
        raise ImportError(f"the package rich is not installed; {remedy}") from error
