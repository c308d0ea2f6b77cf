"""Move items up to `shard` without looking into them, so that they can stay where they were made.

A stage that packs sequences needs only their lengths before `shard`: it is split into one part
that places them, and another one, after `shard`, that fills this rank's rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from toolz import identity

from lazyckpt.core.define import internal
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine, Rate
from lazyckpt.core.stages import stateless
from lazyckpt.executors.plan.joins import draws
from lazyckpt.executors.plan.segments import Segment


class Unfilled(NamedTuple):
    """A row that isn't filled yet.

    Attributes:
        fill: The function that fills it.
        parts: Its sequences, and parts of sequences.
        length: Its length.
    """

    fill: Callable[[tuple[list[Any], int]], Any]
    parts: list[Any]
    length: int

    @property
    def filled(self) -> Any:
        """The row."""
        return self.fill((self.parts, self.length))


@internal
def _unfilled(upstream: Machine[Any]) -> Machine[Unfilled]:
    """Yield the rows of a stage that packs, without filling them."""

    def flow(position: Position) -> Flow[Unfilled]:
        rows = upstream.flow(position)
        fill: Any = rows.fn
        return Flow((Unfilled(fill, *row) for row in rows.pull), rows.snapshot)

    return stateless(upstream, rate=Rate(), flow=flow)


def deferred(segments: list[Segment]) -> list[Segment]:
    """Mark the segments whose items the stages after them only move, and leave rows unfilled.

    Args:
        segments: The segments up to `shard`, as its last stage.
    """
    return _deferred(segments, identity)


def _deferred(segments: list[Segment], stays: Callable[[Any], Any]) -> list[Segment]:
    *before, last = segments
    if last.has_tasks:
        return [*before, last._replace(stays=stays)]
    calls = [*last.calls]
    for number in reversed(range(len(last.calls))):
        call = calls[number]
        if draws(call):
            parts = tuple([_deferred(part, stays) for part in last.parts])
            return [*before, last._replace(calls=tuple(calls), parts=parts)]
        if call.combinator.by_length is not None and stays is identity:
            stays = call.combinator.by_length
            calls.insert(number + 1, _unfilled().calls[0])
        elif not call.combinator.keeps_items or call.functions or call.combinator.is_source:
            return [*before, last._replace(calls=tuple(calls))]
    return [*_deferred(before, stays), last._replace(calls=tuple(calls))]
