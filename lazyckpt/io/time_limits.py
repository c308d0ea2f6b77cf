"""How long fsspec's packages wait, and how often they try again, unless a user has said so."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

_CONNECT, _READ = 10, 60  # seconds
_S3_READ = 20  # of which there may be ten


def fsspec_options(scheme: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a file system, with time limits and retries where these have none.

    Args:
        scheme: That of its URLs.
        given: The options that `fsspec.config.conf` has for it.
    """
    found = dict(given)
    defaults: dict[str, Any] = {}
    with suppress(ImportError):  # of a package that fsspec will ask for
        defaults = _DEFAULTS.get(scheme, dict)()
    for name, default in defaults.items():
        mine = found.get(name)
        if isinstance(default, dict) and isinstance(mine, Mapping):
            found[name] = {**default, **mine}
        elif mine is None:
            found[name] = default
    return found


def _s3() -> dict[str, Any]:
    """Ten tries: s3fs makes five, and botocore two of each where nothing else is set up."""
    limits: dict[str, Any] = {"connect_timeout": _CONNECT, "read_timeout": _S3_READ}
    known = import_module("botocore.session").Session().get_config_variable
    is_plain = known("retry_mode") in (None, "legacy") and "AWS_RETRY_MODE" not in os.environ
    if known("max_attempts") is None and is_plain:
        limits["retries"] = {"mode": "standard", "total_max_attempts": 2}
    return {"config_kwargs": limits}


def _azure() -> dict[str, Any]:
    return {"connection_timeout": _CONNECT, "read_timeout": _READ}


def _client(name: str) -> Callable[[], dict[str, Any]]:
    """Options of aiohttp's client: no limit for a whole answer, which may be large."""

    def options() -> dict[str, Any]:
        limit = import_module("aiohttp").ClientTimeout
        return {name: {"timeout": limit(total=None, sock_connect=_CONNECT, sock_read=_READ)}}

    return options


_DEFAULTS: dict[str, Callable[[], dict[str, Any]]] = {
    **dict.fromkeys(("s3", "s3a"), _s3),
    **dict.fromkeys(("az", "abfs", "abfss"), _azure),
    **dict.fromkeys(("gs", "gcs"), _client("session_kwargs")),
    **dict.fromkeys(("http", "https"), _client("client_kwargs")),
}
