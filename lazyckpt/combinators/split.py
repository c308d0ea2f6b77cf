"""`hash_range`, `split`, `kfold`: parts of the data that stay the same when data are added."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.filter import selected
from lazyckpt.combinators.machines.key_hash import Key, key_hash
from lazyckpt.combinators.machines.random_access import Listed, reordered, table_length
from lazyckpt.core.checks import (
    Shown,
    Unfit,
    as_column,
    at_least,
    boolean,
    brief,
    checked,
    finite,
    natural,
    optional,
)
from lazyckpt.core.content import digest
from lazyckpt.core.machine import Machine
from lazyckpt.core.prng import derive, hashed, hashes, hashes_at
from lazyckpt.core.registry import Elastic
from lazyckpt.core.show import show
from lazyckpt.core.values import cached_property
from lazyckpt.decorators import combinator
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Keeping

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda

_CHUNK = 1 << 20  # indices hashed in one call
_NEAR = 1e-9  # how far fractions may be from a sum of 1


def _rising(start: float, stop: float, **_: Any) -> None:
    if start > stop:
        raise ArgumentError(f"hash_range: start={start} is above stop={stop}")


class Keys(Shown):
    """One key per item, in order; compared by contents."""

    def __init__(self, values: Sequence[Key]) -> None:
        self.values = values

    @cached_property
    def hashes(self) -> NDArray[np.uint64]:
        """The hash of each key."""
        found = map(partial(key_hash, "hash_range", "key"), self.values)
        return np.fromiter(found, np.uint64, len(self.values))

    @cached_property
    def digest(self) -> str:
        """The number of keys, and a digest of them."""
        return f"{len(self.values)} {digest(self.hashes.astype('<u8').tobytes())}"

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Keys) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return show(self.values)


def _key(value: Any) -> Any:
    if callable(value) or isinstance(value, Keys):
        return value
    column = as_column(value)
    if isinstance(column, np.ndarray) and column.ndim == 1:
        column = column.tolist()
    if not isinstance(column, (list, tuple, range)):
        raise Unfit("a function, or a sequence of keys, one per item")
    return Keys(column)


def _as_it_was(known: Mapping[str, Any], key: Any, **_: Any) -> dict[str, Any]:
    """Return the keys as they were for a state, before others were appended."""
    told = known.get("key")
    if told is None and not isinstance(key, Keys):
        return {}
    if not isinstance(told, dict) or "Keys" not in told or not isinstance(key, Keys):
        raise Unfit("key decides the order")
    first = Keys(key.values[: int(told["Keys"].split()[0])])
    if first.digest != told["Keys"]:
        raise Unfit("the keys recorded in the state aren't the first ones of these")
    return {"key": first}


_unit = finite("from 0 to 1", lambda value: 0 <= value <= 1)


@combinator(
    keeps_items=True,
    checks={
        "start": _unit,
        "stop": _unit,
        "seed": natural,
        "key": optional(_key),
        "inverted": boolean,
    },
    validate=_rising,
    functions=lambda key, **_: {"key": "look"} if callable(key) else {},
    elastic=Elastic(changes={"key": "grown"}, before=_as_it_was),
)
def hash_range(
    upstream: Machine[A],
    start: float,
    stop: float,
    *,
    seed: int,
    key: Callable[[A], Key] | Sequence[Key] | None = None,
    inverted: bool = False,
) -> Machine[A]:
    """Keep items whose hash, in [0, 1), falls in [start, stop).

    An item keeps its hash when data are added: always if there is a `key`, otherwise if they are
    added at the end.

    Args:
        start: Start of the range, from 0 to 1.
        stop: End of the range, from `start` to 1.
        seed: An int >= 0; a different seed gives different hashes.
        key: The key to hash, a str, bytes or an int: a function of the item, or a sequence with
            one key per item, such as a column of a table. Items with the same key always stay
            together. None to hash the number of the item.
        inverted: If True, keep the other items instead.

    Raises:
        ArgumentError: If `key` is not a function, and upstream has no random access, or a different
            number of items than keys.
        TypeError: If a key is not a str, bytes or an int.

    State:
        A count of items; with a function, none. With a sequence, a digest of the keys; `rebase`
        accepts keys appended with the data.

    Resume:
        Re-reads nothing.

    Random access:
        Kept; with a function, no.

    Rank-invariant:
        Yes; with a function, no.

    Memory:
        8 bytes per item that is kept, and the keys; with a function, none.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(12)) | lz.hash_range(0, 0.5, seed=0))
    [2, 7]
    """
    low, high = (math.floor(each * 2.0**64) for each in (start, stop))
    mixed = derive(seed, "hash_range")
    if callable(key):
        return selected(
            upstream,
            lambda item: (
                (low <= hashed(mixed, key_hash("hash_range", "key", key(item))) < high) != inverted
            ),
        )
    length = table_length(
        "hash_range", upstream, ", so items have no number; pass `key` as a function"
    )
    keys: Any = key  # or the result of the check of a sequence
    if keys is not None and len(keys.values) != length:
        raise ArgumentError(f"hash_range: {len(keys.values):,} keys for {length:,} items")
    order = Listed(_numbers(mixed, length, low, high, inverted, keys))
    return reordered("hash_range", upstream, len(order), lambda epoch: order)


def _numbers(
    seed: int, length: int, low: int, high: int, inverted: bool, keys: Keys | None
) -> NDArray[np.int64]:
    """Return the numbers of the items whose hash is in the range."""
    parts = [np.empty(0, np.int64)]
    for begin in range(0, length, _CHUNK):
        end = min(begin + _CHUNK, length)
        found = (
            hashes(seed, begin, end) if keys is None else hashes_at(seed, keys.hashes[begin:end])
        )
        if low < high:
            inside = (found >= np.uint64(low)) & (found <= np.uint64(high - 1))
        else:
            inside = np.zeros(len(found), bool)
        parts.append(np.flatnonzero(inside != inverted) + begin)
    return np.concatenate(parts)


def _fraction(name: Any, value: Any) -> float:
    try:
        return float(_unit(value))
    except Unfit:
        kind = type(value).__name__
        raise Unfit(f"numbers from 0 to 1, not {brief(value)} ({kind}) for part {name!r}") from None


def _fractions(value: Any) -> list[float]:
    try:
        parts = value.items() if isinstance(value, Mapping) else [*enumerate(value)]
    except TypeError:
        raise Unfit("numbers from 0 to 1, as a list or a dict") from None
    found = [_fraction(name, each) for name, each in parts]
    if not found or math.fsum(found) > 1 + _NEAR:
        raise Unfit("at least one number, with a sum of at most 1")
    return found


@overload
def split(
    fractions: Mapping[str, float],
    *,
    seed: int,
    key: Callable[[Any], Key] | Sequence[Key] | None = None,
) -> dict[str, Keeping[object]]: ...
@overload
def split(
    fractions: Sequence[float],
    *,
    seed: int,
    key: Callable[[Any], Key] | Sequence[Key] | None = None,
) -> tuple[Keeping[object], ...]: ...
def split(
    fractions: Mapping[str, float] | Sequence[float],
    *,
    seed: int,
    key: Callable[[Any], Key] | Sequence[Key] | None = None,
) -> Any:
    """Return stages for disjoint parts of the data, such as train, validation and test.

    An item stays in its part when data are added: always if there is a `key`, otherwise if they
    are added at the end. If the first fraction grows, its part gains items from the next part only.

    Args:
        fractions: Share of each part, from 0 to 1, with a sum of at most 1, as a list or by name;
            the remaining items are in no part. Shares are approximate, because items are assigned
            by hash.
        seed: An int >= 0; the same seed gives the same parts.
        key: The key that decides, a str, bytes or an int: a function of the item, or a sequence
            with one key per item. Items with the same key are in one part. None to use the number
            of the item. A sequence and None keep random access.

    Returns:
        One `hash_range` stage per part, in a tuple or by name.

    >>> import lazyckpt as lz
    >>> train, test = split([0.75, 0.25], seed=1)
    >>> list(lz.source(range(12)) | test), len(lz.source(range(12)) | train)
    ([2, 4, 10], 9)
    """
    edges = [0.0, *accumulate(checked("split", "fractions", fractions, _fractions))]
    edges = [1.0 if abs(edge - 1) < _NEAR else edge for edge in edges]
    parts = tuple(hash_range(*ends, seed=seed, key=key) for ends in pairwise(edges))
    return dict(zip(fractions, parts, strict=True)) if isinstance(fractions, Mapping) else parts


def kfold(
    k: int, *, seed: int, key: Callable[[Any], Key] | Sequence[Key] | None = None
) -> list[tuple[Keeping[object], Keeping[object]]]:
    """Return `k` pairs of stages for training and validation data; validation parts are disjoint.

    Args:
        k: Number of parts, an int >= 2.
        seed: An int >= 0; the same seed gives the same parts.
        key: As for `split`.

    Returns:
        Pairs of `hash_range` stages.

    >>> import lazyckpt as lz
    >>> for train, test in kfold(3, seed=4):
    ...     print(list(lz.source(range(9)) | test), list(lz.source(range(9)) | train))
    [1, 2, 4, 5] [0, 3, 6, 7, 8]
    [3, 7] [0, 1, 2, 4, 5, 6, 8]
    [0, 6, 8] [1, 2, 3, 4, 5, 7]
    """
    checked("kfold", "k", k, at_least(2))
    edges = [number / k for number in range(k + 1)]
    tests = [hash_range(*ends, seed=seed, key=key) for ends in pairwise(edges)]
    trains = [hash_range(*ends, seed=seed, key=key, inverted=True) for ends in pairwise(edges)]
    return list(zip(trains, tests, strict=True))
