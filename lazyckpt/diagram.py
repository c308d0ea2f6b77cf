"""A chain as a plain HTML diagram, for notebooks."""

from __future__ import annotations

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.show import escaped

_ROW = "display:flex;flex-wrap:wrap;align-items:center;gap:6px 0;font-family:monospace"
_LINK = "display:flex;align-items:center"
_BOX = "padding:3px 10px;border:1px solid #8888;border-radius:6px;white-space:pre-wrap"
_ARROW = '<span style="opacity:.6;padding:0 8px">&rarr;</span>'


def diagram(chain: Chain) -> str:
    """Boxes in a row, each with its arrow before it, so that no line ends in one."""
    first, *rest = (_box(call) for call in chain.written)
    linked = (f'<span style="{_LINK}">{_ARROW}{box}</span>' for box in rest)
    return f'<div style="{_ROW}">{first}{"".join(linked)}</div>'


def _box(call: Call) -> str:
    """A stage as it is written; pipelines that it joins as rows of their own."""
    joined = [chain for value in call.arguments.values() for chain in _chains(value)]
    if not joined:
        return f'<span style="{_BOX}">{escaped(repr(call))}</span>'
    rows = "".join(f'<div style="margin:4px 0">{diagram(chain)}</div>' for chain in joined)
    return f'<div style="{_BOX}">{call.name}{rows}</div>'


def _chains(value: object) -> list[Chain]:
    values = value if isinstance(value, tuple) else (value,)
    return [each for each in values if isinstance(each, Chain)]
