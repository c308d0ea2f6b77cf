"""`sample`, `sample_balanced`, `oversample`: items drawn by weight or by class."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.machines.random_access import Listed, Order, reordered, table_length
from lazyckpt.core.checks import (
    Unfit,
    as_column,
    boolean,
    natural,
    optional,
    positive,
    weights_as_given,
)
from lazyckpt.core.machine import Machine
from lazyckpt.core.prng import (
    Indices,
    Permutation,
    as_array,
    derive,
    exponentials_at,
    hashed,
    hashes_at,
)
from lazyckpt.decorators import combinator
from lazyckpt.errors import ArgumentError

A = TypeVar("A")

_REMEDY = "; put it before the stage that removes random access"
_FINEST = 53  # bits of a float's mantissa


def _weights(value: Any) -> NDArray[np.float64]:
    with suppress(ValueError):  # items of several lengths: the check names one
        value = np.asarray(as_column(value))
    return np.asarray(weights_as_given(value), np.float64)


def _labels(value: Any) -> Any:
    value = as_column(value)
    is_array = isinstance(value, np.ndarray) and value.ndim == 1
    if not is_array and not isinstance(value, (list, tuple, range)):
        raise Unfit("a list, tuple, series or one-dimensional array of labels, one per item")
    return value


@combinator(
    keeps_items=True,
    checks={
        "weights": _weights,
        "seed": natural,
        "replacement": boolean,
        "num_samples": optional(positive),
    },
)
def sample(
    upstream: Machine[A],
    weights: Sequence[float] | NDArray[Any],
    *,
    seed: int,
    replacement: bool = True,
    num_samples: int | None = None,
) -> Machine[A]:
    """Draw items at random in proportion to their weights; each epoch draws different ones.

    Args:
        weights: One finite number >= 0 per item of upstream; they need not sum to 1.
        seed: An int >= 0; the same seed gives the same items.
        replacement: If True, an item may be drawn several times per epoch. If False, each draw is
            by weight from the items that are left.
        num_samples: Number of items per epoch, an int >= 1. None for the number of upstream's
            items; without replacement, for the number of weights above 0.

    Raises:
        ArgumentError: If upstream has no random access, or the number of weights differs from
            that of items; or if, without replacement, there are more samples than weights above 0.

    State:
        A count of items.

    Resume:
        Re-reads nothing.

    Random access:
        Kept.

    Rank-invariant:
        Yes.

    Memory:
        16 bytes per item of upstream; without replacement, 24, and a sort per epoch.

    Source:
        With replacement, inversion of the cumulated weights (Devroye, "Non-Uniform Random
        Variate Generation", 1986, chapter III); without, exponential keys (Efraimidis and
        Spirakis, "Weighted random sampling with a reservoir", 2006).

    >>> import lazyckpt as lz
    >>> "".join(lz.source(list("abc")) | lz.sample([1, 0, 3], seed=2, num_samples=12))
    'ccacccccccac'
    """
    length = table_length("sample", upstream, _REMEDY)
    chosen: NDArray[np.float64] = np.asarray(weights)
    if len(chosen) != length:
        raise ArgumentError(f"sample: {len(chosen)} weights for {length} items")
    if replacement:
        bounds = _bounds(chosen)
        return reordered(
            "sample",
            upstream,
            num_samples or length,
            lambda epoch: _Drawn(derive(seed, "sample", epoch), bounds),
        )
    most = int(np.count_nonzero(chosen))
    if num_samples is not None and num_samples > most:
        raise ArgumentError(
            f"sample: num_samples={num_samples} without replacement, but only {most} items have a "
            "weight above 0"
        )

    @lru_cache(maxsize=2)
    def order(epoch: int) -> Order:
        keys = exponentials_at(derive(seed, "sample", epoch), np.arange(length, dtype=np.uint64))
        with np.errstate(divide="ignore"):
            keys /= chosen
        return Listed(np.argsort(keys, kind="stable")[:most])

    return reordered("sample", upstream, num_samples or most, order)


@combinator(
    keeps_items=True,
    checks={"labels": _labels, "seed": natural, "num_samples": optional(positive)},
)
def sample_balanced(
    upstream: Machine[A],
    labels: Sequence[Hashable] | NDArray[Any],
    *,
    seed: int,
    num_samples: int | None = None,
) -> Machine[A]:
    """Sample all classes equally often, in a random order that changes each epoch.

    With n classes, every n consecutive items contain one of each class. All items of a class are
    used once before one is repeated.

    Args:
        labels: The class of each of upstream's items.
        seed: An int >= 0; the same seed gives the same items.
        num_samples: Number of items per epoch, an int >= 1; None for the number of upstream's
            items.

    Raises:
        ArgumentError: If upstream has no random access, or the number of labels differs from that
            of items.

    State:
        A count of items.

    Resume:
        Re-reads nothing.

    Random access:
        Kept.

    Rank-invariant:
        Yes.

    Memory:
        8 bytes per item of upstream, and the labels.

    >>> import lazyckpt as lz
    >>> even = lz.sample_balanced([0, 0, 0, 0, 1], seed=0, num_samples=8)
    >>> "".join(lz.source(list("aaaab")) | even)
    'abbaabba'
    """
    classes = _Classes(
        "sample_balanced", labels, table_length("sample_balanced", upstream, _REMEDY)
    )
    return _balanced("sample_balanced", upstream, classes, seed, num_samples or classes.items)


@combinator(keeps_items=True, checks={"labels": _labels, "seed": natural})
def oversample(
    upstream: Machine[A], labels: Sequence[Hashable] | NDArray[Any], *, seed: int
) -> Machine[A]:
    """Shuffle all items, repeating those of smaller classes until all classes have the same size.

    It is `sample_balanced` with the number of samples that this takes.

    Args:
        labels: The class of each of upstream's items.
        seed: An int >= 0; the same seed gives the same items.

    Raises:
        ArgumentError: If upstream has no random access, or the number of labels differs from that
            of items.

    State:
        A count of items.

    Resume:
        Re-reads nothing.

    Random access:
        Kept.

    Rank-invariant:
        Yes.

    Memory:
        8 bytes per item of upstream, and the labels.

    >>> import lazyckpt as lz
    >>> "".join(lz.source(list("aaab")) | lz.oversample([0, 0, 0, 1], seed=0))
    'abbaab'
    """
    classes = _Classes("oversample", labels, table_length("oversample", upstream, _REMEDY))
    return _balanced("oversample", upstream, classes, seed, len(classes.sizes) * classes.largest)


def _bounds(weights: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return where the share of each weight ends, among all numbers of 53 bits."""
    sums = np.cumsum(weights / weights.max())
    found: NDArray[np.uint64] = np.floor(sums / sums[-1] * 2.0**_FINEST).astype(np.uint64)
    return found


