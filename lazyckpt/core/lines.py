"""Lines of text that fit the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from textwrap import wrap

LEAST = 16  # least characters per line after any margin
_NARROWEST = 24  # characters; a terminal with fewer breaks lines itself


def columns(otherwise: int = sys.maxsize) -> int:
    """Return the width of the terminal, or `otherwise` without a terminal."""
    try:  # not by shutil, which takes long to import
        found = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
    except (OSError, ValueError):
        found = 0
    return found if found > 0 else otherwise


def fitted(lines: Iterable[str]) -> str:
    """Return lines as one text that fits the terminal."""
    width = columns()
    return "\n".join([part for line in lines for part in filled(line, "", "  ", width)])


def filled(text: str, first: str, later: str, width: int) -> list[str]:
    """Wrap a text to lines of at most `width` characters, after a first and a later margin.

    Of margins that leave too little room, the right part is kept.
    """
    width = max(width, _NARROWEST)
    beyond = max(0, len(later) + LEAST - width)
    first, later = first[beyond:], later[beyond:]
    return wrap(text, width, initial_indent=first, subsequent_indent=later) or [first]
