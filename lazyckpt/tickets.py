"""Items in flight: each is delivered with a ticket, and again until it is finished."""

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
    """A receipt for one item, to pass to `Tracked.ack`.

    It is a tuple of two strings and two ints, so you can send it to any process.

    - `tracker`: name of the run, the same after a resume
    - `session`: name of the time between two resumes
    - `number`: number of items before this item
    - `attempt`: how often the item was delivered before in this session
    """

    tracker: str
    session: str
    number: int
    attempt: int


@dataclass(eq=False, slots=True)
class _Given(Generic[T]):
    """An item that was delivered, and is not finished.

    Attributes:
        item: The item.
        before: The state before it.
        attempt: How often it was delivered before.
        is_back: Whether its ticket was returned with `nack`.
    """

    item: T
    before: State
    attempt: int = 0
    is_back: bool = False


class InFlight(Generic[T]):
    """The items of one session that were delivered, and are not finished. It holds no lock.

    Args:
        tracker: Name of the run.
        after: The state at which the session begins.
        timeout: Seconds after which an item is delivered again.
        clock: Function that returns the time.

    Attributes:
        tracker: Name of the run.
        after: The state after the last item that was delivered for the first time.
    """

    def __init__(
        self, tracker: str, after: State, timeout: float, clock: Callable[[], float]
    ) -> None:
        self.tracker, self.after = tracker, after
        self._session, self._timeout, self._clock = new_name(), timeout, clock
        self._given: dict[int, _Given[T]] = {}  # by number, in rising order
        self._deadlines: dict[int, float] = {}  # by number, earliest first
        self._due: set[int] = set()  # to be delivered again

    def __len__(self) -> int:
        return len(self._given)

    @property
    def oldest(self) -> int | None:
        """Return the number of the oldest item."""
        return next(iter(self._given), None)

    @property
    def base(self) -> State:
        """Return the state before the oldest item, or after all that were delivered."""
        return next((each.before for each in self._given.values()), self.after)

    @property
    def finished(self) -> list[tuple[int, int]]:
        """Return ranges of finished items after the oldest one in flight."""
        edges = pairwise([*self._given, self.after.items])
        return [(a + 1, b) for a, b in edges if a + 1 < b]

    @property
    def next_deadline(self) -> float:
        """Return when the next item is to be delivered again; infinity if unknown."""
        return next(iter(self._deadlines.values()), inf)

    def next_due(self) -> int | None:
        """Return the number of the first item to deliver again: after a `nack`, or timed out."""
        while self._deadlines and self.next_deadline <= self._clock():
            number = next(iter(self._deadlines))
            del self._deadlines[number]
            self._due.add(number)
        return min(self._due, default=None)

    def give(self, item: T, after: State) -> tuple[Ticket, T]:
        """Deliver an item for the first time; the run is then in the state `after`."""
        number, found = self.after.items, _Given(item, self.after)
        # An interrupt may come at any time: then the item is computed again.
        self._given[number] = found
        self.after = after
        return self._ticketed(number, found)

    def give_again(self, number: int) -> tuple[Ticket, T]:
        """Deliver an item again that is due."""
        found = self._given[number]
        found.attempt += not found.is_back
        found.is_back = False
        self._due.discard(number)
        return self._ticketed(number, found)

    def finish(self, ticket: Any) -> None:
        """Remove a finished item; raise a `TicketError` if its ticket is not valid."""
        number = self._number("ack", ticket)
        del self._given[number]
        self._deadlines.pop(number, None)
        self._due.discard(number)

    def take_back(self, ticket: Any) -> None:
        """Mark an item for redelivery; raise a `TicketError` if its ticket is not valid."""
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
        """Return the number of a ticket's item."""
        found = _ticket(name, ticket)
        if found.tracker != self.tracker:
            raise TicketError(f"{name}: {found} belongs to a different run")
        if found.session != self._session:
            raise TicketError(
                f"{name}: {found} is from before a resume: unless it was finished by then, "
                f"item {found.number:,} is delivered again, with a new ticket"
            )
        item = self._given.get(found.number)
        if item is None and 0 <= found.number < self.after.items:
            raise TicketError(f"{name}: {found} is used up: item {found.number:,} is finished")
        if item is None or found.attempt > item.attempt:
            raise TicketError(f"{name}: {found} was never issued")
        if found.attempt < item.attempt:
            what = "returned, and is delivered" if item.is_back else "delivered"
            raise TicketError(
                f"{name}: {found} is out of date: item {found.number:,} was {what} again, "
                "with a new ticket"
            )
        return found.number


def _ticket(name: str, value: Any) -> Ticket:
    parts = tuple(value) if isinstance(value, (tuple, list)) else ()
    if [type(part) for part in parts] != [str, str, int, int]:
        raise TicketError(f"{name}: {brief(value)} is not a ticket")
    return Ticket(*parts)


def new_name() -> str:
    """Return a unique name."""
    return os.urandom(4).hex()
