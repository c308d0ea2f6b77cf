"""Positions of stages that make any number of items of each one: whose part is whose."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import takewhile
from typing import Any

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Machine
from lazyckpt.errors import InvalidState
from lazyckpt.executors.plan.handlers import build_machine
from lazyckpt.failures.skipping import leaves_out


class Layers:
    """Item-wise stages on a machine with random access, and whose part of a position is whose.

    A stage that keeps a part of its own, as `flat_map` does, is a layer: its position
    is `(place, own)`. The place is that of what is below it when its current item was
    asked for: behind the item before, which may have come in an earlier run. A worker
    knows its own run alone, so that its positions have to be `settled`.

    Attributes:
        upstream: What the stages are on.
        calls: The stages.
        owns: Which of them are layers.
        noted: The layers whose places have to be noted. What is below the others has
    """

    def __init__(self, calls: tuple[Call, ...], seekable: int) -> None:
        self.upstream = build_machine(calls[:seekable], None)
        self.calls = calls[seekable:]
        self._owning: list[Machine[Any]] = []
        self.owns: list[bool] = []
        machine = self.upstream
        for call in self.calls:
            machine = call.build(machine)
            self.owns.append(machine.owns)
            if machine.owns:
                self._owning.append(machine)
        self.noted = [n for n, each in enumerate(self._owning) if each.upstream.skip is None]
        pairs = list(zip(self.calls, self.owns, strict=True))
        is_counted = all(call.combinator.itemwise for call, owns in pairs if owns)
        self._is_counted = is_counted and not any(map(leaves_out, self.calls))
        behind = takewhile(lambda pair: not pair[1], reversed(pairs))
        self.is_selective = any(call.combinator.itemwise for call, _ in behind)

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

    def counts(self, position: Position) -> list[Any] | None:
        """How far each layer is, if that is how many items it has given of its current one."""
        found = [part[0] for part in self._parts(position)]
        return found if self._is_counted and all(type(each) is int for each in found) else None

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
