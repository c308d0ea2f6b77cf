"""Cut a pipeline into segments: what workers can do, and what runs in one place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import registry


class Segment(NamedTuple):
    """Consecutive stages that run together.

    Attributes:
        kind: "chunks" where workers read from positions of their own, "items" where
            they work item by item, "local" for one thread next to the consumer.
        calls: The stages.
    """

    kind: Literal["chunks", "items", "local"]
    calls: tuple[Call, ...]


def split_pipeline(chain: Chain, *, workers: int, can_stream: bool) -> list[Segment]:
    """The segments of a pipeline, in order.

    Args:
        chain: The pipeline.
        workers: How many workers there are.
        can_stream: Whether one worker can read a stream from end to end.
    """
    whole = [Segment("chunks", chain.calls)]
    if chain.machine.skip is not None or (can_stream and workers == 1):
        return whole
    start = _seekable_stages(chain.calls)
    if not takes_time(chain.calls[:start]):
        start = 0
    segments = [Segment("chunks", chain.calls[:start])] if start else []
    for call in itertools.chain.from_iterable(map(_without_collate, chain.calls[start:])):
        is_pointwise = call.combinator.pointwise and takes_time((call,))
        kind: Literal["items", "local"] = "items" if is_pointwise else "local"
        if segments and segments[-1].kind == kind:
            segments[-1] = Segment(kind, segments[-1].calls + (call,))
        else:
            segments.append(Segment(kind, (call,)))
    return whole if can_stream and len(segments) == 1 else segments


def _seekable_stages(calls: tuple[Call, ...]) -> int:
    """How many stages come before the first one without random access."""
    machine: Machine[Any] | None = None
    for number, call in enumerate(calls):
        machine = call.build(machine)
        if machine.skip is None:
            return number
    return len(calls)


def takes_time(calls: tuple[Call, ...]) -> bool:
    """Whether stages do more than look up what is in memory."""
    return any(
        not isinstance(value, (list, tuple, range, int, float, str, bool, type(None), np.ndarray))
        or isinstance(value, np.memmap)
        for call in calls
        for value in call.arguments.values()
    )


def _without_collate(call: Call) -> Iterator[Call]:
    """A stage, and the function that collates its items as a `map` of its own."""
    name = next((name for name, role in call.functions.items() if role == "collate"), None)
    if name is None:
        yield call
        return
    yield call.replaced(**{name: None})
    collating = registry["map"]
    yield Call(collating, collating.bind((call.arguments[name],), {}), call.site)
