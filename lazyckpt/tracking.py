"""`tracked`: the items of a run with tickets, to be finished in any order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from threading import Condition, get_ident
from time import monotonic
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from lazyckpt.core.checks import brief, checked, finite, function, optional, positive
from lazyckpt.errors import (
    ArgumentError,
    PipelineError,
    SourceChanged,
    TicketError,
    TooManyInFlight,
)
from lazyckpt.run import Run
from lazyckpt.state.state import AnyState, State, TrackedState, any_state, flat

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
class _InFlight(Generic[T]):
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


class Tracked(Iterator[tuple[Ticket, T]]):
    """The items of a run with their tickets. `lazyckpt.tracked` makes it.

    It may be iterated over in one thread or several, and `ack`, `nack` and `state` are
    for any thread. The run itself is left alone meanwhile.
    """

    def __init__(
        self,
        run: Run[T],
        state: AnyState | None,
        max_in_flight: int,
        timeout: float | None,
        max_wait: float | None,
        clock: Callable[[], float],
    ) -> None:
        self._run, self._max_in_flight, self._clock = run, max_in_flight, clock
        self._timeout = inf if timeout is None else timeout
        self._max_wait = inf if max_wait is None else max_wait
        self._changed = Condition()
        self._puller: int | None = None  # the thread that has the run make an item
        self._is_closed = False
        self._begin(state)

    def _begin(self, state: AnyState | None) -> None:
        base = self._run.state if state is None else any_state(state)
        tracker, finished = _new_name(), deque[tuple[int, int]]()
        if isinstance(base, TrackedState):
            tracker, first = base.tracker, base.items
            finished.extend((first + start, first + stop) for start, stop in base.finished)
            base = base.base
        if state is not None:
            self._run.load_state_dict(base)
        self._tracker, self._session = tracker, _new_name()
        self._in_flight: dict[int, _InFlight[T]] = {}  # by number, in rising order
        self._deadlines: dict[int, float] = {}  # by number, the first to come first
        self._due: set[int] = set()  # to be given again
        self._finished = finished  # in the state that it began with, and not yet passed over
        self._after = base  # the last item that was given for the first time
        self._is_ended = False
        self._pairs = self._run.with_state()
        self._is_settled = True  # so that the run stands there

    def __iter__(self) -> Iterator[tuple[Ticket, T]]:
        return self

    def __next__(self) -> tuple[Ticket, T]:
        """The next item, with its ticket: one to be given again, or a new one."""
        while True:
            with self._changed:
                number = self._next_due()
                if number is not None:
                    return self._give_again(number)
                if self._is_ended:
                    raise StopIteration
                self._puller = get_ident()
            try:
                given = self._pull()
            finally:
                with self._changed:
                    self._puller = None
                    self._changed.notify_all()
            if given is not None:
                return given

    def ack(self, ticket: Ticket | Sequence[Any]) -> None:
        """Say that an item is finished: it never comes again.

        Args:
            ticket: That of the item, or a list of its parts, as JSON makes of it.

        Raises:
            TicketError: It was used before, is of another run or of before a resume, or its
                item was given again. The message says which.
        """
        with self._changed:
            number = self._number("ack", ticket)
            del self._in_flight[number]
            self._deadlines.pop(number, None)
            self._due.discard(number)
            self._changed.notify_all()

    def nack(self, ticket: Ticket | Sequence[Any]) -> None:
        """Give an item back: it comes again, before new ones, with another ticket.

        Args:
            ticket: As of `ack`.

        Raises:
            TicketError: As of `ack`.
        """
        with self._changed:
            number = self._number("nack", ticket)
            found = self._in_flight[number]
            found.attempt, found.is_back = found.attempt + 1, True
            self._deadlines.pop(number, None)
            self._due.add(number)
            self._changed.notify_all()

    @property
    def in_flight(self) -> int:
        """How many items were given, and are not finished."""
        return len(self._in_flight)

    @property
    def state(self) -> TrackedState:
        """Where a resume begins, and what of that is finished."""
        with self._changed:
            numbers, after = [*self._in_flight], self._after
            base = self._in_flight[numbers[0]].before if numbers else after
            ranges = [(a + 1, b) for a, b in pairwise([*numbers, after.items]) if a + 1 < b]
            for start, stop in self._finished:
                if ranges and ranges[-1][1] >= start:
                    start = ranges.pop()[0]
                ranges.append((max(start, base.items), stop))
            first = base.items
            return TrackedState(
                base, self._tracker, tuple([(a - first, b - first) for a, b in ranges])
            )

    def state_dict(self) -> dict[str, Any]:
        """The state, for any checkpointer.

        Returns:
            A flat dict of ints and texts.
        """
        return flat(self.state)

    def load_state_dict(self, state: AnyState) -> None:
        """Go to a state: what is not finished there comes first. Older tickets are refused.

        Args:
            state: One of a tracked run, in which case items finished there don't come
                again, or of a run; as a `State`, its JSON text or its dict.

        Raises:
            StateMismatch: The state is another pipeline's.
            InvalidState: It is no state, or does not fit the pipeline.
        """
        with self._changed:
            while self._puller not in (None, get_ident()):
                self._changed.wait()
            self._begin(state)
            self._changed.notify_all()

    def close(self) -> None:
        """Close the run. Who waits for an item gets an error; tickets are good still."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._run.close()

    def __enter__(self) -> Tracked[T]:
        self._run.__enter__()
        self._is_closed = False
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a tracked run can't be pickled or copied: take its state; tickets can")

    def __repr__(self) -> str:
        return f"<tracked {self._run!r}, {self.in_flight:,} in flight>"

    def _next_due(self) -> int | None:
        """The item to be given again, or None for a new one or the end; it waits for either."""
        begun = self._clock()
        while True:
            if self._is_closed:
                raise PipelineError("the tracked run is closed; enter it again")
            self._note_late()
            if self._due:
                return min(self._due)
            is_free = self._puller in (None, get_ident())
            room = 1 if self._is_ended else self._max_in_flight
            if is_free and len(self._in_flight) < room:
                return None
            self._wait(begun + self._max_wait)

    def _note_late(self) -> None:
        """Have items given again whose time is up."""
        while self._deadlines:
            number, deadline = next(iter(self._deadlines.items()))
            if deadline > self._clock():
                return
            del self._deadlines[number]
            self._due.add(number)

    def _wait(self, last: float) -> None:
        now = self._clock()
        if now >= last:
            raise self._too_many()
        until = min([last, *list(self._deadlines.values())[:1]])
        self._changed.wait(None if until == inf else max(until - now, 0))

    def _too_many(self) -> TooManyInFlight:
        count, oldest = len(self._in_flight), next(iter(self._in_flight), None)
        why = "the stream has ended" if self._is_ended else f"max_in_flight={self._max_in_flight}"
        if oldest is None:
            why = "another thread waits for an item"
        return TooManyInFlight(
            f"tracked: {count:,} items are in flight ({why}), the oldest is item {oldest}, and "
            f"none was finished within max_wait={self._max_wait:g} s"
        )

    def _give_again(self, number: int) -> tuple[Ticket, T]:
        found = self._in_flight[number]
        found.attempt += not found.is_back
        found.is_back = False
        self._due.discard(number)
        return self._given(number, found)

    def _given(self, number: int, found: _InFlight[T]) -> tuple[Ticket, T]:
        if self._timeout < inf:
            self._deadlines[number] = self._clock() + self._timeout
        return Ticket(self._tracker, self._session, number, found.attempt), found.item

    def _pull(self) -> tuple[Ticket, T] | None:
        """Have the run make an item; None at its end."""
        session = self._session
        self._settle()
        self._is_settled = False
        self._pass_over()
        before = self._after
        pair = next(self._pairs, None)
        with self._changed:
            if self._session != session:  # the pipeline's own function has gone elsewhere
                return None
            if pair is None:
                self._is_ended = self._is_settled = True
                return None
            item, after = pair
            if after.items != before.items + 1:
                raise PipelineError(
                    f"tracked: the run went from item {before.items:,} to {after.items:,}: it is "
                    "for the tracked run alone; the next item comes from where that was"
                )
            found = _InFlight(item, before)
            # An interrupt may come at any time: then the item is made again.
            self._in_flight[before.items] = found
            self._after = after
            self._is_settled = True
            return self._given(before.items, found)

    def _settle(self) -> None:
        """Have the run stand behind the last item given, whatever interrupted the last pull."""
        if self._is_settled:
            return
        if self._run.state.items != self._after.items:
            self._run.load_state_dict(self._after)
        self._pairs = self._run.with_state()

    def _pass_over(self) -> None:
        """Leave out what was finished before a resume."""
        while self._finished and self._finished[0][0] <= self._after.items:
            stop = self._finished[0][1]
            try:
                self._run.advance(max(0, stop - self._after.items))
            except IndexError as error:
                raise SourceChanged(
                    f"tracked: the state has finished items up to {stop:,}: {error}"
                ) from None
            after = self._run.state
            with self._changed:
                self._after = after
                self._finished.popleft()

    def _number(self, name: str, ticket: Any) -> int:
        """The number of the item in flight that a ticket is for."""
        found = _ticket(name, ticket)
        if found.tracker != self._tracker:
            raise TicketError(f"{name}: {found} is of another run")
        if found.session != self._session:
            raise TicketError(
                f"{name}: {found} is from before a resume: unless it was finished then, "
                f"item {found.number:,} comes again, with another ticket"
            )
        item = self._in_flight.get(found.number)
        if item is None and 0 <= found.number < self._after.items:
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


