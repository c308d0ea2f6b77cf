"""The workers of one run, as the rest sees them: tasks go in, outcomes come out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

from lazyckpt.executors.parts import Outcome


class Ticket:
    """A task of so many items under way. `life` is that of the crew when it was handed in."""

    __slots__ = ("handle", "life", "outcome", "size")

    def __init__(self, life: int, handle: Any, size: int) -> None:
        self.life = life
        self.handle = handle
        self.size = size
        self.outcome: Outcome | None = None


class Crew(ABC):
    """Workers that start with the first task, can be stopped at any time, and start again.

    - `workers`: how many tasks are done at the same time
    - `buffer_size`: items held ready beyond those

    A crew `is_led` where the threads of another one hand in the tasks: they call
    `ready` first, and what they hand in after `stop` is refused.
    """

    is_led = False
    is_foreign = False  # whether stopping it waits for other people's software

    def __init__(self, workers: int, buffer_size: int) -> None:
        self.workers = workers
        self.buffer_size = buffer_size
        self.life = 0

    def ready(self) -> None:  # noqa: B027  # most need no preparation
        """Start the workers, if they aren't there."""

    @property
    def is_there(self) -> bool:
        """Whether there are workers; always, where it's unknown."""
        return True

    def mend(self) -> None:  # noqa: B027  # most lead no others
        """After an error, stop if the crews that this one leads are gone; they start first."""

    @abstractmethod
    def submit(self, part: int, payload: Any, size: int) -> Ticket:
        """Hand in a task of so many items. Never waits for it. `Stale` if it is refused."""

    @abstractmethod
    def result(self, ticket: Ticket) -> Outcome:
        """Wait for a task. `Stale` if its workers were stopped before it was done."""

    def has(self, ticket: Ticket) -> bool:
        """Whether a task is done, so that nobody would wait for it."""
        return ticket.outcome is not None

    @abstractmethod
    def stop(self) -> None:
        """End the workers, and keep what they have done. Idempotent."""

    def let(self, work: bool) -> None:  # noqa: B027  # a crew that can't be held back is not
        """Let tasks be begun, or not."""


class Gate:
    """Whether items are made that nobody waits for yet; none at all while it `is_shut`."""

    def __init__(self, is_gated: bool) -> None:
        self.is_gated = is_gated
        self.is_shut = False  # by who closes the run, perhaps amid its work: a signal's handler
        self.crews: list[Crew] = []
        self._reasons = int(not is_gated)
        self._is_waited_for = False
        self._lock = RLock()  # another thread, or a signal's handler, may pause the run

    @property
    def is_open(self) -> bool:
        return self._reasons > 0

    def open(self, by: int) -> None:
        """Count a reason to be open, or with -1 take one back."""
        with self._lock:
            self._reasons += by
            self._let()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let what is waited for be made."""
        try:
            self._is_waited_for = True
            self._let()
            yield
        finally:
            self._is_waited_for = False
            self._let()

    def _let(self) -> None:
        with self._lock:
            for crew in self.crews:
                crew.let(self.is_open or self._is_waited_for)


def forgotten(tickets: Iterable[Ticket]) -> None:
    """Nobody will ask for these any more."""
    for ticket in tickets:
        ticket.life = -1
