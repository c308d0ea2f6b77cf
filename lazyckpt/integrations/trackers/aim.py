"""Aim: a `Text` of the sequence `lazyckpt`.

A run's dict accepts no ints beyond 64 bits, and turns tuples into lists. A run opened with
`read_only=True` shows no sequence until Aim has indexed it. This module reads the texts from the
underlying storage, so you can load from a run in progress, or from one that was killed.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from types import ModuleType
from typing import Any

from lazyckpt.errors import PipelineError
from lazyckpt.integrations.trackers.kinds import NAME, Texts, package, unfit


def log(where: Any, text: str, step: int) -> None:
    run = _run(where)
    if run.read_only:
        raise PipelineError(f"the run {run.hash} is read-only: aim.Run({run.hash!r}) continues it")
    run.track(package("aim", "aim").Text(text), name=NAME, step=step)


def texts(where: Any) -> Texts:
    found = package("aim.sdk.sequences.text_sequence", "aim").Texts
    context = package("aim.storage.context", "aim").Context({})
    values = found(NAME, context, _run(where)).values
    return {step: partial(attrgetter("data"), text) for step, text in values.items()}


def _run(where: Any) -> Any:
    if isinstance(where, ModuleType) or not hasattr(where, "meta_run_tree"):
        unfit(where)
    if where.meta_run_tree is None:
        raise PipelineError(f"the run {where.hash} is closed: aim.Run({where.hash!r}) opens it")
    return where
