"""`progress`: a run's items, with a bar that shows its progress."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import Unfit, checked, natural, optional
from lazyckpt.epochs import items_in_epoch
from lazyckpt.errors import InvalidState
from lazyckpt.monitoring.bar import tqdm
from lazyckpt.pipeline import Pipeline
from lazyckpt.run import Run
from lazyckpt.state.state import State
from lazyckpt.stats import Stats

T = TypeVar("T")
U = TypeVar("U", covariant=True)


@runtime_checkable
class Epochs(Protocol[U]):
    """The interface of a loader from `lz.torch.loader`: each loop is an epoch, from `start` on."""

    @property
    def start(self) -> int: ...

    @property
    def state(self) -> State: ...

    @property
    def stats(self) -> Stats: ...

    def __iter__(self) -> Iterator[U]: ...

    def __len__(self) -> int: ...


def progress(
    run: Run[T] | Pipeline[T] | Epochs[T],
    *,
    total: int | None = None,
    desc: str | None = None,
    **options: Any,
) -> Iterator[T]:
    """Iterate over a run with a tqdm bar: its position, rate, epoch and waiting time.

    After a resume the bar begins at the run's position. For a loader of `lz.torch` it shows one
    epoch. In a notebook it is a widget if ipywidgets is installed. `waiting` is the share of the
    time since the last redraw that the loop waited for items. It costs about 0.4 µs per item, and
    reads nothing more.

    Args:
        run: A run, whose `state` remains the position after the last item; a pipeline, for a new
            run; or a loader of `lz.torch`.
        total: Number of items, including those before a resume; by default those of the epoch,
            if the pipeline has a length.
        desc: Text before the bar.
        **options: More arguments of `tqdm`: `leave`, `file`, `disable`, `position`, ...

    Returns:
        An iterator over the rest of the run. The bar is closed at its end, when the loop is left,
        and after an error, which is raised as by the run.

    Raises:
        ImportError: If tqdm is not installed: `pip install "lazyckpt[progress]"`.

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


def _run(value: Any) -> Run[Any] | Epochs[Any]:
    if isinstance(value, Chain) and value.calls[0].combinator.is_source:
        return Run(value)
    if isinstance(value, (Run, Epochs)) and not isinstance(value, Chain):
        return value
    raise Unfit("a Run, a Pipeline or a loader of lz.torch")


def _shown(
    run: Run[T] | Epochs[T], total: int | None, bar_class: Any, options: dict[str, Any]
) -> Iterator[T]:
    initial, whole = _begun(run, total)
    first = before = run.stats
    given = 0
    with bar_class(initial=initial, total=whole, **options) as bar:
        bar.set_postfix(_said(run, before, before), refresh=False)
        try:
            for item in run:
                try:
                    yield item  # first, so that an interrupt after it loses no item
                finally:
                    given += 1  # including the item at which the loop was left
                if bar.update():
                    stats = run.stats
                    bar.set_postfix(_said(run, stats, before), refresh=False)
                    before = stats
        finally:
            bar.update(initial + given - bar.n)
            bar.set_postfix(_said(run, run.stats - first, Stats()), refresh=False)


def _begun(run: Run[Any] | Epochs[Any], total: int | None) -> tuple[int, int | None]:
    """Return the number of items of the epoch that a run has delivered, and its length if known."""
    if isinstance(run, Run):
        length = run.pipeline.machine.length
        if total is not None or length is None or length == math.inf:
            return run.state.items, total
        return items_in_epoch(run.pipeline, run.state), int(length)
    if total is None:
        with suppress(TypeError):  # a loader without a length
            total = len(run)
    return run.start, total


def _said(run: Run[Any] | Epochs[Any], stats: Stats, before: Stats) -> dict[str, Any]:
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
