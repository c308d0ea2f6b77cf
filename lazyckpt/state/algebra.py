"""Pure functions of states: the next state, the state after n items, the difference of two."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar, overload
from weakref import ref

from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import brief, checked, cut, natural
from lazyckpt.core.content import Entries
from lazyckpt.core.flow import Position, close_stream
from lazyckpt.core.lines import fitted
from lazyckpt.core.machine import End, Machine, entered, fitting
from lazyckpt.core.pictured import Legend, Pictured
from lazyckpt.errors import Exhausted, InvalidState, StateMismatch
from lazyckpt.failures.notes import annotated
from lazyckpt.failures.skip_log import Skipped
from lazyckpt.failures.skipping import without_failures
from lazyckpt.state.codec import Rebased, layers
from lazyckpt.state.mismatch import difference
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import AnyState, State, as_state, epochs_between
from lazyckpt.state.walk import Flowing, Walk
from lazyckpt.state.words import moved

T = TypeVar("T")


def init(pipeline: Chain, *, epoch: int = 0) -> State:
    """Return the state before the first item. Reads no data.

    Args:
        pipeline: The pipeline.
        epoch: The epoch, an int >= 0.

    >>> import lazyckpt as lz
    >>> lz.init(lz.source("abc".split()))
    State(items=0)
      source(length=1)  epoch 0 · item 0
    """
    epoch = checked("init", "epoch", epoch, natural)
    position = runnable("init", pipeline).machine.init(epoch)
    return State(pipeline.entries, 0, position, rank=pipeline.own_rank)


def step(pipeline: Chain, state: AnyState) -> tuple[State, Any]:
    """Return the next state and the item; raise `Exhausted` at the end.

    A pure function: the same state gives the same result, however often and in whatever order
    states are stepped, and the given state stays valid. Opened resources, such as files, stay
    open for a step from the returned state, and are closed with that state.

    Args:
        pipeline: The pipeline of the state.
        state: The state before the item.

    Raises:
        Exhausted: If the stream has ended.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(5)) | lz.batch(3)
    >>> state, item = lz.step(pipeline, lz.init(pipeline))
    >>> item, state.items, lz.step(pipeline, state)[1]
    ([0, 1, 2], 1, [3, 4])
    """
    last = pipeline.reached if isinstance(pipeline, Chain) else None
    here = last and last()
    if here is not state or not isinstance(here, State):
        here = _checked(pipeline, state)
    try:
        position, item = pipeline.machine.step(here.position)
    except End as end:
        pipeline.close_steps()
        raise Exhausted(here.at(end.position)) from None
    except Exception as error:
        pipeline.close_steps()
        raise annotated(error, pipeline.calls, here.items, here.to_json)  # noqa: B904  # the same error, or one with its own cause
    after = here.at(position, here.items + 1)
    pipeline.__dict__["reached"] = ref(after, pipeline.close_steps)
    return after, item


def _checked(pipeline: Chain, state: AnyState) -> State:
    """Return the state, if the pipeline can be in it."""
    found = matching(as_state(state), runnable("step", pipeline))
    with fitting(found.position):
        pipeline.machine.check(found.position)
    return found


def state_at(pipeline: Chain, n: int) -> State:
    """Return the state after `n` items: immediately with random access, otherwise by reading.

    Args:
        pipeline: The pipeline.
        n: Number of items, an int >= 0.

    Raises:
        IndexError: If there are fewer.

    >>> import lazyckpt as lz
    >>> lz.state_at(lz.source(range(10**9)) | lz.shuffle(seed=0), 123_456_789)
    State(items=123456789)
      source(length=1000000000)  epoch 0 · item 0
      shuffle(seed=0)            123456789
    """
    n = checked("state_at", "n", n, natural)
    machine = runnable("state_at", pipeline).machine
    return _advanced("state_at", machine, init(pipeline), n)


def advance(pipeline: Chain, state: AnyState, n: int) -> State:
    """Return the state `n` items on: immediately with random access, otherwise by reading.

    Args:
        pipeline: The pipeline of the state.
        state: The state to begin at.
        n: Number of items, an int >= 0.

    Raises:
        IndexError: If fewer are left.

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
        try:
            passed = sum(1 for _ in islice(flow, min(n, sys.maxsize)))
            position = flow.snapshot()
        finally:
            close_stream(flow)
    if passed < n:
        where = f" after item {state.items:,}" if state.items else ""
        raise IndexError(f"{name}: n={brief(n)}, but the pipeline has {passed:,} items{where}")
    return state.at(position, state.items + n)


