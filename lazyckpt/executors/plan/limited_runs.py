"""A run of items upstream, as a worker reads it part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import Machine
from lazyckpt.errors import InvalidState
from lazyckpt.executors.plan.layers import Layers
from lazyckpt.executors.plan.positions import try_snapshot
from lazyckpt.failures.skip_log import SkipRecord
from lazyckpt.failures.skipping import apart


class Part(NamedTuple):
    """What is known of a part of a run.

    Attributes:
        positions: Those before its items and after each.
        behind: By layer the place of what is below, behind the item that it took last.
        left: How many items upstream are to come, with the one that it ends amid.
        skipped: What was left out, and after how many of its items.
    """

    positions: Sequence[Any]
    behind: dict[int, Position]
    left: int
    skipped: tuple[tuple[int, SkipRecord], ...] = ()


class LimitedRun:
    """A run of so many items upstream, as it is read; its positions are taken one by one."""

    def __init__(self, layers: Layers, position: Position, count: int) -> None:
        self._layers, self._count = layers, count
        self._taken: Callable[[], int] = int
        self._left: dict[int, int] = {}  # at those places
        self._behind: dict[int, Position] = {}
        machine, layer = layers.upstream._replace(flow=self._limited, view=None), 0
        calls, self._skip_log = apart(layers.calls)
        for call in calls:
            below, machine = machine, call.build(machine)
            if machine.owns:
                if layer in layers.noted:
                    machine = call.build(below._replace(flow=self._noting(below, layer)))
                layer += 1
        self._flow: Flow[Any] = machine.flow(position)
        self._items = iter(self._flow)
        self._positions: list[Any] = [try_snapshot(self._flow)]
        self._skipped: list[tuple[int, SkipRecord]] = []

    @property
    def can_be_cut(self) -> bool:
        """Whether another run can go on from where this is."""
        return not isinstance(self._positions[-1], InvalidState)

    def read(self, items: list[Any], count: int) -> bool:
        """Add so many items to a part; whether they came."""
        before = len(items)
        for item in islice(self._items, count):
            self._add_skipped(len(items))
            items.append(item)
            self._positions.append(try_snapshot(self._flow))
        return len(items) == before + count

    def end_part(self, made: int, *, is_cut: bool) -> Part:
        """What is known of a part of so many items, behind which another may begin."""
        if not is_cut:
            self._add_skipped(made)
        positions, skipped = self._positions, self._skipped
        self._positions, self._skipped = positions[-1:], []
        left = self.left(positions[-1]) if is_cut else 0
        return Part(positions, {**self._behind}, left, tuple(skipped))

    def _add_skipped(self, place: int) -> None:
        if self._skip_log is not None and (found := self._skip_log.drain()).spans:
            self._skipped.append((place, found))

    def missing(self) -> int:
        """How many items have not been taken."""
        return self._count - self._taken()

    def left(self, position: Position) -> int:
        """How many items a run has that goes on from a position which this one has reached."""
        return self._left_below(self._layers.depth, position)

    def _left_below(self, layer: int, position: Position) -> int:
        """The same for the position below a layer."""
        if layer == 0:
            return self.missing()
        if layer - 1 in self._layers.noted:  # what is below that stands where it was noted
            return self._left.get(layer - 1, self._count)
        return self.missing() + self._layers.is_amid(position)

    def _limited(self, position: Position) -> Flow[Any]:
        found = self._layers.upstream.flow(position)
        items, self._taken = counted(islice(found, self._count))
        return Flow(items, found.snapshot, taken=self._taken)

    def _noting(self, machine: Machine[Any], layer: int) -> Callable[[Position], Flow[Any]]:
        """The flow of a machine, which notes where it is whenever another item is asked for."""

        def flow(position: Position) -> Flow[Any]:
            found = machine.flow(position)

            def items() -> Iterator[Any]:
                for item in found:
                    yield item
                    self._behind[layer] = here = found.snapshot()
                    self._left[layer] = self._left_below(layer, here)

            return Flow(items(), found.snapshot)

        return flow
