"""gluon-nlp's `ShardedDataLoader` and its samplers, on lazyckpt pipelines. No MXNet is needed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Self

from lazyckpt.combinators.batch import batch
from lazyckpt.combinators.map import map
from lazyckpt.combinators.shuffle import shuffle as shuffled
from lazyckpt.compat.gluon_batches import rolled, rolling, sampled, seeded
from lazyckpt.compat.gluon_buckets import (
    BucketScheme,
    ConstWidthBucket,
    ExpWidthBucket,
    LinearWidthBucket,
)
from lazyckpt.compat.gluon_making import Fetch, default_batchify_fn, pinned, staff
from lazyckpt.compat.gluon_samplers import (
    FixedBucketSampler,
    SortedBucketSampler,
    SortedSampler,
    SplitSampler,
)
from lazyckpt.core.checks import checked, function, integer, one_of, optional, positive
from lazyckpt.core.machine import End
from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.pipeline import Pipeline
from lazyckpt.run import Run
from lazyckpt.state.state import State

__all__ = [
    "BucketScheme",
    "ConstWidthBucket",
    "ExpWidthBucket",
    "FixedBucketSampler",
    "LinearWidthBucket",
    "ShardedDataLoader",
    "SortedBucketSampler",
    "SortedSampler",
    "SplitSampler",
    "default_batchify_fn",
]


class ShardedDataLoader:
    """Batches of a data set, or lists of batches, one a shard; each `iter` is another epoch.

    - `dataset`: anything with `len` and indices
    - `batch_size`: indices a batch
    - `shuffle`: a new random order in each epoch, which `seed` decides
    - `sampler`: gives the indices: an iterable, a sampler of this module, or a
      lazyckpt pipeline. It is asked anew in each epoch, in this process and
      thread; a one-shot iterator gives the same indices in every epoch
    - `last_batch`: "keep" (None) a shorter last batch, "discard" it, or have its
      items begin the next epoch ("rollover"); `len(loader)` follows
    - `batch_sampler`: gives the batches, likewise. One whose first element is a
      list, a range or an array of at least one dimension is a list of shards,
      each batchified on its own; tuples are indices
    - `batchify_fn`: makes a batch of a list of items; `default_batchify_fn`
    - `num_workers`: processes, or with `thread_pool` threads; 0 or less for none.
      They start with the first epoch, and stay until `close`, or until loader
      and iterators are dropped
    - `pin_memory`: tensors and arrays are copied to page-locked memory, shard by
      shard, where torch finds a CUDA device; elsewhere it changes nothing
    - `prefetch`: batches made ahead of the one delivered, `2 * num_workers` by
      default; one more where it is no larger than `num_workers`. With 0, or less,
      each is made when it is waited for
    - `seed`: an int >= 0; None takes one from `np.random`. Give one where a
      state is to go on in another process

    State: `state_dict()` is that after the last batch delivered, whatever is in
    flight; the next `iter` after `load_state_dict` gives the rest of its epoch,
    or the next one where nothing is left. It goes along with a pickled loader.
    A sampler of your own must give the
    same again for that: one with a `len` is gone through once for each epoch
    before, so that a generator of its own gets where it was, unless it has a
    `set_epoch`, which is yours to call. One that gives something else is refused
    with `SourceChanged`.

    Decided here:

    - An iteration that was left early is over: the next begins another epoch.
      Epochs have the batches that they would have had, so what rolls over from
      one that was left is not lost. One of which nothing was delivered, not even
      with batches in flight, is begun again.
    - There is one iteration at a time: another `iter` ends the one before it,
      which says so when it is asked for more.
    - After an error, of the data set, of `batchify_fn` or of a killed worker
      (`WorkerDied`), the same iterator tries the same batch again.
    - Orders are those of lazyckpt's noise, not of `np.random.shuffle`.

    Errors: `ArgumentError`, a `ValueError`, for arguments that don't go
    together, and for wrong ones, at once; `StateMismatch` for a state of another
    pipeline; `PipelineError` for an iterator used after `close`.

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
        def fit(name: str, value: Any, check: Callable[[Any], Any]) -> Any:
            return checked("ShardedDataLoader", name, value, check)

        self._batch_size: int | None = fit("batch_size", batch_size, optional(positive))
        self._last_batch = (
            fit("last_batch", last_batch, optional(one_of("keep", "discard", "rollover"))) or "keep"
        )
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
        self._batches = self._batched(self._seed if shuffle else None)
        make = Fetch(dataset, fit("batchify_fn", batchify_fn, optional(function)))
        workers = max(0, fit("num_workers", num_workers, integer))
        prefetch = 2 * workers if prefetch is None else prefetch
        self._prefetch = max(0, fit("prefetch", prefetch, integer))
        self._is_gated = True  # nothing is made ahead before the first iteration
        self._pin_memory = bool(pin_memory)
        executor = staff(workers, self._prefetch, bool(thread_pool))
        self._run: Run[Any] = Run(self._batches | map(make), executor=executor)
        # A run with workers is part of a cycle; they are to end with the loader at once.
        weakref.finalize(self, self._run.close).atexit = False
        self._begun = False  # whether the epoch is one that an iteration has been in
        self._turn: Callable[[], _Epoch | None] = lambda: None

    def _batched(self, seed: int | None) -> Pipeline[Any]:
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
        if self._following() != self._at()[0]:
            self._advance()
        self._begun = False
        turn = _Epoch(self, iter(self._run))
        self._turn = weakref.ref(turn)
        if self._is_gated and self._prefetch:
            self._is_gated = False
            self._run.resume()
        return turn

    def __len__(self) -> int:
        """Batches of the epoch under way, or else of the next one."""
        size: int = len(self._sampler)
        if self._batch_size is None:
            return size
        if self._last_batch == "keep":
            return -(-size // self._batch_size)
        if self._last_batch == "discard":
            return size // self._batch_size
        turn = self._turn()
        epoch = self._at()[0] if turn is not None and not turn.ended else self._following()
        return rolled(size, self._batch_size, epoch + 1) - rolled(size, self._batch_size, epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, after the last batch delivered: a dict of JSON values."""
        return self._run.state_dict()

    def load_state_dict(self, state: State | str | bytes | Mapping[str, Any]) -> None:
        """Go where a state says. The next `iter`, or the iterator under way, goes on there."""
        self._run.load_state_dict(state)
        self._begun = False

    def close(self) -> None:
        """End the workers. The state stays; another iteration starts them again."""
        self._turn = lambda: None
        self._run.close()

    def __enter__(self) -> ShardedDataLoader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        args, options = self._given
        options = {**options, "seed": self._seed}
        return _restored, (type(self), args, options, self.state_dict())

    def _next(self, turn: _Epoch) -> Any:
        if turn.ended:
            raise StopIteration
        if self._turn() is not turn:
            raise PipelineError("the loader was closed, or another iteration of it has begun")
        try:
            made = next(turn.batches)
        except StopIteration:
            turn.ended = self._begun = True
            if self._at()[1]:  # an epoch without batches
                self._advance()
            raise
        self._begun = True
        return pinned(made) if self._pin_memory else made

    def _at(self) -> tuple[int, bool]:
        """The epoch, and whether nothing of it was delivered."""
        position, machine = self._run.state.position, self._batches.machine
        epoch = machine.epoch(position)
        return epoch, position == machine.init(epoch)

    def _following(self) -> int:
        """The epoch that the next iteration is in."""
        epoch, is_fresh = self._at()
        return epoch + int(not is_fresh and (self._begun or self._is_over()))

    def _is_over(self) -> bool:
        try:
            self._batches.machine.step(self._run.state.position)
        except End:
            return True
        return False

    def _advance(self) -> None:
        following = self._batches.machine.init(self._at()[0] + 1)
        self._run.load_state_dict(replace(self._run.state, position=following))


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
