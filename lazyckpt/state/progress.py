"""How far a position is."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Machine, apart


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
