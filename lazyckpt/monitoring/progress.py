"""`progress`: a run's items, and a bar that shows how far it is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeVar, cast

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import Unfit, checked, natural, optional
from lazyckpt.errors import InvalidState
from lazyckpt.monitoring.bar import tqdm
from lazyckpt.pipeline import Pipeline
from lazyckpt.run import Run
from lazyckpt.stats import Stats

T = TypeVar("T")


def progress(
    run: Run[T] | Pipeline[T], *, total: int | None = None, desc: str | None = None, **options: Any
) -> Iterator[T]:
    """Iterate over a run with a bar of tqdm: how far it is, its rate, epoch and waits.

    After a resume the bar begins where the run does. In a notebook it is a widget where
    ipywidgets is installed. `waiting` is the share of the time since the bar was drawn last
    that the loop waited for items. It costs about 0.4 µs an item, and reads nothing more.

    Args:
        run: A run, whose `state` stays that after the last item; or a pipeline, for a new one.
        total: How many items there are, those before a resume included; by default those
            of the epoch, where the pipeline has a length.
        desc: What stands before the bar.
        **options: More arguments of `tqdm`: `leave`, `file`, `disable`, `position`, ...

    Returns:
        An iterator over the rest of the run. The bar is closed at its end, when the loop is
        left, and after an error, which is raised as the run does.

    Raises:
        ImportError: tqdm is not installed: `pip install "lazyckpt[progress]"`.

    >>> import lazyckpt as lz
    >>> sum(lz.progress(lz.source(range(10)), disable=True))
    45
    """
    found = checked("progress", "run", run, _run)
    total = checked("progress", "total", total, optional(natural))
    try:
        bar_class = tqdm()
    except ImportError as error:
        raise ImportError(f'lz.progress: pip install "lazyckpt[progress]" ({error})') from error
    return _shown(found, total, bar_class, {"desc": desc, "unit": " items", **options})


def _run(value: Any) -> Run[Any]:
    if isinstance(value, Run):
        return value
    if isinstance(value, Chain) and value.calls[0].combinator.is_source:
        return Run(value)
    raise Unfit("a Run or a Pipeline")


def _shown(run: Run[T], total: int | None, bar_class: Any, options: dict[str, Any]) -> Iterator[T]:
    initial, total = (run.state.items, total) if total is not None else _place(run)
    first = before = run.stats
    with bar_class(initial=initial, total=total, **options) as bar:
        bar.set_postfix(_said(run, before, before), refresh=False)
        try:
            for item in run:
                yield item  # first, so that an interrupt behind it loses none
                if bar.update():
                    stats = run.stats
                    bar.set_postfix(_said(run, stats, before), refresh=False)
                    before = stats
        finally:
            since = run.stats - first
            bar.update(initial + since.items - bar.n)  # the item at which the loop was left
            bar.set_postfix(_said(run, since, Stats()), refresh=False)


def _place(run: Run[Any]) -> tuple[int, int | None]:
    """How many items of its epoch a run has delivered, and how many it has, if that is known."""
    state, machine = run.state, run.pipeline.machine
    length = machine.length
    if length is None or length == math.inf:
        return state.items, None
    if machine.skip is not None:
        return int(length) - machine.skip(state.position, int(length))[1], int(length)
    passed = state.items - machine.epoch(state.position) * int(length)
    return max(0, min(passed, int(length))), int(length)


def _said(run: Run[Any], stats: Stats, before: Stats) -> dict[str, Any]:
    try:
        found: dict[str, Any] = {"epoch": run.state.epoch}
    except InvalidState:
        found = {}
    waiting = (stats - before).waiting
    if not math.isnan(waiting):
        found["waiting"] = f"{waiting:.0%}"
    for name in ("skipped", "restarts"):
        if count := cast(int, getattr(stats, name)):
            found[name] = count
    return found
