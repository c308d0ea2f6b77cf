"""Throughput and waiting times of a run."""

from __future__ import annotations

from math import nan
from typing import NamedTuple


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
