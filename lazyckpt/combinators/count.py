"""`count`, `random_floats`, `random_indices`: endless sources that compute items by number."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import integer, natural, weighing
from lazyckpt.core.flow import Flow, Position, Table, View, counted
from lazyckpt.core.machine import MOST, Machine, countable
from lazyckpt.core.prng import Indices, affine, as_array, derive, hashed, hashes_at
from lazyckpt.core.registry import Elastic
from lazyckpt.core.stages import sourced
from lazyckpt.decorators import source_combinator

T = TypeVar("T")

_FINEST = 53  # bits of a float's mantissa
_LARGEST = 1 << 16  # items computed in one call


@source_combinator(checks={"start": integer, "step": integer})
def count(start: int = 0, step: int = 1) -> Machine[int]:
    """Yield `start`, `start + step`, `start + 2 * step`, ..., forever.

    Args:
        start: The first number, an int of any size and sign.
        step: The difference between two numbers, an int of any size and sign.

    Raises:
        IndexError: For an index beyond 2**60; this applies to all endless sources.

    State:
        The epoch and a count of items.

    Resume:
        Re-reads nothing.

    Random access:
        Yes.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> list(lz.count(10, -3) | lz.take(4))
    [10, 7, 4, 1]
    """

    def rows(indices: Indices) -> list[int]:
        if isinstance(indices, range):
            return list(affine(indices, start, step)) if step else [start] * len(indices)
        return [start + step * index for index in indices.tolist()]

    return _endless(
        "count",
        lambda epoch: 0,
        Table(lambda index: start + step * index, rows),
        lambda index: itertools.count(start + step * index, step),
    )


@source_combinator(checks={"seed": natural}, elastic=Elastic(changes={"seed": "here"}))
def random_floats(*, seed: int) -> Machine[float]:
    """Yield random floats in [0, 1), forever; each epoch has different ones.

    Args:
        seed: An int >= 0; the same seed gives the same floats.

    State:
        The epoch and a count of items.

    Resume:
        Re-reads nothing.

    Random access:
        Yes.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> [round(x, 3) for x in lz.random_floats(seed=0) | lz.take(3)]
    [0.459, 0.728, 0.429]
    """

    def scaled(bits: Any) -> Any:
        return bits * 2.0**-_FINEST

    return _drawn("random_floats", seed, scaled, scaled)


@source_combinator(
    checks={"weights": weighing, "seed": natural},
    elastic=Elastic(changes={"seed": "here", "weights": "here"}),
)
def random_indices(weights: Sequence[float] | NDArray[Any], *, seed: int) -> Machine[int]:
    """Yield random indices of `weights`, forever, each in proportion to its weight.

    Args:
        weights: Sequence of finite numbers >= 0, at least one of them above 0; they need not
            sum to 1.
        seed: An int >= 0; the same seed gives the same indices.

    State:
        The epoch and a count of items.

    Resume:
        Re-reads nothing.

    Random access:
        Yes.

    Rank-invariant:
        Yes.

    Source:
        Inversion of the cumulated weights (Devroye, "Non-Uniform Random Variate
        Generation", 1986, chapter III).

    >>> import lazyckpt as lz
    >>> list(lz.random_indices([1, 0, 3], seed=0) | lz.take(12))
    [2, 0, 2, 2, 0, 2, 0, 2, 2, 0, 2, 2]
    """
    largest = max(map(float, weights))
    sums = list(itertools.accumulate(float(weight) / largest for weight in weights))
    edges = [math.floor(each / sums[-1] * (1 << _FINEST)) for each in sums]
    bounds = np.array(edges, np.uint64)
    return _drawn(
        "random_indices",
        seed,
        lambda bits: bisect_right(edges, bits),
        lambda bits: bounds.searchsorted(bits, side="right").astype(np.int64),
    )


def _drawn(
    name: str,
    seed: int,
    one: Callable[[int], T],
    many: Callable[[NDArray[np.uint64]], NDArray[Any]],
) -> Machine[T]:
    """Yield `one(bits)` for 53 random bits at a time, forever; `many` takes an array of them."""
    key, unused = derive(seed, name), 64 - _FINEST

    def stacked(indices: Indices) -> NDArray[Any]:
        return many(hashes_at(key, as_array(indices).astype(np.uint64)) >> np.uint64(unused))

    def rows(indices: Indices) -> list[T]:
        found: list[T] = stacked(indices).tolist()
        return found

    def walk(index: int) -> Iterator[T]:
        sizes = itertools.chain((64, 512, 4096), itertools.repeat(_LARGEST))
        stops = itertools.accumulate(sizes, initial=index)
        windows = itertools.starmap(range, itertools.pairwise(stops))
        return itertools.chain.from_iterable(map(rows, windows))

    # Each epoch draws from its own offset in one long sequence of hashes.
    return _endless(
        name,
        lambda epoch: derive(seed, name, epoch) >> 2,
        Table(lambda index: one(hashed(key, index) >> unused), rows, stacked),
        walk,
    )


def _endless(
    name: str,
    begin: Callable[[int], int],
    table: Table[T],
    walk: Callable[[int], Iterator[T]],
) -> Machine[T]:
    """Build the machine of an endless table, read from the index `begin(epoch)` on."""

    def step(position: Position) -> tuple[Position, T]:
        epoch, given = position
        return (epoch, countable(name, given + 1)), table.get(begin(epoch) + given)

    def flow(position: Position) -> Flow[T]:
        epoch, given = position
        items, taken = counted(walk(begin(epoch) + given))
        return Flow(items, lambda: (epoch, countable(name, given + taken())))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        epoch, given = position
        return (epoch, countable(name, given + n)), n

    def ahead(position: Position, offsets: Indices) -> Indices:
        epoch, given = position
        return affine(offsets, begin(epoch) + given)

    return sourced(
        name,
        most=MOST,
        step=step,
        flow=flow,
        skip=skip,
        length=math.inf,
        view=View(table, ahead),
    )
