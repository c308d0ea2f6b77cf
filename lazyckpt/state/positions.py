"""What of a position belongs to which stage, told from a state alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from lazyckpt.core.machine import Position
from lazyckpt.core.registry import Combinator, registry
from lazyckpt.state.state import State

Described: TypeAlias = Sequence[Any]  # a stage as a state has it: its name and its arguments

SOMETIMES = {"skip"}  # has a part of its own over a stream, and none with random access
SEVERAL = {"interleave_map"}  # keeps upstream's places in its own part too


class Layer(NamedTuple):
    """A stage's own part of a position; `1[0].2` is stage 2 of pipeline 0 of stage 1."""

    stage: str
    name: str
    own: Position


def layers(state: State) -> list[Layer]:
    """The parts of a position, from the source on. Stages that have none are left out."""
    return list(_layers(state.position, json.loads(state.pipeline), ""))


def arguments_of(stage: Described) -> dict[str, Any]:
    """The arguments of a stage by name, in their order; None where a state doesn't have one."""
    combinator = registry.get(stage[0])
    if combinator is None:
        return dict(stage[1])
    known = combinator.signature.parameters.values()
    defaults = {p.name: None if p.default is p.empty else p.default for p in known}
    return {**defaults, **stage[1]}


def follows(stage: Described, what: str) -> bool:
    """What `Call.follows` tells of a call."""
    combinator = registry.get(stage[0])
    return combinator is not None and not _is_rigid(stage) and getattr(combinator, what, True)


def chains_of(arguments: Mapping[str, Any]) -> list[list[Described]]:
    """The pipelines among the arguments, one after another."""
    found: list[list[Described]] = []
    for value in arguments.values():
        if isinstance(value, list):
            found += [value] if _is_chain(value) else [each for each in value if _is_chain(each)]
    return found


def _is_chain(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(stage, list) and [type(part) for part in stage] == [str, dict]
            for stage in value
        )
    )


def _layers(position: Position, stages: list[Described], prefix: str) -> Iterator[Layer]:
    owned = _apart(position, stages, set())
    if owned is None:
        yield Layer(prefix.rstrip("."), " | ".join(name for name, _ in stages), position)
        return
    for number, (stage, own) in enumerate(zip(stages, owned, strict=True), 1):
        if number == 1 and own:
            places, chains, own = _parts(own, stage)
            for part, place in places.items():
                yield from _layers(place, chains[part], f"{prefix}{number}[{part}].")
        if own:
            yield Layer(f"{prefix}{number}", stage[0], own)


def _apart(
    position: Position, stages: list[Described], failed: set[tuple[int, Position]]
) -> list[Position] | None:
    """What each stage has of the position, () for nothing; None if they don't fit."""
    *before, stage = stages
    if not before:
        return [position] if is_begun(position, stage) else None
    if (len(before), position) in failed:
        return None
    for inner, own in _ways(position, stage):
        found = [()] * len(before) if inner is None else _apart(inner, before, failed)
        if found is not None:
            return [*found, own]
    failed.add((len(before), position))
    return None


def _ways(position: Position, stage: Described) -> Iterator[tuple[Position, Position]]:
    """How a position may be made up of upstream's, or None, and the stage's own."""
    is_nested = type(position) is tuple and bool(position) and type(position[0]) is tuple
    if follows(stage, "transparent"):
        yield position, ()
    elif _is_rigid(stage) and not is_nested:
        yield None, position
    else:
        ways = [(position, ())]
        if is_nested:
            ways.insert(stage[0] in SOMETIMES, (position[0], position[1:]))
        yield from ways


def _is_rigid(stage: Described) -> bool:
    combinator = registry.get(stage[0])
    if combinator is None or combinator.rigid is None:
        return False
    try:
        return combinator.rigid(**arguments_of(stage))
    except TypeError:  # of arguments that have become a digest
        return False


def is_begun(position: Position, stage: Described) -> bool:
    """Whether it can be the position of this source."""
    combinator: Combinator | None = registry.get(stage[0])
    if type(position) is not tuple or not position:
        return False
    if combinator is None or combinator.parts is None:
        return type(position[0]) is int
    try:
        places, chains, _ = _parts(position, stage)
        return all(_apart(place, chains[part], set()) for part, place in places.items())
    except (TypeError, IndexError, ValueError):
        return False


def _parts(
    position: Position, stage: Described
) -> tuple[dict[int, Position], list[list[Described]], Position]:
    """The places of a source's pipelines, these pipelines, and the source's own part."""
    combinator, arguments = registry.get(stage[0]), arguments_of(stage)
    chains = chains_of(arguments)
    if combinator is None or combinator.parts is None or not chains:
        return {}, [], position
    places, own = combinator.parts(position, arguments)
    return places, chains, own
