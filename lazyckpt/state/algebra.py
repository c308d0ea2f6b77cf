"""States as values: the next one, the one n items on, how two differ. Pure functions, all."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import brief, checked, natural
from lazyckpt.core.machine import End, Machine, Position, entered
from lazyckpt.errors import Exhausted, StateMismatch
from lazyckpt.failures.notes import annotated
from lazyckpt.state.mismatch import difference
from lazyckpt.state.positions import layers
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import AnyState, State, as_state


def init(pipeline: Chain, *, epoch: int = 0) -> State:
    """The state before the first item. Reads no data.

    >>> import lazyckpt as lz
    >>> lz.init(lz.source("abc".split()))
    State(pipeline='[["source",{"length":1}]]', items=0, position=(0, 0))
    """
    epoch = checked("init", "epoch", epoch, natural)
    return State(runnable("init", pipeline).identity, 0, pipeline.machine.init(epoch))


def step(pipeline: Chain, state: AnyState) -> tuple[State, Any]:
    """The next state and the item; `Exhausted` at the end. The given state stays good.

    A pure function: the same state gives the same result, however often and in
    whatever order states are stepped.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(5)) | lz.batch(3)
    >>> state, item = lz.step(pipeline, lz.init(pipeline))
    >>> item, state.items, lz.step(pipeline, state)[1]
    ([0, 1, 2], 1, [3, 4])
    """
    found = matching(as_state(state), runnable("step", pipeline))
    try:
        position, item = pipeline.machine.step(found.position)
    except End as end:
        raise Exhausted(replace(found, position=end.position)) from None
    except Exception as error:
        entered(pipeline.machine, found.position)  # else the error is that the position doesn't fit
        raise annotated(error, pipeline.calls, found.items, found.to_json)  # noqa: B904  # the same error, or one with its own cause
    return replace(found, items=found.items + 1, position=position), item


def state_at(pipeline: Chain, n: int) -> State:
    """The state after n items: at once with random access, else by going there.

    `IndexError` if there are fewer.

    >>> import lazyckpt as lz
    >>> lz.state_at(lz.source(range(10**9)) | lz.shuffle(seed=0), 123_456_789).position
    (0, 123456789)
    """
    n = checked("state_at", "n", n, natural)
    machine = runnable("state_at", pipeline).machine
    return _advanced("state_at", machine, init(pipeline), n)


def advance(pipeline: Chain, state: AnyState, n: int) -> State:
    """The state n items on: at once with random access, else by going there.

    `IndexError` if fewer are left.

    >>> import lazyckpt as lz
    >>> evens = lz.count(0, 2) | lz.batch(3)
    >>> later = lz.advance(evens, lz.init(evens), 10**9)
    >>> later.items, lz.replay(evens, later)
    (1000000000, [6000000000, 6000000002, 6000000004])
    """
    n = checked("advance", "n", n, natural)
    found = matching(as_state(state), runnable("advance", pipeline))
    return _advanced("advance", pipeline.machine, found, n)


def _advanced(name: str, machine: Machine[Any], state: State, n: int) -> State:
    flow = entered(machine, state.position)
    if machine.skip is not None:
        position, passed = machine.skip(state.position, n)
    else:
        passed = sum(1 for _ in islice(flow, min(n, sys.maxsize)))
        position = flow.snapshot()
    if passed < n:
        where = f" after item {state.items:,}" if state.items else ""
        raise IndexError(f"{name}: n={brief(n)}, but the pipeline has {passed:,} items{where}")
    return replace(state, items=state.items + n, position=position)


def replay(pipeline: Chain, state: AnyState) -> Any:
    """The one item that comes after a state, made alone; `Exhausted` at the end.

    What an error's note gives a state for. Where the pipeline's functions have
    changed since, it's made by the new ones.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(10)) | lz.shuffle(4, seed=0)
    >>> run = lz.run(pipeline)
    >>> before, item = run.state, next(run)
    >>> lz.replay(pipeline, before) == item
    True
    """
    runnable("replay", pipeline)
    return step(pipeline, state)[1]


@dataclass(frozen=True, slots=True)
class Move:
    """What a stage keeps in a state, in one state and in another.

    - `stage`: its number in the pipeline, from 1; `1[0].2` is stage 2 of pipeline
      0 within stage 1
    - `name`: its combinator's
    - `before`, `after`: its own part of the position, nested tuples of ints
    """

    stage: str
    name: str
    before: Position
    after: Position

    @property
    def by(self) -> Position:
        """How far it moved, number by number; None for what is no number in both."""
        return _less(self.after, self.before)

    def __str__(self) -> str:
        return f"stage {self.stage}, {self.name}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class Difference:
    """How one state differs from another; false where it doesn't.

    - `items`: how many more items the second has delivered
    - `epochs`: how many epochs further its source is
    - `moves`: the stages whose parts differ, from the source on
    """

    items: int
    epochs: int
    moves: tuple[Move, ...]

    def __bool__(self) -> bool:
        return bool(self.items or self.moves)

    def __str__(self) -> str:
        """A line for the items, and one for each stage."""
        sizes = [f"{self.items:+,} items"] + [f"{self.epochs:+,} epochs"] * bool(self.epochs)
        return "\n".join([", ".join(sizes), *map(str, self.moves)])


def diff(a: AnyState, b: AnyState) -> Difference:
    """Which stages moved from state `a` to state `b`, and how far. Reads no data.

    Both are of one pipeline, else `StateMismatch` says what differs.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(100)) | lz.shuffle(8, seed=0) | lz.take(50) | lz.batch(4)
    >>> print(lz.diff(lz.state_at(pipeline, 2), lz.state_at(pipeline, 9)))
    +7 items
    stage 2, shuffle: (0, 8) -> (0, 36)
    stage 3, take: (8,) -> (36,)
    """
    first, second = as_state(a), as_state(b)
    if first.pipeline != second.pipeline:
        changed = difference(first.pipeline, second.pipeline)
        raise StateMismatch(f"the states belong to two pipelines:\n{changed.rstrip()}")
    parts = [{(each.stage, each.name): each.own for each in layers(one)} for one in (first, second)]
    moves = [
        Move(stage, name, parts[0].get((stage, name)), parts[1].get((stage, name)))
        for stage, name in parts[0] | parts[1]
        if parts[0].get((stage, name)) != parts[1].get((stage, name))
    ]
    return Difference(second.items - first.items, second.epoch - first.epoch, tuple(moves))


def _less(a: Position, b: Position) -> Position:
    if type(a) is type(b) is tuple and len(a) == len(b):
        return tuple(map(_less, a, b))
    return a - b if type(a) is type(b) is int else None
