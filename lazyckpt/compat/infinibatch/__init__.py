"""Infinibatch 0.1.1 under its own names: the same order for the same seed, states in JSON.

Change the import, and nothing else: `from infinibatch import iterators, datasets`
becomes `from lazyckpt.compat.infinibatch import iterators, datasets`.

What is different, beside what each docstring marks with [D] and [Q]:

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

A pipeline to train, one for inference, and one that can be both; chunks are
gzipped texts, shuffled by chunk, then in blocks of 1,000 lines:

>>> import gzip, tempfile
>>> from pathlib import Path
>>> def read(path):
...     with gzip.open(path, "rt") as lines:
...         yield from map(str.strip, lines)
>>> def pipeline(paths, train, rank=0, ranks=1):
...     lines = chunked_dataset_iterator(
...         paths, read, buffer_size=1000, train=train, shuffle=train, seed=1,
...         num_instances=ranks, instance_rank=rank,
...     )
...     lines = MapIterator(lines, str.upper)
...     return FixedBatchIterator(lines, 2)
>>> with tempfile.TemporaryDirectory() as folder:
...     paths = [Path(folder, f"{name}.gz") for name in "abc"]
...     for path in paths:
...         with gzip.open(path, "wt") as file:
...             _ = file.write(f"{path.stem}1\\n{path.stem}2\\n")
...     training = pipeline(paths, train=True)
...     print(len(next(training)))
...     state = training.getstate()
...     following = next(training)
...     training.setstate(state)
...     print(next(training) == following)
...     print([list(pipeline(paths, train=False, rank=rank, ranks=2)) for rank in (0, 1)])
2
True
[[['A1', 'A2'], ['B1', 'B2']], [['C1', 'C2']]]

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
  gives an iterator. A restore goes through one collection up to its place: many
  small chunks restore sooner than few large ones.
"""

from lazyckpt.compat.infinibatch import datasets, iterators
from lazyckpt.compat.infinibatch.datasets import bump_seed, chunked_dataset_iterator
from lazyckpt.compat.infinibatch.iterators import *  # noqa: F403  # its names, listed there

__all__ = ["bump_seed", "chunked_dataset_iterator", "datasets", "iterators"]
__all__ += iterators.__all__
