"""The samplers of gluon-nlp as pipelines of indices, and their schemes of buckets."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import lazyckpt as lz
from lazyckpt.core.checks import Check, Unfit, boolean, brief, checked, finite, natural, positive
from lazyckpt.core.prng import derive

Key: TypeAlias = int | tuple[int, ...]


class Sampler:
    """A sampler as a pipeline of indices, or of batches of them; each `iter` starts a new epoch."""

    def __init__(self, pipeline: lz.Pipeline[Any]) -> None:
        self.pipeline = pipeline
        self._epoch = 0

    def __iter__(self) -> Iterator[Any]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        machine = self.pipeline.machine
        return iter(machine.flow(machine.init(epoch)))  # without a run: its state isn't needed

    def __len__(self) -> int:
        return len(self.pipeline)


class SortedSampler(Sampler):
    """Indices sorted by their `sort_keys`, stably, the largest first unless `reverse` is False."""

    def __init__(self, sort_keys: Sequence[Any], reverse: bool = True) -> None:
        size = _some("SortedSampler", "sort_keys", sort_keys)
        order = sorted(range(size), key=lambda i: sort_keys[i], reverse=reverse)
        super().__init__(lz.source(order))


class BucketScheme:
    """A function from the range of lengths to bucket keys, the largest lengths that fit.

    Any callable with the same signature works. It returns ints, or tuples if lengths are tuples.
    """

    def __call__(self, max_lengths: Any, min_lengths: Any, num_buckets: int) -> list[Any]:
        if np.ndim(max_lengths) == 0:
            return self.keys(int(max_lengths), int(min_lengths), num_buckets)
        ranges = zip(max_lengths, min_lengths, strict=True)
        return list(zip(*(self.keys(int(a), int(b), num_buckets) for a, b in ranges), strict=True))

    def keys(self, longest: int, shortest: int, count: int) -> list[int]:
        """Return the keys for one field of lengths."""
        found = [round(shortest + each) for each in self.widths(longest - shortest, count)]
        return [*found[:-1], max(found[-1], longest)]

    def widths(self, span: int, count: int) -> Iterable[float]:
        """Return the distance of each key from the shortest length."""
        raise NotImplementedError


class ConstWidthBucket(BucketScheme):
    """Buckets of equal width, from the largest key down.

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
    """Buckets that are each `bucket_len_step` times as wide as the previous one."""

    def __init__(self, bucket_len_step: float = 1.1) -> None:
        check = finite("above 0", lambda step: step > 0)
        self.bucket_len_step = checked("ExpWidthBucket", "bucket_len_step", bucket_len_step, check)

    def widths(self, span: int, count: int) -> Iterable[float]:
        sums = list(accumulate(self.bucket_len_step**i for i in range(count)))
        return [span / sums[-1] * each for each in sums]


_CONST_WIDTH = ConstWidthBucket()


