"""Positions of item-wise stages: which part of a position belongs to which stage."""

from __future__ import annotations

from typing import Any

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Machine
from lazyckpt.executors.plan.handlers import build_machine


class Layers:
    """Item-wise stages on a machine with random access, with the parts of their positions.

    A stage with a position of its own, such as `flat_map`, is a layer. Its position is
    `(anchor, own)`: `anchor` is the upstream position just before its current item. So a flow that
    starts at any item has the same positions as a flow from the beginning.

    Attributes:
        upstream: The machine with random access.
        calls: The item-wise stages.
        depth: Number of layers.
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

    def anchor(self, position: Position) -> Position:
        """Return the upstream part: before the item in progress, or after the last item."""
        for _ in self._layers:
            position = position[0]
        return position

    def begin(self, anchor: Position) -> Position:
        """Return the position before any output of the item at an upstream position."""
        epoch, position = self.upstream.epoch(anchor), anchor
        for machine in self._layers:
            position = (position, *machine.init(epoch)[1:])
        return position
