"""Pipelines for the tests of states."""

from __future__ import annotations

import json
import zlib
from itertools import islice
from typing import Any

from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing.laws import Stream

DATA = lz.source(range(40))
PIPELINE = DATA | lz.shuffle(seed=0) | lz.repeat() | lz.shuffle(5, seed=1) | lz.batch(4)

STREAM = lz.source(Stream(range(40)))


def rest(pipeline: lz.Pipeline[Any], state: lz.State, limit: int = 99) -> list[Any]:
    return list(islice(lz.run(pipeline, lz.rebase(state, pipeline)), limit))


def drawn_run(
    pipeline: lz.Pipeline[Any], count: int, data: st.DataObject
) -> tuple[list[Any], lz.Run[Any]]:
    """The items of a run up to a drawn position, and the run."""
    run, place = lz.run(pipeline), data.draw(st.integers(0, count))
    had = [next(run) for _ in range(place)]
    if place == count and data.draw(st.booleans()):
        assert next(run, None) is None
    return had, run


def checksum(body: dict[str, Any]) -> str:
    """The checksum of a state's fields, as anyone can compute it."""
    names = ("lazyckpt", "items", "stages", "rebased", "skipped", "rank", "tracked")
    order = [name for name in names if name in body]
    texts = (json.dumps(body[name], sort_keys=True, separators=(",", ":")) for name in order)
    pairs = zip(order, texts, strict=True)
    text = "{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}"
    return f"{zlib.crc32(text.encode()):08x}"


def signed(body: dict[str, Any], **changed: Any) -> str:
    """A state's text, of other content, with a checksum that fits."""
    body = {name: value for name, value in {**body, **changed}.items() if name != "check"}
    return json.dumps({**body, "check": checksum(body)})
