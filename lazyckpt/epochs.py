"""The epochs of a run, for `Run.epoch` and the loaders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from lazyckpt.core.call import Chain
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Machine, begun
from lazyckpt.state.codec import Rebased
from lazyckpt.state.state import State

_ENDING = frozenset({"take", "take_tokens", "take_while"})  # stages that end before upstream does


def is_endless(chain: Chain) -> bool:
    """Return whether a pipeline never ends, as far as its stages show without reading."""
    for call, machine in zip(reversed(chain.calls), reversed(chain.machines), strict=True):
        if machine.length is not None:
            return bool(machine.length == math.inf)
        if call.name in _ENDING:
            return False
    joined = chain.calls[0].chains
    return bool(joined) and all(map(is_endless, joined))


def items_in_epoch(chain: Chain, state: State) -> int:
    """Return how many items of its epoch precede a state; 0 if unknown without reading the data."""
    machine, length = chain.machine, chain.machine.length
    if length is None or length == math.inf:
        return 0 if machine.epoch(state.position) else state.items
    if machine.skip is not None:
        return int(length) - machine.skip(state.position, int(length))[1]
    passed = state.items - machine.epoch(state.position) * int(length)
    return max(0, min(passed, int(length)))


def renumbered(state: State, left: int) -> State:
    """Return the same position, with `left` more items counted, up to the next epoch."""
    items = state.items + left
    rebased = Rebased(items, state.own_items)
    return State(state.stages, items, state.position, state.skipped, rebased, state.rank)


def passed_over(machine: Machine[Any], state: State, left: int) -> State:
    """Return the state `left` items on, across ends of the stream. It needs random access."""
    assert machine.skip is not None, "without random access, items are read"
    position, items = state.position, state.items + left
    while left:
        position, passed = machine.skip(position, left)
        left -= passed
        if left:
            position = next_epoch(machine, position)
    return state.at(position, items)


def next_epoch(machine: Machine[Any], position: Position) -> Position:
    """Return the state at which the next epoch begins."""
    return machine.init(machine.epoch(position) + 1)


class _Run(Protocol):
    @property
    def pipeline(self) -> Chain: ...

    @property
    def state(self) -> State: ...

    def load_state_dict(self, state: State | str | bytes | Mapping[str, Any]) -> None: ...


class EpochLoader:
    """A run, and the epoch that it is in."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    @property
    def _machine(self) -> Machine[Any]:
        return self._run.pipeline.machine

    @property
    def epoch(self) -> int:
        """The current epoch of the run."""
        return self._machine.epoch(self._run.state.position)

    @property
    def is_fresh(self) -> bool:
        """Whether no item of the current epoch has been delivered."""
        return not begun(self._machine, self._run.state.position)

    def advance(self, epoch: int | None = None) -> None:
        """Go to the beginning of an epoch, by default the next one."""
        state = self._run.state
        epoch = self.epoch + 1 if epoch is None else epoch
        position = self._machine.init(epoch)
        skipped = state.skipped.at((), state.skipped.lost)
        self._run.load_state_dict(state.at(position, skipped=skipped))
