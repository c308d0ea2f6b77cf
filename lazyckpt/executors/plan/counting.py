"""Find positions of a pipeline by counting, without computing its items.

If a join chooses by its own random numbers, as `mix` does, its position doesn't depend on
items. So counting is enough to find the position again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain as chained
from itertools import zip_longest
from typing import Any, TypeAlias

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.machine import End, Machine
from lazyckpt.core.registry import registry
from lazyckpt.executors.plan.positions import Rereader
from lazyckpt.executors.plan.recording import Recorded, Recorder
from lazyckpt.failures.skipping import skip_log_of

_BLOCK = 1 << 12  # items to count per call
_ENOUGH = 1 << 40  # items: more than any stage's `n`

Recorders: TypeAlias = Sequence[Recorder | None]


def rereader_of(chain: Chain) -> Rereader:
    """Return a rereader that finds a pipeline's positions between the noted ones."""
    if (found := counting(chain)) is not None:
        return Rereader(found)
    recorders = recorders_of(chain)
    if recorders is None or (machine := counting(chain, recorders)) is None:
        return Rereader()
    return Rereader(replay=partial(_replay, machine, recorders))


def _replay(
    machine: Machine[Any],
    recorders: Recorders,
    tables: Sequence[list[Recorded]],
    position: Position,
) -> Flow[Any]:
    for recorder, table in zip(filter(None, recorders), tables, strict=True):
        recorder.load(table)
    return machine.flow(position)


def counting(chain: Chain, recorders: Recorders = ()) -> Machine[Any] | None:
    """Return a machine with a pipeline's positions but no items; None if positions need items.

    The positions of the pipelines that it joins may be recorded ones.
    """
    if skip_log_of(chain) is not None:
        return None
    if chain.machine.skip is not None:
        return _without_items(chain.machine)
    first, *others = chain.calls
    machine = _joined(first, recorders)
    for call in others:
        if machine is not None:
            machine = _passed(call, machine)
    return machine


def recorders_of(chain: Chain) -> Recorders | None:
    """Return a recorder per joined pipeline that can't be counted; None if recording won't help."""
    first = chain.calls[0]
    if not _chooses(first) or skip_log_of(chain) is not None:
        return None
    found = [
        None if _is_looked_at(first, each) or counting(each) is not None else Recorder()
        for each in first.chains
    ]
    return found if any(found) and counting(chain, found) is not None else None


def recorded(chain: Chain, recorders: Recorders) -> Machine[Any]:
    """Return the machine of a pipeline, with the positions of joined pipelines recorded."""
    first, *others = chain.calls
    pairs = zip(recorders, first.chains, strict=True)
    machines = [None if r is None else r.recorded(each.machine) for r, each in pairs]
    return Chain((with_machines(first, machines), *others)).machine


def with_machines(call: Call, machines: Iterable[Machine[Any] | None]) -> Call:
    """Replace the machines of joined pipelines; None keeps the machine of a pipeline."""
    following = iter(machines)

    def with_next(chain: Chain) -> Chain:
        if (machine := next(following)) is None:
            return chain
        made = type(chain)(chain.calls)
        made.__dict__["machine"] = machine
        return made

    return call.with_chains(with_next)


def _chooses(call: Call) -> bool:
    """Return whether a stage joins pipelines by its own choices."""
    is_joining = call.combinator.is_source and bool(call.chains)
    return is_joining and call.build(None).choices is not None


def draws(call: Call) -> bool:
    """Return whether a stage joins pipelines by its own choices, whatever their items are."""
    return _chooses(call) and not any(_is_looked_at(call, each) for each in call.chains)


def _is_looked_at(call: Call, chain: Chain) -> bool:
    """Return whether a pipeline's items decide which items of the others are used."""
    return any(call.arguments[name] is chain for name in call.functions)


def _joined(call: Call, recorders: Recorders) -> Machine[Any] | None:
    """Return the machine of a join whose pipelines are counted; None if one can't be."""
    if not _chooses(call):
        return None
    machines: list[Machine[Any]] = []
    for each, recorder in zip_longest(call.chains, recorders):
        if _is_looked_at(call, each):
            found: Machine[Any] | None = each.machine
        elif recorder is not None:
            found = recorder.replayed(each.machine)
        else:
            found = counting(each)
        if found is None:
            return None
        machines.append(found)
    return with_machines(call, machines).build(None)


def _passed(call: Call, machine: Machine[Any]) -> Machine[Any] | None:
    """Return a machine with one more stage; None if it looks at items or owns a position."""
    found, built = call.combinator, call.build(machine)
    if built.owns:
        return None
    if found.pointwise:
        return machine
    return built if is_blind(call) else None


def is_blind(call: Call) -> bool:
    """Return whether a stage passes items on without looking at them."""
    if not call.combinator.keeps_items or call.functions:
        return False
    # A stage that doesn't look at items has random access if its input has.
    return call.build(registry["source"].build(range(_ENOUGH))).skip is not None


def _without_items(machine: Machine[Any]) -> Machine[Any]:
    """Return a machine with random access, with None in place of each item."""
    skip: Any = machine.skip

    def step(position: Position) -> tuple[Position, None]:
        after, passed = skip(position, 1)
        if not passed:
            raise End(after)
        return after, None

    def flow(position: Position) -> Flow[None]:
        size, ticks = 0, iterate([None] * 0)

        def blocks() -> Iterator[Iterator[None]]:
            nonlocal position, size, ticks
            while True:
                after, size = skip(position, _BLOCK)
                ticks = iterate([None] * size)
                yield ticks
                position, is_last, size = after, size < _BLOCK, 0
                if is_last:
                    return

        def snapshot() -> Position:
            passed = size - remaining(ticks)
            return skip(position, passed)[0] if passed else position

        return Flow(chained.from_iterable(blocks()), snapshot)

    return machine._replace(step=step, flow=flow, item=None, view=None)
