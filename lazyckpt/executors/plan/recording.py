"""Record the positions of a pipeline as it is read, to replay them without its items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.machine import Machine
from lazyckpt.executors.plan.positions import raise_or_position, try_snapshot


class Recorded(NamedTuple):
    """The positions that a flow has passed.

    Attributes:
        positions: The position after each item.
        end: The position at the end, in a list that is empty before the end.
    """

    positions: list[Any]
    end: list[Any]


class Recorder:
    """Records the positions of a pipeline in one process, and replays them in a different one."""

    def __init__(self) -> None:
        self._recorded: list[Recorded] = []
        self._replayed: Iterator[Recorded] = iter(())

    def forget(self) -> None:
        """Forget the recorded positions; record the flows that are opened from now on."""
        self._recorded = []

    def take(self) -> list[Recorded]:
        """Return the records since the last call, one per flow."""
        found, self._recorded = self._recorded, [Recorded([], [])]
        return found

    def recorded(self, machine: Machine[Any]) -> Machine[Any]:
        """Return the machine with its positions recorded. One flow is open at a time."""

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
        """Load records of `take`, for the next flows to replay."""
        self._replayed = iter(recorded)

    def replayed(self, machine: Machine[Any]) -> Machine[Any]:
        """Return the machine with the loaded positions, and None in place of each item."""

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
