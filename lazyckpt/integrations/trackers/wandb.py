"""Weights & Biases: a file of the run, `lazyckpt/<step>.json`, written immediately and synced.

The history turns 2.0 into 2, an int beyond 64 bits into a float and an array into a histogram. It
drops a row whose step has passed, and is written to disk later. A file has none of these problems,
and needs no network to read. From a different machine, online, get it with
`wandb.restore("lazyckpt/100.json", "entity/project/run")`.
"""

from __future__ import annotations

import glob
from pathlib import Path
from types import ModuleType
from typing import Any

from lazyckpt.integrations.trackers.kinds import NAME, Texts, not_started, unfit


def log(where: Any, text: str, step: int) -> None:
    run = _run(where)
    path = Path(run.dir, NAME, f"{step}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text, "utf-8")
    part.replace(path)
    run.save(glob.escape(str(path)), base_path=run.dir, policy="now")


def texts(where: Any) -> Texts:
    folder = where if isinstance(where, Path) else Path(_run(where).dir)
    if any(folder.glob("*.wandb")):  # the run's own
        folder /= "files"
    return {int(path.stem): path.read_text for path in Path(folder, NAME).glob("[0-9]*.json")}


def _run(where: Any) -> Any:
    if isinstance(where, ModuleType):
        where = where.run or not_started("W&B", "wandb.init()")
    if not (hasattr(where, "dir") and hasattr(where, "save")):
        unfit(where)
    return where
