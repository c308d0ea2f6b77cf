"""What runs where: a pipeline cut in pieces that workers can do, and a machine of the pieces."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import registry
from lazyckpt.executors.ahead import Ahead
from lazyckpt.executors.crew import Crew, Gate
from lazyckpt.executors.feeds import Feed, going, pulling, seeking
from lazyckpt.executors.parts import Each, Part, Walk, folded
from lazyckpt.failures.skip_log import Tally
from lazyckpt.failures.skipping import tally_of


class Piece(NamedTuple):
    """Stages that run together.

    - `kind`: "walk", by workers from positions of their own; "each", by workers
      item by item; "here", in one place beside the consumer
    """

    kind: str
    calls: tuple[Call, ...]


def cut(chain: Chain, *, workers: int, moves: bool) -> list[Piece]:
    """The pieces of a pipeline, in order.

    - `moves`: whether one worker can walk through a stream
    """
    whole = [Piece("walk", chain.calls)]
    if chain.machine.skip is not None or (moves and workers == 1):
        return whole
    start = _seekable(chain.calls)
    if not _takes_time(chain.calls[:start]):
        start = 0
    pieces = [Piece("walk", chain.calls[:start])] if start else []
    for call in itertools.chain.from_iterable(map(_split, chain.calls[start:])):
        kind = "each" if call.combinator.pointwise and _takes_time((call,)) else "here"
        if pieces and pieces[-1].kind == kind:
            pieces[-1] = Piece(kind, pieces[-1].calls + (call,))
        else:
            pieces.append(Piece(kind, (call,)))
    return whole if moves and len(pieces) == 1 else pieces


def _seekable(calls: tuple[Call, ...]) -> int:
    """How many stages there are before the first one without random access."""
    machine: Machine[Any] | None = None
    for number, call in enumerate(calls):
        machine = call.build(machine)
        if machine.skip is None:
            return number
    return len(calls)


def _takes_time(calls: tuple[Call, ...]) -> bool:
    """Whether there is more to do than to look up what is in memory."""
    return any(
        not isinstance(value, (list, tuple, range, int, float, str, bool, type(None), np.ndarray))
        or isinstance(value, np.memmap)
        for call in calls
        for value in call.arguments.values()
    )


def _split(call: Call) -> Iterator[Call]:
    """A stage, with the function that collates its items as a stage of its own."""
    name = next((name for name, role in call.functions.items() if role == "collate"), None)
    if name is None:
        yield call
        return
    yield call.replaced(**{name: None})
    collating = registry["map"]
    yield Call(collating, collating.bind((call.arguments[name],), {}), call.site)


def arranged(
    chain: Chain,
    gate: Gate,
    start: Callable[[list[Part], int], Crew],
    beside: Callable[[Part, Crew], Crew],
    *,
    workers: int,
    moves: bool = True,
) -> Callable[[Position], Ahead]:
    """A way to open walks of a pipeline whose pieces run where they should.

    - `start`: a crew of so many workers that can do the parts
    - `beside`: a crew of one in this process, for a part that uses the other crew
    """
    pieces = cut(chain, workers=workers, moves=moves)
    parts: list[Part] = [
        Each(piece.calls) if piece.kind == "each" else Walk(Chain(piece.calls))
        for piece in pieces
        if piece.kind != "here"
    ]
    is_stream = chain.machine.skip is None
    is_whole = len(pieces) == 1 and pieces[0].kind == "walk"
    crew = start(parts, 1 if is_whole and is_stream else workers)
    gate.crews.append(crew)
    tally = tally_of(chain)
    machine: Machine[Any] | None = None
    number = 0
    opened: Callable[[Position], Ahead] | None = None
    for piece in pieces:
        below, machine = machine, folded(piece.calls, machine)
        if piece.kind == "here":
            continue
        if piece.kind == "each":
            assert below is not None
            feed = pulling(below, piece.calls, tally)
        else:
            feed = going if machine.skip is None else seeking(machine)
        opened = _opener(crew, gate, number, feed, tally if is_whole else None)
        machine = _moved(machine, opened)
        number += 1
    if is_whole:
        assert opened is not None
        return opened
    crew.is_led = True
    pump = beside(Walk(chain, machine), crew)
    gate.crews.insert(0, pump)
    return _opener(pump, gate, 0, going, tally)


def _opener(
    crew: Crew, gate: Gate, part: int, feed: Feed, tally: Tally | None
) -> Callable[[Position], Ahead]:
    return lambda position: Ahead(crew, gate, part, feed, position, tally)


def _moved(machine: Machine[Any], opened: Callable[[Position], Ahead]) -> Machine[Any]:
    def flow(position: Position) -> Flow[Any]:
        return opened(position).flow()

    return machine._replace(flow=flow, view=None)
