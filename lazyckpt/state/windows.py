"""What stages hold at a position, and whether they hold it too where a stream ends elsewhere."""

from __future__ import annotations

import math
from typing import Any

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Machine, Reread


def held_apart(before: Chain, after: Chain, position: Position) -> tuple[Call, bool] | None:
    """A stage that holds other items in one of two chains than in the other, if there is one.

    The chains have the same stages, of which some end elsewhere. With it, whether
    that is known: over a stream only reading tells.
    """
    old, new = before.machines, after.machines
    places = [(len(new) - 1, position)]  # where a stage begins again
    while places:
        number, here = places.pop()
        if not number:
            continue
        call, upstreams = after.calls[number], (old[number - 1], new[number - 1])
        was, now = held(old[number], here), held(new[number], here)
        if any(reread.ended for reread in now):
            return call, True
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


def held(machine: Machine[Any], here: Position) -> list[Reread]:
    """What is read again; over a table, what would be if it were a stream."""
    if machine.owns and machine.view is not None and machine.rate.more:
        return [Reread(here[0], machine.rate.more)]
    return list(machine.rereads(here))


def _head(upstream: Machine[Any], reread: Reread) -> tuple[Position, int] | None:
    """Where taking its items again leads, and how many there are; None if only reading tells."""
    if upstream.skip is None or reread.items == math.inf:
        return None
    return upstream.skip(reread.position, int(reread.items))
