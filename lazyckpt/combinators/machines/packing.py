"""Machines that make rows of several sequences of tokens, as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lazyckpt.combinators.machines.token_rows import Features
from lazyckpt.combinators.map import map as mapped
from lazyckpt.core.call import Call
from lazyckpt.core.flow import Flow, Position, noted
from lazyckpt.core.machine import Machine, Reread, anchored, within
from lazyckpt.core.stages import stateful
from lazyckpt.pipeline import Stage

Placed: TypeAlias = tuple[Position, Features]  # a row, and the position after it

_CODES = "which item each token is from"


def traced_rows(call: Call, tracing: Any) -> Stage[Any, Any]:
    """The stage on sequences with one feature more: for each token a code of its origins."""
    known: list[tuple[Any, ...]] = []

    def marked(item: Any) -> Any:
        value = tracing.plain(item)
        features = value if isinstance(value, Mapping) else {"tokens": value}
        sizes = [len(each) for each in map(np.asarray, features.values()) if each.ndim]
        known.append(tuple(tracing.origins(item)))
        return {**features, _CODES: np.full(sizes[0], len(known))} if sizes else value

    def found(row: Features) -> Any:
        codes = [code for code in row.pop(_CODES).tolist() if code]
        return tracing.traced(row, [origin for code in codes for origin in known[code - 1]])

    return mapped(marked) | Stage((call,)) | mapped(found)


def packed(
    name: str,
    upstream: Machine[Any],
    rows: Callable[[Read, Position, int], Iterator[Placed]],
    rereads: Callable[[Position], list[Reread]],
) -> Machine[Features]:
    """The rows that `rows(before, anchor, given)` makes, each with the position after it."""

    def flow(position: Position) -> Flow[Features]:
        anchor, given = position
        before = _read(upstream, anchor)

        def made() -> Iterator[Features]:
            nonlocal position
            for after, row in rows(before, anchor, given):
                position = after
                yield row
            position = before.reached(), 0

        return Flow(made(), lambda: position)

    return stateful(
        name, upstream, check=lambda given: within(name, given), rereads=rereads, flow=flow
    )


class Read(NamedTuple):
    """Items, the position before the one read last, and the position reached."""

    items: Iterator[Any]
    last: Callable[[], Position]
    reached: Callable[[], Position]


def _read(upstream: Machine[Any], position: Position) -> Read:
    flow, last = noted(anchored(upstream, position))
    return Read(iter(flow), last, flow.snapshot)
