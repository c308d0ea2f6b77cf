"""Positions of stages that make any number of items of each one: whose part is whose."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Any

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import Machine
from lazyckpt.errors import InvalidState
from lazyckpt.executors.plan.handlers import build_machine
from lazyckpt.failures.skipping import apart


class Layers:
    """Item-wise stages on a machine with random access, and whose part of a position is whose.

    A stage that keeps a part of its own, as `flat_map` does, is a layer: its position
    is `(place, own)`. The place is that of what is below it when its current item was
    asked for: behind the item before, which may have come in an earlier run. A worker
    knows its own run alone, so that its positions have to be `settled`.

    Attributes:
        upstream: What the stages are on.
        calls: The stages.
        noted: The layers whose places have to be noted. What is below the others has
            random access, where each place has one position.
    """

    def __init__(self, calls: tuple[Call, ...], seekable: int) -> None:
        self.upstream = build_machine(calls[:seekable], None)
        self.calls = calls[seekable:]
        self._owning: list[Machine[Any]] = []
        machine = self.upstream
        for call in self.calls:
            machine = call.build(machine)
            if machine.owns:
                self._owning.append(machine)
        self.noted = [n for n, each in enumerate(self._owning) if each.upstream.skip is None]

    def place(self, position: Position) -> Position:
        """Where upstream is: before the item that the position is amid, or behind the last one."""
        for _ in self._owning:
            position = position[0]
        return position

    def begin(
        self, place: Position, start: Position | None = None, taken: Collection[int] = ()
    ) -> Position:
        """The position where nothing has come of the item at a place upstream.

        With a `start` the layers that have taken no item since then are as they were there.
        """
        epoch, position = self.upstream.epoch(place), place
        parts = [] if start is None else self._parts(start)
        for layer, machine in enumerate(self._owning):
            is_kept = parts and layer in self.noted and layer not in taken
            own = parts[layer] if is_kept else machine.init(epoch)[1:]
            position = (position, *own)
        return position

    def _parts(self, position: Position) -> list[tuple[Any, ...]]:
        """The own part of each layer."""
        found = []
        for _ in self._owning:
            position, *own = position
            found.append(tuple(own))
        return found[::-1]

    @property
    def depth(self) -> int:
        """How many layers there are."""
        return len(self._owning)

    def is_amid(self, position: Position) -> bool:
        """Whether something has come of the item at its place, of the first layer's position."""
        first = self._owning[0]
        return bool(position[1:] != first.init(first.epoch(position))[1:])

    def below(self, position: Position) -> dict[int, Position]:
        """By layer the place of what is below."""
        found = {}
        for layer in range(len(self._owning) - 1, -1, -1):
            found[layer] = position = position[0]
        return {layer: found[layer] for layer in self.noted}

    def settled(
        self, position: Position, begin: Position, behind: Mapping[int, Position]
    ) -> Position:
        """A position of a run as it is where the run before was read by the same flow."""
        if isinstance(position, InvalidState):
            return position
        return self._settled(position, begin, behind, len(self._owning) - 1)

    def behind(
        self, found: Mapping[int, Position], begin: Position, before: Mapping[int, Position]
    ) -> dict[int, Position]:
        """What a run has noted, settled, where that of the one before is known."""
        begins = self.below(begin)
        return {
            layer: self._settled(each, begins[layer], before, layer - 1)
            for layer, each in found.items()
        }

    def _settled(
        self, position: Position, begin: Position, behind: Mapping[int, Position], layer: int
    ) -> Position:
        if layer < 0:
            return position
        below, *own = position
        if below == begin[0]:
            return behind.get(layer, below), *own
        return self._settled(below, begin[0], behind, layer - 1), *own


class LimitedRun:
    """A run of so many items upstream, as it is read.

    Attributes:
        flow: What comes of them.
        behind: By layer the place of what is below, behind the item that it took last.
        skip_log: What its stages leave out, if they may.
    """

    def __init__(self, layers: Layers, position: Position, count: int) -> None:
        self._layers, self._count = layers, count
        self._taken: Callable[[], int] = int
        self._left: dict[int, int] = {}  # at those places
        self.behind: dict[int, Position] = {}
        machine, layer = layers.upstream._replace(flow=self._limited, view=None), 0
        calls, self.skip_log = apart(layers.calls)
        for call in calls:
            below, machine = machine, call.build(machine)
            if machine.owns:
                if layer in layers.noted:
                    machine = call.build(below._replace(flow=self._noting(below, layer)))
                layer += 1
        self.flow: Flow[Any] = machine.flow(position)

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
                    self.behind[layer] = here = found.snapshot()
                    self._left[layer] = self._left_below(layer, here)

            return Flow(items(), found.snapshot)

        return flow
