"""Machines: the runtime form of stages. Nothing here depends on the user interface."""

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

MOST = 1 << 60  # items per epoch that can be counted if there is no end
EPOCH_BITS = 32  # of an epoch's number: an endless repetition has room for as many

# How often a repeated stream may be empty by chance, as after a filter of random numbers.
_FEWEST = 10  # epochs
_ENOUGH = 10_000  # items of a source
_UNKNOWN = 100  # epochs of a source of unknown length


class End(Exception):
    """Raised by `step` at the end of the stream, with the final `position`.

    Only machines raise it. `lazyckpt.step` raises `Exhausted`, so a user's function that steps a
    pipeline of its own doesn't end the outer stream.
    """

    def __init__(self, position: Position) -> None:
        super().__init__(position)
        self.position = position


class Rate(NamedTuple):
    """How many items a stage takes from upstream, at most: per output, and in addition per epoch.

    `epochs` of upstream may pass within one of its own. A stage with `whole_epoch` takes its items
    from anywhere in upstream's epoch, so that it depends on the epoch's length.

    A stage that joins pipelines takes that many items per output from `every` one of them, or
    from only one.
    """

    each: float = 1
    more: float = 0
    epochs: float = 1
    whole_epoch: bool = False
    every: bool = False

    @property
    def is_fixed(self) -> bool:
        """Whether the number of items taken per output doesn't depend on the items."""
        return self.each < math.inf and self.epochs == 1 and not self.whole_epoch


UNKNOWN = Rate(math.inf)  # unknown without reading


class Share(NamedTuple):
    """The items of the global stream that a stage yields on its rank.

    The n-th item has number `first + n * every` in the global stream. It belongs to rank `rank` of
    `ranks`. With `is_even`, all ranks get the same number of items.
    """

    first: int = 0
    every: int = 1
    ranks: int = 1
    rank: int = 0
    is_even: bool = True

    def dealt(self, num_shards: int, index: int, *, is_even: bool) -> Share:
        """Return the share of every `num_shards`-th of its items, from number `index` on."""
        return self._part(index, num_shards, num_shards, index, is_even)

    def cut(self, start: int, num_shards: int, index: int, *, is_even: bool) -> Share:
        """Return the share of its items from number `start` on, with contiguous parts per rank."""
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
        """Return the share of a stage after it; if that changes the count, ranks take turns."""
        if rate == Rate():
            return self
        return self._replace(first=self.rank, every=self.ranks)


ALL = Share()  # a source yields the same items on every rank


class Rank(NamedTuple):
    """One of several ranks.

    Attributes:
        number: Its number, from 0: the `index` of `shard`.
        of: The number of ranks.
    """

    number: int
    of: int

    def __str__(self) -> str:
        return f"rank {self.number} of {self.of}"


def finest(*ranks: Rank | None) -> Rank | None:
    """Of ranks that are parts of each other, return the one with the most ranks; None if none."""
    return max((rank for rank in ranks if rank), key=lambda rank: rank.of, default=None)


class Reread(NamedTuple):
    """A resume that starts upstream at a position, and re-reads a number of items from there.

    It reads them one after another, or each `alone`, by random access. `ended` means that the
    stage has recorded upstream's end there, and will ask for no more.
    """

    position: Position
    items: float = 0
    alone: bool = False
    ended: bool = False


