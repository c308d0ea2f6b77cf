"""Figures as HTML without scripts: cards, branches that join, tables of items.

Colors are derived from the page's text color, so that they suit light and dark pages.
"""

from __future__ import annotations

from collections.abc import Iterable

from lazyckpt.pictures.figure import Branch, Figure, Mark, Node, legible
from lazyckpt.pictures.style import DEEP_STYLE, STYLE

_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_LONG = 48  # most characters of an argument on a card
_WORDS = 20  # characters that a card has room for, unless the page is narrow


def escaped(text: str, most: int = 300, *, in_data: bool = False) -> str:
    """Return any text as HTML."""
    return legible(text, most, in_data=in_data).translate(_ESCAPED)


def figure_html(figure: Figure) -> str:
    """Return a figure with its style."""
    is_deep = _depth(figure.nodes) > 2
    return framed(f"{_head(figure)}{_flow(figure.nodes)}", figure.title, is_deep=is_deep)


def framed(body: str, title: str, *, is_deep: bool = False) -> str:
    """Return HTML of this package with its style."""
    name, style = ("lzp lzp-deep", DEEP_STYLE) if is_deep else ("lzp", STYLE)
    return f'<div class="{name}" role="group" aria-label="{escaped(title)}">{style}{body}</div>'


def _depth(nodes: Iterable[Node]) -> int:
    """Return the number of levels of nested rows."""
    return max((1 + _depth(branch.nodes) for node in nodes for branch in node.branches), default=0)


def caption(title: str, facts: Iterable[str] = ()) -> str:
    """Return a line with a title and facts."""
    spans = "".join(f'<span class="lzp-fact">{bdi(fact)}</span>' for fact in facts)
    return f'<div class="lzp-head"><span class="lzp-title">{bdi(title)}</span>{spans}</div>'


def remark(text: str, *, is_warning: bool = False) -> str:
    """Return a sentence on a line of its own."""
    return f'<div class="lzp-remark{" lzp-warning" * is_warning}">{bdi(text, 1_000)}</div>'


def _head(figure: Figure) -> str:
    bar = ""
    if figure.share is not None:
        percent = f"{figure.share:.0%}"
        bar = (
            f'<div class="lzp-bar" role="progressbar" aria-valuemin="0" aria-valuemax="100" '
            f'aria-valuenow="{figure.share * 100:.0f}" aria-label="{percent} of the epoch">'
            f'<div style="width:{figure.share * 100:.1f}%"></div></div>'
        )
    return caption(figure.title, figure.facts) + bar


def _flow(nodes: Iterable[Node]) -> str:
    steps = "".join(f'<div class="lzp-step" role="listitem">{_step(node)}</div>' for node in nodes)
    return f'<div class="lzp-flow" role="list">{steps}</div>'


def _step(node: Node) -> str:
    if not node.branches:
        return _card(node)
    joined = "".join(map(_branch, node.branches))
    return f'<div class="lzp-join" role="list">{joined}</div>{_card(node)}'


def _branch(branch: Branch) -> str:
    label = f'<span title="weight or part of this pipeline">{bdi(branch.label)}</span>'
    wire = f'<div class="lzp-wire">{label if branch.label else ""}</div>'
    return f'<div class="lzp-branch" role="listitem">{_flow(branch.nodes)}{wire}</div>'


def _card(node: Node) -> str:
    if not node.is_stage:
        return f'<div class="lzp-note">{bdi(node.name)}</div>'
    kinds = " lzp-source" * node.is_source + " lzp-owns" * node.owns
    arguments = "".join(f"<div{_title(text)}>{bdi(text, _LONG)}</div>" for text in node.arguments)
    words = max(map(len, (node.name, *node.arguments)))
    return (
        f'<div class="lzp-card{kinds}" style="--words:{min(words, _WORDS)}">'
        f'<div class="lzp-name">{bdi(node.name, 60)}</div>'
        + (f'<div class="lzp-args">{arguments}</div>' if arguments else "")
        + (f'<div class="lzp-place">{bdi(node.place, 120)}</div>' if node.place else "")
        + (f'<div class="lzp-marks">{"".join(map(_mark, node.marks))}</div>' if node.marks else "")
        + "</div>"
    )


def _title(text: str) -> str:
    return f' title="{escaped(text)}"' if len(text) > _LONG else ""


def _mark(mark: Mark) -> str:
    return (
        f'<span role="img" title="{escaped(mark.meaning)}" aria-label="{escaped(mark.word)}">'
        f"{escaped(mark.sign)}</span>"
    )


def bdi(text: str, most: int = 300, *, in_data: bool = False) -> str:
    """Return a text whose writing direction doesn't affect the text around it."""
    return f"<bdi>{escaped(text, most, in_data=in_data)}</bdi>"
