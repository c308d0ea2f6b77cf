"""MLflow: an artifact of the run, `lazyckpt/<step>.json`, as text.

MLflow cuts params and tags off at 6,000 and 8,000 characters, with at most a line in the log. A
param can't be changed. `log_dict` turns values that aren't JSON into strings. Artifacts are stored
next to the SQLite file, not in it: copy both.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from lazyckpt.core.checks import brief
from lazyckpt.integrations.trackers.kinds import (
    NAME,
    NoState,
    Texts,
    not_started,
    package,
    unfit,
)

_ID = re.compile(r"(?:runs:/)?([0-9a-f]{32})/?")


def is_id(text: str) -> bool:
    """Return whether a string is the id of an MLflow run, or its URI."""
    return _ID.fullmatch(text) is not None


def log(where: Any, text: str, step: int) -> None:
    client, run = _opened(where)
    client.log_text(run, text, f"{NAME}/{step}.json")


def texts(where: Any) -> Texts:
    client, run = _opened(where)
    paths = [PurePosixPath(found.path) for found in client.list_artifacts(run, NAME)]
    states = [path for path in paths if path.suffix == ".json" and path.stem.isdecimal()]
    return {int(path.stem): partial(_text, client, run, path) for path in states}


def _text(client: Any, run: str, path: PurePosixPath) -> str:
    with TemporaryDirectory() as folder:
        return Path(client.download_artifacts(run, str(path), folder)).read_text("utf-8")


def _opened(where: Any) -> tuple[Any, str]:
    """Return a client and a run id: the active run if none is given."""
    mlflow = package("mlflow", "mlflow")
    client = where if isinstance(where, mlflow.MlflowClient) else mlflow.MlflowClient()
    if isinstance(where, str):
        return client, _known(mlflow, client, where)
    if client is where or isinstance(where, ModuleType):
        where = mlflow.active_run() or not_started("MLflow", "mlflow.start_run()")
    if not isinstance(where, mlflow.entities.Run):
        unfit(where)
    return client, where.info.run_id


def _known(mlflow: Any, client: Any, text: str) -> str:
    """Return the id of an existing run."""
    found = _ID.fullmatch(text)
    assert found is not None
    try:
        return str(client.get_run(found[1]).info.run_id)
    except mlflow.exceptions.MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        where = brief(mlflow.get_tracking_uri())
        raise NoState(f"MLflow has no run {found[1]} at {where}") from error
