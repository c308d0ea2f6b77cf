"""The requirements of a change to a pipeline, and the stages that don't meet them."""

from __future__ import annotations

import math
from typing import Any

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.checks import Unfit, cut
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Machine, Reread, apart
from lazyckpt.core.registry import registry
from lazyckpt.errors import StateMismatch
from lazyckpt.state.mismatch import Pair


def changes_of(pairs: list[Pair]) -> str:
    return "; ".join(str(pair) for pair in pairs if pair.differs)


def check_change(pair: Pair, chain: Chain) -> set[str]:
    """Refuse a change that no state can follow; return the requirements for the stages after it."""
    if pair.met:
        call, machine = chain.calls[pair.new - 1], chain.machines[pair.new - 1]
        for name in pair.changed:
            wanted = call.combinator.elastic.changes.get(name)
            may = wanted in ("blind", "grown") or (wanted and not machine.rate.whole_epoch)
            if not may and name != "seed":  # a seed may change with an epoch
                raise refused(pair, f"{name} decides the order")
        data_before(pair, call)
        return asked_of(pair, chain)
    if pair.name in registry and registry[pair.name].pointwise:
        return set() if registry[pair.name].keeps_items else {"blind"}
    if pair.was is not None and pair.was.owns:
        raise refused(pair, "the items that it holds or counts would be lost")
    return {"here"}


def data_before(pair: Pair, call: Call) -> dict[str, Any]:
    """Return the data as they were, if items were appended."""
    if not pair.changed or call.combinator.elastic.before is None or pair.was is None:
        return {}
    try:
        return call.combinator.elastic.before(pair.was.known, **call.arguments)
    except Unfit as unfit:
        raise refused(pair, str(unfit)) from None


def asked_of(pair: Pair, chain: Chain) -> set[str]:
    """Return the requirements that changed arguments make of the stages after."""
    changes = chain.calls[pair.new - 1].combinator.elastic.changes
    functions = {changes.get(name, changes.get("args", "here")) for name in pair.functions}
    return {changes.get(name, "here") for name in pair.changed} | functions | pair.inner


def check_behind(
    pairs: list[Pair], wanted: list[set[str] | None], chain: Chain, position: Position
) -> None:
    """Refuse a change if an unchanged stage after it can't follow, from a position on."""
    behind: list[tuple[Call, Machine[Any], Position]] = []
    gone: list[Pair] = []
    for pair, each in zip(pairs[::-1], wanted[::-1], strict=True):
        if {"here", "any", "grown"} & (each or set()) and (
            dealt := _dealt_apart(behind)
        ) is not None:
            where = f"ranks after {dealt!r} have different positions"
            raise refused(pair, f"{where}: change only stages after it")
        if "lockstep" in (each or ()) and gone:
            raise refused(pair, f"{gone[0].name} after it had ranks at different positions")
        if pair.new == 0 and not (pair.name in registry and registry[pair.name].pointwise):
            gone.append(pair)
        is_ordered = any(machine.rate.whole_epoch for _, machine, _ in behind)
        for call, machine, here in behind:
            for kind in sorted(each or ()):
                if obstacle := _obstacle(kind, call, machine, here, is_ordered=is_ordered):
                    raise refused(pair, f"{call!r} after it {obstacle.replace('{}', pair.name)}")
        if pair.new:
            call, machine = chain.calls[pair.new - 1], chain.machines[pair.new - 1]
            if pair.met:
                behind.append((call, machine, position))
            is_seed = "seed" in pair.changed and "seed" not in call.combinator.elastic.changes
            if is_seed and is_amid(machine, position):
                raise refused(pair, "seed decides the order; change it between two epochs")
            if pair.functions and any(each.items for each in held(machine, position)):
                raise refused(pair, "it holds items of the removed stage; change between epochs")
            position = apart(machine, position)[0]


def _dealt_apart(behind: list[tuple[Call, Machine[Any], Position]]) -> Call | None:
    """Return the stage that deals items to ranks of which one reads more than another, if any.

    Args:
        behind: The stages, from the last one on.
    """
    takes_more = False
    for call, machine, _ in behind:
        if "num_shards" in call.combinator.elastic.changes and takes_more:
            return call
        takes_more = takes_more or not machine.rate.is_fixed
    return None


def _obstacle(
    wanted: str, call: Call, machine: Machine[Any], here: Position, *, is_ordered: bool
) -> str:
    """Return why a stage can't continue at a position if one before it changes; "" if it can.

    - "any": it may hold and count anything, if that doesn't depend on the length of an epoch
    - "grown": the same; if a stage orders whole epochs, it must not be within one, and the stages
      after it must not hold items that a resume would re-read
    - "blind": its contents must depend only on the number of items, not on the items
    - "here": it may count, but must not hold items that a resume would re-read
    - "lockstep": it must have no position of its own, and read the same number of items for each
      output
    """
    if machine.rate.whole_epoch and wanted == "grown":
        remedy = "keep the old data until the epoch ends, then change {}"
        return f"orders whole epochs; {remedy}" if is_amid(machine, here) else ""
    if machine.rate.whole_epoch and wanted != "blind":
        return "orders whole epochs"
    if wanted == "lockstep" and not in_lockstep(machine):
        return "counts its outputs"
    is_held = wanted in ("blind", "here") or (wanted == "grown" and is_ordered)
    if is_held and any(each.items for each in held(machine, here)):
        looks = {"look", "predicate"} & {*call.functions.values()}
        if wanted != "blind" or looks or not machine.rate.is_fixed:
            return f"holds items from {{}}; put {{}} after {call.name}, or change between epochs"
    return ""


def is_amid(machine: Machine[Any], here: Position) -> bool:
    """Return whether a stage has yielded some, but not all, of the items that it has ordered."""
    is_first = apart(machine, here)[1] == apart(machine, machine.init(machine.epoch(here)))[1]
    holds = machine.rate.whole_epoch or any(each.items for each in held(machine, here))
    if is_first or not holds:
        return False
    return machine.skip is None or machine.skip(here, 1)[1] > 0


def in_lockstep(machine: Machine[Any]) -> bool:
    """Return whether a stage has no position of its own, and reads as much for each item."""
    return not machine.owns and machine.rate.is_fixed


def held_apart(before: Chain, after: Chain, position: Position) -> tuple[Call, bool] | None:
    """Return a stage that holds different items in one of two chains, if there is one.

    The chains have the same stages, some with different ends. The second result is whether that
    is known: over a stream it can't be known without reading the data.
    """
    old, new = before.machines, after.machines
    places = [(len(new) - 1, position)]  # the positions at which stages restart
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
    """Return what would be re-read; over a table, what would be re-read if it were a stream."""
    if machine.owns and machine.view is not None and machine.rate.more:
        return [Reread(here[0], machine.rate.more)]
    return list(machine.rereads(here))


def _head(upstream: Machine[Any], reread: Reread) -> tuple[Position, int] | None:
    """Return the position and number of items after re-reading a stage's items; None if unknown."""
    if upstream.skip is None or reread.items == math.inf:
        return None
    return upstream.skip(reread.position, int(reread.items))


def refused(pair: Pair, reason: str) -> StateMismatch:
    return StateMismatch(f"a state cannot follow this change: {pair}; {cut(reason)}")
