"""Throughput and waiting times of a run."""

from __future__ import annotations

from collections.abc import Iterator
from math import nan
from time import perf_counter
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Stats(NamedTuple):
    """Throughput of a run. Subtract two `Stats` to measure the interval between them.

    Attributes:
        items: Number of items delivered by this run, without those before a resume.
        seconds: Seconds from the first request for an item until now, or until the end. Time while
            the run is closed or at its end doesn't count.
        waited: Seconds that the consumer waited for items.
        watched: Seconds during which waiting was measured.
        ready: Approximate number of items computed and ready to be delivered.
        skipped: Number of skipped items, as in `Run.skipped`.
        restarts: Number of times that workers were restarted because one died or hung.
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
        """Items per second."""
        return self.items / self.seconds if self.seconds > 0 else 0.0

    @property
    def waiting(self) -> float:
        """Share of the time that the consumer waited, from 0 to 1; NaN if unknown."""
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
    """Measures how long a run was active, and how long its consumer waited.

    Attributes:
        waited: Seconds that the consumer waited.
        is_watching: Whether waiting is measured item by item. With workers it is always measured
            chunk by chunk.
    """

    __slots__ = ("_before", "_begun", "_unwatched", "is_watching", "waited")

    def __init__(self) -> None:
        self.waited, self.is_watching = 0.0, False
        self._begun: float | None = None
        self._before = 0.0
        self._unwatched: float | None = None  # seconds before waiting was measured

    def start(self) -> None:
        """Start the clock, unless it is running."""
        if self._begun is None:
            self._begun = perf_counter()

    def stop(self) -> None:
        """Stop the clock until the next start."""
        self._before, self._begun = self.seconds, None

    @property
    def seconds(self) -> float:
        begun = self._begun
        return self._before if begun is None else self._before + perf_counter() - begun

    def watch(self, seconds: float) -> float:
        """Start to measure waiting; return for how many seconds it has been measured."""
        if self._unwatched is None:
            self._unwatched, self.is_watching = seconds, True
        return seconds - self._unwatched

    def add_wait(self, seconds: float) -> None:
        """Add a wait for a chunk of items, which all of the run's waits are."""
        self.waited += seconds
        if self._unwatched is None:
            self._unwatched = 0.0

    def timed(self, items: Iterator[T]) -> Iterator[T]:
        """Yield the items; the time that each takes counts as waiting."""
        begun = perf_counter()
        for item in items:
            self.waited += perf_counter() - begun
            yield item
            begun = perf_counter()
