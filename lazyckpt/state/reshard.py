"""States of all ranks as those of another number of ranks: `reshard`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lazyckpt.core.call import compact
from lazyckpt.core.checks import Unfit, brief, checked, positive
from lazyckpt.core.machine import Position, fitting
from lazyckpt.core.registry import registry
from lazyckpt.errors import ArgumentError, StateMismatch
from lazyckpt.state.algebra import diff
from lazyckpt.state.mismatch import difference
from lazyckpt.state.positions import Described, arguments_of, chains_of, follows
from lazyckpt.state.state import AnyState, State, as_state


def reshard(states: Sequence[AnyState], num_shards: int) -> list[State]:
    """The states of another number of ranks: nothing is lost, and nothing comes twice.

    - `states`: those of all ranks, in their order; one is enough where it is global
    - `num_shards`: the number of ranks to go on with

    A global state, as behind `shard`, is every rank's: it comes back as it is,
    for a pipeline of so many shards. The lanes of `lanes` are dealt anew, and
    each goes on where it is. The items that all ranks have delivered are then
    shared out evenly, so that their sum stays what it was. With a `repeat` behind
    the lanes, all ranks have to be in one epoch; put it into each lane.

    Reads no data. `StateMismatch`, with the reason, for states of several
    pipelines, of too few or too many ranks, or in another order; for ranks that
    should agree and don't; and where a stage behind counts or holds items of its rank.

    >>> import lazyckpt as lz
    >>> def rank(num_shards, index):
    ...     lines = [lz.source([f"{name}{n}" for n in range(3)]) for name in "abcd"]
    ...     return lz.lanes(lines, num_shards=num_shards, index=index)
    >>> states = [lz.state_at(rank(2, index), 1 + index) for index in (0, 1)]
    >>> [list(lz.run(rank(1, 0), state)) for state in lz.reshard(states, 1)]
    [['a1', 'b1', 'c0', 'd1', 'a2', 'b2', 'c1', 'd2', 'c2']]
    """
    num_shards = checked("reshard", "num_shards", num_shards, positive)
    if isinstance(states, (State, str, bytes)) or not isinstance(states, Sequence) or not states:
        raise ArgumentError(f"reshard: states must be a list of states, got {brief(states)}")
    found = [as_state(state) for state in states]
    for rank, state in enumerate(found):
        if state.pipeline != found[0].pipeline:
            changed = difference(found[0].pipeline, state.pipeline)
            raise StateMismatch(f"ranks 0 and {rank} have two pipelines:\n{changed.rstrip()}")
    stages = json.loads(found[0].pipeline)
    if stages and stages[0][0] in registry and registry[stages[0][0]].deal is not None:
        return _dealt(found, stages, num_shards)
    return _shared(found, stages, num_shards)


def _dealt(states: list[State], stages: list[Described], num_shards: int) -> list[State]:
    deal = registry[stages[0][0]].deal
    assert deal is not None
    _check_count(states, stages[0])
    for stage in stages[1:]:
        if "num_shards" in _known(stage):
            raise StateMismatch(f"reshard: the lanes are divided once more, by {stage[0]}")
        if not follows(stage, "transparent"):
            raise StateMismatch(
                f"lanes cannot change ranks: {stage[0]} behind them counts or holds what a rank "
                "has had; put it into each lane"
            )
    positions = [state.position for state in states]
    try:
        with fitting(positions):
            if num_shards != len(states):
                _check_epochs(positions, stages)
            dealt = deal(positions, num_shards if num_shards != len(states) else 1)
    except Unfit as unfit:
        raise StateMismatch(f"reshard: {unfit}") from None
    if num_shards == len(states):  # they were dealt but to be checked
        return states
    whole, more = divmod(sum(state.items for state in states), num_shards)
    pipeline = _divided(stages, 0, num_shards)
    return [State(pipeline, whole + (rank < more), position) for rank, position in enumerate(dealt)]


def _check_epochs(positions: list[Position], stages: list[Described]) -> None:
    """Refuse ranks in several epochs: the lanes of one rank are in one."""
    lanes = chains_of(arguments_of(stages[0]))
    is_known = bool(lanes) and not any(map(_is_joined, lanes))
    if not is_known and not any(stage[0] == "repeat" for stage in stages):
        return  # what epochs are within the lanes is theirs
    epochs = [
        _epoch(position[0][0], lanes[rank] if is_known else [])
        for rank, position in enumerate(positions)
    ]
    for rank, epoch in enumerate(epochs):
        if epoch != epochs[0]:
            raise StateMismatch(
                f"reshard: ranks 0 and {rank} are in epochs {epochs[0]} and {epoch}, and a rank's "
                "lanes go from one to the next together; put repeat() into each lane, not behind "
                "them, or save where all ranks are in one epoch"
            )


def _is_joined(lane: list[Described]) -> bool:
    source = registry.get(lane[0][0])
    return source is not None and source.parts is not None


def _epoch(place: Position, lane: list[Described]) -> int:
    """The epoch of a lane at a place: its source's, in which each `repeat` has its own."""
    while type(place) is tuple:
        place = place[0]
    for name, arguments in lane:
        if name == "repeat":
            count = arguments.get("count")
            place = place >> 32 if count is None else place // max(count, 1)
    return int(place)