def _new_name() -> str:
    return os.urandom(4).hex()


_seconds = finite("above 0", lambda value: value > 0)
_not_negative = finite(">= 0", lambda value: value >= 0)


def tracked(
    run: Run[T],
    state: AnyState | None = None,
    *,
    max_in_flight: int,
    timeout: float | None = None,
    max_wait: float | None = None,
    clock: Callable[[], float] = monotonic,
) -> Tracked[T]:
    """The items of a run with tickets, so that they may be finished in any order.

    `for ticket, item in tracked(...)` gives items in order; `ack(ticket)` says that one is
    finished, from any thread, in any order. `state` is the state before the oldest item that is
    not, with the ranges of those finished behind it: a resume gives exactly those again that were
    not finished, in order, before new ones.

    The next item is waited for while `max_in_flight` are, and at the end of the stream while
    any is, as it may come again: the loop is over when all are finished. Ctrl-C ends the wait.
    In the thread that calls `ack` itself, let `max_wait=0` say that nothing can be given now.

    Args:
        run: What gives the items, as `lazyckpt.run` makes it, with any executor. It is for
            the tracked run alone from then on.
        state: Where to go on, of a tracked run or of a run; None is where the run stands.
        max_in_flight: How many items may be given and not finished, an int >= 1. More
            are in flight at no time, and the state has at most as many ranges.
        timeout: Seconds after which an item is given again, before new ones, with another
            ticket; the old one is good until then. None for never.
        max_wait: Seconds after which to wait no longer, but to raise `TooManyInFlight`, which
            loses nothing. None waits until an item is finished.
        clock: What tells the time, in seconds.

    Returns:
        A `Tracked`: an iterator and a context manager, with `ack`, `nack`, `state`,
        `state_dict` and `load_state_dict`.

    Raises:
        StateMismatch: The state belongs to another pipeline.
        InvalidState: The state is damaged, or doesn't fit.

    State:
        A few hundred bytes, and some 10 for each range, of which there are at most
        `max_in_flight`, or as many as the state had that it began with.

    Resume:
        Passes over the finished items behind the oldest that is not: with random access without
        making them, else they are made again. How far that is has no bound
        where an item is never finished; `timeout` gives it to somebody else.

    Memory:
        The items in flight, which `nack` and `timeout` give again as they are: don't change
        them in place.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source([*"abcdef"])
    >>> tracked = lz.tracked(lz.run(pipeline), max_in_flight=4)
    >>> tickets = [ticket for ticket, letter in [next(tracked) for _ in range(4)]]
    >>> tracked.ack(tickets[2]), tracked.ack(tickets[0])
    (None, None)
    >>> saved = tracked.state.to_json()
    >>> resumed = lz.tracked(lz.run(pipeline), saved, max_in_flight=4)
    >>> [letter for ticket, letter in [next(resumed) for _ in range(4)]]
    ['b', 'd', 'e', 'f']

    With asyncio, items come by a thread, and are finished in the event loop:

    >>> import asyncio
    >>> async def rollout(letter):
    ...     return letter.upper()
    >>> async def train(tracked):
    ...     found = []
    ...     async def finish(ticket, letter):
    ...         found.append(await rollout(letter))
    ...         tracked.ack(ticket)
    ...     async with asyncio.TaskGroup() as tasks:
    ...         while given := await asyncio.to_thread(next, tracked, None):
    ...             tasks.create_task(finish(*given))
    ...     return sorted(found)
    >>> asyncio.run(train(lz.tracked(lz.run(pipeline), saved, max_in_flight=2)))
    ['B', 'D', 'E', 'F']
    """
    if not isinstance(run, Run):
        raise ArgumentError(
            f"tracked: run must be a Run, got {brief(run)} ({type(run).__name__}); "
            "write tracked(lazyckpt.run(pipeline), ...)"
        )
    return Tracked(
        run,
        state,
        checked("tracked", "max_in_flight", max_in_flight, positive),
        checked("tracked", "timeout", timeout, optional(_seconds)),
        checked("tracked", "max_wait", max_wait, optional(_not_negative)),
        checked("tracked", "clock", clock, function),
    )
