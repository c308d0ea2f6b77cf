"""gluon-nlp's `ShardedDataLoader` and its samplers, on lazyckpt pipelines. No MXNet is needed."""

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
