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
EPOCH_BITS = 32  # an endless repetition counts epochs in this many bits

# A repeated stream may have empty epochs by chance, for example after a random filter. It counts
# as empty only after several in a row.
_FEWEST = 10  # epochs
_ENOUGH = 10_000  # items of a source
_UNKNOWN = 100  # epochs of a source of unknown length


class End(Exception):
    """Raised by `step` at the end of the stream, with the final `position`.

    Only machines raise it. `lazyckpt.step` raises `Exhausted`, so a user's function that steps a
    pipeline of its own doesn't end the stream that the function is part of.
    """

    def __init__(self, position: Position) -> None:
        super().__init__(position)
        self.position = position


class Rate(NamedTuple):
    """The most items that a stage takes from upstream.

    Attributes:
        each: Items per output; infinity if unknown.
        more: Items per epoch, in addition.
        epochs: Upstream's epochs per epoch of the stage.
        whole_epoch: If True, items come from anywhere in upstream's epoch, so the stage depends on
            its length.
        every: For a stage that joins pipelines: if True, it takes `each` items per output from
            every pipeline; otherwise from one of them.
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

    The stage's item n has number `first + n * every` in the global stream. It belongs to rank
    `rank` of `ranks`. With `is_even`, all ranks get the same number of items.
    """

    first: int = 0
    every: int = 1
    ranks: int = 1
    rank: int = 0
    is_even: bool = True

    def dealt(self, num_shards: int, index: int, *, is_even: bool) -> Share:
        """Return the share of every `num_shards`-th of these items, from number `index` on."""
        return self._part(index, num_shards, num_shards, index, is_even)

    def cut(self, start: int, num_shards: int, index: int, *, is_even: bool) -> Share:
        """Return the share of these items from number `start` on: one contiguous part per rank."""
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
        """Return the share after a further stage; if that changes the count, ranks take turns."""
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
    """Return the rank with the largest `of`, for nested divisions; None if there is no rank."""
    return max((rank for rank in ranks if rank), key=lambda rank: rank.of, default=None)


class Reread(NamedTuple):
    """The items that a resume re-reads from upstream.

    Attributes:
        position: Upstream's position at the first of them.
        items: Their number.
        alone: If True, each is looked up by random access; otherwise they are read in order.
        ended: If True, the stage knows that upstream ends after them, and asks for no more.
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
    - `skip(position, n)`: the position n items later, or at the end, and the number of items
      skipped
    - `item(position, n)`: the item n items later, if it exists, computed alone; None if only a
      flow can compute the items, as with workers
    - `length`: items per epoch; infinity if endless, None if unknown without reading the data
    - `view`: the vectorized mode

    The other fields describe positions, and the cost of resuming from them:

    - `check(position)`: raises `InvalidState` if the position doesn't fit; reads nothing
    - `rereads(position)`: the items that a resume re-reads from upstream
    - `rate`: the most items taken from upstream per output
    - `share`: the items of the global stream that this rank yields
    - `upstream`: the machine before it, if there is one
    - `children`: the machines that it joins, if any
    - `holds`: whether a resume may re-read items of upstream
    - `owns`: whether the position has a part of its own, after that of upstream or the children
    - `choices(position, n)`: the number of the child that yields each item, from n items later on,
      while no child ends; None if an output needs all children, or the choice depends on items

    The position of a source is `(epoch, index, ...)`. A stage that joins pipelines has
    `((child's position, ...), own, ...)`, with `()` for a child that isn't open. A stage that owns
    a part has `(upstream's position, own, ...)`. Any other stage has upstream's position.
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
    """Return the number of epochs without an item after which a repeated source counts as empty."""
    if length is None or length == math.inf:
        return _UNKNOWN
    return max(_FEWEST, _ENOUGH // int(length)) if length else 1


def begun(machine: Machine[Any], position: Position) -> int:
    """Return 0 at the beginning of an epoch, otherwise 1."""
    return int(position != machine.init(machine.epoch(position)))


MISFITS = (TypeError, ValueError, IndexError, OverflowError, RecursionError)


@contextmanager
def fitting(position: Position) -> Iterator[None]:
    """Turn errors about a position from a state into `InvalidState`."""
    try:
        yield
    except MISFITS as error:
        raise misfit(position, error) from None


def misfit(position: Position, error: Exception) -> InvalidState:
    """Return an error about a position as an `InvalidState`."""
    if isinstance(error, InvalidState):
        return error
    return InvalidState(f"a state's position {brief(position)} does not fit: {error}")


def anchored(machine: Machine[U], position: Position) -> Flow[U]:
    """Open a flow from a position; with random access, its `before` is set too."""
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
