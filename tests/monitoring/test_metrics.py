"""`metrics` for trackers, and the collector for Prometheus, scraped over HTTP."""

from __future__ import annotations

import gc
import math
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families as parsed

import lazyckpt as lz


def test_metrics_are_the_stats_as_floats() -> None:
    run = lz.run(lz.source(range(10)))
    assert "data/waiting" not in lz.metrics(run)  # unknown as yet
    for _ in run:
        found = lz.metrics(run)
    assert {type(value) for value in found.values()} == {float}
    assert all(map(math.isfinite, found.values()))
    stats = run.stats
    assert lz.metrics(run, prefix="") == {
        "items": stats.items,
        "seconds": stats.seconds,
        "items_per_second": stats.rate,
        "waiting": stats.waiting,
        "ready": stats.ready,
        "skipped": stats.skipped,
        "restarts": stats.restarts,
    }


@pytest.mark.parametrize("wrong", [None, [1], lz.source([1])])
def test_what_is_no_run_is_refused(wrong: Any) -> None:
    with pytest.raises(lz.ArgumentError, match=r"metrics: run must be a Run"):
        lz.metrics(wrong)
    with pytest.raises(lz.ArgumentError, match=r"train must be a Run"):
        lz.prometheus.collector(train=wrong)


def test_a_collector_needs_a_run() -> None:
    with pytest.raises(lz.ArgumentError, match=r"write collector\(train=run\)"):
        lz.prometheus.collector()


def scraped(port: int) -> dict[tuple[str, str], float]:
    text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    return {
        (sample.name, sample.labels["run"]): sample.value
        for family in parsed(text)
        for sample in family.samples
    }


def test_prometheus_scrapes_runs_by_name_and_keeps_none_alive() -> None:
    registry = CollectorRegistry(auto_describe=True)
    train, held_out = lz.run(lz.source(range(9))), lz.run(lz.source(range(3)))
    registry.register(lz.prometheus.collector(train=train, validation=held_out))
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        assert scraped(server.server_port)["lazyckpt_items_total", "train"] == 0
        for _ in train:
            pass
        found = scraped(server.server_port)
        assert found["lazyckpt_items_total", "train"] == 9
        assert found["lazyckpt_items_total", "validation"] == 0
        assert found["lazyckpt_run_seconds_total", "train"] == train.stats.seconds
        assert found["lazyckpt_waiting", "train"] == train.stats.waiting
        assert ("lazyckpt_waiting", "validation") not in found
        names = {"items_total", "run_seconds_total", "waiting_seconds_total", "ready"}
        names |= {"skipped_total", "restarts_total"}
        assert {f"lazyckpt_{name}" for name in names} <= {name for name, _ in found}
        del train
        gc.collect()
        assert {run for _, run in scraped(server.server_port)} == {"validation"}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
