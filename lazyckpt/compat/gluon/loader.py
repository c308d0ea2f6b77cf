"""`ShardedDataLoader`: batches, or lists of batches, in epochs, with a state."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Self

from lazyckpt.combinators.batch import batch
from lazyckpt.combinators.map import map
from lazyckpt.combinators.shuffle import shuffle as shuffled
from lazyckpt.compat.gluon.batches import rolled, rolling, sampled, seeded
from lazyckpt.compat.gluon.fetching import Fetch, pool_executor
from lazyckpt.compat.pinning import has_device, pinned
from lazyckpt.core.checks import checked, function, integer, one_of, optional, positive
from lazyckpt.epochs import EpochLoader
from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.pipeline import Pipeline
from lazyckpt.run import Run
from lazyckpt.state.state import State


class ShardedDataLoader:
    """Batches of a data set, or lists of batches, one a shard; each `iter` is another epoch.

    An iteration that was left early is over, and the next begins another epoch,
    unless nothing was delivered. What rolls over from one that was left is not lost.
    There is one iteration at a time: another `iter` ends the one before it. After an
    error the same iterator tries the same batch again. Orders are those of lazyckpt,
    not of `np.random.shuffle`.

    State: that after the last batch delivered; a pickled loader takes it along.
    Resume: gives the rest of the epoch, or the next one where nothing is left. A sampler
    of your own must give the same again, or is refused with `SourceChanged`. One with a
    `len` is gone through once for each epoch before, unless it has a `set_epoch`, which
    is yours to call.

    Args:
        dataset: Anything with `len` and indices.
        batch_size: Indices a batch.
        shuffle: A new random order in each epoch, which `seed` decides.
        sampler: Gives the indices: an iterable, a sampler of this module, or a pipeline,
            asked anew in each epoch, in this process and thread; a one-shot iterator
            gives the same indices in every epoch.
        last_batch: "keep" (None) a shorter last batch, "discard" it, or have its
            items begin the next epoch ("rollover"); `len(loader)` follows.
        batch_sampler: Gives the batches, likewise. One whose first element is a
            list, a range or an array with a dimension is a list of shards, each
            batchified on its own; tuples are indices.
        batchify_fn: Makes a batch of a list of items; `default_batchify_fn`.
        num_workers: Processes, or with `thread_pool` threads; they stay until `close`.
        pin_memory: Also of arrays, shard by shard, where torch finds a device.
        prefetch: Batches made ahead, `2 * num_workers` by default; one more where it
            is no larger than `num_workers`. With 0, or less, none are.
        seed: None takes one from `np.random`; give one for states of other processes.

    Raises:
        ArgumentError: A `ValueError`: wrong arguments, or ones that don't go together.
        PipelineError: An iterator is used after `close`.

    >>> import numpy as np
    >>> loader = ShardedDataLoader(np.arange(5) * 10, batch_size=2, last_batch="rollover")
    >>> [batch.tolist() for batch in loader], len(loader)
    ([[0, 10], [20, 30]], 3)
    >>> [batch.tolist() for batch in loader]
    [[40, 0], [10, 20], [30, 40]]
    >>> shards = ShardedDataLoader(range(9), batch_sampler=[[[0, 1], [2]], [3, 4]])
    >>> list(shards)
    [[array([0, 1]), array([2])], array([3, 4])]
    """

    _given: tuple[tuple[Any, ...], dict[str, Any]]  # what it was made of

    def __new__(cls, *args: Any, **options: Any) -> Self:
        self = super().__new__(cls)
        self._given = args, options
        return self

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        prefetch: int | None = None,
        thread_pool: bool = False,
        *,
        seed: int | None = None,
    ) -> None:
        fit = partial(checked, "ShardedDataLoader")
        self._batch_size: int | None = fit("batch_size", batch_size, optional(positive))
        kinds = optional(one_of("keep", "discard", "rollover"))
        self._last_batch = fit("last_batch", last_batch, kinds) or "keep"
        if batch_sampler is not None:
            if batch_size is not None or shuffle or sampler is not None or last_batch is not None:
                raise ArgumentError(
                    "ShardedDataLoader: with a batch_sampler there is no batch_size, shuffle, "
                    "sampler or last_batch"
                )
        elif batch_size is None:
            raise ArgumentError("ShardedDataLoader: batch_size is needed, or a batch_sampler")
        elif shuffle and sampler is not None:
            raise ArgumentError("ShardedDataLoader: shuffle the data set or give a sampler")
        self._sampler = sampler if batch_sampler is None else batch_sampler
        if self._sampler is None:
            self._sampler = range(len(dataset))
        self._seed = seeded(seed) if shuffle else seed
        batches = self._batches(self._seed if shuffle else None)
        make = Fetch(dataset, fit("batchify_fn", batchify_fn, optional(function)))
        workers = max(0, fit("num_workers", num_workers, integer))
        prefetch = 2 * workers if prefetch is None else prefetch
        self._prefetch = max(0, fit("prefetch", prefetch, integer))
        self._is_gated = True  # nothing is made ahead before the first iteration
        self._pin_memory = bool(pin_memory)
        executor = pool_executor(workers, self._prefetch, bool(thread_pool))
        self._run: Run[Any] = Run(batches | map(make), executor=executor)
        self._epochs = EpochLoader(self._run, batches.machine)
        # A run with workers is part of a cycle; they are to end with the loader at once.
        weakref.finalize(self, self._run.close).atexit = False
        self._latest: Callable[[], _Epoch | None] = lambda: None

    def _batches(self, seed: int | None) -> Pipeline[Any]:
        if self._batch_size is None:
            return sampled(self._sampler)
        rolls = self._last_batch == "rollover"
        indices = sampled(self._sampler, self._batch_size if rolls else 0)
        if seed is not None:
            indices = indices | shuffled(seed=seed)
        if rolls:
            whole: Pipeline[Any] = indices | rolling(self._batch_size)
            return whole
        return indices | batch(self._batch_size, drop_last=self._last_batch == "discard")

    def __iter__(self) -> Iterator[Any]:
        self._run.__enter__()
        found = _Epoch(self, self._epochs.begin())
        self._latest = weakref.ref(found)
        if self._is_gated and self._prefetch:
            self._is_gated = False
            self._run.resume()
        return found

    def __len__(self) -> int:
        """Batches of the epoch under way, or else of the next one."""
        size: int = len(self._sampler)
        if self._batch_size is None:
            return size
        if self._last_batch == "keep":
            return -(-size // self._batch_size)
        if self._last_batch == "discard":
            return size // self._batch_size
        latest = self._latest()
        is_under_way = latest is not None and not latest.ended
        epoch = self._epochs.epoch if is_under_way else self._epochs.following
        return rolled(size, self._batch_size, epoch + 1) - rolled(size, self._batch_size, epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, after the last batch delivered: a dict of JSON values."""
        return self._run.state_dict()

    def load_state_dict(self, state: State | str | bytes | Mapping[str, Any]) -> None:
        """Go where a state says. The next `iter`, or the iterator under way, goes on there."""
        self._epochs.load_state_dict(state)

    def close(self) -> None:
        """End the workers. The state stays; another iteration starts them again."""
        self._latest = lambda: None
        self._run.close()

    def __enter__(self) -> ShardedDataLoader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        args, options = self._given
        options = {**options, "seed": self._seed}
        return _restored, (type(self), args, options, self.state_dict())

    def _next(self, epoch: _Epoch) -> Any:
        if epoch.ended:
            raise StopIteration
        if self._latest() is not epoch:
            raise PipelineError("the loader was closed, or another iteration of it has begun")
        try:
            made = self._epochs.next(epoch.batches)
        except StopIteration:
            epoch.ended = True
            raise
        return pinned(made, arrays=True) if self._pin_memory and has_device() else made


def _restored(
    kind: type[ShardedDataLoader], args: Any, options: Any, state: dict[str, Any]
) -> ShardedDataLoader:
    found = kind(*args, **options)
    found.load_state_dict(state)
    return found


class _Epoch(Iterator[Any]):
    """One iteration of a loader, which it keeps alive."""

    def __init__(self, loader: ShardedDataLoader, batches: Iterator[Any]) -> None:
        self._loader, self.batches, self.ended = loader, batches, False

    def __next__(self) -> Any:
        return self._loader._next(self)

    def __len__(self) -> int:
        return len(self._loader)
