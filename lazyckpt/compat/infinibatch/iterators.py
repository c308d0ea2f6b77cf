"""Infinibatch's protocol of iterators, and its iterators, each implemented by a pipeline."""

from __future__ import annotations

import collections.abc
import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from random import Random
from typing import Any

from toolz import identity

import lazyckpt as lz
from lazyckpt.combinators.bucket_batch import cut_in_batches
from lazyckpt.compat.infinibatch import stages
from lazyckpt.compat.infinibatch.checkpoints import Checkpoint, converted
from lazyckpt.compat.infinibatch.mersenne import Seed
from lazyckpt.core.checks import (
    Unfit,
    at_least,
    brief,
    checked,
    function,
    integer,
    optional,
    positive,
)
from lazyckpt.core.flow import Position
from lazyckpt.core.user_state import freeze, storable

__all__ = [
    "BlockwiseShuffleIterator", "BucketedReadaheadBatchIterator", "BufferedShuffleIterator",
    "CheckpointableIterator", "ChunkedSourceIterator", "FixedBatchIterator",
    "InfinitePermutationSourceIterator", "MapIterator", "MultiplexIterator",
    "NativeCheckpointableIterator", "ParallelMapIterator", "PrefetchIterator", "RandomIterator",
    "RecurrentIterator", "SamplingRandomMapIterator", "SelectManyIterator", "WindowedIterator",
    "ZipIterator", "create_source_iterator",
]  # fmt: skip


class CheckpointableIterator(collections.abc.Iterator[Any]):
    """The protocol: an iterator with a state of JSON values and tuples.

    Derive from it to write your own. A stage that takes it as its source owns it.
    """

    @abstractmethod
    def getstate(self) -> Any:
        """Return a checkpoint of the whole pipeline; continuing to iterate doesn't change it."""

    @abstractmethod
    def setstate(self, checkpoint: Any) -> None:
        """Move to a checkpoint, or with None to the beginning."""

    @abstractmethod
    def close(self) -> None:
        """Stop the workers of all prefetching in the pipeline."""


class PipelineIterator(CheckpointableIterator):
    """A pipeline under the protocol; the iterators that it is built on stay where they are."""

    _is_closed = False
    _prefetches: bool | None = None  # None until it begins

    def __init__(
        self,
        made: lz.Pipeline[Any] | Callable[..., lz.Pipeline[Any]],
        *sources: CheckpointableIterator,
        begin: Callable[..., Position] | None = None,
    ) -> None:
        """Take a pipeline, or build one from the sources' pipelines.

        `begin` builds its first position from theirs.
        """
        pipelines = list(map(_pipeline_of, sources))
        if len(set(map(id, sources))) < len(sources):
            raise lz.ArgumentError("the same iterator is passed twice; pass two iterators")
        self._pipeline = made if isinstance(made, lz.Pipeline) else made(*pipelines)
        self._sources = sources
        self._run: lz.Run[Any] = lz.Run(self._pipeline)
        if begin is not None:
            self._go_to(begin(*map(_position_of, sources)))

    def getstate(self) -> dict[str, Any]:
        """Return lazyckpt's state of the pipeline, as a dict of JSON values."""
        return self._run.state.to_dict()

    def setstate(self, checkpoint: Checkpoint | str | None) -> None:
        """Move to a state of this pipeline, or a checkpoint of Infinibatch; None is the start."""
        self._check_open()
        if checkpoint is None:
            self._go_to(self._pipeline.machine.init(0))
        elif isinstance(checkpoint, Mapping) and "lazyckpt" not in checkpoint:
            self._go_to(converted(self._pipeline, checkpoint))
        else:
            self._run.load_state_dict(checkpoint)

    def close(self) -> None:
        if stages.has_prefetch(self._pipeline):
            self._is_closed = True
            self._run.close()
        for each in self._sources:
            each.close()

    def __getstate__(self) -> tuple[Any, ...]:
        return self._pipeline, self._sources, self.getstate()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        pipeline, sources, checkpoint = state
        PipelineIterator.__init__(self, pipeline, *sources)
        self.setstate(checkpoint)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._pipeline!r}>"

    def __del__(self) -> None:
        if self._prefetches and not self._is_closed:
            warnings.warn(f"unclosed PrefetchIterator {self!r}", ResourceWarning, 2, source=self)

    def __next__(self) -> Any:
        self._check_open()
        if self._prefetches is None:  # asked now: `__del__` may outlive the modules
            self._prefetches = stages.has_prefetch(self._pipeline)
        return next(self._run)

    def _go_to(self, position: Position) -> None:
        self._run.load_state_dict(lz.State(self._pipeline.entries, 0, position))

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{self!r} has been closed")


