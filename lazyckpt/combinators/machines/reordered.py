"""Items in a different order: `Order`, `permuted` and `reordered`, for `shuffle` and `gather`."""

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

_WINDOW = 1024  # indices computed in one call


class Order(Protocol):
    """The number of upstream's item at index i, for one i and for many."""

    def __getitem__(self, index: int, /) -> int: ...
    def at(self, indices: Indices, /) -> Indices: ...


class Listed:
    """An order stored as an array."""

    def __init__(self, places: NDArray[Any]) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> int:
        return int(self._places[index])

    def at(self, indices: Indices) -> Indices:
        found: NDArray[Any] = self._places[as_array(indices)]
        return found


def permuted(size: int, seed: int, *parts: int | str) -> Order:
    """Return a permutation that is a function of the seed and of `parts`."""
    return Permutation(derive(seed, *parts), size)


def table_length(name: str, upstream: Machine[Any], remedy: str) -> int:
    """Return upstream's length, if it has random access; otherwise raise an `ArgumentError`."""
    length = upstream.length
    if upstream.skip is None or not isinstance(length, int):
        why = "is endless" if length == math.inf else "has no random access"
        raise ArgumentError(f"{name}: the pipeline before it {why}{remedy}")
    return length


def reordered(
    name: str,
    upstream: Machine[A],
    length: int,
    order: Callable[[int], Order],
) -> Machine[A]:
    """Yield `length` items per epoch, in the order of `order(epoch)`. Upstream has random access.

    A position is the beginning of upstream's epoch, and a count of items.

    Args:
        name: Name for errors.
        upstream: The machine before it.
        length: Number of items per epoch.
        order: Function from an epoch to the order of upstream's items.
    """
    alone, below = upstream.item, upstream.view
    assert alone is not None

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert below is not None
        begin, index = position
        chosen = order(upstream.epoch(begin))
        return below.ahead(begin, chosen.at(affine(offsets, index)))

    def flow(position: Position) -> Flow[A]:
        begin, index = position
        chosen = order(upstream.epoch(begin))

        def items() -> Iterator[A]:
            nonlocal index
            while index < length:
                window = range(index, min(index + _WINDOW, length))
                for place in as_array(chosen.at(window)).tolist():
                    item = alone(begin, place)
                    index += 1
                    yield item

        return Flow(items(), lambda: (begin, index))

    def step(position: Position) -> tuple[Position, A]:
        begin, index = position
        if index >= length:
            raise End(position)
        return (begin, index + 1), item(position, 0)

    def item(position: Position, n: int) -> A:
        begin, index = position
        return alone(begin, order(upstream.epoch(begin))[index + n])

    def skip(position: Position, n: int) -> tuple[Position, int]:
        begin, index = position
        passed = min(n, length - index)
        return (begin, index + passed), passed

    made = stateful(
        name,
        upstream,
        check=lambda index: within(name, index, length),
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
            raise InvalidState(f"{name}: the state's epoch doesn't begin at its first item")

    return made._replace(check=fits)
