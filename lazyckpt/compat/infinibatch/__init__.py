"""Infinibatch 0.1.1 under its own names: the same order for the same seed, states in JSON.

Change the import, and nothing else: `from infinibatch import iterators, datasets`
becomes `from lazyckpt.compat.infinibatch import iterators, datasets`.

Docstrings mark with [D] what differs, and with [Q] what may surprise. Everywhere:

- A checkpoint is a dict of JSON values below 1 KB, whatever the buffers hold. One of
  another pipeline, a damaged one or `{}` is refused.
- `setstate` takes Infinibatch's own checkpoints too. Where a generator is more than
  2**27 words from its seed such a state keeps all its words, as 5 KB; it is refused
  where those have to be counted: in a `BufferedShuffleIterator`, and in an
  `InfinitePermutationSourceIterator` on a rank that has just begun a permutation.
- An iterator made of another one walks on its own, and leaves that where it is.
- After an exception the next call tries the same item again. Iterators can be
  pickled and copied, each with its own place.
- A block, a section of `read_ahead` or a buffer is held, and read before the first
  item comes. A permutation takes 4 bytes an item, and 0.1 s for a million.

Here chunks are lists; chunks and then blocks of 1,000 items are shuffled to train:

>>> def pipeline(train, rank=0, ranks=1):
...     items = chunked_dataset_iterator(
...         ["ab", "cd", "ef"], list, buffer_size=1000, train=train, shuffle=train, seed=1,
...         num_instances=ranks, instance_rank=rank,
...     )
...     return FixedBatchIterator(MapIterator(items, str.upper), 2)
>>> training = pipeline(train=True)
>>> first, state, second = next(training), training.getstate(), next(training)
>>> training.setstate(state)
>>> next(training) == second
True
>>> [list(pipeline(train=False, rank=rank, ranks=2)) for rank in (0, 1)]
[[['A', 'B'], ['C', 'D']], [['E', 'F']]]
"""

from lazyckpt.compat.infinibatch import datasets, iterators
from lazyckpt.compat.infinibatch.datasets import bump_seed, chunked_dataset_iterator
from lazyckpt.compat.infinibatch.iterators import *  # noqa: F403  # its names, listed there

__all__ = ["bump_seed", "chunked_dataset_iterator", "datasets", "iterators", *iterators.__all__]
