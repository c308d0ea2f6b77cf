"""gluon-nlp's `ShardedDataLoader` and its samplers, on lazyckpt pipelines. No MXNet is needed."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lazyckpt.call import Chain
from lazyckpt.checks import Unfit, brief, checked, function, integer, optional, positive
from lazyckpt.combinators.grouping import batch, stack
from lazyckpt.combinators.mapping import map
from lazyckpt.combinators.ordering import shuffle as shuffled
from lazyckpt.compat.gluon_batches import rolled, rolling, sampled, seeded
from lazyckpt.compat.gluon_buckets import (
    BucketScheme,
    ConstWidthBucket,
    ExpWidthBucket,
    LinearWidthBucket,
)
from lazyckpt.compat.gluon_samplers import (
    FixedBucketSampler,
    SortedBucketSampler,
    SortedSampler,
    SplitSampler,
)
from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.executors.ahead import Ahead, pulling
from lazyckpt.executors.crew import Gate
from lazyckpt.executors.executor import Executor, Session, Staffed
from lazyckpt.executors.local import processes, threads
from lazyckpt.executors.parts import Each, folded
from lazyckpt.machine import End
from lazyckpt.pipeline import Pipeline
from lazyckpt.run import Run
from lazyckpt.state import State

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


def _last_batch(value: Any) -> str:
    if value not in ("keep", "discard", "rollover"):
        raise Unfit("'keep', 'discard' or 'rollover'")
    return str(value)


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
    or the next one where nothing is left. A sampler of your own must give the
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

    >>> loader = ShardedDataLoader(np.arange(5) * 10, batch_size=2, last_batch="rollover")
    >>> [batch.tolist() for batch in loader], len(loader)
    ([[0, 10], [20, 30]], 3)
    >>> [batch.tolist() for batch in loader]
    [[40, 0], [10, 20], [30, 40]]
    >>> shards = ShardedDataLoader(range(9), batch_sampler=[[[0, 1], [2]], [3, 4]])
    >>> list(shards)
    [[array([0, 1]), array([2])], array([3, 4])]
    """

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
        self._last_batch = fit("last_batch", last_batch, optional(_last_batch)) or "keep"
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
        self._batches = self._batched(seeded(seed) if shuffle else None)
        make = _Fetch(dataset, fit("batchify_fn", batchify_fn, optional(function)))
        workers = max(0, fit("num_workers", num_workers, integer))
        prefetch = 2 * workers if prefetch is None else prefetch
        self._prefetch = max(0, fit("prefetch", prefetch, integer))
        self._is_gated = True  # nothing is made ahead before the first iteration
        self._pin_memory = bool(pin_memory)
        executor = _executor(workers, self._prefetch, bool(thread_pool))
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
        return _pinned(made) if self._pin_memory else made

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


class _Epoch(Iterator[Any]):
    """One iteration of a loader, which it keeps alive."""

    def __init__(self, loader: ShardedDataLoader, batches: Iterator[Any]) -> None:
        self._loader, self.batches, self.ended = loader, batches, False

    def __next__(self) -> Any:
        return self._loader._next(self)

    def __len__(self) -> int:
        return len(self._loader)


class _Fetch:
    """A batch, or a list of batches, for indices: what the workers do."""

    def __init__(self, dataset: Any, batchify: Callable[[list[Any]], Any] | None) -> None:
        self._dataset = dataset
        self._batchify = batchify or default_batchify_fn

    def __call__(self, indices: Any) -> Any:
        try:
            is_sharded = len(indices) > 0 and _is_shard(indices[0])
        except (TypeError, KeyError):
            raise TypeError(
                f"a batch must be a list of indices, or of lists of them, got {brief(indices)}"
            ) from None
        return [self._made(shard) for shard in indices] if is_sharded else self._made(indices)

    def _made(self, indices: Any) -> Any:
        dataset = self._dataset
        return self._batchify([dataset[index] for index in indices])


def _is_shard(first: Any) -> bool:
    return isinstance(first, (list, range)) or getattr(first, "ndim", 0) > 0


def default_batchify_fn(data: Sequence[Any]) -> Any:
    """Items as a batch: arrays, tensors and numbers stacked, tuples as a list of batched fields.

    Lists become arrays, dicts are stacked field by field, strings stay a list.
    Unequal shapes and lengths are refused, as `lazyckpt.stack` does.

    >>> default_batchify_fn([(1, [1.5, 2.0]), (2, [0.5, 1.0])])
    [array([1, 2]), array([[1.5, 2. ],
           [0.5, 1. ]])]
    """
    first = data[0] if len(data) else None
    if isinstance(first, tuple):
        return [default_batchify_fn(field) for field in zip(*data, strict=True)]
    return np.asarray(data) if isinstance(first, list) else stack(data)


def _pinned(made: Any) -> Any:
    """The same in page-locked memory, where there is a device to copy to."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return made
    if isinstance(made, torch.Tensor):
        return made.pin_memory() if made.device.type == "cpu" else made
    if isinstance(made, np.ndarray) and made.dtype.kind in "biuf":
        return torch.from_numpy(made).pin_memory().numpy()
    if isinstance(made, dict):
        return {key: _pinned(value) for key, value in made.items()}
    return [_pinned(each) for each in made] if isinstance(made, list) else made


def _executor(workers: int, prefetch: int, is_threaded: bool) -> Executor | None:
    if not workers:
        return None
    busy = min(workers, max(prefetch, 1))
    make: Callable[..., Executor] = threads if is_threaded else processes
    pool = make(busy, buffer_size=max(1, prefetch - busy), gated=True)
    return _Pool(pool.public, pool.arguments)


class _Pool(Staffed):
    """Workers for the last stage alone: what comes before stays with the consumer, so that a
    sampler is asked in the thread and the process that it was made for.
    """

    __slots__ = ()

    def open(self, chain: Chain) -> Session:
        staff = self.staff(**self.arguments)
        gate, fetch = Gate(staff.gated), chain.calls[-1:]
        crew = staff.start([Each(fetch)], staff.workers)
        gate.crews.append(crew)
        feed = pulling(folded(chain.calls[:-1], None), fetch)
        return Session(chain.machine, lambda at: Ahead(crew, gate, 0, feed, at), gate)
