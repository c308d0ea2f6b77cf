"""Looking on: `debug`, `monitor_throughput`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from time import monotonic, perf_counter
from typing import Any, TypeVar

import lazyckpt as lz
from lazyckpt.compat.seqtools.sequence import LazySequence, places
from lazyckpt.core.checks import checked, function, natural, optional

T = TypeVar("T")


def debug(
    sequence: Iterable[T],
    func: Callable[[int, T], Any],
    max_calls: int | None = None,
    max_rate: float | None = None,
) -> LazySequence[T]:
    """The items as they are, after `func(index, item)` was called for each that is read.

    It is called at most `max_calls` times, and `max_rate` times a second.
    """
    checked("debug", "func", func, function)
    calls = checked("debug", "max_calls", max_calls, optional(natural))
    watch: Callable[[tuple[int, Any]], Any] = partial(_seen, func)
    if calls is not None or max_rate:
        watch = _Watch(func, math.inf if calls is None else calls, 1 / max_rate if max_rate else 0)
    items = LazySequence.of(sequence)
    numbered = lz.zip(places(items.machine.length), items)
    return LazySequence(numbered | lz.map(watch))


def _seen(func: Callable[[int, Any], Any], numbered: tuple[int, Any]) -> Any:
    number, item = numbered
    func(number, item)
    return item


@dataclass
class _Watch:
    func: Callable[[int, Any], Any]
    left: float
    pause: float
    last: float = -math.inf

    def __call__(self, numbered: tuple[int, Any]) -> Any:
        number, item = numbered
        if self.left and (not self.pause or monotonic() - self.last >= self.pause):
            self.func(number, item)
            self.last = monotonic()
            self.left -= 1
        return item


def monitor_throughput(sequence: Iterable[T]) -> Monitored[T]:
    """The same sequence, with `read_delay()`, `throughput()` and `reset()`."""
    return Monitored(sequence)


class Monitored(LazySequence[T]):
    """A sequence that measures how long its items take. What reads a slice is not measured."""

    is_plain = False

    def __init__(self, sequence: Iterable[T]) -> None:
        super().__init__(LazySequence.of(sequence), None, [sequence], iter)
        self.reset()

    def reset(self) -> None:
        """Begin to measure anew."""
        self._count, self._spent = 0, 0.0

    def read_delay(self) -> float:
        """Seconds to read an item, on average; RuntimeError before the first one."""
        if not self._count:
            raise RuntimeError("nothing is measured before an item was read")
        return self._spent / self._count

    def throughput(self) -> float:
        """Items a second; RuntimeError before the first one."""
        return 1 / self.read_delay()

    def _item(self, number: int) -> T:
        begun = perf_counter()
        item = super()._item(number)
        self._spent += perf_counter() - begun
        self._count += 1
        return item

    def __iter__(self) -> Iterator[T]:
        items, is_over = super().__iter__(), False

        def stretch() -> Iterator[T]:
            nonlocal is_over
            begun = perf_counter()
            for item in items:
                self._spent += perf_counter() - begun
                self._count += 1
                yield item
                begun = perf_counter()
            is_over = True

        if not self.can_fail:
            return stretch()
        return chain.from_iterable(iter(lambda: None if is_over else stretch(), None))
