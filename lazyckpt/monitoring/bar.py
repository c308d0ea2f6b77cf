"""Progress bars by tqdm, if it is installed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def tqdm() -> Any:
    """Return the class of bars for the current environment, a notebook or a terminal.

    Raises:
        ImportError: If tqdm is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without ipywidgets it warns, and draws with text
        return import_module("tqdm.auto").tqdm


def progress_bar(
    items: Iterable[T], total: int | None, progress: bool, what: str, unit: str, done: int = 0
) -> Iterable[T]:
    """Return the items with a bar of `total`, `done` of which are finished, in this unit."""
    if not progress or total == 0:
        return items
    try:
        without_thread = {"monitor_interval": 0}  # workers must not be forked next to a thread
        bar_class = type("Bar", (tqdm(),), without_thread)
    except ImportError:
        return items
    bar: Iterable[T] = bar_class(items, total=total, desc=what, unit=unit, initial=done, miniters=1)
    return bar
