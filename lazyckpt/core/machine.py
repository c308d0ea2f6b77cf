"""Machines: what stages are when they run. Nothing here knows users.

A position is a nested tuple of ints. The leftmost int of every position is an
epoch; a stage that owns a position puts it after its upstream's.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import compress, repeat
from operator import length_hint
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from lazyckpt.core.checks import brief
from lazyckpt.core.prng import Indices
from lazyckpt.errors import InvalidState

T = TypeVar("T", covariant=True)
U = TypeVar("U")

Position: TypeAlias = Any

MOST = 1 << 60  # items of an epoch that are counted where there is no end
_LARGEST = 1 << 16  # indices looked up at once by a flow over a view


class End(Exception):
    """Raised by `step` where the stream has ended: `position` is the end, and stays it.

    Machines alone raise it. `lazyckpt.step` raises `Exhausted`, so that a user's
    function which steps a pipeline of its own ends nothing but that.
    """

    def __init__(self, position: Position) -> None:
        super().__init__(position)
        self.position = position


class Flow(Generic[T]):
    """Items from a position on, and a thunk for the position reached.

    `snapshot()` is right after every item and at the end, not after an error:
    then the flow is dropped. Iterate a flow once. A pending function `fn` rides
    along, so that `map` costs no layer of its own. `taken()` is given where it
    comes free: how many items were taken from `pull`, after an error too.
    `chunks` is there where items come many at a time.
    """

    __slots__ = ("chunks", "fn", "pull", "snapshot", "taken")

    def __init__(
        self,
        pull: Iterator[Any],
        snapshot: Callable[[], Position],
        fn: Callable[[Any], T] | None = None,
        taken: Callable[[], int] | None = None,
        chunks: Chunks[T] | None = None,
    ) -> None:
        self.pull = pull
        self.snapshot = snapshot
        self.fn = fn
        self.taken = taken
        self.chunks = chunks

    def map(self, fn: Callable[[Any], U]) -> Flow[U]:
        inner = self.fn
        both = fn if inner is None else lambda x: fn(inner(x))
        return Flow(self.pull, self.snapshot, both, self.taken)

    def __iter__(self) -> Iterator[T]:
        fn = self.fn
        # A generator, unlike builtin map, turns a StopIteration out of fn into an error.
        return self.pull if fn is None else (fn(x) for x in self.pull)


class Chunks(Protocol[T]):
    """Items that are there already, many at a time: no error comes between those of a chunk."""

    def next_chunk(self) -> Iterator[T] | None:
        """What is left of the chunk at hand, or the next one; None at the end."""

    def end_chunk(self) -> None:
        """End the iterator of the chunk at hand; what is left of it comes with another."""


class Table(NamedTuple, Generic[T]):
    """What random access reads from: one item, or many at once.

    `rows` and `stacked` are None where many at once are no cheaper than one by one.
    """

    get: Callable[[int], T]
    rows: Callable[[Indices], list[T]] | None = None
    stacked: Callable[[Indices], Any] | None = None


class View(NamedTuple, Generic[T]):
    """The vectorised lane: items as a table, and the order in which to read it.

    `ahead(position, offsets)` gives the table's indices of the items that come
    `offsets` items after the position; the offsets must not run past the end.
    """

    table: Table[T]
    ahead: Callable[[Position, Indices], Indices]


class Machine(NamedTuple, Generic[T]):
    """A stage with everything before it, as transition functions.

    `step` is the meaning; each lane must agree with it.

    - `init(epoch)`: the position before the first item of an epoch
    - `step(position)`: the next position and the item, or `End`
    - `flow(position)`: the same items as an iterator
    - `epoch(position)`: the epoch that `init` was given
    - `skip(position, n)`: where n steps lead, or the end, and how many items they pass
    - `length`: items an epoch; infinity if endless, None if only reading tells
    - `view`: the vectorised lane
    """

    init: Callable[[int], Position]
    step: Callable[[Position], tuple[Position, T]]
    flow: Callable[[Position], Flow[T]]
    epoch: Callable[[Position], int]
    skip: Callable[[Position, int], tuple[Position, int]] | None
    length: int | float | None
    view: View[T] | None


def machine(
    *,
    init: Callable[[int], Position],
    epoch: Callable[[Position], int],
    step: Callable[[Position], tuple[Position, U]] | None = None,
    flow: Callable[[Position], Flow[U]] | None = None,
    skip: Callable[[Position, int], tuple[Position, int]] | None = None,
    length: int | float | None = None,
    view: View[U] | None = None,
) -> Machine[U]:
    """A machine from whichever lanes are given; the others follow from them."""
    if flow is None and view is not None and skip is not None:
        flow = _viewing(skip, view)
    if flow is None:
        assert step is not None, "a machine needs a step or a flow"
        flow = _stepping(step, skip)
    return Machine(init, step or _continuing(flow), flow, epoch, skip, length, view)


def stateless(
    upstream: Machine[Any],
    *,
    step: Callable[[Position], tuple[Position, U]] | None = None,
    flow: Callable[[Position], Flow[U]] | None = None,
    skip: Callable[[Position, int], tuple[Position, int]] | None = None,
    length: int | float | None = None,
    view: View[U] | None = None,
) -> Machine[U]:
    """A machine whose position is its upstream's."""
    return machine(
        init=upstream.init,
        epoch=upstream.epoch,
        step=step,
        flow=flow,
        skip=skip,
        length=length,
        view=view,
    )


