"""Divide the buffer of prefetched items among joined pipelines.

If the join chooses by its own random numbers, as `mix` does, the next choices are known. Each
pipeline then prefetches exactly the items that will be chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import compress, islice
from math import ceil
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.iterators import ENDLESS, make_ticks, remaining
from lazyckpt.core.machine import Machine

_NEAR = 1 << 10  # the next choices are counted exactly up to here, and beyond by proportion
_SAMPLE = 1 << 12  # choices from which the proportions are computed
_HOLDS = 1 << 16  # items after which the proportions are computed again
_BLOCK = 1 << 8  # choices to read per call
_NONE = np.empty(0, np.int32)


class Filled(Protocol):
    """Prefetches items."""

    def fill(self) -> None:
        """Submit tasks until enough items are on their way."""


class Share:
    """A pipeline's share of the buffer: all of it, or a part if the pipeline is joined."""

    def __init__(self, joined: Joined | None = None, number: int = 0) -> None:
        self._joined, self._number = joined, number

    def of(self, items: float) -> float:
        """Return how many of the next items belong to this pipeline."""
        return items if self._joined is None else self._joined.of(self._number, items)

    def fraction(self) -> float:
        """Return this pipeline's share of all items in the long run."""
        return max(self.of(_SAMPLE), 1) / _SAMPLE if self._joined else 1

    def hold(self, filled: Filled, *, may_wait: bool) -> None:
        """Register a prefetcher of this pipeline, and whether it may wait for other prefetchers."""
        if self._joined is not None:
            self._joined.hold(self._number, filled, may_wait=may_wait)

    def fill_others(self, items: float) -> None:
        """Submit tasks of the other pipelines for their items among the next ones."""
        if self._joined is not None:
            self._joined.fill(items)


class Joined:
    """Joined pipelines, with the stage that joins them."""

    def __init__(self, outer: Share) -> None:
        self._outer = outer
        self._open: dict[int, WeakSet[Filled]] = {}  # prefetchers by pipeline
        self._first: dict[int, WeakSet[Filled]] = {}  # prefetchers that wait for no others
        self._count = 0  # pipelines that have prefetchers; 0 if not counted yet
        self._choices: _Choices | None = None

    def follow(self, machine: Machine[Any], plain: Machine[Any]) -> Machine[Any]:
        """Return the joining machine; its choices decide the shares of the pipelines.

        The choices come from a `plain` machine without workers, to avoid reference cycles.
        """
        choices = plain.choices

        def flow(position: Position) -> Flow[Any]:
            self._open.clear()
            self._first.clear()
            self._count, self._choices = 0, None
            if choices is None:
                return machine.flow(position)
            ticks = make_ticks()  # they hold no references, so there is no reference cycle
            found = machine.flow(position)
            self._choices = _Choices(partial(choices, position), lambda: ENDLESS - remaining(ticks))
            return Flow(compress(found, ticks), found.snapshot, taken=found.taken)

        return machine._replace(flow=flow)

    def of(self, number: int, items: float) -> float:
        """Return how many of the next items belong to a pipeline."""
        inside = self._outer.of(items)
        if self._choices is not None:
            return self._choices.count(number, inside)
        if not self._count:
            self._count = max(1, sum(map(bool, self._open.values())))
        return inside / self._count

    def hold(self, number: int, filled: Filled, *, may_wait: bool) -> None:
        """Register a prefetcher of a pipeline, and whether it may wait for other prefetchers."""
        self._open.setdefault(number, WeakSet()).add(filled)
        if not may_wait:
            self._first.setdefault(number, WeakSet()).add(filled)
        self._count = 0
        self._outer.hold(filled, may_wait=True)

    def fill(self, items: float) -> None:
        """Submit tasks for the next items, if the choices are known."""
        if self._choices is None:
            return
        for number in self._choices.next_numbers(self._outer.of(items)):
            for filled in tuple(self._first.get(number, ())):
                filled.fill()


class _Choices:
    """The choices of the next items: exact for near items, by proportion for far ones."""

    def __init__(self, choices: Callable[[int], Iterator[int]], taken: Callable[[], int]) -> None:
        self._choices, self._taken = choices, taken
        self._known = _NONE
        self._left: Iterator[int] = iter(())
        self._begin = self._told_until = self._holds_until = 0
        self._counts: Counter[int] = Counter()

    def count(self, number: int, items: float) -> float:
        """Return how many of the next items a pipeline is chosen for."""
        if items < _NEAR:
            return int(np.count_nonzero(self._ahead(items) == number))
        if (place := self._taken()) >= self._holds_until:
            self._holds_until = place + _HOLDS
            self._counts = Counter(_read(self._choices(place), _SAMPLE).tolist())
        return items * self._counts[number] / max(1, self._counts.total())

    def next_numbers(self, items: float) -> list[int]:
        """Return the pipelines chosen for the next items, in order; none if few are new."""
        is_far = items >= _NEAR and self._told_until > 0  # then each is often chosen anyway
        if is_far or self._taken() < self._told_until:
            return []
        ahead = self._ahead(min(items, _NEAR))
        self._told_until = self._begin + len(ahead) // 4 + 1
        return list(dict.fromkeys(ahead.tolist()))

    def _ahead(self, items: float) -> NDArray[np.int32]:
        place, wanted = self._taken(), max(1, ceil(items))
        passed, self._begin = place - self._begin, place
        if not len(self._known) or passed > len(self._known):
            self._known, self._left = _NONE, self._choices(place)
        else:
            self._known = self._known[passed:]
        while len(self._known) < wanted and len(more := _read(self._left, _BLOCK)):
            self._known = np.concatenate([self._known, more])
        return self._known[:wanted]


def _read(choices: Iterator[int], count: int) -> NDArray[np.int32]:
    try:
        return np.fromiter(islice(choices, count), np.int32)
    except Exception:  # of a user's weights or control items: raised again at its own item
        return _NONE
