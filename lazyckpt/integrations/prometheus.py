"""Runs as metrics of Prometheus: `lz.prometheus.collector`.

`pip install "lazyckpt[prometheus]"` installs its client. The metrics are read when they are
scraped, and cost a run nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from weakref import ref

from lazyckpt.core.checks import brief
from lazyckpt.errors import ArgumentError
from lazyckpt.run import Run

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(f'lz.prometheus: pip install "lazyckpt[prometheus]" ({error})') from None

__all__ = ["collector"]

_COUNTERS = {
    "items": "Items delivered",
    "seconds": "Seconds of running, without the time while closed",
    "waited": "Seconds that the consumer waited for items",
    "skipped": "Items skipped because of errors",
    "restarts": "Restarts of workers after one died or hung",
}
_NAMES = {"seconds": "run_seconds", "waited": "waiting_seconds"}
_GAUGES = {
    "ready": "Items that are ready to be delivered",
    "waiting": "Share of the time that the consumer waited for items",
}


def collector(**runs: Run[Any]) -> RunCollector:
    """Return a collector of the metrics of runs, for a registry.

    Counters are `lazyckpt_items_total`, `lazyckpt_run_seconds_total`,
    `lazyckpt_waiting_seconds_total`, `lazyckpt_skipped_total` and `lazyckpt_restarts_total`. Gauges
    are `lazyckpt_ready` and `lazyckpt_waiting`. Each has the label `run`. A run that was
    garbage-collected is no longer listed.

    Args:
        **runs: The runs, by the names for their labels.

    Returns:
        A collector for `prometheus_client.REGISTRY.register`.

    Raises:
        ArgumentError: If one of them is not a run, or if called without runs.

    >>> import lazyckpt as lz
    >>> from prometheus_client import CollectorRegistry, generate_latest
    >>> run, registry = lz.run(lz.source(range(10))), CollectorRegistry()
    >>> registry.register(lz.prometheus.collector(train=run))
    >>> first = next(run)
    >>> registry.get_sample_value("lazyckpt_items_total", {"run": "train"})
    1.0
    """
    if not runs:
        raise ArgumentError("collector: no runs; write collector(train=run)")
    for name, run in runs.items():
        if not isinstance(run, Run):
            raise ArgumentError(f"collector: {name} must be a Run, got {brief(run)}")
    return RunCollector(runs)


class RunCollector(Collector):
    """A collector that reads the metrics of runs when it is asked; made by `collector`."""

    def __init__(self, runs: dict[str, Run[Any]]) -> None:
        self._runs = {name: ref(run) for name, run in runs.items()}  # don't keep workers alive

    def describe(self) -> Iterator[Metric]:
        for name, what in _COUNTERS.items():
            yield CounterMetricFamily(f"lazyckpt_{_NAMES.get(name, name)}", what, labels=["run"])
        for name, what in _GAUGES.items():
            yield GaugeMetricFamily(f"lazyckpt_{name}", what, labels=["run"])

    def collect(self) -> Iterator[Metric]:
        found = {
            name: run.stats for name, each in self._runs.items() if (run := each()) is not None
        }
        for field, metric in zip([*_COUNTERS, *_GAUGES], self.describe(), strict=True):
            for name, stats in found.items():
                value = float(getattr(stats, field))
                if not math.isnan(value):
                    metric.add_metric([name], value)  # type: ignore[attr-defined]
            yield metric