class FixedBucketSampler(Sampler):
    """Batches of indices of similar length: each index goes into the smallest bucket that it fits.

    Without `shuffle`, the longest come first. Arguments are the original's; the following need more
    explanation.

    Args:
        batch_size: Number of indices per batch. With `use_average_length`, the approximate number
            of elements, computed from the mean and standard deviation of each bucket's lengths.
        shuffle: If True, shuffle the indices within buckets, and the batches, again in each epoch.
        num_shards: If above 0, each item is a list of that many batches. If they don't divide
            evenly, the last list repeats some batches of the previous one.
        seed: Seed of `shuffle`; None takes one from `np.random`.

    >>> lengths = [3, 9, 4, 8, 2, 7]
    >>> sampler = FixedBucketSampler(lengths, 2, num_buckets=2)
    >>> list(sampler), len(sampler)
    ([[1, 3], [5], [0, 2], [4]], 4)
    """

    def __init__(
        self,
        lengths: Sequence[Any] | NDArray[Any],
        batch_size: int,
        num_buckets: int | None = 10,
        bucket_keys: Sequence[Key] | None = None,
        ratio: float = 0,
        shuffle: bool = False,
        use_average_length: bool = False,
        num_shards: int = 0,
        bucket_scheme: Callable[[Any, Any, int], list[Any]] = _CONST_WIDTH,
        *,
        seed: int | None = None,
    ) -> None:
        fit = partial(checked, "FixedBucketSampler")
        samples = _some("FixedBucketSampler", "lengths", lengths)
        found = _int_table(">= 1, or tuples of them", lambda table: table.min() >= 1)
        known = fit("lengths", lengths, found)
        size = fit("batch_size", batch_size, positive)
        ratio = fit("ratio", ratio, finite(">= 0", lambda ratio: ratio >= 0))
        if bucket_keys is None:
            count = fit("num_buckets", num_buckets, positive)
            longest, shortest = known.max(axis=0).tolist(), known.min(axis=0).tolist()
            bucket_keys = bucket_scheme(longest, shortest, count)
        alike = _int_table("or tuples, as lengths are", lambda t: t.shape[1:] == known.shape[1:])
        buckets = _matched(fit("bucket_keys", bucket_keys, alike), known)
        if use_average_length:
            if ratio > 0:
                warnings.warn(f"ratio={ratio} is not used with use_average_length", stacklevel=2)
            spread = [known[bucket] for bucket in buckets.values()]
            sizes = [max(int(size / (each.mean() + each.std())), 1) for each in spread]
        else:
            widths = [int(np.sum(key)) for key in buckets]
            sizes = [max(int(max(widths) / width * ratio * size), size) for width in widths]
        counts = [len(bucket) for bucket in buckets.values()]
        total = sum(-(-n // s) for n, s in zip(counts, sizes, strict=True))
        self._stats = (
            f"{type(self).__name__}:\n  sample_num={samples}, batch_num={total}\n"
            f"  key={list(buckets)}\n  cnt={counts}\n  batch_size={sizes}"
        )
        shards = fit("num_shards", num_shards, natural)
        chance = seeded(seed) if fit("shuffle", shuffle, boolean) else None
        pairs = zip(buckets.values(), sizes, strict=True)
        parts = [_cut(each, size, chance, n) for n, (each, size) in enumerate(pairs)]
        batches: Any = lz.concat(*reversed(parts)) | lz.map(np.ndarray.tolist)
        if chance is not None:
            batches = batches | lz.shuffle(seed=chance)
        if shards:  # the last list repeats batches rather than being shorter
            last = max(total - shards, 0)
            starts = [min(start, last) for start in range(0, total, shards)]
            places = [start + n for start in starts for n in range(min(shards, total))]
            batches = batches | lz.gather(places) | lz.batch(shards)
        super().__init__(batches)

    def stats(self) -> str:
        """Return a description of the buckets: keys, numbers of indices and batch sizes."""
        return self._stats


def _int_table(what: str, fits: Callable[[Any], bool]) -> Check:
    """Return a check for ints, or tuples of k, as an array of shape `(n,)` or `(n, k)`."""

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


def _matched(keys: NDArray[np.int64], lengths: NDArray[np.int64]) -> dict[Key, NDArray[np.int64]]:
    """Return the indices per bucket; each index is in the smallest bucket that it fits."""
    keys = np.unique(keys, axis=0)
    table = lengths.reshape(len(lengths), -1)
    chosen = np.full(len(table), -1)
    totals = keys.reshape(len(keys), -1).sum(axis=1)
    for place in totals.argsort(kind="stable")[::-1]:  # the best key is assigned last
        chosen[(keys[place] >= table).all(axis=1)] = place
    named = [tuple(key) if isinstance(key, list) else key for key in keys.tolist()]
    if (lost := np.flatnonzero(chosen < 0)).size:
        raise lz.ArgumentError(
            f"FixedBucketSampler: no bucket fits lengths[{lost[0]}]={lengths[lost[0]].tolist()}, "
            f"nor {lost.size - 1} more; bucket_keys={brief(named)}"
        )
    buckets = {key: np.flatnonzero(chosen == place) for place, key in enumerate(named)}
    if empty := [key for key, bucket in buckets.items() if not bucket.size]:
        warnings.warn(f"empty buckets are dropped: {empty}", stacklevel=3)
    return {key: bucket for key, bucket in buckets.items() if bucket.size}


def _cut(bucket: NDArray[np.int64], size: int, seed: int | None, number: int) -> lz.Pipeline[Any]:
    """Return the batches of a bucket, with its indices shuffled again in each epoch."""
    indices = lz.source(bucket)
    if seed is not None:
        indices = indices | lz.shuffle(seed=derive(seed, "FixedBucketSampler", number))
    return indices | lz.batch(size, collate=lz.stack)


class SortedBucketSampler(Sampler):
    """Batches of indices with similar keys, from windows of `int(mult * batch_size)` indices.

    Each window is sorted, the largest keys first unless `reverse` is False, and cut into batches.
    With `shuffle`, windows consist of random indices and their batches are in random order, again
    in each epoch. `seed=None` takes one from `np.random`.

    >>> list(SortedBucketSampler([1, 5, 2, 4, 3], 2, mult=2))
    [[1, 3], [2, 0], [4]]
    """

    def __init__(
        self,
        sort_keys: Sequence[Any],
        batch_size: int,
        mult: float = 100,
        reverse: bool = True,
        shuffle: bool = False,
        seed: int | None = None,
    ) -> None:
        fit = partial(checked, "SortedBucketSampler")
        count = _some("SortedBucketSampler", "sort_keys", sort_keys)
        size = fit("batch_size", batch_size, positive)
        window = int(fit("mult", mult, finite(">= 1", lambda mult: mult >= 1)) * size)
        ordered = sorted(sort_keys)
        ranks = [bisect_left(ordered, sort_keys[i]) for i in range(count)]
        if not reverse:
            ranks = [-rank for rank in ranks]
        indices: lz.Pipeline[int] = lz.source(range(count))
        chance = seeded(seed) if fit("shuffle", shuffle, boolean) else None
        if chance is not None:
            indices = indices | lz.shuffle(seed=chance)
        key = ranks.__getitem__
        batches = lz.bucket_batch(size, key=key, window_size=window, shuffle=shuffle, seed=chance)
        super().__init__(indices | batches)


class SplitSampler(Sampler):
    """The indices of one of `num_parts` consecutive parts of `length`.

    Args:
        even_size: If True, all parts are as long as the longest; missing indices are random ones of
            all, again in each epoch.
        repeat: Number of times the part is yielded per epoch, each time in a different order.
        seed: Seed of `shuffle`; None takes one from `np.random`.

    >>> [list(SplitSampler(10, 3, part, shuffle=False)) for part in range(3)]
    [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    """

    def __init__(
        self,
        length: int,
        num_parts: int = 1,
        part_index: int = 0,
        even_size: bool = False,
        repeat: int = 1,
        shuffle: bool = True,
        *,
        seed: int | None = None,
    ) -> None:
        fit = partial(checked, "SplitSampler")
        length, parts = fit("length", length, natural), fit("num_parts", num_parts, positive)
        part = fit("part_index", part_index, natural)
        if part >= parts or length < parts:
            raise lz.ArgumentError(
                "SplitSampler: part_index must be below num_parts, and num_parts at most length, "
                f"got part_index={part}, num_parts={parts}, length={length}"
            )
        each, more = divmod(length, parts)
        start = part * each + min(part, more)
        size = each + (part < more)
        if fit("even_size", even_size, boolean):
            size = each + (more > 0)
            start = part * size
        own = range(length)[start : start + size]
        indices: lz.Pipeline[int] = lz.source(own)
        lacking = size - len(own)
        chance = seeded(seed) if fit("shuffle", shuffle, boolean) or lacking else 0
        if lacking:
            extra = lz.source(range(length)) | lz.shuffle(seed=derive(chance, "extra"))
            indices = lz.concat(indices, extra | lz.take(lacking))
        if shuffle:
            indices = indices | lz.shuffle(seed=chance)
        if repeat != 1:
            indices = indices | lz.repeat(fit("repeat", repeat, natural))
        super().__init__(indices)


def seeded(seed: int | None) -> int:
    """Return the seed, or one from NumPy's global generator, which `np.random.seed` determines."""
    if seed is None:
        return int(np.random.randint(np.iinfo(np.int32).max))
    return int(checked("gluon", "seed", seed, natural))


def _some(stage: str, name: str, values: Any) -> int:
    if not len(values):
        raise lz.ArgumentError(f"{stage}: {name} must not be empty")
    return len(values)
