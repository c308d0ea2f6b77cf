"""Observation of sequences: `debug`, `monitor_throughput`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Any, TypeVar

import lazyckpt as lz
from lazyckpt.compat.seqtools.sequence import LazySequence, places, random_access
from lazyckpt.core.checks import checked, function, natural, optional

T = TypeVar("T")


def debug(
    sequence: Iterable[T],
    func: Callable[[int, T], Any],
    max_calls: int | None = None,
    max_rate: float | None = None,
) -> LazySequence[T]:
    """Return the items unchanged, calling `func(index, item)` for each item that is read.

    It is called at most `max_calls` times, and at most `max_rate` times per second.
    """
    checked("debug", "func", func, function)
    calls = checked("debug", "max_calls", max_calls, optional(natural))
    watch = _Watch(func, math.inf if calls is None else calls, 1 / max_rate if max_rate else 0)
    return LazySequence(LazySequence.of(sequence) | lz.enumerate() | lz.map(watch))


@dataclass
class _Watch:
    func: Callable[[int, Any], Any]
    left: float
    pause: float
    last: float = -math.inf

    def __call__(self, numbered: tuple[int, Any]) -> Any:
        number, item = numbered
        if self.left and monotonic() - self.last >= self.pause:
            self.func(number, item)
            self.last = monotonic()
            self.left -= 1
        return item


def monitor_throughput(sequence: Iterable[T]) -> Monitored[T]:
    """Return the same sequence with `read_delay()`, `throughput()` and `reset()`.

    The sequence must have indices.
    """
    return Monitored(sequence)


class Monitored(LazySequence[T]):
    """A sequence that measures the time its items take."""

    def __init__(self, sequence: Iterable[T]) -> None:
        items = random_access(LazySequence.of(sequence))
        self._timed = _Timed(LazySequence(items))
        super().__init__(places(items.machine.length) | lz.map(self._timed))

    def reset(self) -> None:
        """Start measuring from scratch."""
        self._timed.count, self._timed.spent = 0, 0.0

    def read_delay(self) -> float:
        """Return the average seconds per item; RuntimeError before the first one."""
        if not self._timed.count:
            raise RuntimeError("no item was read yet, so nothing is measured")
        return self._timed.spent / self._timed.count

    def throughput(self) -> float:
        """Return the items per second; RuntimeError before the first one."""
        return 1 / self.read_delay()


@dataclass
class _Timed:
    """Reads items of a sequence; counts the reads and their total seconds."""

    items: LazySequence[Any]
    count: int = 0
    spent: float = 0.0

    def __call__(self, number: int) -> Any:
        begun = perf_counter()
        item = self.items[number]
        self.spent += perf_counter() - begun
        self.count += 1
        return item
