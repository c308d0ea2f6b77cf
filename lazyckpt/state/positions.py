"""Positions: whose part of one is whose, told from entries alone, and how far it is."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import starmap
from typing import Any, NamedTuple

from lazyckpt.core.checks import brief, cut
from lazyckpt.core.entries import Entries, Entry
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import MISFITS, Machine, apart, misfit
from lazyckpt.errors import InvalidState


class Place(NamedTuple):
    """A stage's own part of a position.

    - `own`: that part; None where it has none, or isn't open
    - `children`: of what joins pipelines, their positions, `()` for one that isn't open
    """

    own: Position | None = None
    children: tuple[Position, ...] = ()


_NOT_OWN = Place()


def places(entries: Entries, position: Position) -> list[Place]:
    """The parts of a position, one for each stage from the source on; `()` is that of none.

    An `InvalidState` for one that these stages can't have.
    """
    try:
        return _places(entries, position)
    except MISFITS as error:
        raise misfit(position, error) from None


def _places(entries: Entries, position: Position) -> list[Place]:
    found: list[Place] = []
    for entry in reversed(entries[1:]):
        if entry.owns and position != ():
            position, *own = position
            found.append(Place(tuple(own)))
        else:
            found.append(_NOT_OWN)
    first = entries[0]
    if position == ():
        found.append(Place(None, ((),) * len(first.pipelines)))
    elif first.pipelines:
        children, *own = position
        if type(children) is not tuple or len(children) != len(first.pipelines):
            raise InvalidState(
                f"{cut(first.name)}: places {brief(children)} for {len(first.pipelines)} pipelines"
            )
        found.append(Place(tuple(own), children))
    else:
        found.append(Place(position))
    return found[::-1]


def position_of(entries: Entries, parts: Sequence[Place]) -> Position:
    """The position that is made of these parts: the inverse of `places`."""
    first, *rest = parts
    if first.own is None:
        if any(part.own is not None for part in rest):
            raise InvalidState(f"{cut(entries[0].name)} has no place, and a stage behind it has")
        return ()
    position: Position = (first.children, *first.own) if entries[0].pipelines else first.own
    for entry, part in zip(entries[1:], rest, strict=True):
        if entry.owns:
            if part.own is None:
                raise InvalidState(f"{cut(entry.name)} has no place, and the stages before it have")
            position = (position, *part.own)
    return position


class Layer(NamedTuple):
    """A stage with its own part of a position; `1[0].2` is stage 2 of pipeline 0 of stage 1."""

    stage: str
    entry: Entry
    own: Position | None

    @property
    def name(self) -> str:
        return self.entry.name


def layers(entries: Entries, position: Position, prefix: str = "") -> Iterator[Layer]:
    """Every stage from the source on, the pipelines that it joins after it."""
    for number, (entry, part) in enumerate(zip(entries, places(entries, position), strict=True), 1):
        yield Layer(f"{prefix}{number}", entry, part.own)
        if number == 1:
            for n, (pipeline, place) in enumerate(zip(entry.pipelines, part.children, strict=True)):
                yield from layers(pipeline, place, f"{prefix}{number}[{n}].")


def own_places(entries: Entries, position: Position) -> dict[str, str]:
    """Each stage's own place as a text, by its number; none where it has none, or isn't open."""
    found = {}
    with suppress(InvalidState):  # of a state that somebody made by hand
        for stage, _, own in layers(entries, position):
            if own is not None:
                found[stage] = ", ".join(map(brief, own))
    return found


def shown(entry: Entry) -> str:
    """A stage as it would be written."""
    arguments = ", ".join(starmap(_argument, entry.known.items()))
    return cut(f"{entry.name}({arguments})", in_data=True)


def _argument(name: str, value: Any) -> str:
    text = repr(value)
    return f"{name}={text if len(text) <= 24 else text[:21] + '...'}"


def given(machine: Machine[Any], position: Position) -> int | None:
    """How many items lead to a position, from the beginning; None if only reading tells."""
    epoch, length = machine.epoch(position), machine.length
    if epoch and not isinstance(length, int):
        return None
    found = given_in_epoch(machine, position)
    return None if found is None else found + (epoch * int(length or 0) if epoch else 0)


def given_in_epoch(machine: Machine[Any], position: Position) -> int | None:
    """How many items lead to a position from the beginning of its epoch."""
    skip = machine.skip
    if skip is None:
        return None
    begin, end = machine.init(machine.epoch(position)), progress(machine, position)

    def is_reached(n: int) -> bool:
        here, passed = skip(begin, n)
        return passed == n and progress(machine, here) <= end

    high = 1
    try:
        while is_reached(high):
            high *= 2
    except IndexError:  # beyond what can be counted
        return None
    return bisect_left(range(high), True, key=lambda n: not is_reached(n)) - 1


def progress(machine: Machine[Any], position: Position) -> Position:
    """A position in a form that grows as items are given."""
    if machine.upstream is not None:
        place, own = apart(machine, position)
        return (progress(machine.upstream, place), *own)
    if not machine.children:
        return position
    places = [
        (number, progress(child, place))
        for number, (child, place) in enumerate(zip(machine.children, position[0], strict=True))
        if place != ()
    ]
    return (places, *position[1:])