class _Drawn:
    """Indices drawn with replacement."""

    def __init__(self, key: int, bounds: NDArray[np.uint64]) -> None:
        self._key, self._bounds = key, bounds

    def __getitem__(self, index: int) -> int:
        bits = np.uint64(hashed(self._key, index) >> (64 - _FINEST))
        return int(self._bounds.searchsorted(bits, side="right"))

    def at(self, indices: Indices) -> Indices:
        bits = hashes_at(self._key, as_array(indices).astype(np.uint64))
        bits >>= np.uint64(64 - _FINEST)
        return self._bounds.searchsorted(bits, side="right").astype(np.int64)


class _Classes:
    """The items of each class."""

    def __init__(self, name: str, labels: Any, items: int) -> None:
        if len(labels) != items:
            raise ArgumentError(f"{name}: {len(labels)} labels for {items} items")
        self.items = items
        codes = _codes(name, labels)
        self.places = np.argsort(codes, kind="stable")
        self.sizes = np.bincount(codes)
        self.begins = np.cumsum(self.sizes) - self.sizes
        self.largest = int(self.sizes.max(initial=0))


def _codes(name: str, labels: Any) -> NDArray[np.int64]:
    """Number the labels by first appearance."""
    if isinstance(labels, np.ndarray) and labels.dtype.kind != "O":
        _, first, which = np.unique(labels, return_index=True, return_inverse=True)
        numbered: NDArray[np.int64] = np.argsort(np.argsort(first))[which]
        return numbered
    numbers: dict[Any, int] = {}
    try:
        found = [numbers.setdefault(label, len(numbers)) for label in labels]
    except TypeError as error:
        raise ArgumentError(f"{name}: labels must be hashable: {error}") from error
    return np.array(found, np.int64)


def _balanced(
    name: str, upstream: Machine[A], classes: _Classes, seed: int, length: int
) -> Machine[A]:
    length = length if classes.items else 0
    make: Callable[[int], Order] = lru_cache(maxsize=2)(
        lambda epoch: _Balanced(classes, name, seed, epoch)
    )
    return reordered(name, upstream, length, make)


class _Balanced:
    """One item of each class after another; each round has the classes in a random order."""

    def __init__(self, classes: _Classes, name: str, seed: int, epoch: int) -> None:
        self._classes = classes
        self._turns = derive(seed, name, "turns", epoch)
        self._of = lru_cache(maxsize=2 * len(classes.sizes))(
            lambda number, turn: Permutation(
                derive(seed, name, epoch, number, turn), int(classes.sizes[number])
            )
        )

    def __getitem__(self, index: int) -> int:
        return int(as_array(self.at(range(index, index + 1)))[0])

    def at(self, indices: Indices) -> Indices:
        classes = self._classes
        width = len(classes.sizes)
        rounds, places = np.divmod(as_array(indices), width)
        each, inverse = np.unique(rounds, return_inverse=True)
        counters = (each[:, None] * width + np.arange(width)).astype(np.uint64)
        order = np.argsort(hashes_at(self._turns, counters), axis=1, kind="stable")
        numbers = order[inverse, places]
        turns, offsets = np.divmod(rounds, classes.sizes[numbers])
        found = np.empty_like(rounds)
        for number, turn in {*zip(numbers.tolist(), turns.tolist(), strict=True)}:
            mine = (numbers == number) & (turns == turn)
            found[mine] = as_array(self._of(number, turn).at(offsets[mine]))
        chosen: NDArray[np.int64] = classes.places[classes.begins[numbers] + found]
        return chosen
