"""gluon-nlp's `ShardedDataLoader` and its samplers, on lazyckpt pipelines. No MXNet is needed.

The samplers are those that version 0.10 and the master branch have in common, with the
arguments in 0.10's order. Not here are, of the latter:

- `BaseSampler`; a sampler need only be iterable
- `BoundedBudgetSampler`; `bucket_batch(lambda i: tokens // lengths[i], ...)` may stand for it
- `ShardedIterator`; `sampler.pipeline | shard(num_shards=..., index=...)` may
- `DatasetLoader`; `flat_map` and `interleave_map` read file after file
"""

from lazyckpt.compat.gluon.loader import ShardedDataLoader, default_batchify_fn
from lazyckpt.compat.gluon.samplers import (
    BucketScheme,
    ConstWidthBucket,
    ExpWidthBucket,
    FixedBucketSampler,
    LinearWidthBucket,
    SortedBucketSampler,
    SortedSampler,
    SplitSampler,
)

__all__ = [
    "BucketScheme", "ConstWidthBucket", "ExpWidthBucket", "FixedBucketSampler",
    "LinearWidthBucket", "ShardedDataLoader", "SortedBucketSampler", "SortedSampler",
    "SplitSampler", "default_batchify_fn",
]  # fmt: skip
