"""Positions of a pipeline as it was read, kept to go through once more without its items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.machine import Machine
from lazyckpt.executors.plan.positions import raise_or_position, try_snapshot


class Recorded(NamedTuple):
    """What a flow has gone through.

    Attributes:
        positions: That after each item.
        end: That of its end, if it has ended.
    """

    positions: list[Any]
    end: list[Any]


class Recorder:
    """Records the positions of a pipeline in one place, and goes through them in another."""

    def __init__(self) -> None:
        self._recorded: list[Recorded] = []
        self._replayed: Iterator[Recorded] = iter(())

    def forget(self) -> None:
        """Begin once more, with flows that are yet to be opened."""
        self._recorded = []

    def take(self) -> list[Recorded]:
        """What was recorded since the last call, of one flow after another."""
        found, self._recorded = self._recorded, [Recorded([], [])]
        return found

    def recorded(self, machine: Machine[Any]) -> Machine[Any]:
        """The machine, one flow of which is open at a time, with its positions recorded."""

        def flow(position: Position) -> Flow[Any]:
            found = machine.flow(position)
            self._recorded.append(Recorded([], []))

            def items() -> Iterator[Any]:
                for item in found:
                    self._recorded[-1].positions.append(try_snapshot(found))
                    yield item
                self._recorded[-1].end.append(try_snapshot(found))

            return Flow(items(), found.snapshot)

        return machine._replace(flow=flow, item=None, view=None)

    def load(self, recorded: Sequence[Recorded]) -> None:
        """Have what was taken gone through by the next flows."""
        self._replayed = iter(recorded)

    def replayed(self, machine: Machine[Any]) -> Machine[Any]:
        """The machine with the positions that are loaded, and None for each item."""

        def flow(position: Position) -> Flow[None]:
            positions, end = next(self._replayed, Recorded([], []))
            ticks = iterate((None,) * len(positions))
            known, has_ended = [position, *positions], False

            def ending() -> Iterator[None]:
                nonlocal has_ended
                has_ended = True
                yield from ()

            def snapshot() -> Position:
                if has_ended and end:
                    return raise_or_position(end[0])
                return raise_or_position(known[len(positions) - remaining(ticks)])

            return Flow(chain(ticks, ending()), snapshot)

        return machine._replace(flow=flow, item=None, view=None)
