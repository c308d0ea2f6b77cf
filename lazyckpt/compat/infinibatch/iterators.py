"""Infinibatch's iterators, each a pipeline with the old protocol."""

from lazyckpt.compat.infinibatch.protocol import CheckpointableIterator
from lazyckpt.compat.infinibatch.source_iterators import (
    ChunkedSourceIterator,
    InfinitePermutationSourceIterator,
    NativeCheckpointableIterator,
    RandomIterator,
    create_source_iterator,
)
from lazyckpt.compat.infinibatch.stage_iterators import (
    BlockwiseShuffleIterator,
    BucketedReadaheadBatchIterator,
    BufferedShuffleIterator,
    FixedBatchIterator,
    MapIterator,
    MultiplexIterator,
    ParallelMapIterator,
    PrefetchIterator,
    RecurrentIterator,
    SamplingRandomMapIterator,
    SelectManyIterator,
    WindowedIterator,
    ZipIterator,
)

__all__ = [
    "BlockwiseShuffleIterator",
    "BucketedReadaheadBatchIterator",
    "BufferedShuffleIterator",
    "CheckpointableIterator",
    "ChunkedSourceIterator",
    "FixedBatchIterator",
    "InfinitePermutationSourceIterator",
    "MapIterator",
    "MultiplexIterator",
    "NativeCheckpointableIterator",
    "ParallelMapIterator",
    "PrefetchIterator",
    "RandomIterator",
    "RecurrentIterator",
    "SamplingRandomMapIterator",
    "SelectManyIterator",
    "WindowedIterator",
    "ZipIterator",
    "create_source_iterator",
]