@overload
def replay(pipeline: Chain, state: AnyState) -> Any: ...
@overload
def replay(pipeline: Chain, state: AnyState, until: AnyState) -> list[Any]: ...
def replay(pipeline: Chain, state: AnyState, until: AnyState | None = None) -> Any:
    """Recompute the one item after a state, or all items between two states.

    Use it with the state from an error's note. If functions of the pipeline have changed since,
    the new ones are called.

    Args:
        pipeline: The pipeline of the state.
        state: The state before the item.
        until: A later state of the same run, for a list of all items up to it, across the ends of
            epochs; items that `on_error="skip"` skipped are skipped again.

    Raises:
        Exhausted: If the stream has ended.
        InvalidState: If the items after the first state don't lead to `until`.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(10)) | lz.shuffle(4, seed=0)
    >>> run = lz.run(pipeline)
    >>> before, items = run.state, [next(run), next(run)]
    >>> lz.replay(pipeline, before) == items[0]
    True
    >>> lz.replay(pipeline, before, until=run.state) == items
    True
    """
    runnable("replay", pipeline)
    if until is None:
        item = step(pipeline, state)[1]
        pipeline.close_steps()
        if any(each.rate.more for each in pipeline.machines):  # an error may come from a later item
            first_items(pipeline.machine, matching(as_state(state), pipeline).position)
        return item
    first, last = between(pipeline, state, until)

    def made(skips: bool) -> Iterator[Any]:
        chain = without_failures(pipeline, last.skipped) if skips else pipeline
        return made_between(chain.machine, first, last)

    return list(made_again(made, last.skipped))


def first_items(machine: Machine[Any], position: Position, n: int = 0) -> list[Any]:
    """Return the item n items further on, as a run would compute it; none if there are fewer."""
    flow = machine.flow(position)
    try:
        return list(islice(flow, n, n + 1))
    finally:
        close_stream(flow)


def between(pipeline: Chain, state: AnyState, until: AnyState) -> tuple[State, State]:
    """Return the two states, checked."""
    first, last = (matching(as_state(each), pipeline) for each in (state, until))
    if last.items < first.items:
        raise InvalidState(
            f"the states are after {first.items:,} and {last.items:,} items; the later one "
            "must come second"
        )
    for each in (first, last):
        entered(pipeline.machine, each.position)
    return first, last


def made_between(machine: Machine[Any], first: State, last: State) -> Iterator[Any]:
    """Yield the items of a run from one state to another, across the ends of epochs."""
    for items in Walk(machine, Flowing(machine), math.inf).between(first, last):
        yield from items


def made_again(made: Callable[[bool], Iterator[T]], skipped: Skipped) -> Iterator[T]:
    """Yield what a run has made; if that raises an error, once more without failing items.

    A run may have read ahead over items that no state counts as skipped yet.

    Args:
        made: Function that makes it, without failing items if its argument is True.
        skipped: The items skipped before the last state, perhaps before the first one: a stage
            may read those again.
    """
    count, skips = 0, bool(skipped)
    try:
        for each in made(skips):
            yield each
            count += 1
    except InvalidState:
        raise
    except Exception as error:
        if skips:
            raise
        try:
            yield from islice(made(True), count, None)
        except Exception:
            raise error from None


