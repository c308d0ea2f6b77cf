"""Lengths of users' data, and whose error one is."""

from __future__ import annotations

import re
from typing import Any

_SAYS_SO = re.compile("(?<!'NoneType') has no len")  # None is a mistake, and nobody's data


def length_of(data: Any) -> int | None:
    """How many items data has; None where it says that it has no length, or what it wraps does.

    Any other error of its `__len__` comes through.
    """
    if not hasattr(type(data), "__len__"):
        return None
    try:
        return len(data)
    except NotImplementedError:
        return None
    except TypeError as error:
        if _SAYS_SO.search(str(error)):
            return None
        raise


def is_raised_here(error: BaseException) -> bool:
    """Whether the function that has caught an error raised it, and none in Python that it called.

    What C code raises counts as raised by who called that.
    """
    trace = error.__traceback__  # no name in the frame it is about, which would be a cycle
    return trace is not None and trace.tb_next is None
