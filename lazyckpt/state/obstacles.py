"""The requirements of a change to a pipeline, and the stages that don't meet them."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.checks import Unfit, cut
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Machine, Reread, apart
from lazyckpt.core.registry import registry
from lazyckpt.errors import StateMismatch
from lazyckpt.state.codec import OwnPart
from lazyckpt.state.mismatch import Pair, paired

NUM_SHARDS = "num_shards"
_REMEDY = "keep it, or start from lz.init(pipeline)"


def changes_of(pairs: list[Pair]) -> str:
    return "; ".join(str(pair) for pair in pairs if pair.differs)


def check_change(pair: Pair, chain: Chain) -> set[str]:
    """Refuse a change that no state can follow; return its requirements for later stages."""
    if pair.met:
        call, machine = chain.calls[pair.new - 1], chain.machines[pair.new - 1]
        for name in pair.changed:
            required = call.combinator.elastic.changes.get(name)
            may = required in ("blind", "grown") or (required and not machine.rate.whole_epoch)
            if not may and name != "seed":  # a seed may change with an epoch
                what = "a joined pipeline" if name == "pipelines" else name
                raise refused(pair, f"{what} decides the order; {_REMEDY}")
        data_before(pair, call)
        return requirements_of(pair, chain) | _of_dealing(pair)
    if pair.name in registry and registry[pair.name].pointwise:
        return set() if registry[pair.name].keeps_items else {"blind"}
    if pair.was is not None and pair.was.owns:
        raise refused(pair, f"the items that it holds or counts would be lost; {_REMEDY}")
    return {"here"} | _of_dealing(pair)


def _of_dealing(pair: Pair) -> set[str]:
    """Return what an added or removed `shard`, here or in joined pipelines, requires."""
    if pair.name in registry and NUM_SHARDS in registry[pair.name].elastic.changes:
        return set() if pair.met and NUM_SHARDS not in pair.changed else {"uncounted"}
    found: set[str] = set()
    if pair.was is not None and pair.now is not None and "pipelines" in pair.changed:
        for old, new in zip(pair.was.pipelines, pair.now.pipelines, strict=False):
            with suppress(StateMismatch):  # a different source, which is refused elsewhere
                found = found.union(*map(_of_dealing, paired(old, new)))
    return found


def data_before(pair: Pair, call: Call) -> dict[str, Any]:
    """Return the old values of the arguments of data to which items were appended."""
    if not pair.changed or call.combinator.elastic.before is None or pair.was is None:
        return {}
    try:
        return call.combinator.elastic.before(pair.was.known, **call.arguments)
    except Unfit as unfit:
        raise refused(pair, str(unfit)) from None


def requirements_of(pair: Pair, chain: Chain) -> set[str]:
    """Return the requirements that changed arguments have for later stages."""
    changes = chain.calls[pair.new - 1].combinator.elastic.changes
    functions = {changes.get(name, changes.get("args", "here")) for name in pair.functions}
    return {changes.get(name, "here") for name in pair.changed} | functions | pair.inner


def check_later_stages(
    pairs: list[Pair], required: list[set[str] | None], chain: Chain, position: Position
) -> None:
    """Refuse changes if a later, unchanged stage at its position doesn't meet the requirements."""
    later: list[tuple[Call, Machine[Any], Position]] = []
    removed: list[Pair] = []
    for pair, each in zip(pairs[::-1], required[::-1], strict=True):
        if {"here", "any", "grown"} & (each or set()) and (
            dealt := _dealt_apart(later)
        ) is not None:
            where = f"ranks after {dealt!r} have different positions"
            raise refused(pair, f"{where}: change only stages after it")
        if "lockstep" in (each or ()) and removed:
            raise refused(pair, f"{removed[0].name} after it had ranks at different positions")
        if pair.new == 0 and not (pair.name in registry and registry[pair.name].pointwise):
            removed.append(pair)
        is_ordered = any(machine.rate.whole_epoch for _, machine, _ in later)
        for call, machine, here in later:
            for kind in sorted(each or ()):
                if obstacle := _obstacle(kind, call, machine, here, is_ordered=is_ordered):
                    if kind == "uncounted" or (kind == "lockstep" and NUM_SHARDS in pair.changed):
                        obstacle += f"; in a new run put {call.name} before {{}}"
                    raise refused(pair, f"{call!r} after it {obstacle.replace('{}', pair.name)}")
        if pair.new:
            call, machine = chain.calls[pair.new - 1], chain.machines[pair.new - 1]
            if pair.met:
                later.append((call, machine, position))
            is_seed = "seed" in pair.changed and "seed" not in call.combinator.elastic.changes
            if is_seed and is_amid(machine, position):
                raise refused(pair, "seed decides the order; change it between two epochs")
            if pair.functions and any(each.items for each in held(machine, position)):
                raise refused(pair, "it holds items of the removed stage; change between epochs")
            position = apart(machine, position)[0]


