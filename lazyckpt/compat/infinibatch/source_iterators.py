"""Iterators at the beginning of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import lazyckpt as lz
from lazyckpt.compat.infinibatch import sources
from lazyckpt.compat.infinibatch.mersenne import Seed
from lazyckpt.compat.infinibatch.protocol import CheckpointableIterator, PipelineIterator, drawing
from lazyckpt.core.checks import brief, checked, natural, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Stage


class NativeCheckpointableIterator(PipelineIterator):
    """The items of an iterable that can be iterated over again.

    An iterator is a `ValueError`. State: a count of items. Resume: at once in a list,
    tuple or range, replays anything else; `RuntimeError`, with both numbers, where it
    has become too short.

    >>> it = NativeCheckpointableIterator("abc")
    >>> next(it), next(it)
    ('a', 'b')
    >>> state = it.getstate()
    >>> list(it), it.setstate(state), list(it)
    (['c'], None, ['c'])
    """

    def __init__(self, iterable: Iterable[Any]) -> None:
        if iter(iterable) is iterable:
            raise ArgumentError(
                "NativeCheckpointableIterator: iterable must be one that begins anew each time, "
                f"got the iterator {brief(iterable)}"
            )
        super().__init__(sources.infinibatch_native(iterable))


def create_source_iterator(
    source_items: Sequence[Any],
    train: bool = True,
    seed: Seed = None,
    shuffle: bool = True,
    num_instances: int = 1,
    instance_rank: int = 0,
) -> CheckpointableIterator:
    """An `InfinitePermutationSourceIterator` to train, else a `ChunkedSourceIterator`.

    `shuffle` without `train` is a `ValueError`.
    """
    if not train and shuffle:
        raise ArgumentError("shuffling is not supported when train=False")
    if train:
        return InfinitePermutationSourceIterator(
            source_items, seed, shuffle, num_instances, instance_rank
        )
    return ChunkedSourceIterator(source_items, num_instances, instance_rank)


class ChunkedSourceIterator(PipelineIterator):
    """One of `num_instances` contiguous parts, sizes differing by at most 1, once.

    [D] A negative rank is refused, as one that is too large is.
    """

    def __init__(
        self, source_items: Sequence[Any], num_instances: int = 1, instance_rank: int = 0
    ) -> None:
        ranked = _ranked(num_instances, instance_rank, contiguous=True)
        super().__init__(lz.source(list(source_items)) | ranked)


def _ranked(num_instances: int, instance_rank: int, contiguous: bool = False) -> Stage[Any, Any]:
    count = checked("source", "num_instances", num_instances, positive)
    rank = checked("source", "instance_rank", instance_rank, natural)
    if rank >= count:
        raise ArgumentError(
            f"source: instance_rank must be below num_instances={count}, got instance_rank={rank}"
        )
    return lz.shard(num_shards=count, index=rank, contiguous=contiguous)


class InfinitePermutationSourceIterator(PipelineIterator):
    """One permutation of the items after another; rank r of W gets item r, r + W, r + 2 W, ...

    The order is that of `random.Random(seed).shuffle`. The items are copied, and
    [D] so is each that is given, unless it is a number, a string or None: changing
    it in place changes nothing later.

    [D] `seed=None` is a seed drawn by chance, which the state holds, where there is
    one rank. Several ranks have to share their permutations, and nothing connects
    them: there None is the seed 0. No items, and ranks out of range, negative ones
    too, are a `ValueError`.

    State: how many random words were drawn before this permutation, and the place
    in it; the same on all ranks. Resume: jumps over the words, in less than 0.1 s,
    and draws one permutation.

    >>> it = InfinitePermutationSourceIterator("to be or not".split(), seed=1)
    >>> [next(it) for _ in range(6)]
    ['not', 'to', 'or', 'be', 'not', 'be']
    """

    def __init__(
        self,
        source_items: Sequence[Any],
        seed: Seed = 0,
        shuffle: bool = True,
        num_instances: int = 1,
        instance_rank: int = 0,
    ) -> None:
        items = list(source_items)
        if not items:
            raise ArgumentError("source must not be empty")
        ranks = _ranked(num_instances, instance_rank)
        seed = 0 if seed is None and num_instances > 1 else seed
        chance = drawing("InfinitePermutationSourceIterator", seed)
        if not (atomic := set(map(type, items)) <= sources.ATOMS):
            items = deepcopy(items)
        if shuffle:
            pipe = sources.infinibatch_permutations(items, **chance) | ranks
        else:
            pipe = lz.source(items) | lz.repeat() | ranks
        super().__init__(pipe if atomic else pipe | lz.map(deepcopy))


class RandomIterator(PipelineIterator):
    """What `random.Random(seed).random()` gives.

    [D] With `seed=None`, `setstate(None)` begins the same stream again.

    State: how many random words were drawn.
    """

    def __init__(self, seed: Seed = 0) -> None:
        super().__init__(sources.infinibatch_random(**drawing("RandomIterator", seed)))
