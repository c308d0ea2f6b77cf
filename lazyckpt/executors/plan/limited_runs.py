"""A run of items upstream, as a worker reads it part by part."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.errors import InvalidState
from lazyckpt.executors.plan.handlers import build_machine
from lazyckpt.executors.plan.layers import Layers
from lazyckpt.executors.plan.positions import try_snapshot
from lazyckpt.failures.skip_log import SkipRecord
from lazyckpt.failures.skipping import apart


class Part(NamedTuple):
    """What is known of a part of a run.

    Attributes:
        positions: Those before its items and after each.
        befores: As of `PositionLog`.
        left: How many items upstream are to come, with the one that it ends amid.
        skipped: What was left out, and after how many of its items.
    """

    positions: list[Any]
    befores: dict[int, Position]
    left: int
    skipped: tuple[tuple[int, SkipRecord], ...] = ()


class LimitedRun:
    """A run of so many items upstream, as it is read."""

    def __init__(self, layers: Layers, position: Position, count: int) -> None:
        self._upstream, self._count = layers.upstream, count
        self._is_amid = layers.depth > 0  # of an item, once one was made
        self._taken: Callable[[], int] = int
        calls, self._skip_log = apart(layers.calls)
        limited = layers.upstream._replace(flow=self._limited, view=None)
        self._flow: Flow[Any] = build_machine(calls, limited).flow(position)
        self._items = iter(self._flow)
        self._positions: list[Any] = [try_snapshot(self._flow)]
        self._befores: dict[int, Position] = {}
        self._previous: Position = None  # after the item before, where this run had one
        self._skipped: list[tuple[int, SkipRecord]] = []

    @property
    def can_be_cut(self) -> bool:
        """Whether another run can go on from where this is."""
        return not isinstance(self._positions[-1], InvalidState)

    def read(self, items: list[Any], count: int) -> bool:
        """Add so many items to a part; whether they came."""
        before = len(items)
        positions, last = self._positions, self._flow.before
        for item in islice(self._items, count):
            self._add_skipped(len(items))
            items.append(item)
            if last is not None and (found := last()) != self._previous:
                self._befores[len(positions)] = found
            self._previous = try_snapshot(self._flow)
            positions.append(self._previous)
        return len(items) == before + count

    def end_part(self, made: int, *, is_cut: bool) -> Part:
        """What is known of a part of so many items, behind which another may begin."""
        if not is_cut:
            self._add_skipped(made)
        left = self.missing() + self._is_amid if is_cut else 0
        found = Part(self._positions, self._befores, left, tuple(self._skipped))
        self._positions, self._befores, self._skipped = self._positions[-1:], {}, []
        return found

    def _add_skipped(self, place: int) -> None:
        if self._skip_log is not None and (found := self._skip_log.drain()).spans:
            self._skipped.append((place, found))

    def missing(self) -> int:
        """How many items have not been taken."""
        return self._count - self._taken()

    def _limited(self, position: Position) -> Flow[Any]:
        found = self._upstream.flow(position)
        items, self._taken = counted(islice(found, self._count))
        return Flow(items, found.snapshot, taken=self._taken)
