"""Pages of the documentation: their code, their blocks, their links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
README = ROOT / "README.md"

_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)")


def blocks(text: str, language: str) -> Iterator[str]:
    for block in _BLOCK.finditer(text):
        if block[1] == language:
            yield block[2]


def without_blocks(text: str) -> str:
    return _BLOCK.sub("", text)


def cells(page: Path) -> Iterator[str]:
    """The code of a page that the build runs, without the tags of its cells."""
    for cell in blocks(page.read_text("utf-8"), "{code-cell} ipython3"):
        yield re.sub(r"\A(?::.*\n)+", "", cell)


def links(text: str) -> list[str]:
    """The addresses that a text links to, without its code."""
    return _LINK.findall(re.sub(r"`[^`]*`", "", without_blocks(text)))
