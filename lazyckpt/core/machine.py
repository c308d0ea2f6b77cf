"""Machines: what stages are when they run. Nothing here knows users."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Flow, Position, View, counted
from lazyckpt.errors import InvalidState

T = TypeVar("T", covariant=True)
U = TypeVar("U")

MOST = 1 << 60  # items of an epoch that are counted where there is no end
EPOCH_BITS = 32  # of its number: an epoch of what repeats upstream for ever has room for as many

# How often what is repeated may be empty by chance, as behind a filter of random numbers.
_FEWEST = 10  # epochs
_ENOUGH = 10_000  # items of a source
_UNKNOWN = 100  # epochs of a source of which only reading tells the length


class End(Exception):
    """Raised by `step` where the stream has ended: `position` is the end, and stays it.

    Machines alone raise it. `lazyckpt.step` raises `Exhausted`, so that a user's
    function which steps a pipeline of its own ends nothing but that.
    """

    def __init__(self, position: Position) -> None:
        super().__init__(position)
        self.position = position


class Rate(NamedTuple):
    """How many items a stage takes from upstream, at most: for each it gives, and more an epoch.

    `epochs` of upstream may pass within one of its own. A stage with
    `whole_epoch` takes its items from anywhere in upstream's epoch, so that it
    depends on how long that is.

    What joins pipelines takes so many items from `every` one of them for each
    that it gives, or from one.
    """

    each: float = 1
    more: float = 0
    epochs: float = 1
    whole_epoch: bool = False
    every: bool = False

    @property
    def is_fixed(self) -> bool:
        """Whether it takes as many items for each it gives, whatever they are."""
        return self.each < math.inf and self.epochs == 1 and not self.whole_epoch


UNKNOWN = Rate(math.inf)  # only reading tells


class Share(NamedTuple):
    """Which items of the global stream, that of all ranks, a stage gives to its rank.

    Its n-th is number `first + n * every` there. Of `ranks` ranks this is number `rank`.
    With `is_even` all of them are given as many.
    """

    first: int = 0
    every: int = 1
    ranks: int = 1
    rank: int = 0
    is_even: bool = True

    def dealt(self, num_shards: int, index: int, *, is_even: bool) -> Share:
        """Every `num_shards`-th of its items, from number `index` on."""
        return self._part(index, num_shards, num_shards, index, is_even)

    def cut(self, start: int, num_shards: int, index: int, *, is_even: bool) -> Share:
        """Its items from number `start` on, where each of so many ranks has a part."""
        return self._part(start, 1, num_shards, index, is_even)

    def _part(self, first: int, every: int, num_shards: int, index: int, is_even: bool) -> Share:
        return Share(
            self.first + first * self.every,
            self.every * every,
            self.ranks * num_shards,
            self.rank + index * self.ranks,
            self.is_even and is_even,
        )

    def passed(self, rate: Rate) -> Share:
        """That of a stage behind it. One that keeps no count of items gives by turns."""
        if rate == Rate():
            return self
        return self._replace(first=self.rank, every=self.ranks)


ALL = Share()  # of a source, which gives the same to every rank


class Reread(NamedTuple):
    """That a resume begins upstream at a position, and takes so many items from there again.

    It takes them one after another, or each `alone`, by random access. `ended`
    says that the stage has noted upstream's end there, and will ask for no more.
    """

    position: Position
    items: float = 0
    alone: bool = False
    ended: bool = False


class Machine(NamedTuple, Generic[T]):
    """A stage with everything before it, as transition functions, and what it says of itself.

    `step` defines the meaning; each mode must agree with it.

    - `init(epoch)`: the position before the first item of an epoch
    - `step(position)`: the next position and the item, or `End`
    - `flow(position)`: the same items as an iterator
    - `epoch(position)`: the epoch that `init` was given
    - `skip(position, n)`: where n steps lead, or the end, and how many items they pass
    - `item(position, n)`: the item behind n others, where there is one, made alone; None where
      its flow has to make the items, as workers do
    - `length`: items an epoch; infinity if endless, None if only reading tells
    - `view`: the vectorized mode

    The rest says whose a position is, and what it costs to go on from there.

    - `check(position)`: raises `InvalidState` for one that doesn't fit; reads nothing
    - `rereads(position)`: where upstream begins again, and what is taken again
    - `rate`: how many items it takes for those it gives
    - `share`: where what it gives stands in the stream of all ranks
    - `upstream`: the machine before it, if there is one
    - `children`: the machines that it joins, if it joins some
    - `holds`: whether a resume may take items from upstream again
    - `owns`: whether a part of the position is its own, behind upstream's or its children's
    - `choices(position, n)`: the number of the child that gives each item behind n others, as
      long as none ends; None where what joins them takes of all alike, or looks at their items

    A position is `(epoch, index, ...)` for a source, `((place, ...), own, ...)` for
    what joins pipelines, with `()` for one that isn't open, `(place, own, ...)`
    for a stage that owns a part, and upstream's for any other.
    """

    init: Callable[[int], Position]
    step: Callable[[Position], tuple[Position, T]]
    flow: Callable[[Position], Flow[T]]
    epoch: Callable[[Position], int]
    skip: Callable[[Position, int], tuple[Position, int]] | None
    item: Callable[[Position, int], T] | None
    length: int | float | None
    view: View[T] | None
    check: Callable[[Position], None]
    rereads: Callable[[Position], Iterable[Reread]]
    rate: Rate
    share: Share
    upstream: Any  # a machine or None: mypy infers no items of a NamedTuple that holds itself
    children: tuple[Any, ...]
    owns: bool
    holds: bool
    choices: Callable[[Position, int], Iterator[int]] | None = None


def machines(machine: Machine[Any]) -> list[Machine[Any]]:
    """A machine and those before it, from the source on."""
    found = []
    each: Machine[Any] | None = machine
    while each is not None:
        found.append(each)
        each = each.upstream
    return found[::-1]


def apart(machine: Machine[Any], position: Position) -> tuple[Position, tuple[Any, ...]]:
    """Upstream's part of a position, and the machine's own; of what joins, its children's."""
    if not machine.owns:
        return position, ()
    if machine.upstream is None and not machine.children:
        return (), position
    return position[0], position[1:]


