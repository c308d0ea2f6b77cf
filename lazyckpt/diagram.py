"""Chains as plain HTML diagrams, and what is told of their stages as tables, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lazyckpt.core.call import Call, Chain

_ROW = "display:flex;flex-wrap:wrap;align-items:center;gap:6px 0;font-family:monospace"
_LINK = "display:flex;align-items:center"
_BOX = "padding:3px 10px;border:1px solid #8888;border-radius:6px;white-space:pre-wrap"
_ARROW = '<span style="opacity:.6;padding:0 8px">&rarr;</span>'
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def diagram(chain: Chain) -> str:
    """Boxes in a row, each with its arrow before it, so that no line ends in one."""
    first, *rest = (_box(call) for call in chain.written)
    linked = (f'<span style="{_LINK}">{_ARROW}{box}</span>' for box in rest)
    return f'<div style="{_ROW}">{first}{"".join(linked)}</div>'


def _box(call: Call) -> str:
    """A stage as it is written; pipelines that it joins as rows of their own."""
    joined = [chain for value in call.arguments.values() for chain in _chains(value)]
    if not joined:
        return f'<span style="{_BOX}">{repr(call).translate(_ESCAPED)}</span>'
    rows = "".join(f'<div style="margin:4px 0">{diagram(chain)}</div>' for chain in joined)
    return f'<div style="{_BOX}">{call.name}{rows}</div>'


def table(caption: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table: of each row the number of a stage, and texts that read like code."""
    cells = "".join(f"<th>{name}</th>" for name in ("", *names))
    body = "".join(
        f"<tr><td>{number}</td>"
        + "".join(f"<td><code>{text.translate(_ESCAPED)}</code></td>" for text in texts)
        + "</tr>"
        for number, *texts in rows
    )
    return (
        f"<table><caption>{caption.translate(_ESCAPED)}</caption>"
        f"<thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
    )


def _chains(value: object) -> list[Chain]:
    values = value if isinstance(value, tuple) else (value,)
    return [each for each in values if isinstance(each, Chain)]
