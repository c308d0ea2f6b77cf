"""MLflow: an artifact of the run, `lazyckpt/<step>.json`, as text.

MLflow cuts params and tags off at 6,000 and 8,000 characters, with a line in the log at
most; a param can't be changed; `log_dict` turns what is no JSON into a string.
Artifacts are stored beside the SQLite file, not in it: copy both.
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
    """Whether a text is what MLflow has as the id of a run, or its URI."""
    return _ID.fullmatch(text) is not None


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
    if isinstance(where, str):
        return client, _known(mlflow, client, where)
    if client is where or isinstance(where, ModuleType):
        where = mlflow.active_run() or not_started("MLflow", "mlflow.start_run()")
    if not isinstance(where, mlflow.entities.Run):
        unfit(where)
    return client, where.info.run_id


def _known(mlflow: Any, client: Any, text: str) -> str:
    """The id of a run that there is."""
    found = _ID.fullmatch(text)
    assert found is not None
    try:
        return str(client.get_run(found[1]).info.run_id)
    except mlflow.exceptions.MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        where = brief(mlflow.get_tracking_uri())
        raise NoState(f"MLflow has no run {found[1]} at {where}") from error