def _pipeline_of(source: Any) -> lz.Pipeline[Any]:
    """Return the pipeline of a source; raise `ValueError` if it isn't a CheckpointableIterator."""
    if isinstance(source, PipelineIterator):
        return source._pipeline
    if isinstance(source, CheckpointableIterator):
        return stages.infinibatch_foreign(source)
    raise lz.ArgumentError(
        f"a source must be a CheckpointableIterator, got {brief(source)} ({type(source).__name__})"
    )


def _position_of(source: Any) -> Position:
    """Return the position of a partly consumed source."""
    if isinstance(source, PipelineIterator):
        return source._run.state.position
    return 0, 0, freeze(source.getstate(), type(source).__name__)


Source = CheckpointableIterator


class NativeCheckpointableIterator(PipelineIterator):
    """The items of an iterable that can be iterated repeatedly. Resume: replays them."""

    def __init__(self, iterable: Iterable[Any]) -> None:
        if iter(iterable) is iterable:
            raise lz.ArgumentError(
                f"an iterable must begin again each time; {brief(iterable)} is an iterator"
            )
        super().__init__(stages.infinibatch_native(iterable))


def create_source_iterator(
    source_items: Sequence[Any],
    train: bool = True,
    seed: Seed = None,
    shuffle: bool = True,
    num_instances: int = 1,
    instance_rank: int = 0,
) -> CheckpointableIterator:
    """Return an `InfinitePermutationSourceIterator` to train, else a `ChunkedSourceIterator`."""
    ranks = num_instances, instance_rank
    if train:
        return InfinitePermutationSourceIterator(source_items, seed, shuffle, *ranks)
    if shuffle:
        raise lz.ArgumentError("shuffling is not supported when train=False")
    return ChunkedSourceIterator(source_items, *ranks)


class ChunkedSourceIterator(PipelineIterator):
    """One of `num_instances` contiguous parts, whose sizes differ by at most 1, iterated once."""

    def __init__(
        self, source_items: Sequence[Any], num_instances: int = 1, instance_rank: int = 0
    ) -> None:
        rank = _ranked(num_instances, instance_rank, contiguous=True)
        super().__init__(lz.source(list(source_items)) | rank)


def _ranked(num_instances: int, instance_rank: int, contiguous: bool = False) -> lz.Stage[Any, Any]:
    count = checked("source", "num_instances", num_instances, positive)
    rank = checked("source", "instance_rank", instance_rank, at_least(0, count - 1))
    return lz.shard(num_shards=count, index=rank, contiguous=contiguous)


