"""Infinibatch's datasets: the most common combinations of its iterators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from itertools import chain
from typing import Any

from lazyckpt.compat.infinibatch import iterators as it


def bump_seed(seed: int | None, step: int = 1) -> int | None:
    """Return the seed plus `step`; None stays None."""
    return None if seed is None else seed + step


def chunked_dataset_iterator(
    chunk_refs: Sequence[Any],
    read_chunk_fn: Callable[[Any], Iterable[Any]],
    buffer_size: int,
    train: bool = True,
    seed: int | None = None,
    shuffle: bool = True,
    use_windowed: bool = False,
    transform: Callable[[Any], Any] | None = None,
    prefetch: bool = False,
    num_instances: int = 1,
    instance_rank: int = 0,
) -> it.CheckpointableIterator:
    """Iterate over the items of chunks: permuted forever to train, else each rank's part once.

    To train, ranks take chunks in turn; otherwise they have contiguous parts. `shuffle` without
    `train` is a `ValueError`, and so are chunks that are all empty if `train` is True.
    `buffer_size` is the buffer of the shuffle of items, and of `prefetch`, which comes before it.
    """
    refs = list(chunk_refs)
    items = range(len(refs)) if train else refs
    chunks = it.create_source_iterator(items, train, seed, shuffle, num_instances, instance_rank)
    read = partial(_read, deepcopy(refs), read_chunk_fn, shuffle, []) if train else read_chunk_fn
    samples: it.CheckpointableIterator = it.SelectManyIterator(chunks, read)
    if prefetch:
        samples = it.PrefetchIterator(samples, buffer_size)
    if shuffle:
        mix = it.BufferedShuffleIterator if use_windowed else it.BlockwiseShuffleIterator
        samples = mix(samples, buffer_size, bump_seed(seed))
    return samples if transform is None else it.MapIterator(samples, transform)


def _read(
    refs: list[Any],
    read_chunk_fn: Callable[[Any], Iterable[Any]],
    is_shuffled: bool,
    empty: list[int],
    number: int,
) -> Iterable[Any]:
    """Return a chunk; raise an error if all chunks are empty.

    `empty` collects the empty chunks in a row.
    """
    items = read_chunk_fn(deepcopy(refs[number]))
    found = iter(items)
    for first in found:
        empty.clear()
        return items if type(items) is list else chain([first], found)
    empty.append(number)
    if len(set(empty) if is_shuffled else empty) >= len(refs):
        raise ValueError(f"all {len(refs)} chunks are empty: there are no items to yield")
    return ()
