"""Buckets for sequences of like length: gluon-nlp's schemes, and which sequence falls in which."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import Check, Unfit, brief, checked, finite
from lazyckpt.errors import ArgumentError

Key: TypeAlias = int | tuple[int, ...]


class BucketScheme:
    """Makes bucket keys, the largest lengths that fit, from the range of lengths.

    Yours may be any callable like it: it gives ints, or tuples where lengths are.
    """

    def __call__(self, max_lengths: Any, min_lengths: Any, num_buckets: int) -> list[Any]:
        if np.ndim(max_lengths) == 0:
            return self.keys(int(max_lengths), int(min_lengths), num_buckets)
        ranges = zip(max_lengths, min_lengths, strict=True)
        return list(zip(*(self.keys(int(a), int(b), num_buckets) for a, b in ranges), strict=True))

    def keys(self, longest: int, shortest: int, count: int) -> list[int]:
        """The keys for one field of lengths."""
        found = [round(shortest + each) for each in self.widths(longest - shortest, count)]
        return [*found[:-1], max(found[-1], longest)]

    def widths(self, span: int, count: int) -> Iterable[float]:
        """How far each key is above the shortest length."""
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
    """Buckets whose width grows by a constant from one to the next."""

    def widths(self, span: int, count: int) -> Iterable[float]:
        growth = 2 * (span - count) / (count * (count + 1))
        return [growth * (i * (i + 1) / 2) + i for i in range(1, count + 1)]


class ExpWidthBucket(BucketScheme):
    """Buckets each `bucket_len_step` times as wide as the one before."""

    def __init__(self, bucket_len_step: float = 1.1) -> None:
        check = finite("above 0", lambda step: step > 0)
        self.bucket_len_step = checked("ExpWidthBucket", "bucket_len_step", bucket_len_step, check)

    def widths(self, span: int, count: int) -> Iterable[float]:
        sums = list(accumulate(self.bucket_len_step**i for i in range(count)))
        return [span / sums[-1] * each for each in sums]


def int_table(what: str, fits: Callable[[Any], bool]) -> Check:
    """A check for ints, or tuples of k, as an array of shape `(n,)` or `(n, k)` that fits."""

    def check(value: Any) -> NDArray[np.int64]:
        try:
            given = np.asarray(value)
            found = given.astype(np.int64)
        except (TypeError, ValueError, OverflowError):
            given = found = np.zeros(0, np.int64)
        is_table = found.ndim in (1, 2) and found.size and (found == given).all()
        if not is_table or not fits(found):
            raise Unfit(f"ints {what}")
        return found

    return check


def matched(keys: NDArray[np.int64], lengths: NDArray[np.int64]) -> dict[Key, NDArray[np.int64]]:
    """The indices in each bucket that has some, of the smallest key that they fit."""
    keys = np.unique(keys, axis=0)
    table = lengths.reshape(len(lengths), -1)
    chosen = np.full(len(table), -1)
    totals = keys.reshape(len(keys), -1).sum(axis=1)
    for place in totals.argsort(kind="stable")[::-1]:  # the best comes last
        chosen[(keys[place] >= table).all(axis=1)] = place
    named = [tuple(key) if isinstance(key, list) else key for key in keys.tolist()]
    if (lost := np.flatnonzero(chosen < 0)).size:
        raise ArgumentError(
            f"FixedBucketSampler: no bucket fits lengths[{lost[0]}]={lengths[lost[0]].tolist()}, "
            f"nor {lost.size - 1} more; bucket_keys={brief(named)}"
        )
    buckets = {key: np.flatnonzero(chosen == place) for place, key in enumerate(named)}
    if empty := [key for key, bucket in buckets.items() if not bucket.size]:
        warnings.warn(f"buckets that nothing falls in are left out: {empty}", stacklevel=3)
    return {key: bucket for key, bucket in buckets.items() if bucket.size}
