"""`compat.emloop` against emloop: what the wrapper itself takes for a batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib import import_module
from importlib.metadata import distribution
from itertools import islice
from types import ModuleType
from typing import Any

from harness import Row, compared, spent

from lazyckpt.compat.emloop import StreamWrapper


def reference() -> Any:
    """emloop's module of its class, without its packages, which need others that are gone."""
    root: Any = distribution("emloop").locate_file("emloop")
    for name in ("emloop", "emloop.datasets", "emloop.utils"):
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    return import_module("emloop.datasets.stream_wrapper")


def compat_emloop(rounds: int) -> Iterator[Row]:
    module = reference()
    slept, module.EL_BUFFER_SLEEP = module.EL_BUFFER_SLEEP, 0.0

    def epoch(kind: Callable[..., Any], n: int, *args: Any, opened: bool = False) -> None:
        stream = kind(lambda: (batch for batch in range(n)), *args)
        epochs = n // args[1] if len(args) > 1 and args[1] > 0 else 1
        with stream, stream.allow_buffering if opened else nullcontext():
            for _ in range(epochs):
                spent(stream)

    def row(what: str, n: int, *args: Any, opened: bool = False) -> Row:
        ours, theirs = (
            lambda kind=kind: epoch(kind, n, *args, opened=opened)
            for kind in (StreamWrapper, module.StreamWrapper)
        )
        return compared("emloop", what, ours, theirs, rounds, n, 1.0)

    yield row("StreamWrapper, no buffer, one pass", 50_000)
    yield row("StreamWrapper, no buffer, epochs of 10,000 batches", 50_000, 0, 10_000)
    yield row("StreamWrapper, no buffer, a profile", 50_000, 0, -1, "train", {})
    for opened in (False, True):
        gate = "allowed" if opened else "waited for"
        yield row(f"buffer of 16, {gate}; theirs without its sleep", 2_000, 16, opened=opened)
    module.EL_BUFFER_SLEEP = slept
    yield row("buffer of 16, allowed; theirs as it is", 50, 16, opened=True)
    yield _resumed(rounds)


def _resumed(rounds: int) -> Row:
    """Resume amid a million batches of a sequence, against iterating there, as emloop has to."""
    size, cut = 1_000_000, 500_000
    stream: StreamWrapper[int] = StreamWrapper(lambda: range(size))
    spent(islice(stream, cut))
    state = stream.state_dict()

    def ours() -> None:
        again: StreamWrapper[int] = StreamWrapper(lambda: range(size))
        again.load_state_dict(state)
        assert next(again) == cut

    def theirs() -> None:
        again = sys.modules["emloop.datasets.stream_wrapper"].StreamWrapper(lambda: range(size))
        spent(islice(again, cut))
        assert next(again) == cut

    return compared("emloop", "resume amid 1,000,000, theirs by iterating", ours, theirs, rounds, 1)