class Machine(NamedTuple, Generic[T]):
    """A stage with everything before it, as transition functions and their properties.

    `step` defines the meaning; each mode must agree with it.

    - `init(epoch)`: the position before the first item of an epoch
    - `step(position)`: the next position and the item, or `End`
    - `flow(position)`: the same items as an iterator
    - `epoch(position)`: the epoch that `init` was given
    - `skip(position, n)`: the position n steps further, or the end, and how many items it passed
    - `item(position, n)`: the item n items further on, if there is one, computed alone; None if
      its flow has to compute the items, as workers do
    - `length`: items per epoch; infinity if endless, None if unknown without reading the data
    - `view`: the vectorized mode

    The rest describes whom a position belongs to, and the cost of continuing from there.

    - `check(position)`: raises `InvalidState` if the position doesn't fit; reads nothing
    - `rereads(position)`: where upstream starts again, and how many items are re-read
    - `rate`: how many items it takes per output
    - `share`: the place of its items in the global stream
    - `upstream`: the machine before it, if there is one
    - `children`: the machines that it joins, if any
    - `holds`: whether a resume may re-read items of upstream
    - `owns`: whether a part of the position is its own, after upstream's or its children's
    - `choices(position, n)`: the number of the child that yields each item, n items further on, as
      long as none ends; None if it takes items of all children, or looks at their items

    A position is `(epoch, index, ...)` for a source, `((place, ...), own, ...)` for a stage that
    joins pipelines, with `()` for one that isn't open, `(place, own, ...)` for a stage that owns a
    part, and upstream's for any other.
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
    """Return a machine and those before it, from the source on."""
    found = []
    each: Machine[Any] | None = machine
    while each is not None:
        found.append(each)
        each = each.upstream
    return found[::-1]


def rank_of(machine: Machine[Any]) -> Rank | None:
    """Return the rank that a machine belongs to; None if its data are not divided."""
    share = machine.share
    return Rank(share.rank, share.ranks) if share.ranks > 1 else None


def apart(machine: Machine[Any], position: Position) -> tuple[Position, tuple[Any, ...]]:
    """Split a position into upstream's part, or the children's, and the machine's own."""
    if not machine.owns:
        return position, ()
    if machine.upstream is None and not machine.children:
        return (), position
    return position[0], position[1:]


def within(stage: str, number: Any, most: float = sys.maxsize) -> int:
    """Check a number from a position: an int from 0 to `most`; otherwise raise `InvalidState`."""
    if type(number) is not int or not 0 <= number <= most:
        raise InvalidState(
            f"{stage}: a state with {brief(number)} does not fit; there it has "
            f"{'an int >= 0' if most == math.inf else f'an int from 0 to {most}'}"
        )
    return number


def countable(stage: str, number: int) -> int:
    """Check a number of items for a position; raise an `IndexError` if it is too large."""
    if number > MOST:
        raise IndexError(f"{stage}: {brief(number)} items are more than it can count, {MOST}")
    return number


def epochs_tried(length: int | float | None) -> int:
    """Return after how many epochs without an item a repeated source counts as empty."""
    if length is None or length == math.inf:
        return _UNKNOWN
    return max(_FEWEST, _ENOUGH // int(length)) if length else 1


def begun(machine: Machine[Any], position: Position) -> int:
    """Return 0 at the beginning of an epoch, if nothing has been read; otherwise 1."""
    return int(position != machine.init(machine.epoch(position)))


MISFITS = (TypeError, ValueError, IndexError, OverflowError, RecursionError)


@contextmanager
def fitting(position: Position) -> Iterator[None]:
    """Context for work with a position from a state; raises `InvalidState` if it doesn't fit."""
    try:
        yield
    except MISFITS as error:
        raise misfit(position, error) from None


def misfit(position: Position, error: Exception) -> InvalidState:
    """Return the error for a position that doesn't fit, unless it is one already."""
    if isinstance(error, InvalidState):
        return error
    return InvalidState(f"a state's position {brief(position)} does not fit: {error}")


def anchored(machine: Machine[U], position: Position) -> Flow[U]:
    """Open a flow from a position, with its `before` also if random access provides it."""
    flow, skip = machine.flow(position), machine.skip
    if flow.before is None and skip is not None:
        taken = flow.taken
        if taken is None:
            items, taken = counted(flow)
            flow = Flow(items, flow.snapshot, taken=taken)
        flow.before = lambda: skip(position, taken() - 1)[0]
    return flow


def entered(machine: Machine[U], position: Position) -> Flow[U]:
    """Open a flow from a position out of a state; raise `InvalidState` if it doesn't fit."""
    with fitting(position):
        machine.check(position)
        return machine.flow(position)