def check_anchors(pairs: list[Pair], chain: Chain, parts: list[OwnPart]) -> None:
    """Refuse an added or removed stage if a later one's position has a different meaning with it.

    A `shuffle` with a buffer notes fewer positions if the pipeline before it has no view, as after
    a stage that numbers items.

    Args:
        pairs: The old and new stages.
        chain: The new pipeline.
        parts: The parts of the position, by old stage.
    """
    old: Machine[Any] | None = None  # like the old stages up to here
    moved: Pair | None = None
    for pair in pairs:
        if pair.met:
            call, machine = chain.calls[pair.new - 1], chain.machines[pair.new - 1]
            old = call.build(old)
            is_same = old.rate == machine.rate or not (old.rate.more and machine.rate.more)
            is_first = parts[pair.old - 1].own == apart(machine, machine.init(0))[1]
            if moved and not is_same and not is_first:
                remedy = f"put {moved.name} after {call.name}, or change between epochs"
                raise refused(moved, f"{call!r} after it reads other items ahead; {remedy}")
        elif pair.name in registry and registry[pair.name].pointwise:
            moved = pair
            if pair.was is not None and pair.was.owns:
                old = registry["enumerate"].build(old)


def _dealt_apart(later: list[tuple[Call, Machine[Any], Position]]) -> Call | None:
    """Return the stage that deals items to ranks at different positions, if there is one.

    Args:
        later: The stages, in reverse order.
    """
    takes_more = False
    for call, machine, _ in later:
        if NUM_SHARDS in call.combinator.elastic.changes and takes_more:
            return call
        takes_more = takes_more or not machine.rate.is_fixed
    return None


def _obstacle(
    required: str, call: Call, machine: Machine[Any], here: Position, *, is_ordered: bool
) -> str:
    """Return why a stage doesn't meet a requirement of a change before it; "" if it does.

    - "any": the stage may hold and count items, but must not order whole epochs
    - "grown": as "any", but a stage that orders whole epochs is allowed between two epochs; then
      later stages must not hold items that a resume would re-read
    - "blind": what the stage holds must depend only on the number of items, not on the items
    - "here": the stage may count items, but must not hold items that a resume would re-read
    - "uncounted": the stage must not count the items of a rank
    - "lockstep": the stage must have no position of its own, or count the items of all ranks, and
      read the same number of items per output
    """
    if machine.rate.whole_epoch and required == "grown":
        remedy = "keep the old data until the epoch ends, then change {}"
        return f"orders whole epochs; {remedy}" if is_amid(machine, here) else ""
    if machine.rate.whole_epoch and required != "blind":
        return "orders whole epochs"
    if required == "lockstep" and not in_lockstep(call, machine):
        return "counts its outputs"
    if required == "uncounted" and counts_own(call, machine) and not _is_first(machine, here):
        return "counts its outputs"
    is_held = required in ("blind", "here") or (required == "grown" and is_ordered)
    if is_held and any(each.items for each in held(machine, here)):
        looks = {"look", "predicate"} & {*call.functions.values()}
        if required != "blind" or looks or not machine.rate.is_fixed:
            return f"holds items from {{}}; put {{}} after {call.name}, or change between epochs"
    return ""


def is_amid(machine: Machine[Any], here: Position) -> bool:
    """Return whether a stage has yielded some, but not all, of the items it holds or orders."""
    holds = machine.rate.whole_epoch or any(each.items for each in held(machine, here))
    if _is_first(machine, here) or not holds:
        return False
    return machine.skip is None or machine.skip(here, 1)[1] > 0


def _is_first(machine: Machine[Any], here: Position) -> bool:
    """Return whether a stage's own part of a position is that at the beginning of an epoch."""
    return apart(machine, here)[1] == apart(machine, machine.init(machine.epoch(here)))[1]


def in_lockstep(call: Call, machine: Machine[Any]) -> bool:
    """Return whether a position after a stage doesn't depend on the number of ranks."""
    return machine.rate.is_fixed and not counts_own(call, machine)


def counts_own(call: Call, machine: Machine[Any]) -> bool:
    """Return whether the own part of a stage is a count of items of its rank."""
    return machine.owns and machine.rate.is_fixed and not call.combinator.elastic.counts_all


def held_apart(before: Chain, after: Chain, position: Position) -> tuple[Call, bool] | None:
    """Return a stage that holds different items in two chains; None if there is none.

    The chains have the same stages, but some end elsewhere. The second result is False if the
    difference is only possible: over a stream it can't be known without reading the data.
    """
    old, new = before.machines, after.machines
    # The positions at which stages restart, and those that they reach by re-reading.
    restarts = [(len(new) - 1, position)]
    while restarts:
        number, here = restarts.pop()
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
                restarts.extend((number - 1, head[0]) for head in heads if head is not None)
            if one.position != other.position:
                return call, True
            restarts.append((number - 1, other.position))
    return None


def held(machine: Machine[Any], here: Position) -> list[Reread]:
    """Return what a resume re-reads; with random access, what it would re-read over a stream."""
    if machine.owns and machine.view is not None and machine.rate.more:
        return [Reread(here[0], machine.rate.more)]
    return list(machine.rereads(here))


def _head(upstream: Machine[Any], reread: Reread) -> tuple[Position, int] | None:
    """Return upstream's position after re-read items, and their number; None if unknown."""
    if upstream.skip is None or reread.items == math.inf:
        return None
    return upstream.skip(reread.position, int(reread.items))


def refused(pair: Pair, reason: str) -> StateMismatch:
    return StateMismatch(f"a state cannot follow this change: {pair}; {cut(reason)}")
