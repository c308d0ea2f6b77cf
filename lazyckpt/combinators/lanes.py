"""Streams that each belong to one rank at a time: `lanes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from lazyckpt.combinators.join import joined, several
from lazyckpt.core.call import described, digest
from lazyckpt.core.checks import Unfit, natural, positive
from lazyckpt.core.machine import End, Flow, Machine, Position, machine
from lazyckpt.core.registry import Taken, registry
from lazyckpt.errors import ArgumentError, InvalidState
from lazyckpt.pipeline import Pipeline, source_combinator

A = TypeVar("A")

_ROOM = 240  # characters of a state that lanes may fill


def _fitting(pipelines: tuple[Any, ...], num_shards: int, index: int) -> None:
    joined("lanes", pipelines)
    if index >= num_shards:
        raise ArgumentError(
            f"lanes: index must be below num_shards={num_shards}, got index={index}"
        )
    if num_shards > len(pipelines):
        raise ArgumentError(
            f"lanes: {len(pipelines)} lanes leave some of num_shards={num_shards} ranks without "
            "one; make more, of less each"
        )


def _parts(
    position: Position, arguments: Mapping[str, Any]
) -> tuple[dict[int, Position], Position]:
    states, ended, turn, index = position
    step = arguments["num_shards"]
    return {index + step * n: state for n, state in enumerate(states)}, (ended, turn, index)


def _described(pipelines: tuple[Any, ...], num_shards: int, index: int) -> dict[str, Any]:
    """Short enough never to give way to a digest: `reshard` has to know the number of ranks."""
    found = described(pipelines)
    short = found if len(repr(found)) <= _ROOM else f"{len(pipelines)} lanes #{digest(found)}"
    return {"pipelines": short, "num_shards": num_shards}


def _carried(*_: Any, **__: Any) -> NoReturn:
    raise Unfit("each rank has lanes of its own: lz.reshard deals them, from all ranks' states")


def _dealt(positions: Sequence[Position], num_shards: int) -> list[Position]:
    """The lanes of all ranks, dealt to another number of ranks. Each goes on where it is."""
    width = sum(len(position[0]) for position in positions)
    if num_shards > width:
        raise Unfit(f"{width} lanes are too few for {num_shards} ranks")
    lanes: dict[int, tuple[Position, int]] = {}
    for rank, (states, ended, _, index) in enumerate(positions):
        if index != rank:
            raise Unfit(f"in place of rank {rank}'s state there is that of rank {index}")
        for place, state in enumerate(states):
            lanes[rank + place * len(positions)] = state, ended >> place & 1
    if sorted(lanes) != list(range(width)):
        raise Unfit(f"of lanes 0 to {width - 1} some are there twice")
    dealt = []
    for rank in range(num_shards):
        mine = [lanes[number] for number in range(rank, width, num_shards)]
        bits = sum(ended << place for place, (_, ended) in enumerate(mine))
        turn = next((place for place, (_, ended) in enumerate(mine) if not ended), 0)
        dealt.append((tuple(state for state, _ in mine), bits, turn, rank))
    return dealt


@source_combinator(
    checks={"pipelines": several, "num_shards": positive, "index": natural},
    validate=_fitting,
    describe=_described,
    free=("index",),
    elastic={"num_shards": "transparent"},
    parts=_parts,
    carry=_carried,
    deal=_dealt,
    takes=Taken(),
)
def lanes(pipelines: Sequence[Pipeline[A]], *, num_shards: int, index: int) -> Machine[A]:
    """Items of every `num_shards`-th pipeline, from number `index` on, in turn.

    For what has to be read per rank: cut it in a fixed number of lanes, a
    multiple of all numbers of ranks it may be read by. Ranks go at their own
    pace, and each saves its state. `reshard` deals the lanes to other ranks.

    - `pipelines`: all lanes, the same on every rank
    - `num_shards`: the number of ranks, at most that of lanes

    State: that of each lane of this rank, which have ended, whose turn it is,
    and the rank. It grows with the number of lanes a rank.
    Resume: reads again what each of them does.
    Random access: where all have it.
    Rank-free: no; `reshard` wants the states of all ranks.
    Errors: `InvalidState` for the state of another rank.

    >>> import lazyckpt as lz
    >>> lines = [lz.source([f"{name}{n}" for n in range(3)]) for name in "abcd"]
    >>> list(lz.lanes(lines, num_shards=2, index=1))
    ['b0', 'd0', 'b1', 'd1', 'b2', 'd2']
    """
    inner: Machine[A] = registry["interleave"].build(*pipelines[index::num_shards], block_length=1)

    def inside(position: Position) -> Position:
        states, ended, turn, rank = position
        if rank != index:
            raise InvalidState(f"lanes: the state is that of rank {rank}, and this is rank {index}")
        return states, ended, turn, 0

    def outside(position: Position) -> Position:
        return *position[:3], index

    def step(position: Position) -> tuple[Position, A]:
        try:
            after, item = inner.step(inside(position))
        except End as end:
            raise End(outside(end.position)) from None
        return outside(after), item

    def flow(position: Position) -> Flow[A]:
        items = inner.flow(inside(position))
        return Flow(items.pull, lambda: outside(items.snapshot()), items.fn, items.taken)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        assert inner.skip is not None
        after, passed = inner.skip(inside(position), n)
        return outside(after), passed

    return machine(
        init=lambda epoch: outside(inner.init(epoch)),
        epoch=lambda position: inner.epoch((*position[:3], 0)),
        step=step,
        flow=flow,
        skip=inner.skip and skip,
        length=inner.length,
    )
