"""How much of what is kept ready belongs to each of several pipelines that are joined.

Where what joins them chooses by its own numbers, as a `mix` does, those say which of
them the next items come from: of these so many are kept ready, and no others.
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

_NEAR = 1 << 10  # items whose choices are known one by one; further away by their proportions,
_SAMPLE = 1 << 12  # which are those of so many
_HOLDS = 1 << 16  # and are the same until so many items were given
_BLOCK = 1 << 8  # choices that are read at once
_NONE = np.empty(0, np.int32)


class Filled(Protocol):
    """Makes items ahead."""

    def fill(self) -> None:
        """Have as many made as should be ready."""


class Share:
    """What a pipeline has of what is kept ready: all of it, or a part beside others."""

    def __init__(self, joined: Joined | None = None, number: int = 0) -> None:
        self._joined, self._number = joined, number

    def of(self, items: float) -> float:
        """How many of the next items are this pipeline's."""
        return items if self._joined is None else self._joined.of(self._number, items)

    def fraction(self) -> float:
        """The same of one item, in the long run."""
        return max(self.of(_SAMPLE), 1) / _SAMPLE if self._joined else 1

    def hold(self, filled: Filled, *, may_wait: bool) -> None:
        """Note who makes items of this pipeline, and whether it may wait for others to do so."""
        if self._joined is not None:
            self._joined.hold(self._number, filled, may_wait=may_wait)

    def fill_others(self, items: float) -> None:
        """Have made what comes within the next items and is other pipelines'."""
        if self._joined is not None:
            self._joined.fill(items)


class Joined:
    """Pipelines that are joined, and what joins them."""

    def __init__(self, outer: Share) -> None:
        self._outer = outer
        self._open: dict[int, WeakSet[Filled]] = {}  # who makes their items
        self._first: dict[int, WeakSet[Filled]] = {}  # of these, who waits for nobody
        self._count = 0  # of the pipelines whose items somebody makes; 0 where it isn't known
        self._choices: _Choices | None = None

    def part(self, number: int) -> Share:
        """That of one of the pipelines."""
        return Share(self, number)

    def follow(self, machine: Machine[Any], plain: Machine[Any]) -> Machine[Any]:
        """The machine that joins them, whose choices tell what they have to have ready.

        Those are asked of a `plain` one without workers, so that nothing holds itself.
        """
        choices = plain.choices

        def flow(position: Position) -> Flow[Any]:
            self._open.clear()
            self._first.clear()
            self._count, self._choices = 0, None
            if choices is None:
                return machine.flow(position)
            ticks = make_ticks()  # which hold nothing, so that there is no cycle
            found = machine.flow(position)
            self._choices = _Choices(partial(choices, position), lambda: ENDLESS - remaining(ticks))
            return Flow(compress(found, ticks), found.snapshot, taken=found.taken)

        return machine._replace(flow=flow)

    def of(self, number: int, items: float) -> float:
        """How many of the next items are of this pipeline."""
        inside = self._outer.of(items)
        if self._choices is not None:
            return self._choices.count(number, inside)
        if not self._count:
            self._count = max(1, sum(map(bool, self._open.values())))
        return inside / self._count

    def hold(self, number: int, filled: Filled, *, may_wait: bool) -> None:
        """Note who makes items of a pipeline, and whether it may wait for others to do so."""
        self._open.setdefault(number, WeakSet()).add(filled)
        if not may_wait:
            self._first.setdefault(number, WeakSet()).add(filled)
        self._count = 0
        self._outer.hold(filled, may_wait=True)

    def fill(self, items: float) -> None:
        """Have made what comes within so many items, where that is known."""
        if self._choices is None:
            return
        for number in self._choices.next_numbers(self._outer.of(items)):
            for filled in tuple(self._first.get(number, ())):
                filled.fill()


class _Choices:
    """The choices of the next items: one by one those near, in proportion those far away."""

    def __init__(self, choices: Callable[[int], Iterator[int]], taken: Callable[[], int]) -> None:
        self._choices, self._taken = choices, taken
        self._known = _NONE
        self._left: Iterator[int] = iter(())
        self._begin = self._told_until = self._holds_until = 0
        self._counts: Counter[int] = Counter()

    def count(self, number: int, items: float) -> float:
        """How often a number is chosen for the next items."""
        if items < _NEAR:
            return int(np.count_nonzero(self._ahead(items) == number))
        if (place := self._taken()) >= self._holds_until:
            self._holds_until = place + _HOLDS
            self._counts = Counter(_read(self._choices(place), _SAMPLE).tolist())
        return items * self._counts[number] / max(1, self._counts.total())

    def next_numbers(self, items: float) -> list[int]:
        """The numbers chosen for the next items, the next first; none if they are hardly new."""
        is_far = items >= _NEAR and self._told_until > 0  # so that each is often asked for itself
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
    except Exception:  # of a user's weights, or a control's items: it comes again in its place
        return _NONE
