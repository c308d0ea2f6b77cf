"""One epoch of a run after another: what `Run.epoch` and the loaders of `compat` have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from lazyckpt.core.call import Chain
from lazyckpt.core.flow import Position, close_stream
from lazyckpt.core.machine import Machine, begun
from lazyckpt.state.state import State

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def is_over(machine: Machine[Any], position: Position) -> bool:
    """Whether nothing of its epoch comes after a position. Of a stream it reads an item to know."""
    if machine.skip is not None:
        return not machine.skip(position, 1)[1]
    flow = machine.flow(position)  # a step would leave it open for the next one
    try:
        return all(False for _ in flow.pull)
    finally:
        close_stream(flow)


def next_epoch(machine: Machine[Any], position: Position) -> Position:
    """Where the next epoch begins."""
    return machine.init(machine.epoch(position) + 1)


class _Run(Protocol[T_co]):
    @property
    def pipeline(self) -> Chain: ...

    @property
    def state(self) -> State: ...

    def load_state_dict(self, state: State | str | bytes | Mapping[str, Any]) -> None: ...

    def __iter__(self) -> Iterator[T_co]: ...


class EpochLoader(Generic[T]):
    """A run of which each iteration is an epoch: the rest of this one, or the next.

    An iteration that was left ends its epoch, unless it has given nothing. After
    `load_state_dict` the rest of an epoch comes, or the next one if there is none.

    Args:
        run: What is iterated over.
        machine: That of a part of its pipeline whose positions are the same, in its place.
    """

    def __init__(self, run: _Run[T], machine: Machine[Any] | None = None) -> None:
        self._run, self._part = run, machine
        self._is_left = False  # whether an iteration has given items of this epoch

    @property
    def _machine(self) -> Machine[Any]:
        return self._run.pipeline.machine if self._part is None else self._part

    @property
    def epoch(self) -> int:
        """The epoch that the run is in."""
        return self._machine.epoch(self._run.state.position)

    @property
    def is_fresh(self) -> bool:
        """Whether nothing of its epoch comes before where the run is."""
        return not begun(self._machine, self._run.state.position)

    @property
    def following(self) -> int:
        """The epoch that the next iteration is in."""
        if self.is_fresh:
            return self.epoch
        return self.epoch + (self._is_left or is_over(self._machine, self._run.state.position))

    def begin(self) -> Iterator[T]:
        """Go to the epoch of the next iteration, and begin to iterate."""
        if self.following != self.epoch:
            self.advance()
        self._is_left = False
        return iter(self._run)

    def next(self, items: Iterator[T]) -> T:
        """The next item of what `begin` gave; at its end, the epoch is over."""
        try:
            item = next(items)
        except StopIteration:
            self._is_left = True
            if self.is_fresh:  # an epoch without items
                self.advance()
            raise
        self._is_left = True
        return item

    def load_state_dict(self, state: State | str | bytes | Mapping[str, Any]) -> None:
        """Go to a state."""
        self._run.load_state_dict(state)
        self._is_left = False

    def advance(self) -> None:
        """Go to where the next epoch begins."""
        state = self._run.state
        position = next_epoch(self._machine, state.position)
        skipped = state.skipped.at((), state.skipped.lost)
        self.load_state_dict(state.at(position, skipped=skipped))
