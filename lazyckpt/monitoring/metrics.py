"""`metrics`: the stats of a run by name, for a tracker."""

from __future__ import annotations

import math
from typing import Any

from lazyckpt.core.checks import Unfit, brief, checked
from lazyckpt.errors import ArgumentError
from lazyckpt.run import Run


def metrics(run: Run[Any], *, prefix: str = "data/") -> dict[str, float]:
    """Return the metrics of a run for a tracker, as a flat dict of floats.

    Pass it to `mlflow.log_metrics(lz.metrics(run), step)`, `wandb.log(lz.metrics(run))` and similar
    functions. For Prometheus see `lazyckpt.integrations.prometheus`.

    Args:
        run: The run.
        prefix: Prefix of each name.

    Returns:
        `items`, `seconds`, `items_per_second`, `ready`, `skipped` and `restarts`, as in
        `Run.stats`; and `waiting`, the share of the time that the consumer waited, once it is
        known. A call takes a few µs.

    >>> import lazyckpt as lz
    >>> run = lz.run(lz.source(range(10)))
    >>> first = next(run)
    >>> sorted(lz.metrics(run, prefix=""))
    ['items', 'items_per_second', 'ready', 'restarts', 'seconds', 'skipped']
    """
    if not isinstance(run, Run):
        raise ArgumentError(f"metrics: run must be a Run, as lz.run returns, got {brief(run)}")
    prefix = checked("metrics", "prefix", prefix, _text)
    stats = run.stats
    found = {
        "items": stats.items,
        "seconds": stats.seconds,
        "items_per_second": stats.rate,
        "waiting": stats.waiting,
        "ready": stats.ready,
        "skipped": stats.skipped,
        "restarts": stats.restarts,
    }
    return {prefix + name: float(value) for name, value in found.items() if not math.isnan(value)}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unfit("a str")
    return value
