"""Runs whose positions are found by counting, so that an item costs none of its own.

How far a stage is that expands items says how many items it has given, how many those
before the current expansion were, and how many had come from below by then.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, islice
from operator import itemgetter
from typing import Any, NamedTuple, overload

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.iterators import ENDLESS, make_ticks, remaining
from lazyckpt.core.machine import Machine
from lazyckpt.executors.plan.layers import Layers
from lazyckpt.executors.plan.limited_runs import Part
from lazyckpt.failures.notes import Guard

_MOST = ENDLESS


class NotCounted(Exception):
    """An expansion has a position that is no count."""


class Expansions(NamedTuple):
    """What a layer has expanded.

    Attributes:
        begins: How many items the layer had given before each expansion.
        taken: How many had come from below, before the item that it is of.
    """

    begins: list[int]
    taken: list[int]

    def at(self, given: int) -> int:
        """The one that an item is of, by the number of items up to that."""
        return bisect_left(self.begins, given) - 1


class CountedPositions(Sequence[Any]):
    """The positions before the items of a part and after each.

    Attributes:
        skip: That of what the stages are on; who reads others than the last one sets it.
    """

    skip: Callable[[Position, int], tuple[Position, int]]

    def __init__(
        self, start: Position, counts: Sequence[int], layers: list[Expansions], end: Position
    ) -> None:
        """Find them by counts.

        Args:
            start: Where the run was begun.
            counts: How many items the last layer, or upstream, had given, at each.
            layers: What each layer has expanded, the lowest first.
            end: The last of the positions.
        """
        self._start, self._counts, self._layers, self._end = start, counts, layers, end
        self._current: tuple[int, int, Position] = (0, 0, None)  # expansion: from, to, of what

    def __reduce__(self) -> tuple[Any, ...]:
        return CountedPositions, (self._start, self._counts, self._layers, self._end)

    def __len__(self) -> int:
        return len(self._counts)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if place == -1:
            return self._end
        if not (given := self._counts[place]):
            return self._start
        if not self._layers:
            return self.skip(self._start, given)[0]
        first, last, below = self._current
        if not first < given <= last:
            *lower, layer = self._layers
            expansion = layer.at(given)
            first = layer.begins[expansion]
            last = layer.begins[expansion + 1] if expansion + 1 < len(layer.begins) else _MOST
            below = position_at(layer.taken[expansion], self._start[0], lower, self.skip)
            self._current = first, last, below
        return below, given - first


def position_at(
    given: int,
    start: Position,
    layers: Sequence[Expansions],
    skip: Callable[[Position, int], tuple[Position, int]],
) -> Position:
    """The position after so many items of the last layer, or of what they are on."""
    if not given:
        return start
    if not layers:
        return skip(start, given)[0]
    *below, last = layers
    expansion = last.at(given)
    place = position_at(last.taken[expansion], start[0], below, skip)
    return place, given - last.begins[expansion]


class CountedRun:
    """A run of so many items upstream, as it is read; its positions are found by counting."""

    can_be_cut = True

    def __init__(self, layers: Layers, position: Position, count: int, inside: list[int]) -> None:
        self._layers, self._start, self._count, self._inside = layers, position, count, inside
        self._ticks = [make_ticks()] * (layers.depth + 1)
        self._expansions = [Expansions([], []) for _ in range(layers.depth)]
        self._passed: dict[int, int] = {}  # by layer the items from below that are done with
        machine, number = self._ticking(layers.upstream, 0, count), 0
        for call, owns in zip(layers.calls, layers.owns, strict=True):
            if owns:
                below = machine._replace(flow=self._noting(machine, number))
                number += 1
                machine = self._ticking(_watched(call).build(below), number)
            else:
                machine = call.build(machine)
        flow: Flow[Any] = machine.flow(position)
        self._items, self._snapshot = iter(flow), flow.snapshot
        self._first = 0  # what had been given before the part at hand
        self._counts: list[int] = []  # ticks left at each item of the part
        if layers.is_selective:  # what is left is never -1, so that it is called without an end
            last = self._ticks[-1]
            noted = map(self._counts.append, iter(lambda: remaining(last), -1))
            self._items = map(itemgetter(0), zip(self._items, noted, strict=False))

    def read(self, items: list[Any], count: int) -> bool:
        """Add so many items to a part; whether they came."""
        before = len(items)
        items.extend(islice(self._items, count))
        return len(items) == before + count

    def end_part(self, made: int, *, is_cut: bool) -> Part:
        """What is known of a part of so many items, behind which another may begin."""
        counts = self._taken_counts(made)
        given, found = counts[0], list[Expansions]()
        for each in reversed(self._expansions):
            first = max(0, each.at(given))
            del each.begins[:first], each.taken[:first]
            given = each.taken[0] if each.taken else 0
            found.insert(0, Expansions(each.begins[:], each.taken[:]))
        end = position_at(counts[-1], self._start, found, self._skip)
        if is_cut and end != self._snapshot():
            raise NotCounted
        behind = {
            layer: position_at(self._passed[layer], self._below(layer), found[:layer], self._skip)
            for layer in self._layers.noted
            if layer in self._passed
        }
        positions = CountedPositions(self._start, counts, found, end)
        positions.skip = self._skip
        return Part(positions, behind, self._left(counts[-1]) if is_cut else 0)

    def missing(self) -> int:
        """How many items have not been taken."""
        return self._count - self._given(0)

    def _skip(self, position: Position, count: int) -> tuple[Position, int]:
        assert self._layers.upstream.skip is not None
        return self._layers.upstream.skip(position, count)

    def _taken_counts(self, made: int) -> Sequence[int]:
        """What the last layer had given before the part, and at each of its items."""
        first = self._first
        if not self._layers.is_selective:
            self._first = first + made
            return range(first, first + made + 1)
        last = self._first = _MOST - self._counts[made - 1] if made else first
        left, self._counts[:] = self._counts[:made], []
        if last - first == made:
            return range(first, last + 1)
        return array("q", [first, *map(_MOST.__sub__, left)])

    def _left(self, given: int) -> int:
        """How many items upstream are to come, with the one that the position is amid."""
        for each in reversed(self._expansions):
            given = each.taken[each.at(given)] if given else 0
        return self._count - given

    def _below(self, layer: int) -> Position:
        """Where what is below a layer was when the run began."""
        position = self._start
        for _ in range(layer, self._layers.depth):
            position = position[0]
        return position

    def _given(self, layer: int) -> int:
        """How many items have come from upstream, which is 0, or from a layer."""
        return _MOST - remaining(self._ticks[layer])

    def _ticking(self, machine: Machine[Any], number: int, most: int | None = None) -> Machine[Any]:
        """The machine, whose items are counted."""

        def flow(position: Position) -> Flow[Any]:
            found = machine.flow(position)
            ticks = self._ticks[number] = make_ticks()
            items = compress(islice(found, most), ticks)
            return Flow(items, found.snapshot, taken=lambda: _MOST - remaining(ticks))

        return machine._replace(flow=flow, view=None)

    def _noting(self, machine: Machine[Any], layer: int) -> Callable[[Position], Flow[Any]]:
        """The flow of a machine, which notes what had been given when a layer takes an item."""
        begins, taken = self._expansions[layer]

        def flow(position: Position) -> Flow[Any]:
            found = machine.flow(position)

            def items() -> Iterator[Any]:
                inside, before = self._inside[layer], 0
                for item in found:
                    begins.append(self._given(layer + 1) - inside)
                    taken.append(before)
                    inside, before = 0, self._given(layer)
                    yield item
                    self._passed[layer] = before

            return Flow(items(), found.snapshot)

        return flow


class _Watched(Guard):
    """A function that expands items, of which none may be a pipeline."""

    def __init__(self, fn: Callable[[Any], Iterable[Any]], stage: str) -> None:
        self.fn, self.stage = fn, stage

    def __call__(self, item: Any) -> Iterable[Any]:
        fn = self.fn  # as a variable: who reads the traceback looks for it
        if isinstance(found := fn(item), Chain):
            raise NotCounted
        return found


def _watched(call: Call) -> Call:
    names = [name for name, role in call.functions.items() if role == "expand"]
    found = {name: _Watched(call.arguments[name], repr(call)) for name in names}
    return call.replaced(**found) if found else call
