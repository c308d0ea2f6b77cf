"""`lanes`: streams that each belong to one rank at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from lazyckpt.combinators.machines.join import joined, named, several
from lazyckpt.combinators.machines.turns import Turns
from lazyckpt.core.checks import Unfit, natural, positive
from lazyckpt.core.content import Entries, Entry, alike
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import ALL, End, Machine, Rate
from lazyckpt.core.registry import Elastic
from lazyckpt.core.stages import joining
from lazyckpt.decorators import source_combinator
from lazyckpt.errors import ArgumentError, InvalidState, StateMismatch
from lazyckpt.pipeline import Pipeline
from lazyckpt.state.rebase import carried

A = TypeVar("A")


def _fitting(pipelines: tuple[Any, ...], num_shards: int, index: int) -> None:
    joined("lanes", pipelines)
    if index >= num_shards:
        raise ArgumentError(
            f"lanes: index must be below num_shards={num_shards}, got index={index}"
        )
    if num_shards > len(pipelines):
        raise ArgumentError(
            f"lanes: {len(pipelines)} lanes leave some of num_shards={num_shards} ranks without "
            "one; use more lanes, with less data each"
        )


def _rebased(
    position: Position, before: Entry, pipelines: Sequence[Pipeline[Any]], num_shards: int, **_: Any
) -> Position:
    """Carry the position of each lane over to its new pipeline."""
    if before.known.get("num_shards") != num_shards:
        raise Unfit("each rank has its own lanes; use lz.reshard with the states of all ranks")
    if len(before.pipelines) != len(pipelines):
        raise Unfit(f"there were {len(before.pipelines)} lanes, now there are {len(pipelines)}")
    positions, *own = position
    return tuple(map(_carried, range(len(pipelines)), before.pipelines, pipelines, positions)), *own


def _carried(number: int, before: Entries, lane: Pipeline[Any], position: Position) -> Position:
    if position == () or alike(before, lane.entries):
        return position
    try:
        return carried(before, position, lane)
    except StateMismatch as error:
        raise Unfit(f"{named(number)}: {error}") from None


def _dealt(positions: Sequence[Position], num_shards: int) -> list[Position]:
    """Deal all lanes to a different number of ranks; each lane continues from its position."""
    width = len(positions[0][0])
    if num_shards > width:
        raise Unfit(f"{width} lanes are too few for {num_shards} ranks")
    lanes: dict[int, tuple[Position, int]] = {}
    for rank, (inner, ended, _) in enumerate(positions):
        mine = range(rank, width, len(positions))
        if [number for number, one in enumerate(inner) if one != ()] != [*mine]:
            raise InvalidState(
                f"lanes: the state of rank {rank} doesn't contain the positions of its lanes"
            )
        for turn, number in enumerate(mine):
            lanes[number] = inner[number], ended >> turn & 1
    dealt = []
    for rank in range(num_shards):
        new = {number: lanes[number] for number in range(rank, width, num_shards)}
        bits = sum(ended << turn for turn, (_, ended) in enumerate(new.values()))
        first = next((turn for turn, (_, ended) in enumerate(new.values()) if not ended), 0)
        inner = tuple([new[number][0] if number in new else () for number in range(width)])
        dealt.append((inner, bits, first))
    return dealt


@source_combinator(
    keeps_items=True,
    checks={"pipelines": several, "num_shards": positive, "index": natural},
    validate=_fitting,
    unrecorded=("index",),
    elastic=Elastic(
        changes={"num_shards": "here", "pipelines": "here"}, rebase=_rebased, reshard=_dealt
    ),
)
def lanes(pipelines: Sequence[Pipeline[A]], *, num_shards: int, index: int) -> Machine[A]:
    """Yield items of every `num_shards`-th pipeline in turn, from pipeline `index` on.

    Use it for data that each rank must read at its own pace. Split the data into a fixed number
    of lanes, a multiple of every number of ranks that you plan to use. Each rank saves its own
    state. `reshard` deals the lanes to a different number of ranks, and `rebase` carries states
    over to changed pipelines.

    Args:
        pipelines: All lanes, the same on every rank.
        num_shards: The number of ranks, at most the number of lanes.
        index: This rank, from 0.

    State:
        The state of each lane of this rank, which ones have ended, and whose turn it is. Its
        size grows with the number of lanes per rank.

    Resume:
        Re-reads what each pipeline re-reads.

    Random access:
        If all pipelines have it.

    Rank-invariant:
        No; `reshard` needs the states of all ranks.

    >>> import lazyckpt as lz
    >>> lines = [lz.source([f"{name}{n}" for n in range(3)]) for name in "abcd"]
    >>> list(lz.lanes(lines, num_shards=2, index=1))
    ['b0', 'd0', 'b1', 'd1', 'b2', 'd2']
    """
    machines: list[Machine[A]] = [pipeline.machine for pipeline in pipelines]
    mine = slice(index, None, num_shards)
    turns = Turns(machines[mine])
    closed: list[Position] = [()] * len(machines)

    def inside(position: Position) -> Position:
        positions, ended, turn = position
        return positions[mine], ended, turn, 0

    def outside(position: Position) -> Position:
        positions = closed.copy()
        positions[mine] = position[0]
        return tuple(positions), *position[1:3]

    def init(epoch: int) -> Position:
        return outside((tuple([each.init(epoch) for each in turns.machines]), 0, 0, 0))

    def step(position: Position) -> tuple[Position, A]:
        try:
            after, item = turns.step(inside(position))
        except End as end:
            raise End(outside(end.position)) from None
        return outside(after), item

    def flow(position: Position) -> Flow[A]:
        items = turns.flow(inside(position))
        return items.with_snapshot(lambda: outside(items.snapshot()))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        after, passed = turns.skip(inside(position), n)
        return outside(after), passed

    return joining(
        "lanes",
        machines,
        check=lambda ended, turn: turns.check("lanes", ended, turn, 0),
        opened=lambda *own: range(index, len(machines), num_shards),
        init=init,
        epoch=lambda position: machines[index].epoch(position[0][index]),
        rate=Rate(),
        share=ALL.dealt(num_shards, index, is_even=False),
        step=step,
        flow=flow,
        skip=skip if all(each.skip for each in turns.machines) else None,
        length=turns.length,
    )
