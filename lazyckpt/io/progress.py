"""A bar of tqdm, where that is asked for and installed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from lazyckpt.monitoring.bar import tqdm

T = TypeVar("T")


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
