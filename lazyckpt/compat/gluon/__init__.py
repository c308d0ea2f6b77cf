"""gluon-nlp's `ShardedDataLoader` and its samplers, on lazyckpt pipelines. No MXNet is needed.

The samplers are those that version 0.10 and the master branch have in common. Not
here are, of the latter:

- `BoundedBudgetSampler`; any pipeline may stand for a sampler, and for this one
  `source(range(n)) | bucket_batch(lambda i: tokens // lengths[i], ...)`
- `ShardedIterator`; `sampler.pipeline | shard(num_shards=..., index=...)` may for it
- `BaseSampler`; a sampler need only be iterable
- `FixedBucketSampler` with `bucket_scheme` and `seed` by position, for `num_shards` comes
  before them, and its `repr`, for which there is `stats()`
- `DatasetLoader`; `flat_map` and `interleave_map` read file after file
"""

from lazyckpt.compat.gluon.buckets import (
    BucketScheme,
    ConstWidthBucket,
    ExpWidthBucket,
    LinearWidthBucket,
)
from lazyckpt.compat.gluon.loader import ShardedDataLoader, default_batchify_fn
from lazyckpt.compat.gluon.samplers import (
    FixedBucketSampler,
    SortedBucketSampler,
    SortedSampler,
    SplitSampler,
)

__all__ = [
    "BucketScheme", "ConstWidthBucket", "ExpWidthBucket", "FixedBucketSampler",
    "LinearWidthBucket", "ShardedDataLoader", "SortedBucketSampler", "SortedSampler",
    "SplitSampler", "default_batchify_fn",
]  # fmt: skip
