"""What `lazyckpt seen` does."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from operator import attrgetter
from typing import Any

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import brief
from lazyckpt.errors import ArgumentError
from lazyckpt.lineage.seen import rows, seen
from lazyckpt.state.saving import load


def pipeline_of(name: str) -> Any:
    """The pipeline that `module:name` is, or what it gives when it is called."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ArgumentError(f"expected module:pipeline, such as train:pipeline, got {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ArgumentError(f"{name}: no module {error.name!r} from {os.getcwd()}") from None
    try:
        value = attrgetter(attribute)(found)
    except AttributeError:
        raise ArgumentError(f"{name}: {module} has no {attribute!r}") from None
    if callable(value) and not isinstance(value, Chain):
        value = value()
    if not isinstance(value, Chain):
        raise ArgumentError(f"{name}: expected a pipeline or a function of one, got {brief(value)}")
    return value


def telling(pipeline: str, state: str, since: str | None, out: str | None) -> int:
    """Write a file of origins, or print their counts; the exit status."""
    begin = None if since is None else load(since)
    found = seen(pipeline_of(pipeline), load(state), begin)
    if out is None:
        print(rows(sorted(found.counts().items(), key=lambda pair: (pair[0][0], pair[0][1] or ""))))
    else:
        print(f"{found.to_parquet(out):,} rows in {out}")
    return 0
