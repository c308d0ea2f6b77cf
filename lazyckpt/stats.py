"""How fast a run is, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator
from math import nan
from time import perf_counter
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Stats(NamedTuple):
    """How fast a run is. The difference of two is about the time between them.

    Attributes:
        items: How many items the run has delivered, those before a resume not counted.
        seconds: How long that took, from when the first was asked for to now, or to the
            end. While the run is closed, or at its end, no time passes.
        waited: Seconds that the consumer waited for items.
        watched: Seconds in which it was known whether the consumer waited.
        ready: About how many items are made and ready to be delivered.
        skipped: How many items were left out, as `Run.skipped` counts them.
        restarts: How often a worker died or hung, so that new ones started.
    """

    items: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    watched: float = 0.0
    ready: int = 0
    skipped: int = 0
    restarts: int = 0

    @property
    def rate(self) -> float:
        """Items a second."""
        return self.items / self.seconds if self.seconds > 0 else 0.0

    @property
    def waiting(self) -> float:
        """The share of the time that the consumer waited, from 0 to 1; NaN where unknown."""
        return min(1.0, self.waited / self.watched) if self.watched > 0 else nan

    def __sub__(self, earlier: Stats) -> Stats:
        return Stats(
            self.items - earlier.items,
            self.seconds - earlier.seconds,
            self.waited - earlier.waited,
            self.watched - earlier.watched,
            self.ready,
            self.skipped - earlier.skipped,
            self.restarts - earlier.restarts,
        )


class RunClock:
    """How long a run was under way, and how long its consumer waited.

    Attributes:
        waited: Seconds.
        is_watching: Whether the waiting is measured item by item. With workers it is
            measured chunk by chunk, in any case.
    """

    __slots__ = ("_before", "_begun", "_unwatched", "is_watching", "waited")

    def __init__(self) -> None:
        self.waited, self.is_watching = 0.0, False
        self._begun: float | None = None
        self._before = 0.0
        self._unwatched: float | None = None  # seconds before anybody watched

    def start(self) -> None:
        """Let time pass, if it doesn't."""
        if self._begun is None:
            self._begun = perf_counter()

    def stop(self) -> None:
        """Let no time pass until the next start."""
        self._before, self._begun = self.seconds, None

    @property
    def seconds(self) -> float:
        begun = self._begun
        return self._before if begun is None else self._before + perf_counter() - begun

    def watch(self, seconds: float) -> float:
        """Watch from now on, so many seconds after the start, and say for how long it did."""
        if self._unwatched is None:
            self._unwatched, self.is_watching = seconds, True
        return seconds - self._unwatched

    def add_wait(self, seconds: float) -> None:
        """Count a wait for a chunk of items, as all of the run's waits are."""
        self.waited += seconds
        if self._unwatched is None:
            self._unwatched = 0.0

    def timed(self, items: Iterator[T]) -> Iterator[T]:
        """The items; what each takes is time that the consumer waits."""
        begun = perf_counter()
        for item in items:
            self.waited += perf_counter() - begun
            yield item
            begun = perf_counter()
