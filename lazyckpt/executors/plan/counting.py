"""Pipelines that are gone through without their items being made, to find positions.

What joins pipelines by its own choices, as a `mix` does, has a position that its
items have no part in. So it costs no more than counting to find it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain as chained
from itertools import repeat
from operator import length_hint
from typing import Any

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import End, Machine
from lazyckpt.core.registry import registry
from lazyckpt.executors.plan.positions import Rereader
from lazyckpt.failures.skipping import read_again, skip_log_of

_BLOCK = 1 << 12  # items that are counted at once
_ENOUGH = 1 << 40  # items, more than a stage is told to take


def rereader_of(chain: Chain) -> Rereader:
    """What finds positions of a pipeline between known ones: by counting, where that will do."""
    found = counting(chain)
    if found is None:
        return Rereader(read_again(chain).machine)
    return Rereader(found, is_counting=True)


def counting(chain: Chain) -> Machine[Any] | None:
    """A machine with the positions of a pipeline and no items; None if they depend on its items."""
    if skip_log_of(chain) is not None:
        return None
    if chain.machine.skip is not None:
        return _without_items(chain.machine)
    first, *others = chain.calls
    machine = _joined(first)
    for call in others:
        if machine is not None:
            machine = _passed(call, machine)
    return machine


def _joined(call: Call) -> Machine[Any] | None:
    """What joins pipelines that are counted, if it doesn't choose by their items."""
    if not call.combinator.is_source or call.build(None).choices is None:
        return None
    looked_at = [call.arguments[name] for name in call.functions]
    machines = [counting(each) for each in call.chains if each not in looked_at]
    if None in machines:
        return None
    found = iter(machines)

    def counted(chain: Chain) -> Chain:
        if chain in looked_at:
            return chain
        made = type(chain)(chain.calls)
        made.__dict__["machine"] = next(found)
        return made

    return call.with_chains(counted).build(None)


def _passed(call: Call, machine: Machine[Any]) -> Machine[Any] | None:
    """A stage behind it that calls no functions, if it looks at no item and owns no position."""
    found, built = call.combinator, call.build(machine)
    if built.owns:
        return None
    if found.pointwise:
        return machine
    if not found.keeps_items or call.functions:
        return None
    # What doesn't look at items has random access where upstream has it.
    is_blind = call.build(registry["source"].build(range(_ENOUGH))).skip is not None
    return built if is_blind else None


def _without_items(machine: Machine[Any]) -> Machine[Any]:
    """The machine with None for each item, which needs random access."""
    skip: Any = machine.skip

    def step(position: Position) -> tuple[Position, None]:
        after, passed = skip(position, 1)
        if not passed:
            raise End(after)
        return after, None

    def flow(position: Position) -> Flow[None]:
        size, ticks = 0, repeat(None, 0)

        def blocks() -> Iterator[Iterator[None]]:
            nonlocal position, size, ticks
            while True:
                after, size = skip(position, _BLOCK)
                ticks = repeat(None, size)
                yield ticks
                position, is_last, size = after, size < _BLOCK, 0
                if is_last:
                    return

        def snapshot() -> Position:
            passed = size - length_hint(ticks)
            return skip(position, passed)[0] if passed else position

        return Flow(chained.from_iterable(blocks()), snapshot)

    return machine._replace(step=step, flow=flow, view=None)
