"""Infinibatch 0.1.1 under its own names: the same order for the same seed, states in JSON.

Write `from lazyckpt.compat.infinibatch import iterators, datasets`; no other line changes. These
differences apply everywhere:

- A checkpoint is a dict of JSON values below 1 KB. `setstate` accepts Infinibatch's own checkpoints
  too, and rejects those of a different pipeline.
- To resume, a shuffle passes over the random numbers drawn before, a few seconds per billion.
- An iterator built on a second one advances on its own, and leaves the second one where it is.
- After an exception the next call tries the same item again. Iterators can be pickled.

>>> items = chunked_dataset_iterator(["ab", "cd", "ef"], list, buffer_size=1000, seed=1)
>>> batches = FixedBatchIterator(MapIterator(items, str.upper), 2)
>>> first, state, second = next(batches), batches.getstate(), next(batches)
>>> batches.setstate(state)
>>> next(batches) == second
True
"""

from lazyckpt.compat.infinibatch import datasets, iterators
from lazyckpt.compat.infinibatch.datasets import bump_seed, chunked_dataset_iterator
from lazyckpt.compat.infinibatch.iterators import *  # noqa: F403  # its names, listed there

__all__ = ["bump_seed", "chunked_dataset_iterator", "datasets", "iterators", *iterators.__all__]
