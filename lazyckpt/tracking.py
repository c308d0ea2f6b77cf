"""`tracked`: the items of a run with tickets, to be finished in any order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import inf
from threading import Condition, get_ident
from time import monotonic
from typing import Any, NoReturn, TypeVar

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import brief, checked, finite, function, optional, positive
from lazyckpt.errors import ArgumentError, PipelineError, SourceChanged, TooManyInFlight
from lazyckpt.run import Run
from lazyckpt.state.state import AnyState, TrackedState, any_state, flat
from lazyckpt.tickets import InFlight, Ticket, new_name

T = TypeVar("T")
_HEARD = 0.5  # seconds; a signal just before a thread waits is handled only after the wait


class Tracked(Iterator[tuple[Ticket, T]]):
    """The items of a run with their tickets. Create it with `lazyckpt.tracked`.

    It may be iterated in one or several threads; `ack`, `nack` and `state` are thread-safe. Don't
    use the run itself meanwhile.
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
        self._puller: int | None = None  # the thread in which the run computes an item
        self._is_closed = False
        self._begin(state)

    def _begin(self, state: AnyState | None) -> None:
        base = self._run.state if state is None else any_state(state)
        tracker, finished = new_name(), deque[tuple[int, int]]()
        if isinstance(base, TrackedState):
            tracker, first = base.tracker, base.items
            finished.extend((first + start, first + stop) for start, stop in base.finished)
            base = base.base
        if state is not None:
            self._run.load_state_dict(base)
        self._in_flight: InFlight[T] = InFlight(tracker, base, self._timeout, self._clock)
        self._finished = finished  # in the initial state, and not yet skipped
        self._is_ended = False
        self._pairs = self._run.with_state()
        self._is_settled = True  # so that the run is at that position

    def __iter__(self) -> Iterator[tuple[Ticket, T]]:
        return self

    def __next__(self) -> tuple[Ticket, T]:
        """Return the next item with its ticket: an item that is due again, or a new one."""
        while True:
            with self._changed:
                number = self._next_due()
                if number is not None:
                    return self._in_flight.give_again(number)
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
        """Mark an item as finished: it is never delivered again.

        Args:
            ticket: The item's ticket, or a list of its parts, as after a round trip through JSON.

        Raises:
            TicketError: If the ticket is used up, belongs to a different run or is older than a
                resume, or if its item was delivered again. The message says which.
        """
        with self._changed:
            self._in_flight.finish(ticket)
            self._changed.notify_all()

    def nack(self, ticket: Ticket | Sequence[Any]) -> None:
        """Return an item: it is delivered again, before new ones, with a new ticket.

        Args:
            ticket: As for `ack`.

        Raises:
            TicketError: As for `ack`.
        """
        with self._changed:
            self._in_flight.take_back(ticket)
            self._changed.notify_all()

    @property
    def in_flight(self) -> int:
        """Number of items that were delivered, and are not finished."""
        return len(self._in_flight)

    @property
    def state(self) -> TrackedState:
        """The position to resume from, and the items after it that are finished."""
        with self._changed:
            base, ranges = self._in_flight.base, self._in_flight.finished
            for start, stop in self._finished:
                if ranges and ranges[-1][1] >= start:
                    start = ranges.pop()[0]
                ranges.append((max(start, base.items), stop))
            first = base.items
            found = tuple([(a - first, b - first) for a, b in ranges])
            return TrackedState(base, self._in_flight.tracker, found)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as a dict, for any checkpointer.

        Returns:
            A flat dict of ints and strings.
        """
        return flat(self.state)

    def load_state_dict(self, state: AnyState) -> None:
        """Go to a state: its unfinished items come first. Older tickets are refused.

        Args:
            state: A state of a tracked run, whose finished items are not delivered again, or of a
                run; as a `State`, its JSON string or its dict.

        Raises:
            StateMismatch: If the state belongs to a different pipeline.
            InvalidState: If it is not a state, or doesn't fit the pipeline.
        """
        with self._changed:
            while self._puller not in (None, get_ident()):
                self._changed.wait(_HEARD)
            self._begin(state)
            self._changed.notify_all()

    def change(self, pipeline: Chain) -> None:
        """Replace the pipeline, from the next new item on, as `Run.change` does.

        It first waits until all delivered items are finished, at most `max_wait` seconds, because a
        state can't belong to different pipelines.

        Args:
            pipeline: The new pipeline.

        Raises:
            TooManyInFlight: If an item was returned with `nack` and has to be finished first, or if
                none was finished within `max_wait`. Nothing has changed.
            StateMismatch: If the state can't be carried over; the message says why.
            PipelineError: If items that were finished before a resume are yet to be skipped.
        """
        with self._changed:
            last = self._clock() + self._max_wait
            while len(self._in_flight) or self._puller not in (None, get_ident()):
                if (number := self._in_flight.next_due()) is not None:
                    raise TooManyInFlight(
                        f"tracked: item {number:,} was returned: take and finish it, then call "
                        "change"
                    )
                self._wait(last, "change waits for all of them")
            self._settle()
            self._pass_over()
            if self._finished:
                raise PipelineError(
                    f"tracked: items up to {self._finished[-1][1]:,} were finished before the "
                    "resume: call change after the items before them are finished"
                )
            self._run.change(pipeline)
            self._in_flight.after = self._run.state
            self._is_ended, self._pairs = False, self._run.with_state()

    def close(self) -> None:
        """Close the run. Callers blocked in `next` get an error. Tickets remain valid."""
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
        raise TypeError("a tracked run can't be pickled or copied; pickle its state or tickets")

    def __repr__(self) -> str:
        return f"<tracked {self._run!r}, {self.in_flight:,} in flight>"

    def _next_due(self) -> int | None:
        """Wait; return the item to deliver again, or None for a new one or the end."""
        begun = self._clock()
        while True:
            if self._is_closed:
                raise PipelineError("the tracked run is closed; enter it again")
            number = self._in_flight.next_due()
            if number is not None:
                return number
            is_free = self._puller in (None, get_ident())
            room = 1 if self._is_ended else self._max_in_flight
            if is_free and len(self._in_flight) < room:
                return None
            why = "the stream has ended" if self._is_ended else f"max_in_flight={room}"
            self._wait(begun + self._max_wait, why)

    def _wait(self, last: float, why: str) -> None:
        now = self._clock()
        if now >= last:
            raise self._too_many(why)
        until = min(last, self._in_flight.next_deadline)
        self._changed.wait(min(max(until - now, 0), _HEARD))

    def _too_many(self, why: str) -> TooManyInFlight:
        count, oldest = len(self._in_flight), self._in_flight.oldest
        if oldest is None:
            why = "another thread is waiting for an item"
        return TooManyInFlight(
            f"tracked: {count:,} items are in flight ({why}), the oldest is item {oldest}, and "
            f"none was finished within max_wait={self._max_wait:g} s"
        )

    def _pull(self) -> tuple[Ticket, T] | None:
        """Have the run compute an item; return None at its end."""
        in_flight = self._in_flight
        self._settle()
        self._is_settled = False
        self._pass_over()
        pair = next(self._pairs, None)
        with self._changed:
            if self._in_flight is not in_flight:  # a function of the pipeline has moved the run
                return None
            if pair is None:
                self._is_ended = self._is_settled = True
                return None
            item, after = pair
            before = in_flight.after.items
            if after.items != before + 1:
                raise PipelineError(
                    f"tracked: the run went from item {before:,} to {after.items:,}: it is "
                    "reserved for the tracked run; the next item comes from the earlier position"
                )
            given = in_flight.give(item, after)
            self._is_settled = True
            return given

    def _settle(self) -> None:
        """Move the run to just after the last delivered item, even after an interrupted pull."""
        if self._is_settled:
            return
        after = self._in_flight.after
        if self._run.state.items != after.items:
            self._run.load_state_dict(after)
        self._pairs = self._run.with_state()

    def _pass_over(self) -> None:
        """Skip the items that were finished before a resume."""
        while self._finished and self._finished[0][0] <= self._in_flight.after.items:
            stop = self._finished[0][1]
            try:
                self._run.advance(max(0, stop - self._in_flight.after.items))
            except IndexError as error:
                raise SourceChanged(
                    f"tracked: the state has finished items up to {stop:,}: {error}"
                ) from None
            after = self._run.state
            with self._changed:
                self._in_flight.after = after
                self._finished.popleft()


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
    """Deliver the items of a run with tickets, so that they may be finished in any order.

    `for ticket, item in tracked(...)` yields items in order. `ack(ticket)` marks an item as
    finished, from any thread and in any order. `state` is the position before the oldest
    unfinished item, plus the ranges of items finished after it. A resume first re-delivers the
    unfinished items in order, then continues with new ones.

    `next` blocks while `max_in_flight` items are unfinished. At the end of the stream it blocks
    until every item is finished, because an unfinished item may be delivered again. Ctrl-C ends
    the wait. If the thread that iterates also calls `ack`, use `max_wait=0` to raise an error
    instead of waiting.

    Args:
        run: The run that computes the items, from `lazyckpt.run`, with any executor. Don't use it
            otherwise from then on.
        state: State to resume from, of a tracked run or of a run; None to start at the run's
            position.
        max_in_flight: Largest number of unfinished items, an int >= 1. The state has at most
            this many ranges.
        timeout: Seconds after which an item is delivered again, before new ones, with a new
            ticket; the old ticket is valid until then. None for never.
        max_wait: Seconds after which to stop waiting and raise `TooManyInFlight`, which loses
            nothing. None to wait until an item is finished.
        clock: Function that returns the time in seconds.

    Returns:
        A `Tracked`: an iterator and a context manager, with `ack`, `nack`, `state`,
        `state_dict` and `load_state_dict`.

    Raises:
        StateMismatch: If the state belongs to a different pipeline.
        InvalidState: If the state is damaged, or doesn't fit.

    State:
        A few hundred bytes, and some 10 per range. There are at most `max_in_flight` ranges, or
        as many as in the state that the run began with.

    Resume:
        Skips the finished items after the oldest unfinished one: without computing them if there
        is random access, otherwise by computing them again. Their number has no bound if an item
        is never finished; `timeout` delivers such an item again.

    Memory:
        The items in flight. `nack` and `timeout` deliver the same objects again: don't change
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
