"""Pipelines of which another one chooses item by item: the choice first, and then the item.

Where a pipeline has random access, what joins it gets, in place of each item, what that is
made of. So nothing is made that is not chosen, and workers can make what is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.define import define
from lazyckpt.core.flow import Position, Table, View
from lazyckpt.core.machine import Machine, Rate
from lazyckpt.core.registry import registry
from lazyckpt.core.stages import stateless, step_by
from lazyckpt.executors.plan.counting import with_machines


class Unmade(NamedTuple):
    """In place of an item that nobody has made.

    Attributes:
        number: That of its pipeline.
        place: Its index in the table of that, or the position before it.
    """

    number: int
    place: Any


def is_chosen(call: Call, chain: Chain) -> bool:
    """Whether a stage gives those of a pipeline's items that another one says, made alone."""
    name = next((name for name, role in call.functions.items() if role == "selector"), "")
    return bool(name) and call.arguments[name] is not chain and has_access(call, chain)


def has_access(call: Call, chain: Chain) -> bool:
    """Whether each item of a pipeline that a stage joins can be made alone."""
    return chain.machine.skip is not None


def choice_and_making(
    call: Call, is_unmade: Callable[[Call, Chain], bool] = is_chosen
) -> tuple[Call, Call]:
    """A stage in two: one that chooses among what is unmade, and one that makes it."""
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


def _inner(build: Callable[..., Machine[Any]]) -> Any:
    return define(
        build, lambda call: Chain((call,)), is_source=False, pointwise=True, registered=False
    )


@_inner
def made(upstream: Machine[Any], pipelines: tuple[Chain | None, ...]) -> Machine[Any]:
    """The items, made where they are not yet."""
    known = enumerate(pipelines)
    makers = {number: _maker(each.machine) for number, each in known if each is not None}

    def item(found: Any) -> Any:
        return makers[found.number](found.place) if type(found) is Unmade else found

    return registry["map"].build(upstream, item)


def _maker(machine: Machine[Any]) -> Callable[[Any], Any]:
    if machine.view is not None:
        return machine.view.table.get
    return lambda position: machine.step(position)[1]
