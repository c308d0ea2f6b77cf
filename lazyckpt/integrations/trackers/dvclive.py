"""DVCLive: a row of `plots/metrics/lazyckpt.tsv`, the history of the metric `lazyckpt`.

Params and the summary have no steps: each keeps the last value. `Live()` removes the previous
history; `Live(resume=True)` continues it. DVCLive reads its files at every step and fails on
strings above 128 KB, so a state that long, because of your own state, is an error.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from lazyckpt.errors import PipelineError
from lazyckpt.integrations.trackers.kinds import NAME, Texts, unfit


def log(where: Any, text: str, step: int) -> None:
    live = _live(where)
    if len(text) > csv.field_size_limit():
        raise PipelineError(
            f"DVCLive can read {csv.field_size_limit():,} characters, the state has {len(text):,}"
        )
    at = live.step
    live.step = step
    try:
        live.log_metric(NAME, text)
    finally:
        live.step = at


def texts(where: Any) -> Texts:
    folder = where if isinstance(where, Path) else Path(_live(where).dir)
    path = folder / "plots" / "metrics" / f"{NAME}.tsv"
    rows = list(_rows(path)) if path.exists() else []
    return {int(step): partial(str, text) for step, text in rows[1:]}


def _rows(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        whole = (line for line in lines if line.endswith("\n"))  # the last line may be cut
        yield from csv.reader(whole, delimiter="\t")


def _live(where: Any) -> Any:
    if isinstance(where, ModuleType) or not hasattr(where, "log_metric"):
        unfit(where)
    return where