class InfinitePermutationSourceIterator(PipelineIterator):
    """Permutations of the items, one after another; rank r of W gets items r, r + W, r + 2 W, ...

    Items are copied when they are yielded. `seed=None` draws a random seed; with several ranks it
    is 0. The state is the same on all ranks. Resume: draws one permutation.
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
            raise lz.ArgumentError("source must not be empty")
        rank = _ranked(num_instances, instance_rank)
        seed = 0 if seed is None and num_instances > 1 else seed
        pipeline = lz.source(deepcopy(items)) | lz.repeat()
        if shuffle:
            pipeline = pipeline | _mixed(len(items), seed)
        super().__init__(pipeline | rank | lz.map(deepcopy))


def _mixed(size: int, seed: Seed) -> lz.Stage[Any, Any]:
    """Split items into blocks of `size` and shuffle each block."""
    return lz.batch(size) | stages.infinibatch_random_map(_shuffled, seed) | lz.flat_map(identity)


def _shuffled(random: Random, items: list[Any]) -> list[Any]:
    random.shuffle(items)
    return items


class RandomIterator(PipelineIterator):
    """The numbers of `random.Random(seed).random()`; with `seed=None`, states store the seed."""

    def __init__(self, seed: Seed = 0) -> None:
        super().__init__(lz.count() | stages.infinibatch_random_map(_float, seed))


def _float(random: Random, number: int) -> float:
    return random.random()


class SelectManyIterator(PipelineIterator):
    """The items of `collection_selector(item)`, or of the item itself, one after another.

    Sets are rejected, because they have no stable order. Resume: selects one collection again and
    iterates over it; a `RuntimeError` if it has become too short.
    """

    def __init__(
        self,
        source_iterator: Source,
        collection_selector: Callable[[Any], Iterable[Any]] | None = None,
    ) -> None:
        super().__init__(lz.flat_map(collection_selector or identity), source_iterator)


class MapIterator(PipelineIterator):
    """`transform(item)` for every item.

    It begins at the position of its source, which doesn't move.
    """

    def __init__(self, source_iterator: Source, transform: Callable[[Any], Any]) -> None:
        super().__init__(lz.map(transform), source_iterator, begin=identity)


class ParallelMapIterator(PipelineIterator):
    """`transform(item)` for every item, in order, by processes that start with the first item.

    `num_processes * num_items_per_process` items are held ready.
    """

    def __init__(
        self,
        source_iterator: Source,
        transform: Callable[[Any], Any],
        num_processes: int,
        num_items_per_process: int,
    ) -> None:
        workers = checked("map", "num_processes", num_processes, positive)
        each = checked("map", "num_items_per_process", num_items_per_process, positive)
        stage = lz.map(transform)
        super().__init__(
            lambda source: stages.prefetched(source | stage, workers, workers * each),
            source_iterator,
        )


class RecurrentIterator(PipelineIterator):
    """The outputs of `step_function(state, item) -> (state, output)`; it may mutate the state.

    `getstate` requires your state to consist of JSON values and tuples.
    """

    def __init__(
        self,
        source_iterator: Source,
        step_function: Callable[[Any, Any], tuple[Any, Any]],
        initial_state: Any = None,
    ) -> None:
        try:
            stage = lz.scan(step_function, storable(initial_state))
        except Unfit:
            stage = lz.scan(partial(stages.boxed, step_function, deepcopy(initial_state)), [])
        super().__init__(stage, source_iterator)


class SamplingRandomMapIterator(PipelineIterator):
    """`transform(random, item)` for every item, with one `random.Random(seed)` for all.

    If `transform` reseeds the generator, a state stores all of its words, 5 KB.
    """

    def __init__(
        self, source_iterator: Source, transform: Callable[[Random, Any], Any], seed: Seed = 0
    ) -> None:
        super().__init__(stages.infinibatch_random_map(transform, seed), source_iterator)


class BufferedShuffleIterator(PipelineIterator):
    """A shuffle with a buffer: each item takes a random slot and releases the item there.

    Resume: reads about 12 times the buffer; prefer a blockwise shuffle if that is slow. From
    Infinibatch's own state it reads everything, and the source must have no None items.
    """

    def __init__(self, source_iterator: Source, buffer_size: int, seed: Seed = 0) -> None:
        super().__init__(stages.infinibatch_reservoir(buffer_size, seed), source_iterator)


class BlockwiseShuffleIterator(PipelineIterator):
    """Consecutive blocks, each shuffled by `random.Random(seed)`. Resume: reads one block."""

    def __init__(self, source_iterator: Source, block_size: int, seed: Seed = 0) -> None:
        size = checked("BlockwiseShuffleIterator", "block_size", block_size, positive)
        super().__init__(_mixed(size, seed), source_iterator)


class BucketedReadaheadBatchIterator(PipelineIterator):
    """Batches of similar items: sections of `read_ahead` items, sorted by `key`, the largest first.

    A boundary key must not be None. Resume: reads one section again.
    """

    def __init__(
        self,
        source_iterator: Source,
        read_ahead: int,
        key: Callable[[Any], Any] | None,
        batch_size: int | Callable[[Any], int],
        boundary_key: Callable[[Any], Any] | None = None,
        shuffle: bool = True,
        seed: Seed = 0,
    ) -> None:
        fit = partial(checked, "BucketedReadaheadBatchIterator")
        sections = lz.batch(fit("read_ahead", read_ahead, positive))
        batches = sections | lz.map(
            _batches,
            fit("key", key, optional(function)),
            batch_size if callable(batch_size) else fit("batch_size", batch_size, integer),
            fit("boundary_key", boundary_key, optional(function)),
        )
        if shuffle:
            batches = batches | stages.infinibatch_random_map(_shuffled, seed)
        super().__init__(batches | lz.flat_map(identity), source_iterator)


def _batches(
    key: Callable[[Any], Any] | None,
    batch_size: int | Callable[[Any], Any],
    boundary_key: Callable[[Any], Any] | None,
    items: list[Any],
) -> list[list[Any]]:
    """Cut a section into batches."""

    def size(item: Any) -> int:
        wanted = batch_size(item) if callable(batch_size) else batch_size
        return max(1, math.ceil(min(wanted, len(items))))

    def marked(item: Any) -> Any:
        found = boundary_key and boundary_key(item)
        if found is None:
            raise ValueError(f"boundary_key must not return None, but it does for {item!r}")
        return found

    return cut_in_batches(items, size, key, boundary_key and marked)


class WindowedIterator(PipelineIterator):
    """Tuples of `width` consecutive items, one starting at each item."""

    def __init__(self, source_iterator: Source, width: int) -> None:
        super().__init__(lz.sliding_window(width), source_iterator)


class FixedBatchIterator(PipelineIterator):
    """Lists of `batch_size` items, the last one shorter."""

    def __init__(self, source_iterator: Source, batch_size: int) -> None:
        super().__init__(lz.batch(batch_size), source_iterator)


class ZipIterator(PipelineIterator):
    """Tuples of one item per source, until the shortest ends.

    It begins at the sources' positions.
    """

    def __init__(self, *source_iterators: Source) -> None:
        super().__init__(lz.zip, *source_iterators, begin=lambda *places: (places, 0))


class MultiplexIterator(PipelineIterator):
    """For every index of the control iterator, the next item of that source.

    If a source has ended, its index is a `PipelineError`. Negative indices are rejected.
    """

    def __init__(self, control_iterator: Source, source_iterators: Sequence[Source]) -> None:
        super().__init__(
            lambda control, *pipelines: lz.multiplex(control, pipelines),
            control_iterator,
            *source_iterators,
        )


class PrefetchIterator(PipelineIterator):
    """The items unchanged, computed ahead by a process; stages after it run in this process.

    The buffer is always in this process; for small items it holds more. If processes aren't forked
    and the pipeline can't be pickled, a thread computes the items. If one is nested inside a second
    one, the outer one's process runs both. After `close`, `next` and `setstate` raise a
    `RuntimeError`.
    """

    def __init__(
        self,
        source_iterator: Source,
        buffer_size: int,
        buffer_in_main_process: bool = False,
        log_empty_buffer_warning: bool = False,
    ) -> None:
        size, logs = buffer_size, log_empty_buffer_warning
        checked("PrefetchIterator", "buffer_size", size, positive)
        super().__init__(lambda source: stages.prefetched(source, 1, size, logs), source_iterator)
