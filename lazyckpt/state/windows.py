"""What stages hold at a position, and where upstream begins for them again."""

from __future__ import annotations

import math
from typing import Any

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.machine import Machine, Position
from lazyckpt.core.registry import Again

# Where a position of these has a note that upstream has ended, and what stands there then.
_ENDED = {"interleave_map": (1, 1), "take_while": (1, 1), "flat_scan": (2, (1 << 53) - 1)}


def built(chain: Chain) -> list[Machine[Any]]:
    """The machine of every stage."""
    machines: list[Machine[Any]] = []
    for call in chain.calls:
        machines.append(call.build(machines[-1] if machines else None))
    return machines


def begun_again(
    call: Call, machines: list[Machine[Any]], number: int, here: Position
) -> list[Again]:
    """Where upstream begins again, and what is taken of it once more."""
    again = call.combinator.again
    if not number:
        return [] if again is None else list(again(position=here, **call.arguments))
    upstream = machines[number - 1]
    if again is not None:
        return list(again(position=here, upstream=upstream, **call.arguments))
    each = way(call, upstream, machines[number])
    return [] if each == "all" else [Again(here if each == "none" else here[0])]


def way(call: Call, upstream: Machine[Any], machine: Machine[Any]) -> str:
    """How much of a position is the stage's own: "none", "some" (behind upstream's), "all"."""
    before, after = shape(upstream.init(0)), shape(machine.init(0))
    if before == after:
        return "all" if call.is_rigid else "none"
    return "some" if after and after[0] == before else "all"


def shape(position: Position) -> Any:
    """A position without its numbers."""
    return tuple(map(shape, position)) if type(position) is tuple else ()


def held_apart(before: Chain, after: Chain, position: Position) -> tuple[Call, bool] | None:
    """A stage that holds other items in one of two chains than in the other, if there is one.

    The chains have the same stages, of which some end elsewhere. With it, whether
    that is known: over a stream only reading tells.
    """
    old, new = built(before), built(after)
    places = [(len(new) - 1, position)]  # where a stage begins again
    while places:
        number, here = places.pop()
        if not number:
            continue
        call, upstreams = after.calls[number], (old[number - 1], new[number - 1])
        noted, ended = _ENDED.get(call.name, (0, None))
        if here[noted] == ended:
            return call, True
        was, now = (_held(call, machines, number, here) for machines in (old, new))
        for one, other in zip(was, now, strict=True):
            if other.items and not other.alone:
                heads = {_head(upstream, other) for upstream in upstreams}
                if None in heads:
                    return call, False
                if len(heads) > 1:
                    return call, True
            if one.position != other.position:
                return call, True
            places.append((number - 1, other.position))
    return None


def _held(call: Call, machines: list[Machine[Any]], number: int, here: Position) -> list[Again]:
    """What is read again, or over a table would be if it were a stream."""
    found = begun_again(call, machines, number, here)
    takes = call.combinator.takes
    if found or not number or way(call, machines[number - 1], machines[number]) != "some":
        return found
    taken = takes(upstream=machines[number - 1], **call.arguments) if callable(takes) else takes
    return [Again(here[0], 0 if taken is None else taken.more)]


def _head(upstream: Machine[Any], again: Again) -> tuple[Position, int] | None:
    """Where taking its items again leads, and how many there are; None if only reading tells."""
    if upstream.skip is None or again.items == math.inf:
        return None
    return upstream.skip(again.position, int(again.items))
