"""Buckets for sequences of like length: gluon-nlp's schemes, and who falls in which."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import Unfit, brief, checked
from lazyckpt.errors import ArgumentError

Key: TypeAlias = int | tuple[int, ...]


class BucketScheme:
    """Makes bucket keys, the largest lengths that fit, from the lengths' range.

    Yours may be any callable like it: it gives a list of ints, or of tuples where
    lengths are, and keys may repeat.
    """

    def __call__(self, max_lengths: Any, min_lengths: Any, num_buckets: int) -> list[Any]:
        if np.ndim(max_lengths) == 0:
            return self.keys(int(max_lengths), int(min_lengths), num_buckets)
        ranges = zip(max_lengths, min_lengths, strict=True)
        return list(zip(*(self.keys(int(a), int(b), num_buckets) for a, b in ranges), strict=True))

    def keys(self, longest: int, shortest: int, count: int) -> list[int]:
        """The keys for one field of lengths, which a scheme gives unless it is called otherwise."""
        raise NotImplementedError


class ConstWidthBucket(BucketScheme):
    """Buckets of one width, from the largest key down.

    >>> ConstWidthBucket()(20, 1, 4)
    [20, 15, 10, 5]
    """

    def keys(self, longest: int, shortest: int, count: int) -> list[int]:
        width = max((longest - shortest + 1) // count, 1)
        return [max(longest - number * width, shortest) for number in range(count)]


class LinearWidthBucket(BucketScheme):
    """Buckets whose width grows by a constant from one to the next.

    >>> LinearWidthBucket()(20, 1, 4)
    [4, 8, 13, 20]
    """

    def keys(self, longest: int, shortest: int, count: int) -> list[int]:
        growth = 2 * (longest - shortest - count) / (count * (count + 1))
        found = [round(shortest + growth * (i * (i + 1) / 2) + i) for i in range(1, count + 1)]
        return [*found[:-1], max(found[-1], longest)]


class ExpWidthBucket(BucketScheme):
    """Buckets each `bucket_len_step` times as wide as the one before; 1 makes them all alike.

    The original divides by zero for 1.

    >>> ExpWidthBucket(2)(31, 1, 4)
    [3, 7, 15, 31]
    """

    def __init__(self, bucket_len_step: float = 1.1) -> None:
        self.bucket_len_step = checked("ExpWidthBucket", "bucket_len_step", bucket_len_step, _step)

    def keys(self, longest: int, shortest: int, count: int) -> list[int]:
        step, span = self.bucket_len_step, longest - shortest
        if step == 1:
            found = [round(shortest + span * i / count) for i in range(1, count + 1)]
        else:
            width = span * (step - 1) / (math.pow(step, count) - 1)
            widths = [(math.pow(step, i) - 1) / (step - 1) for i in range(1, count + 1)]
            found = [round(shortest + width * each) for each in widths]
        return [*found[:-1], max(found[-1], longest)]


def _step(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise Unfit("a number above 0")
    return value


def lengths_given(value: Any) -> NDArray[np.int64]:
    """A check for lengths, as an array of shape `(n,)`, or `(n, k)` where they are tuples."""
    try:
        given = np.asarray(value)
        found = given.astype(np.int64)
    except (TypeError, ValueError):
        given = found = np.zeros(0, np.int64)
    if found.ndim not in (1, 2) or not found.size or (found < 1).any() or (found != given).any():
        raise Unfit("ints >= 1, or tuples of them")
    return found


def keys_for(lengths: NDArray[np.int64]) -> Callable[[Any], list[Key]]:
    """A check for bucket keys: sorted, each once, of the kind that lengths are."""

    def check(value: Any) -> list[Key]:
        given = np.asarray(value if len(value) else [0.5])
        if given.dtype.kind not in "iu" or given.shape[1:] != lengths.shape[1:]:
            kind = "ints" if lengths.ndim == 1 else f"tuples of {lengths.shape[1]} ints"
            raise Unfit(f"{kind}, one at least")
        plain = given.tolist()
        return sorted({tuple(key) if isinstance(key, list) else key for key in plain})

    return check


def matched(
    keys: list[Key], lengths: NDArray[np.int64]
) -> tuple[list[Key], list[NDArray[np.int64]]]:
    """The keys that are used, with the indices in each bucket."""
    table = lengths.reshape(len(lengths), -1)
    least = np.full(len(table), np.iinfo(np.int64).max)
    chosen = np.full(len(table), -1)
    for number, key in enumerate(keys):
        room = np.asarray(key) - table
        spare = room.sum(axis=1)
        better = (room >= 0).all(axis=1) & (spare < least)
        least[better], chosen[better] = spare[better], number
    if (lost := np.flatnonzero(chosen < 0)).size:
        raise ArgumentError(
            f"FixedBucketSampler: no bucket fits lengths[{lost[0]}]={lengths[lost[0]].tolist()}, "
            f"nor {lost.size - 1} more; bucket_keys={brief(keys)}"
        )
    buckets = {key: np.flatnonzero(chosen == number) for number, key in enumerate(keys)}
    if empty := [key for key, bucket in buckets.items() if not bucket.size]:
        warnings.warn(f"buckets that nothing falls in are left out: {empty}", stacklevel=3)
    used = {key: bucket for key, bucket in buckets.items() if bucket.size}
    return list(used), list(used.values())
