"""One epoch of a run after another: what `Run.epoch` and the loaders have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from lazyckpt.core.call import Chain
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Machine, begun
from lazyckpt.state.state import State


def next_epoch(machine: Machine[Any], position: Position) -> Position:
    """Where the next epoch begins."""
    return machine.init(machine.epoch(position) + 1)


class _Run(Protocol):
    @property
    def pipeline(self) -> Chain: ...

    @property
    def state(self) -> State: ...

    def load_state_dict(self, state: State | str | bytes | Mapping[str, Any]) -> None: ...


class EpochLoader:
    """A run, and which of its epochs it is in."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    @property
    def _machine(self) -> Machine[Any]:
        return self._run.pipeline.machine

    @property
    def epoch(self) -> int:
        """The epoch that the run is in."""
        return self._machine.epoch(self._run.state.position)

    @property
    def is_fresh(self) -> bool:
        """Whether nothing of its epoch comes before where the run is."""
        return not begun(self._machine, self._run.state.position)

    def advance(self) -> None:
        """Go to where the next epoch begins."""
        state = self._run.state
        position = next_epoch(self._machine, state.position)
        skipped = state.skipped.at((), state.skipped.lost)
        self._run.load_state_dict(state.at(position, skipped=skipped))
