"""Join pipelines by a selector in two steps: first choose an item, then compute it.

If a pipeline has random access, the join receives placeholders in place of its items. So items
that aren't chosen aren't computed, and workers can compute those that are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.define import internal
from lazyckpt.core.flow import Position, Table, View
from lazyckpt.core.machine import Machine, Rate
from lazyckpt.core.registry import registry
from lazyckpt.core.stages import stateless, step_by
from lazyckpt.executors.plan.joins import with_machines


class Unmade(NamedTuple):
    """A placeholder for an item that isn't computed yet.

    Attributes:
        number: The number of its pipeline.
        place: The item's index in its pipeline's table, or the position before it.
    """

    number: int
    place: Any


def is_chosen(call: Call, chain: Chain) -> bool:
    """Return whether a selector chooses a pipeline's items, and each can be computed alone."""
    name = next((name for name, role in call.functions.items() if role == "selector"), "")
    return bool(name) and call.arguments[name] is not chain and has_access(call, chain)


def has_access(call: Call, chain: Chain) -> bool:
    """Return whether each item of a joined pipeline can be computed alone."""
    return chain.machine.skip is not None


def choice_and_making(
    call: Call, is_unmade: Callable[[Call, Chain], bool] = is_chosen
) -> tuple[Call, Call]:
    """Split a stage in two: one that chooses placeholders, and one that computes them."""
    pipelines = tuple(each if is_unmade(call, each) else None for each in call.chains)
    known = enumerate(pipelines)
    unmade = [None if each is None else _unmade(each.machine, number) for number, each in known]
    return with_machines(call, unmade), made(pipelines).calls[0]


def _unmade(machine: Machine[Any], number: int) -> Machine[Unmade]:
    jump, view = machine.skip, machine.view
    assert jump is not None
    if view is not None:
        table: Table[Any] = Table(partial(Unmade, number), is_ours=True)
        view = View(table, view.ahead)

    def here(position: Position) -> Unmade:
        return Unmade(number, position if view is None else int(view.ahead(position, range(1))[0]))

    step, length = step_by(jump, here), machine.length
    return stateless(machine, rate=Rate(), step=step, skip=jump, length=length, view=view)


@partial(internal, pointwise=True)
def made(upstream: Machine[Any], pipelines: tuple[Chain | None, ...]) -> Machine[Any]:
    """Compute the items of placeholders; other items are unchanged."""
    known = enumerate(pipelines)
    makers = {number: _maker(each.machine) for number, each in known if each is not None}

    def item(found: Any) -> Any:
        return makers[found.number](found.place) if type(found) is Unmade else found

    return registry["map"].build(upstream, item)


def _maker(machine: Machine[Any]) -> Callable[[Any], Any]:
    if machine.view is not None:
        return machine.view.table.get
    return lambda position: machine.step(position)[1]
