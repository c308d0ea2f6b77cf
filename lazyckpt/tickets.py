"""Items in flight: each is given with a ticket, and comes again until it is finished."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

from lazyckpt.core.checks import brief
from lazyckpt.errors import TicketError
from lazyckpt.state.state import State

T = TypeVar("T")


class Ticket(NamedTuple):
    """What an item is finished with: two texts and two ints, which go through any process.

    - `tracker`: the name of the run that it is of, the same after a resume
    - `session`: the name of its time between two resumes
    - `number`: how many items came before the item
    - `attempt`: how often the item was given before in that time
    """

    tracker: str
    session: str
    number: int
    attempt: int


@dataclass(eq=False, slots=True)
class _Given(Generic[T]):
    """An item that was given, and is not finished.

    Attributes:
        item: It.
        before: The state before it.
        attempt: How often it was given before.
        is_back: Whether its ticket was given back.
    """

    item: T
    before: State
    attempt: int = 0
    is_back: bool = False


class InFlight(Generic[T]):
    """The items of one session that were given, and are not finished. It holds no lock.

    Args:
        tracker: The name of the run.
        after: The state where the session begins.
        timeout: Seconds after which an item is given again.
        clock: What tells the time.

    Attributes:
        tracker: The name of the run.
        after: The state after the last item that was given for the first time.
    """

    def __init__(
        self, tracker: str, after: State, timeout: float, clock: Callable[[], float]
    ) -> None:
        self.tracker, self.after = tracker, after
        self._session, self._timeout, self._clock = new_name(), timeout, clock
        self._given: dict[int, _Given[T]] = {}  # by number, in rising order
        self._deadlines: dict[int, float] = {}  # by number, the first to come first
        self._due: set[int] = set()  # to be given again

    def __len__(self) -> int:
        return len(self._given)

    @property
    def oldest(self) -> int | None:
        """The number of the first one."""
        return next(iter(self._given), None)

    @property
    def base(self) -> State:
        """The state before the first one, or after all that were given."""
        return next((each.before for each in self._given.values()), self.after)

    @property
    def finished(self) -> list[tuple[int, int]]:
        """Ranges of items behind the first one that are finished."""
        edges = pairwise([*self._given, self.after.items])
        return [(a + 1, b) for a, b in edges if a + 1 < b]

    @property
    def next_deadline(self) -> float:
        """When the next one is to be given again; infinity if that is not known."""
        return next(iter(self._deadlines.values()), inf)

    def next_due(self) -> int | None:
        """The number of the first one to be given again: it was given back, or its time is up."""
        while self._deadlines and self.next_deadline <= self._clock():
            number = next(iter(self._deadlines))
            del self._deadlines[number]
            self._due.add(number)
        return min(self._due, default=None)

    def give(self, item: T, after: State) -> tuple[Ticket, T]:
        """Give an item for the first time, after which the run is in a state."""
        number, found = self.after.items, _Given(item, self.after)
        # An interrupt may come at any time: then the item is made again.
        self._given[number] = found
        self.after = after
        return self._ticketed(number, found)

    def give_again(self, number: int) -> tuple[Ticket, T]:
        """Give one again that is due."""
        found = self._given[number]
        found.attempt += not found.is_back
        found.is_back = False
        self._due.discard(number)
        return self._ticketed(number, found)

    def finish(self, ticket: Any) -> None:
        """Let one go; a `TicketError` for a ticket of none."""
        number = self._number("ack", ticket)
        del self._given[number]
        self._deadlines.pop(number, None)
        self._due.discard(number)

    def take_back(self, ticket: Any) -> None:
        """Have one given again; a `TicketError` for a ticket of none."""
        number = self._number("nack", ticket)
        found = self._given[number]
        found.attempt, found.is_back = found.attempt + 1, True
        self._deadlines.pop(number, None)
        self._due.add(number)

    def _ticketed(self, number: int, found: _Given[T]) -> tuple[Ticket, T]:
        if self._timeout < inf:
            self._deadlines[number] = self._clock() + self._timeout
        return Ticket(self.tracker, self._session, number, found.attempt), found.item

    def _number(self, name: str, ticket: Any) -> int:
        """The number of the item that a ticket is for."""
        found = _ticket(name, ticket)
        if found.tracker != self.tracker:
            raise TicketError(f"{name}: {found} is of another run")
        if found.session != self._session:
            raise TicketError(
                f"{name}: {found} is from before a resume: unless it was finished then, "
                f"item {found.number:,} comes again, with another ticket"
            )
        item = self._given.get(found.number)
        if item is None and 0 <= found.number < self.after.items:
            raise TicketError(
                f"{name}: {found} was used already: item {found.number:,} is finished"
            )
        if item is None or found.attempt > item.attempt:
            raise TicketError(f"{name}: {found} was never given")
        if found.attempt < item.attempt:
            what = "given back, and comes" if item.is_back else "given"
            raise TicketError(
                f"{name}: {found} is out of date: item {found.number:,} was {what} again, "
                "with another ticket"
            )
        return found.number


def _ticket(name: str, value: Any) -> Ticket:
    parts = tuple(value) if isinstance(value, (tuple, list)) else ()
    if [type(part) for part in parts] != [str, str, int, int]:
        raise TicketError(f"{name}: {brief(value)} is no ticket")
    return Ticket(*parts)


def new_name() -> str:
    """A name that nothing else has."""
    return os.urandom(4).hex()