def _shared(states: list[State], stages: list[Described], num_shards: int) -> list[State]:
    places = [n for n, stage in enumerate(stages) if "num_shards" in _known(stage)]
    for stage in stages[:1]:
        inner = [each for chain in chains_of(arguments_of(stage)) for each in chain]
        if any("num_shards" in _known(each) for each in inner):
            raise StateMismatch(f"reshard: put shard behind {stage[0]}, not into its pipelines")
    if not places:
        _check_agreement(states)
        return [states[0]] * num_shards
    (place, *others) = places
    if others:
        raise StateMismatch("reshard: the pipeline is sharded more than once")
    apart = [stage[0] for stage in stages[place + 1 :] if not follows(stage, "lockstep")]
    if len(states) > 1 or apart:
        _check_count(states, stages[place])
    is_same = num_shards == stages[place][1].get("num_shards")
    if is_same and apart:
        return states
    _check_agreement(states, f", as they may behind {apart[0]}" if apart else "")
    if is_same:
        return [states[0]] * num_shards
    if apart:
        raise StateMismatch(
            f"reshard: {apart[0]} behind {stages[place][0]} counts or holds what a rank has had; "
            "put it before, or read per rank by lanes"
        )
    if not follows(stages[place], "lockstep"):
        raise StateMismatch(f"reshard: the parts of {stages[place][0]} are contiguous")
    pipeline = _divided(stages, place, num_shards)
    return [replace(states[0], pipeline=pipeline)] * num_shards


def _known(stage: Described) -> dict[str, Any]:
    combinator = registry.get(stage[0])
    return {} if combinator is None or "num_shards" not in combinator.elastic else stage[1]


def _check_count(states: list[State], stage: Described) -> None:
    wanted = stage[1].get("num_shards")
    if len(states) != wanted:
        raise StateMismatch(
            f"reshard: {stage[0]}(num_shards={wanted}) wants the states of {wanted} ranks, "
            f"got {len(states)}"
        )


def _check_agreement(states: list[State], why: str = "") -> None:
    for rank, state in enumerate(states):
        if state != states[0]:
            raise StateMismatch(f"ranks 0 and {rank} disagree{why}: {diff(states[0], state)}")


def _divided(stages: list[Described], place: int, num_shards: int) -> str:
    """The description of the pipeline with another number of shards."""
    name, arguments = stages[place]
    changed = [name, {**arguments, "num_shards": num_shards}]
    return compact([*stages[:place], changed, *stages[place + 1 :]])
