"""MLflow: an artifact of the run, `lazyckpt/<step>.json`, as text.

MLflow cuts params and tags off at 6,000 and 8,000 characters, with a line in the log at
most; a param can't be changed; `log_dict` turns what is no JSON into a string.
Artifacts are stored beside the SQLite file, not in it: copy both.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from lazyckpt.integrations.trackers.kinds import NAME, Texts, not_started, package, unfit


def log(where: Any, text: str, step: int) -> None:
    client, run = _opened(where)
    client.log_text(run, text, f"{NAME}/{step}.json")


def texts(where: Any) -> Texts:
    client, run = _opened(where)
    paths = [PurePosixPath(found.path) for found in client.list_artifacts(run, NAME)]
    return {int(path.stem): partial(_text, client, run, path) for path in paths}


def _text(client: Any, run: str, path: PurePosixPath) -> str:
    with TemporaryDirectory() as folder:
        return Path(client.download_artifacts(run, str(path), folder)).read_text("utf-8")


def _opened(where: Any) -> tuple[Any, str]:
    """A client and the id of a run: where the run is not told, the active one."""
    mlflow = package("mlflow", "mlflow")
    client = where if isinstance(where, mlflow.MlflowClient) else mlflow.MlflowClient()
    if client is where or isinstance(where, ModuleType):
        where = mlflow.active_run() or not_started("MLflow", "mlflow.start_run()")
    if not isinstance(where, mlflow.entities.Run):
        unfit(where)
    return client, where.info.run_id
