"""Lines of text that fit the terminal."""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from textwrap import wrap

LEAST = 16  # least characters per line after any margin
_NARROWEST = 24  # characters; a terminal with fewer breaks lines itself


def columns(most: int = sys.maxsize) -> int:
    """Return the width of the terminal, up to `most`; without a terminal, `most`."""
    return min(most, get_terminal_size((most, 24)).columns)


def filled(text: str, first: str, later: str, width: int) -> list[str]:
    """Wrap a text to lines of at most `width` characters, after a first and a later margin.

    Of margins that leave too little room, the right part is kept.
    """
    width = max(width, _NARROWEST)
    beyond = max(0, len(later) + LEAST - width)
    first, later = first[beyond:], later[beyond:]
    return wrap(text, width, initial_indent=first, subsequent_indent=later) or [first]
