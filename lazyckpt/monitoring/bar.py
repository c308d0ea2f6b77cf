"""tqdm, where it is installed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def tqdm() -> Any:
    """The class of bars that suits where this runs: a notebook or a terminal.

    Raises:
        ImportError: tqdm is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without ipywidgets it says so, and draws with text
        return import_module("tqdm.auto").tqdm


def progress_bar(
    items: Iterable[T], total: int | None, progress: bool, what: str, unit: str, done: int = 0
) -> Iterable[T]:
    """The items, with a bar: of `total`, of which so many are done, in this unit."""
    if not progress or total == 0:
        return items
    try:
        without_thread = {"monitor_interval": 0}  # beside which workers would be forked
        bar_class = type("Bar", (tqdm(),), without_thread)
    except ImportError:
        return items
    bar: Iterable[T] = bar_class(items, total=total, desc=what, unit=unit, initial=done, miniters=1)
    return bar
