"""Figures of chains, with their arguments, branches and marks; reads no data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from lazyckpt.core.call import Call, Chain, is_pipelines
from lazyckpt.core.checks import plural
from lazyckpt.core.machine import Machine
from lazyckpt.core.show import show
from lazyckpt.pictures.figure import DEPTH, ROOM, Mark, Node, branches, legible, row

_Part = tuple[Call, Machine[Any]]
Label = Callable[[str], str]  # from the number of a stage, such as `1[0].2`, to its label

ACCESS = Mark("[i]", "random access", "random access: item i is made without those before it")
OWNS = Mark("◆", "own state", "own state: the stage keeps a part of the position itself")
RANK_INVARIANT = Mark(
    "≡", "rank-invariant", "rank-invariant: all ranks still have the same state after this stage"
)
ENDLESS = Mark("∞", "endless", "endless: it yields items forever")

WEIGHTS = "weights"


class _Written(NamedTuple):
    """A call as it was written, with the numbers of the stages it consists of."""

    call: Call
    first: int
    last: int


def chain_nodes(
    chain: Chain,
    label: Label = lambda stage: "",
    prefix: str = "",
    room: int = ROOM,
    depth: int = DEPTH,
) -> tuple[Node, ...]:
    """Return the stages of a chain, with the stages of the pipelines that they join.

    Args:
        chain: A pipeline, or stages without a source.
        label: Function from a stage's number to a label for it.
        prefix: Text before the numbers of its stages.
        room: Most stages to show.
        depth: Most levels of nested rows.
    """
    stages, parts = _written(chain), _parts(chain)

    def node(number: int, left: int) -> Node:
        return _node(stages[number], parts, label, prefix, left, depth)

    return row(len(stages), node, room)


def _written(chain: Chain) -> list[_Written]:
    found: list[_Written] = []
    for number, call in enumerate(chain.calls):
        first = number - call.covers
        while found and found[-1].first >= first:
            found.pop()
        found.append(_Written(call, first, number))
    return found


def _parts(chain: Chain) -> list[_Part]:
    """Return calls with their machines; empty without a source."""
    is_source = chain.calls[0].combinator.is_source
    return [*zip(chain.calls, chain.machines, strict=True)] if is_source else []


def _node(
    written: _Written,
    parts: list[_Part],
    label: Label,
    prefix: str,
    room: int,
    depth: int,
) -> Node:
    call, first, last = written
    made_of = parts[first : last + 1]
    stages = [f"{prefix}{number + 1}" for number in range(first, last + 1)]

    def within(number: int, left: int) -> tuple[Node, ...]:
        inner = f"{stages[-1]}[{number}]."
        return chain_nodes(call.chains[number], label, inner, left, depth - 1)

    weights = call.arguments.get(WEIGHTS) if _weights(call) else call  # `call` equals no argument
    return Node(
        legible(call.name),
        tuple(
            legible(f"{name}={_shown(value)}" if name else _shown(value))
            for name, value in call.given
            if value is not weights and not is_pipelines(value)
        ),
        branches(_labels(call), within, room, depth),
        _marks(made_of) if parts else (),
        " · ".join(filter(None, map(label, stages))),
        call.combinator.is_source,
        any(machine.owns for _, machine in made_of),
    )


def _shown(value: Any) -> str:
    try:
        return show(value)
    except Exception:  # from a user's repr
        return f"<{type(value).__name__}>"


def _labels(call: Call) -> list[str]:
    """Return a label per pipeline: its weight, or its argument or number if there are several.

    So the pipelines of `case` can be told from its selector.
    """
    weights = _weights(call)
    if weights:
        return weights
    found, several = [], [value for value in call.arguments.values() if is_pipelines(value)]
    for name, value in call.arguments.items():
        if isinstance(value, Chain):
            found.append(legible(name))
        elif is_pipelines(value):
            found += [str(n) if len(several) > 1 else "" for n in range(len(value))]
    return found


def _weights(call: Call) -> list[str]:
    return weight_labels(call.arguments.get(WEIGHTS), len(call.chains))


def weight_labels(weights: Any, count: int) -> list[str]:
    """Return weights as labels of branches; empty unless there are `count` of them."""
    if not isinstance(weights, Sequence) or isinstance(weights, str) or len(weights) != count:
        return []
    return [legible(_shown(weight), 40) for weight in weights]


def _marks(parts: list[_Part]) -> tuple[Mark, ...]:
    (first, _), (_, last) = parts[0], parts[-1]
    found = []
    if last.length == math.inf:
        found.append(ENDLESS)
    elif last.length is not None:
        items = plural(int(last.length), "item")
        found.append(Mark(f"{int(last.length):,}", items, f"length: {items} per epoch"))
    if last.item is not None and last.skip is not None:
        found.append(ACCESS)
    if any(machine.owns for _, machine in parts):
        found.append(OWNS)
    if _all_rank_invariant(parts) and _are_rank_invariant(first.chains):
        found.append(RANK_INVARIANT)
    return tuple(found)


def _all_rank_invariant(parts: Iterable[_Part]) -> bool:
    return all(call.combinator.is_rank_invariant(machine) for call, machine in parts)


def _are_rank_invariant(chains: Iterable[Chain]) -> bool:
    todo, seen = [*chains], set[int]()
    while todo:
        each = todo.pop()
        if id(each) not in seen:
            seen.add(id(each))
            if not _all_rank_invariant(_parts(each)):
                return False
            todo += each.calls[0].chains
    return True
