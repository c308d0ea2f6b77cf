"""gluon-nlp's `ShardedDataLoader` and its samplers, on lazyckpt pipelines; MXNet isn't needed.

The samplers are those that version 0.10 and the master branch have in common, with the arguments
in 0.10's order. These names of the master branch are missing:

- `BaseSampler`; any iterable is a sampler
- `BoundedBudgetSampler`; use `bucket_batch(lambda i: tokens // lengths[i], ...)`
- `ShardedIterator`; use `sampler.pipeline | shard(num_shards=..., index=...)`
- `DatasetLoader`; `flat_map` and `interleave_map` read one file after another
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
