"""Positions of stages that make any number of items of each one: whose part is whose."""

from __future__ import annotations

from typing import Any

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Machine
from lazyckpt.executors.plan.handlers import build_machine


class Layers:
    """Item-wise stages on a machine with random access, and whose part of a position is whose.

    A stage that keeps a part of its own, as `flat_map` does, is a layer: its position is
    `(place, own)`, where the place is that just before its current item. So whoever begins
    at an item has the positions of a flow from the beginning.

    Attributes:
        upstream: What the stages are on.
        calls: The stages.
        depth: How many layers there are.
    """

    def __init__(self, calls: tuple[Call, ...], seekable: int) -> None:
        self.upstream = build_machine(calls[:seekable], None)
        self.calls = calls[seekable:]
        self._layers: list[Machine[Any]] = []
        machine = self.upstream
        for call in self.calls:
            machine = call.build(machine)
            self._layers += [machine] if machine.owns else []
        self.depth = len(self._layers)

    def place(self, position: Position) -> Position:
        """Where upstream is: before the item that the position is amid, or behind the last one."""
        for _ in self._layers:
            position = position[0]
        return position

    def begin(self, place: Position) -> Position:
        """The position where nothing has come of the item at a place upstream."""
        epoch, position = self.upstream.epoch(place), place
        for machine in self._layers:
            position = (position, *machine.init(epoch)[1:])
        return position
