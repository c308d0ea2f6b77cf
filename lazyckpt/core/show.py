"""Display of values in reprs."""

from __future__ import annotations

import reprlib
import sys
from os import PathLike
from textwrap import indent
from typing import Any

import numpy as np

from lazyckpt.core.checks import Shown, brief
from lazyckpt.core.secrets import MASK, is_secret, masked
from lazyckpt.core.values import is_function

WIDTH = 88  # per line
_HERE = __name__.partition(".")[0] + "."
_MOST = 3  # of several values that are shown


def show(value: Any, name: Any = "") -> str:
    """Return a value as it would be written; long data are abbreviated, and none are read.

    Args:
        value: The value.
        name: Name of the argument; the name of a secret hides the value.
    """
    if is_secret(name, value):
        return repr(MASK)
    kind = type(value)
    if is_function(value):
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        if name is None and hasattr(value, "func"):  # functools.partial
            return f"{kind.__name__}({show(value.func)}, ...)"
        return name.rsplit("<locals>.", 1)[-1] if name else f"<{kind.__name__}>"
    if isinstance(value, Shown) or kind in (float, bool, type(None)):
        return repr(value)
    if isinstance(value, PathLike):
        return masked(repr(value))
    if kind in (range, int):
        try:
            return repr(value)
        except ValueError:  # Python writes no ints of more than 4,300 digits
            return f"<{kind.__name__}>"
    if kind is bytes:
        return brief(value)
    if kind is tuple and value and isinstance(value[0], Shown):
        parts = [*map(show, value[:_MOST]), *["..."][: len(value) > _MOST]]
        text = bracketed("", parts)
        return text if len(value) > 1 or "\n" in text else f"({parts[0]},)"
    if kind in (list, tuple, dict, str):
        return _short.repr(value)
    if isinstance(value, np.ndarray):
        return f"<{value.dtype}{list(value.shape)}>"
    public = kind.__name__.lstrip("_")
    try:
        return f"<{public} of {len(value)}>"
    except Exception:
        return f"<{public}>"


def bracketed(name: str, parts: list[str]) -> str:
    """Format a call, or a tuple: on one line if it fits, otherwise one line per part."""
    line = f"{name}({', '.join(parts)})"
    if len(line) <= WIDTH and "\n" not in line:
        return line
    lines = "".join(f"{part},\n" for part in parts)
    return f"{name}(\n{indent(lines, '    ')})"


def written_at() -> str:
    """Return the current line outside of this package; for a notebook, the cell's: `In[3]:1`."""
    frame = sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith(_HERE):
        frame = frame.f_back
    file = frame.f_code.co_filename
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda name: None)(file)
    return f"{named[1] if named else file}:{frame.f_lineno}"


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        text = show(x)
        return text if len(text) <= self.maxlong else f"{text[:18]}...{text[-19:]}"

    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(masked(x), level)

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        shown = {key: MASK if is_secret(key, value) else value for key, value in x.items()}
        return super().repr_dict(shown, level)

    def repr_instance(self, x: Any, level: int) -> str:
        return show(x)


_short = _Short()
_short.maxlist = _short.maxtuple = _short.maxdict = _MOST
_short.maxstring = _short.maxother = 40
