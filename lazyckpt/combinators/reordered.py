"""Items in another order: `Order`, `permuted` and `reordered`, under `shuffle` and `gather`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lazyckpt.core.flow import Flow, Position, View
from lazyckpt.core.machine import End, Machine, Rate, begun, within
from lazyckpt.core.prng import Indices, Permutation, affine, as_array, derive
from lazyckpt.core.stages import stateful
from lazyckpt.errors import ArgumentError, InvalidState

if TYPE_CHECKING:
    from numpy.typing import NDArray

A = TypeVar("A")

_WINDOW = 1024  # indices worked out at once


class Order(Protocol):
    """Which of upstream's items is the i-th, for one i and for many."""

    def __getitem__(self, index: int, /) -> int: ...
    def at(self, indices: Indices, /) -> Indices: ...


class Listed:
    """An order that is there."""

    def __init__(self, places: NDArray[Any]) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> int:
        return int(self._places[index])

    def at(self, indices: Indices) -> Indices:
        found: NDArray[Any] = self._places[as_array(indices)]
        return found


class _Branched:
    """An order whose items from number `cut` on are permuted anew."""

    def __init__(self, order: Order, cut: int, rest: Order) -> None:
        self._order, self._cut, self._rest = order, cut, rest

    def __getitem__(self, index: int) -> int:
        cut = self._cut
        return self._order[index if index < cut else cut + self._rest[index - cut]]

    def at(self, indices: Indices) -> Indices:
        places = as_array(indices).copy()
        is_late = places >= self._cut
        places[is_late] = as_array(self._rest.at(places[is_late] - self._cut)) + self._cut
        return self._order.at(places)


def permuted(size: int, seed: int, branches: tuple[int, ...], *parts: int | str) -> Order:
    """A permutation that is a function of the seed and of `parts`.

    `branches` are pairs of a number of items and a seed: so many of the items
    came by that seed.
    """
    if not branches:
        return Permutation(derive(seed, *parts), size)
    first, *later = *branches[1::2], seed
    order: Order = Permutation(derive(first, *parts), size)
    for cut, each in zip(branches[::2], later, strict=True):
        key = derive(each, *parts, "branch", cut)
        order = _Branched(order, cut, Permutation(key, max(0, size - cut)))
    return order


def branched(given: int, branches: tuple[int, ...], seed: int) -> tuple[int, ...]:
    """The branches where another seed takes over from this one, so many items being given."""
    if not given or branches[-2:-1] == (given,):
        return branches
    return *branches, given, seed


def branched_count(here: Position, own: Position, was: int, /, **_: Any) -> Position:
    """The place of a stage that has a count and branches, where another seed takes over."""
    given, *branches = own
    return given, *branched(given, tuple(branches), was)


def check_branches(name: str, given: int, branches: tuple[Any, ...]) -> None:
    """Raise `InvalidState` for what are no branches made up to so many items."""
    if len(branches) % 2:
        raise InvalidState(f"{name}: a state with a branch that lacks its seed")
    last = 1
    for cut, seed in zip(branches[::2], branches[1::2], strict=True):
        within(name, cut, given), within(name, seed, math.inf)
        if cut < last:
            raise InvalidState(f"{name}: a state with branches in no order")
        last = cut + 1


def table_length(name: str, upstream: Machine[Any], remedy: str) -> int:
    """How many items upstream has, if it has random access; an `ArgumentError` if not."""
    length = upstream.length
    if upstream.skip is None or not isinstance(length, int):
        why = "is endless" if length == math.inf else "has no random access"
        raise ArgumentError(f"{name}: what comes before it {why}{remedy}")
    return length


def reordered(
    name: str,
    upstream: Machine[A],
    length: int,
    order: Callable[..., Order],
    *,
    check: Callable[..., object] | None = None,
) -> Machine[A]:
    """`length` items an epoch, in the order that `order(epoch)` says. Upstream has random access.

    A position is the place where upstream's epoch begins, a count of items, and
    whatever `order` is called with behind the epoch.

    Args:
        name: What errors call the stage.
        upstream: The machine before it.
        length: How many items it gives in each epoch.
        order: Which of upstream's items these are.
        check: Called with all behind upstream's place; by default a count alone.
    """
    alone, below = upstream.item, upstream.view
    assert alone is not None

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert below is not None
        begin, index, *branches = position
        chosen = order(upstream.epoch(begin), *branches)
        return below.ahead(begin, chosen.at(affine(offsets, index)))

    def flow(position: Position) -> Flow[A]:
        begin, index, *branches = position
        chosen = order(upstream.epoch(begin), *branches)

        def items() -> Iterator[A]:
            nonlocal index
            while index < length:
                window = range(index, min(index + _WINDOW, length))
                for place in as_array(chosen.at(window)).tolist():
                    item = alone(begin, place)
                    index += 1
                    yield item

        return Flow(items(), lambda: (begin, index, *branches))

    def step(position: Position) -> tuple[Position, A]:
        begin, index, *branches = position
        if index >= length:
            raise End(position)
        return (begin, index + 1, *branches), item(position, 0)

    def item(position: Position, n: int) -> A:
        begin, index, *branches = position
        return alone(begin, order(upstream.epoch(begin), *branches)[index + n])

    def skip(position: Position, n: int) -> tuple[Position, int]:
        begin, index, *branches = position
        passed = min(n, length - index)
        return (begin, index + passed, *branches), passed

    made = stateful(
        name,
        upstream,
        check=check or (lambda index: within(name, index, length)),
        rate=Rate(whole_epoch=True),
        step=step,
        flow=flow if below is None else None,
        skip=skip,
        item=item,
        length=length,
        view=below and View(below.table, ahead),
    )

    def fits(position: Position) -> None:
        made.check(position)
        if begun(upstream, position[0]):
            raise InvalidState(f"{name}: a state whose epoch begins in its midst")

    return made._replace(check=fits)