def within(stage: str, number: Any, most: float = sys.maxsize) -> int:
    """A number out of a position, if it is an int from 0 to `most`; an `InvalidState` if not."""
    if type(number) is not int or not 0 <= number <= most:
        raise InvalidState(
            f"{stage}: a state with {brief(number)} does not fit; there it has "
            f"{'an int >= 0' if most == math.inf else f'an int from 0 to {most}'}"
        )
    return number


def countable(stage: str, number: int) -> int:
    """A number of items that a position can have; an `IndexError` if they are too many."""
    if number > MOST:
        raise IndexError(f"{stage}: {brief(number)} items are more than it can count, {MOST}")
    return number


def epochs_tried(length: int | float | None) -> int:
    """Epochs of a source's items of which none came through, after which none ever will."""
    if length is None or length == math.inf:
        return _UNKNOWN
    return max(_FEWEST, _ENOUGH // int(length)) if length else 1


def begun(machine: Machine[Any], position: Position) -> int:
    """0 at the beginning of an epoch, where nothing has been read; else 1."""
    return int(position != machine.init(machine.epoch(position)))


MISFITS = (TypeError, ValueError, IndexError, OverflowError, RecursionError)


@contextmanager
def fitting(position: Position) -> Iterator[None]:
    """What is done with a position out of a state; `InvalidState` if it doesn't fit."""
    try:
        yield
    except MISFITS as error:
        raise misfit(position, error) from None


def misfit(position: Position, error: Exception) -> InvalidState:
    """The error of a position that doesn't fit, if it isn't one already."""
    if isinstance(error, InvalidState):
        return error
    return InvalidState(f"a state's position {brief(position)} does not fit: {error}")


def anchored(machine: Machine[U], position: Position) -> Flow[U]:
    """A flow from a position, with its `before` also where random access tells it."""
    flow, skip = machine.flow(position), machine.skip
    if flow.before is None and skip is not None:
        taken = flow.taken
        if taken is None:
            items, taken = counted(flow)
            flow = Flow(items, flow.snapshot, taken=taken)
        flow.before = lambda: skip(position, taken() - 1)[0]
    return flow


def entered(machine: Machine[U], position: Position) -> Flow[U]:
    """A flow from a position out of a state; `InvalidState` if it doesn't fit."""
    with fitting(position):
        machine.check(position)
        return machine.flow(position)