@dataclass(frozen=True, slots=True)
class Move:
    """A stage's own position, in two states.

    Attributes:
        stage: Number of the stage in the pipeline, from 1; `1[0].2` is stage 2 of pipeline 0
            within stage 1.
        name: Name of the combinator.
        before: The stage's own position in the first state: nested tuples of ints, or None.
        after: The stage's own position in the second state.
    """

    stage: str
    name: str
    before: Position
    after: Position

    @property
    def by(self) -> Position:
        """The difference, number by number; None for elements that are not numbers in both."""
        return _less(self.after, self.before)

    def __str__(self) -> str:
        return (
            f"stage {self.stage}, {cut(self.name)}: {_shown(self.before)} -> {_shown(self.after)}"
        )


@dataclass(frozen=True, slots=True)
class Difference(Pictured):
    """The difference between two states; false if they are equal.

    Attributes:
        items: How many more items were delivered at the second state.
        epochs: How many epochs the source has advanced; if an endless repetition was restarted in
            between, how many times.
        moves: The stages whose positions differ, from the source on.
        rebased: How the second state was carried over from a different pipeline, if the first
            was not.
        stages: The stages of both, for diagrams.
        words: Descriptions of how each stage of `moves` moved.
    """

    items: int
    epochs: int
    moves: tuple[Move, ...]
    rebased: Rebased | None = None
    stages: Entries = field(default=(), repr=False, compare=False)
    words: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __bool__(self) -> bool:
        return bool(self.items or self.moves or self.rebased)

    def __str__(self) -> str:
        """Format as one line for the items, and one per stage, wrapped in a terminal."""
        return fitted([*self._summary(), *map(self._line, self.moves)])

    def _line(self, move: Move) -> str:
        words = self.words.get(move.stage)
        return f"stage {move.stage}, {cut(move.name)}: {words}" if words else str(move)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _legend(self) -> Legend:
        return Legend(self.stages, self.words, tuple(self._summary()))

    def _summary(self) -> list[str]:
        sizes = [f"{self.items:+,} items"] + [f"{self.epochs:+,} epochs"] * bool(self.epochs)
        lines = [", ".join(sizes)]
        if self.rebased is not None:
            own = self.rebased.own
            where = "an unknown item" if own is None else f"item {own:,}"
            lines.append(
                f"rebased after {self.rebased.items:,} items, at {where} of the new pipeline"
            )
        return lines


def diff(a: AnyState, b: AnyState) -> Difference:
    """Return which stages advanced between two states, and how far. Reads no data.

    Args:
        a: The state to compare with, usually the earlier one.
        b: A different state of the same pipeline.

    Raises:
        StateMismatch: If the states belong to different pipelines; the message shows how they
            differ.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(100)) | lz.shuffle(8, seed=0) | lz.take(50) | lz.batch(4)
    >>> print(lz.diff(lz.state_at(pipeline, 2), lz.state_at(pipeline, 9)))
    +7 items
    stage 1, source: item 1 → 29
    stage 2, shuffle: 8 → 36
    stage 3, take: 8 → 36
    """
    first, second = as_state(a), as_state(b)
    if first.stages != second.stages:
        changed = difference(first.stages, second.stages)
        raise StateMismatch(f"the states belong to different pipelines:\n{changed.rstrip()}")
    both = (layers(each.stages, each.position) for each in (first, second))
    pairs = [(one, other) for one, other in zip(*both, strict=True) if one.own != other.own]
    moves = [Move(one.stage, one.name, one.own, other.own) for one, other in pairs]
    rebased = second.rebased if first.rebased != second.rebased else None
    return Difference(
        second.items - first.items,
        epochs_between(first, second),
        tuple(moves),
        rebased,
        first.stages,
        {one.stage: moved(one, other) for one, other in pairs},
    )


def _shown(own: Position) -> str:
    return "not open" if own is None else ", ".join(map(brief, own))


def _less(a: Position, b: Position) -> Position:
    if type(a) is type(b) is tuple and len(a) == len(b):
        return tuple(map(_less, a, b))
    return a - b if type(a) is type(b) is int else None
