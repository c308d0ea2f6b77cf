"""Infinibatch's iterators, each a pipeline with the old protocol."""

from lazyckpt.compat.infinibatch.arranging import (
    BlockwiseShuffleIterator,
    BucketedReadaheadBatchIterator,
    BufferedShuffleIterator,
    FixedBatchIterator,
    MultiplexIterator,
    WindowedIterator,
    ZipIterator,
)
from lazyckpt.compat.infinibatch.mapping import (
    MapIterator,
    RecurrentIterator,
    SamplingRandomMapIterator,
    SelectManyIterator,
)
from lazyckpt.compat.infinibatch.prefetching import ParallelMapIterator, PrefetchIterator
from lazyckpt.compat.infinibatch.protocol import CheckpointableIterator
from lazyckpt.compat.infinibatch.reading import (
    ChunkedSourceIterator,
    InfinitePermutationSourceIterator,
    NativeCheckpointableIterator,
    RandomIterator,
    create_source_iterator,
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
