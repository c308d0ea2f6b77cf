"""Pipelines whose controls have been changed: what holds where, and from where on a change does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.checks import brief
from lazyckpt.core.control import Control, Since
from lazyckpt.core.flow import Flow, Position, close_stream
from lazyckpt.core.machine import Machine, Reread
from lazyckpt.core.user_state import Own, freeze, thaw
from lazyckpt.errors import ArgumentError, InvalidState
from lazyckpt.state.changes import Change, Changes
from lazyckpt.state.progress import progress
from lazyckpt.state.state import State
from lazyckpt.state.windows import held

C = TypeVar("C", bound=Chain)


def steered(chain: C, state: State) -> C:
    """The pipeline as it was steered up to a state: its controls know where they changed."""
    return bound(chain, state.changes) if chain.is_steered else chain


def bound(chain: C, changes: Changes) -> C:
    """The pipeline, whose controls have changed as a journal says."""
    known, found = chain.steered or (None, None)
    if known != changes:
        journal: dict[tuple[str, str], list[Since]] = {}
        for each in changes:
            for stage, epoch, item in each.places:
                journal.setdefault((stage, each.name), []).append(Since(epoch, item, each.frozen))
        found = _bound(chain, journal, "")
        chain.__dict__["steered"] = changes, found
    assert isinstance(found, type(chain))
    return found


def _bound(chain: C, journal: dict[tuple[str, str], list[Since]], prefix: str) -> C:
    calls = [
        _bound_call(call, journal, f"{prefix}{number}")
        for number, call in enumerate(chain.calls, 1)
    ]
    return type(chain)(tuple(calls))


def _bound_call(call: Call, journal: dict[tuple[str, str], list[Since]], stage: str) -> Call:
    if call.chains:
        numbers = iter(range(len(call.chains)))
        call = call.with_chains(lambda each: _bound(each, journal, f"{stage}[{next(numbers)}]."))
    if call.controls:
        call = call.with_controls(
            lambda each: each.at(stage, tuple(journal.get((stage, each.name), ())))
        )
    return call


def controls(chain: Chain) -> Iterator[tuple[Call, Control]]:
    """The controls of a pipeline and of those that it joins, with the stages that take them."""
    for call in chain.calls:
        yield from ((call, each) for each in call.controls)
        for inner in call.chains:
            yield from controls(inner)


def check_controls(chain: Chain) -> None:
    """Refuse controls of one name and two values, and those whose change could hold nowhere."""
    found: dict[str, tuple[Call, Control]] = {}
    for call, each in controls(chain):
        before, known = found.setdefault(each.name, (call, each))
        if repr(known.first) != repr(each.first):
            raise ArgumentError(
                f"the control {each.name!r} is {brief(known.initial)} in {before!r} and "
                f"{brief(each.initial)} in {call!r}: make it once, or name one of them otherwise"
            )
    moving: Call | None = None
    for call, machine in zip(chain.calls, chain.machines, strict=True):
        if moving is not None and machine.rate.whole_epoch:
            raise ArgumentError(
                f"{call.name}: it takes items from anywhere in an epoch, so that a change of "
                f"{moving!r} before it could not hold from one of them on; put that behind it"
            )
        moving = call if call.is_steered else moving
        if call.combinator.reshard is not None and any(each.is_steered for each in call.chains):
            raise ArgumentError(
                f"{call.name}: its pipelines may go to other ranks, and so take no controls; "
                "put what takes one behind it"
            )


def changed(
    chain: Chain, position: Position, before: Changes, items: int, name: str, value: Any
) -> Change | None:
    """The change of a control after the item at a position; None if it has that value.

    Reads what a resume would read again, as far as there are stages that take the control.

    Args:
        chain: The pipeline, bound to what has changed before.
        position: Where the last item was delivered.
        before: What has changed before.
        items: How many items were delivered.
        name: The control's.
        value: What it becomes.
    """
    taking = [(call, each) for call, each in controls(chain) if each.name == name]
    if not taking:
        known = sorted({each.name for _, each in controls(chain)})
        has = f"its controls are {', '.join(map(repr, known))}" if known else "it has none"
        raise ArgumentError(f"set: the pipeline has no control {brief(name)}; {has}")
    now = {each.name: each.first for _, each in controls(chain)}
    now |= {each.name: each.frozen for each in before}
    frozen = _frozen(name, value)
    if repr(now[name]) == repr(frozen):
        return None
    for call, _ in taking:
        call.with_values({**now, name: frozen})
    places = sorted(
        (each.stage, each.epoch, each.item)
        for each in standing(chain, position)
        if each.name == name
    )
    return Change(items, name, frozen, tuple(places))


def _frozen(name: str, value: Any) -> Own:
    try:
        return freeze(value, f"set({name!r})")
    except InvalidState:
        raise ArgumentError(
            f"set: {name} must be made of None, bool, int, float, str, list, dict and tuple, "
            f"got {brief(value)} ({type(value).__name__})"
        ) from None


class Standing(NamedTuple):
    """Where a stage that takes a control stands: the item, of an epoch, that it gives next."""

    name: str
    stage: str
    epoch: int
    item: int


def standing(chain: Chain, position: Position) -> Iterator[Standing]:
    """Where each stage that takes a control stands: behind all that went into items up to here.

    A stage behind it may hold items that it gave, which a resume makes again: those are
    taken as given. So it depends on the position alone.
    """
    pairs = list(zip(chain.calls, chain.machines, strict=True))
    here = position
    for number in range(len(pairs) - 1, -1, -1):
        call, machine = pairs[number]
        if not any(each.is_steered for each, _ in pairs[: number + 1]):
            return
        for each in call.controls:
            yield Standing(each.name, each.stage, machine.epoch(here), here[-1])
        if machine.children:
            yield from _inside(call, machine, here)
        if number:
            here = _upstream(call, machine, here)


def _inside(call: Call, machine: Machine[Any], here: Position) -> Iterator[Standing]:
    """The same within the pipelines that a stage joins; of one that isn't open, at its beginning.

    Those are opened in their order, so one before those that are open has ended.
    """
    places = here[0]
    last = max((number for number, place in enumerate(places) if place != ()), default=-1)
    for number, (inner, place) in enumerate(zip(call.chains, places, strict=True)):
        if place != ():
            yield from standing(inner, place)
            continue
        epoch = machine.children[last].epoch(places[last]) + (number < last)
        yield from (Standing(each.name, each.stage, epoch, 0) for _, each in controls(inner))


def _upstream(call: Call, machine: Machine[Any], here: Position) -> Position:
    """Where upstream is when a stage is at a position, behind what a resume takes again."""
    upstream = machine.upstream
    rereads = [each for each in held(machine, here) if not each.alone]
    if any(each.items == math.inf for each in rereads):
        return _read_on(call, upstream, here)
    return max((_passed(upstream, each) for each in rereads), key=partial(progress, upstream))


def _passed(upstream: Machine[Any], reread: Reread) -> Position:
    if not reread.items:
        return reread.position
    if upstream.skip is not None:
        return upstream.skip(reread.position, int(reread.items))[0]
    flow = upstream.flow(reread.position)
    try:
        for _ in islice(flow, int(reread.items)):
            pass
        return flow.snapshot()
    finally:
        close_stream(flow)


def _read_on(call: Call, upstream: Machine[Any], here: Position) -> Position:
    """Where upstream is once a stage has taken what it needs for its next item."""
    opened: list[Flow[Any]] = []

    def flow(position: Position) -> Flow[Any]:
        opened.append(upstream.flow(position))
        return opened[-1]

    stream = call.build(upstream._replace(flow=flow)).flow(here)
    try:
        next(iter(stream), None)
        return opened[-1].snapshot()
    finally:
        close_stream(stream)


def values(chain: Chain, changes: Changes) -> dict[str, Any]:
    """What a pipeline's controls are, by name."""
    found = {each.name: each.first for _, each in controls(chain)}
    found |= {each.name: each.frozen for each in changes if each.name in found}
    return {name: thaw(frozen) for name, frozen in found.items()}
