"""Runs as metrics of Prometheus: `lz.prometheus.collector`.

`pip install "lazyckpt[prometheus]"` brings its client. The metrics are read when they are
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
    "seconds": "Seconds under way",
    "waited": "Seconds that the consumer waited for items",
    "skipped": "Items left out because of errors",
    "restarts": "Times that a worker died or hung, and new ones started",
}
_NAMES = {"seconds": "run_seconds", "waited": "waiting_seconds"}
_GAUGES = {
    "ready": "Items that are made and wait to be delivered",
    "waiting": "Share of the time that the consumer waited for items",
}


def collector(**runs: Run[Any]) -> RunCollector:
    """A collector of the metrics of runs, to be registered.

    Counters: `lazyckpt_items_total`, `lazyckpt_run_seconds_total`,
    `lazyckpt_waiting_seconds_total`, `lazyckpt_skipped_total`, `lazyckpt_restarts_total`;
    gauges: `lazyckpt_ready`, `lazyckpt_waiting`; each with the label `run`. A run that
    nobody holds any more has none.

    Args:
        **runs: Each run by the name that its label has.

    Returns:
        What `prometheus_client.REGISTRY.register` takes.

    Raises:
        ArgumentError: One of them is no run, or there is none.

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
    """The metrics of runs, as they are when it is asked. `collector` makes it."""

    def __init__(self, runs: dict[str, Run[Any]]) -> None:
        self._runs = {name: ref(run) for name, run in runs.items()}  # it keeps no workers running

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