def within(stage: str, number: Any, most: float = sys.maxsize) -> int:
    """A number out of a position, if it is an int from 0 to `most`; an `InvalidState` if not."""
    if type(number) is not int or not 0 <= number <= most:
        raise InvalidState(
            f"{stage}: a state with {brief(number)} does not fit, where at most {most} can"
        )
    return number


def placed(stage: str, position: Position, length: float = sys.maxsize) -> tuple[int, int]:
    """Epoch and index, as a stage's whole position, checked."""
    epoch, index = position
    return within(stage, epoch, math.inf), within(stage, index, length)


def countable(stage: str, number: int) -> int:
    """A number of items that a position can have; an `IndexError` if they are too many."""
    if number > MOST:
        raise IndexError(f"{stage}: {brief(number)} items are more than the {MOST} it can count")
    return number


def begun(machine: Machine[Any], position: Position) -> int:
    """0 at the beginning of an epoch, where nothing has been read; else 1."""
    return int(position != machine.init(machine.epoch(position)))


@contextmanager
def fitting(position: Position) -> Iterator[None]:
    """What is done with a position out of a state; `InvalidState` if it doesn't fit."""
    try:
        yield
    except (TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        if isinstance(error, InvalidState):
            raise
        raise InvalidState(f"a state's position {brief(position)} does not fit: {error}") from None


def entered(machine: Machine[U], position: Position) -> Flow[U]:
    """A flow from a position out of a state; `InvalidState` if it doesn't fit.

    What a machine's flow does with its position before it is read from decides
    that: there each stage checks its part of it, and so that it costs no more
    than the reading again of what it says was read.
    """
    with fitting(position):
        return machine.flow(position)


def counted(items: Iterable[U]) -> tuple[Iterator[U], Callable[[], int]]:
    """The items, and a thunk that tells how many were taken, at no Python cost an item."""
    if isinstance(items, Flow) and items.taken is not None and items.fn is None:
        return items.pull, items.taken
    ticks = repeat(True, sys.maxsize)
    return compress(items, ticks), lambda: sys.maxsize - length_hint(ticks)


def _stepping(
    step: Callable[[Position], tuple[Position, U]],
    skip: Callable[[Position, int], tuple[Position, int]] | None,
) -> Callable[[Position], Flow[U]]:
    def flow(position: Position) -> Flow[U]:
        if skip is not None:
            skip(position, 0)  # which checks it

        def items() -> Iterator[U]:
            nonlocal position
            while True:
                try:
                    position, item = step(position)
                except End as end:
                    position = end.position
                    return
                yield item

        return Flow(items(), lambda: position)

    return flow


def _continuing(flow: Callable[[Position], Flow[U]]) -> Callable[[Position], tuple[Position, U]]:
    """A step out of a flow, which keeps one flow open where the last step ended."""
    live: dict[Position, tuple[Flow[U], Iterator[U]]] = {}

    def step(position: Position) -> tuple[Position, U]:
        pair = live.pop(position, None)
        if pair is None:
            opened = flow(position)
            pair = (opened, iter(opened))
        for item in pair[1]:
            live.clear()
            after = pair[0].snapshot()
            live[after] = pair
            return after, item
        raise End(pair[0].snapshot())

    return step


def _viewing(
    skip: Callable[[Position, int], tuple[Position, int]], view: View[U]
) -> Callable[[Position], Flow[U]]:
    get = view.table.get

    def flow(position: Position) -> Flow[U]:
        skip(position, 0)  # which checks it
        ticks: Iterator[int] = iter(range(0))
        total = 0

        def items() -> Iterator[U]:
            nonlocal position, ticks, total
            size = 64
            while True:
                after, count = skip(position, size)
                if not count:
                    position = after
                    return
                indices = view.ahead(position, range(count))
                ticks = iter(indices if isinstance(indices, range) else indices.tolist())
                total = count
                for index in ticks:
                    yield get(index)
                position, ticks, total = after, iter(range(0)), 0
                size = min(size * 8, _LARGEST)

        def snapshot() -> Position:
            taken = total - length_hint(ticks)
            return skip(position, taken)[0] if taken else position

        return Flow(items(), snapshot)

    return flow
