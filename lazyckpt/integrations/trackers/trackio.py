"""trackio: a text of the metric `lazyckpt`, in the SQLite file of the project.

trackio drops a dict with an int beyond 64 bits, with a warning, and returns the strings "NaN" and
"Infinity" as floats. It writes half a second later; `log_state` writes immediately, so a killed run
has its state. `load_state` can't load from a Space.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

from lazyckpt.integrations.trackers.kinds import NAME, Texts, not_started, package, unfit


def log(where: Any, text: str, step: int) -> None:
    run = _run(where)
    if not hasattr(run, "log"):
        unfit(where)
    run.log({NAME: text}, step=step)
    if run._is_local:  # it has no public way to flush
        with run._client_lock:
            run._flush_queues_inline()


def texts(where: Any) -> Texts:
    run = _run(where)
    storage = package("trackio.sqlite_storage", "trackio").SQLiteStorage
    rows = storage.get_metric_values(run.project, run.name, NAME, run_id=run.id)
    return {row["step"]: partial(str, row["value"]) for row in rows}


def _run(where: Any) -> Any:
    if isinstance(where, ModuleType):
        where = where.context_vars.current_run.get() or not_started("trackio", "trackio.init()")
    if not (hasattr(where, "project") and hasattr(where, "id")):
        unfit(where)
    return where
