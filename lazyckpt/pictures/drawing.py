"""Rendering of objects that have stages: as HTML, by rich, as a plain tree."""

from __future__ import annotations

from typing import Any

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import brief, checked, positive
from lazyckpt.core.lines import columns
from lazyckpt.core.pictured import Pictured
from lazyckpt.errors import ArgumentError
from lazyckpt.pictures.chains import chain_nodes
from lazyckpt.pictures.console import figure_rich
from lazyckpt.pictures.entries import entry_nodes
from lazyckpt.pictures.figure import Figure
from lazyckpt.pictures.html import figure_html
from lazyckpt.pictures.text import figure_text


def figure(shown: Pictured) -> Figure:
    """Return the figure of an object."""
    stages, labels, facts, share = shown._legend()

    def label(stage: str) -> str:
        return labels.get(stage, "")

    nodes = chain_nodes(stages, label) if isinstance(stages, Chain) else entry_nodes(stages, label)
    return Figure(type(shown).__name__, nodes, facts, share)


def as_html(shown: Pictured) -> str:
    """Return a diagram, for notebooks."""
    return figure_html(figure(shown))


def as_rich(shown: Pictured) -> Any:
    """Return a tree, for rich's consoles."""
    return figure_rich(figure(shown))


def tree(shown: Pictured, *, width: int | None = None) -> str:
    """Return a pipeline, a run, a state or a difference as a tree in plain text.

    It reads no data. Notebooks show the same as a diagram, and `rich.print` in color.

    Args:
        shown: An object with stages: a `Pipeline`, a `Stage`, a `Run`, a `State`, or a result
            of `diff` or `resume_cost`.
        width: Characters per line; None for the width of the terminal.

    Raises:
        ArgumentError: If it has no stages.

    >>> import lazyckpt as lz
    >>> text = lz.source(["a b", "c"]) | lz.flat_map(str.split)
    >>> print(lz.tree(lz.mix([text, lz.count() | lz.map(str)], [1, 2], seed=0), width=60))
    Pipeline
      mix(..., seed=0)
        own state
        + 1
        | source(['a b', 'c'])
        |   2 items, random access, own state, rank-invariant
        | flat_map(str.split)
        |   own state
        + 2
        | count()
        |   endless, random access, own state, rank-invariant
        | map(str)
        |   endless, random access, rank-invariant
    """
    if not isinstance(shown, Pictured):
        raise ArgumentError(
            f"tree: expected a pipeline, a run or a state, got {brief(shown)} "
            f"({type(shown).__name__})"
        )
    if width is None:
        width = columns(80)
    return figure_text(figure(shown), checked("tree", "width", width, positive))
