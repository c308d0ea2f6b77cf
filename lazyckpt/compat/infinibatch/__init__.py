"""Infinibatch 0.1.1 under its own names: the same order for the same seed, states in JSON.

Change the import, and nothing else: `from infinibatch import iterators, datasets`
becomes `from lazyckpt.compat.infinibatch import iterators, datasets`.

Docstrings mark with [D] what differs, and with [Q] what may surprise. Everywhere:

- A checkpoint is a dict of JSON values of less than 1 KB, whatever the buffers hold.
  It is checked: one of another pipeline, a damaged one or `{}` is refused.
- `setstate` takes Infinibatch's own checkpoints too. Where a generator is more than
  2**27 words from its seed such a state keeps all its words, as 5 KB; it is refused
  where those have to be counted: in a `BufferedShuffleIterator`, and in an
  `InfinitePermutationSourceIterator` on a rank that has just begun a permutation.
- An iterator made of another one walks on its own, and leaves that where it is.
- After an exception the next call tries the same item again. Iterators can be
  pickled and copied, each with its own place.
- The state of `RecurrentIterator`, and of an iterator class of your own, has to be
  made of JSON values and tuples.

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

What memory and the time to the first item depend on:

- `InfinitePermutationSourceIterator`: the items once, and 4 bytes an item; the
  permutation of an epoch takes 0.1 s for a million, a restore up to 0.1 s more.
- `BlockwiseShuffleIterator(block_size)`, `BucketedReadaheadBatchIterator(read_ahead)`:
  so many items, read before the first one comes, and again by a restore.
- `BufferedShuffleIterator(buffer_size)`: so many items. A restore reads about 12
  times as many; prefer the blockwise one where reading is slow.
- `PrefetchIterator(buffer_size)`: so many items, and of small ones up to three lots
  of at most 2,048; it starts one process, with the first item.
- `SelectManyIterator`: one collection if the selector gives a list, one item if it
  gives an iterator. A restore goes through one collection: prefer small chunks.
"""

from lazyckpt.compat.infinibatch import datasets, iterators
from lazyckpt.compat.infinibatch.datasets import bump_seed, chunked_dataset_iterator
from lazyckpt.compat.infinibatch.iterators import *  # noqa: F403  # its names, listed there

__all__ = ["bump_seed", "chunked_dataset_iterator", "datasets", "iterators"]
__all__ += iterators.__all__
