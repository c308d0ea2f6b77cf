"""`ShardedDataLoader`: batches, or lists of batches, in epochs, with a state."""

from __future__ import annotations

import math
import weakref
from _thread import start_new_thread
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

import lazyckpt as lz
from lazyckpt.compat.gluon.samplers import Sampler, seeded
from lazyckpt.compat.pinning import has_device, pinned
from lazyckpt.compat.samplers import sampler as any_sampler
from lazyckpt.core.checks import brief, checked, function, integer, one_of, optional, positive
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import Machine, Rate, begun, within
from lazyckpt.core.stages import stateful
from lazyckpt.epochs import EpochLoader
from lazyckpt.executors.pool_executor import LastStageExecutor


class ShardedDataLoader(AbstractContextManager["ShardedDataLoader"]):
    """Batches of a dataset, or lists with one batch per shard; each `iter` starts a new epoch.

    Leaving an iteration ends its epoch, unless no batch was delivered; items that roll over are not
    lost. A new `iter` ends the previous one. After an error the same iterator tries the same batch
    again. Orders are lazyckpt's, not those of `np.random.shuffle`.

    A resumed loader yields the rest of the epoch, or the next one if nothing is left. The notes on
    samplers in `lazyckpt.torch.sampler` apply here too. Arguments are the original's; the following
    need more explanation.

    Args:
        sampler: Source of the indices: an iterable, a sampler of this module, or a pipeline. It is
            iterated again in each epoch, in this process and thread.
        last_batch: "keep" (None) a shorter last batch, "discard" it, or let its items begin the
            next epoch ("rollover").
        batch_sampler: Source of the batches, of the same kinds. If the first element of a batch is
            a list, a range or an array with a dimension, the batch is a list of shards, each
            batchified on its own; tuples are indices.
        num_workers: Number of processes, or of threads with `thread_pool`; they stay until `close`.
        pin_memory: If True, pin arrays too, if torch finds a device.
        prefetch: Number of batches computed ahead, `2 * num_workers` by default; one more if it is
            at most `num_workers`. With 0 or less, none are computed ahead.
        seed: Seed of `shuffle`; None takes one from `np.random`.

    >>> import numpy as np
    >>> loader = ShardedDataLoader(np.arange(5) * 10, batch_size=2, last_batch="rollover")
    >>> [batch.tolist() for batch in loader], [batch.tolist() for batch in loader]
    ([[0, 10], [20, 30]], [[40, 0], [10, 20], [30, 40]])
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
        fit = partial(checked, "ShardedDataLoader")
        self._batch_size: int | None = fit("batch_size", batch_size, optional(positive))
        kinds = optional(one_of("keep", "discard", "rollover"))
        self._last_batch = fit("last_batch", last_batch, kinds) or "keep"
        if batch_sampler is not None:
            if batch_size is not None or shuffle or sampler is not None or last_batch is not None:
                raise lz.ArgumentError(
                    "ShardedDataLoader: batch_sampler can't be combined with batch_size, shuffle, "
                    "sampler or last_batch"
                )
        elif batch_size is None:
            raise lz.ArgumentError("ShardedDataLoader: pass batch_size or a batch_sampler")
        elif shuffle and sampler is not None:
            raise lz.ArgumentError("ShardedDataLoader: pass either shuffle or a sampler")
        chosen = sampler if batch_sampler is None else batch_sampler
        self._sampler = range(len(dataset)) if chosen is None else chosen
        batches = self._batches(seeded(seed) if shuffle else None)
        batchify = fit("batchify_fn", batchify_fn, optional(function)) or default_batchify_fn
        workers = max(0, fit("num_workers", num_workers, integer))
        prefetch = 2 * workers if prefetch is None else prefetch
        self._prefetch = max(0, fit("prefetch", prefetch, integer))
        self._pins = bool(pin_memory)
        executor = _executor(workers, self._prefetch, bool(thread_pool))
        make = partial(_fetch, dataset, batchify)
        self._run = lz.run(batches | lz.map(make), executor=executor)
        self._epochs = EpochLoader(self._run)
        self._is_left = False  # True if an iteration has yielded batches of this epoch
        # A run with workers is part of a cycle, but the workers must end with the loader.
        # In a thread, as a signal that came while Python code runs in a finalizer would be lost.
        weakref.finalize(self, start_new_thread, self._run.close, ()).atexit = False
        self._begun = 0  # iterations; closing ends the last one

    def _batches(self, seed: int | None) -> lz.Pipeline[Any]:
        size = self._batch_size
        if size is None:
            return _sampled(self._sampler)
        rolls = self._last_batch == "rollover"
        indices = _sampled(self._sampler, size if rolls else 0)
        if seed is not None:
            indices = indices | lz.shuffle(seed=seed)
        if rolls:
            return indices | rolling(size)
        return indices | lz.batch(size, drop_last=self._last_batch == "discard")

    def __iter__(self) -> Iterator[Any]:
        self._run.__enter__()
        if self._is_left:
            self._advance()
        self._begun += 1
        if self._prefetch:
            self._run.unpause()  # nothing is computed ahead before this
        return _Epoch(self, self._begun)

    def __len__(self) -> int:
        """Return the number of batches of the current epoch, or of the next one if it has ended."""
        items: int = len(self._sampler)
        size = self._batch_size or 1
        if self._last_batch == "rollover":
            return len(rolled(items, size, self._epochs.epoch))
        return items // size if self._last_batch == "discard" else -(-items // size)

    def _advance(self) -> None:
        self._epochs.advance()
        self._is_left = False

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch delivered: a dict of JSON values."""
        return self._run.state_dict()

    def load_state_dict(self, state: lz.State | str | bytes | Mapping[str, Any]) -> None:
        """Move to a state; the running iterator, or the next one, continues from there."""
        self._run.load_state_dict(state)
        self._is_left = False

    def close(self) -> None:
        """Stop the workers. The state stays; a new iteration starts them again."""
        self._begun += 1
        self._run.close()

    def __exit__(self, *error: object) -> None:
        self.close()


def _sampled(sampler: Any, rolling_by: int = 0) -> lz.Pipeline[Any]:
    """Return a sampler as a pipeline; `rolling_by` is the batch size if batches roll over."""
    if isinstance(sampler, Sampler):
        return sampler.pipeline
    if isinstance(sampler, lz.Pipeline):
        return sampler
    if isinstance(sampler, range):
        return lz.source(sampler)
    if not hasattr(sampler, "__iter__") and not hasattr(sampler, "__getitem__"):
        raise lz.ArgumentError(
            f"ShardedDataLoader: a sampler must be iterable, got {brief(sampler)}"
        )
    return any_sampler(sampler, window=rolling_by)


class _Epoch(Iterator[Any]):
    """One iteration of a loader; it keeps the loader alive."""

    def __init__(self, loader: ShardedDataLoader, number: int) -> None:
        self._loader, self._number, self._is_over = loader, number, False
        self._batches = loader._run.epoch()

    def __next__(self) -> Any:
        loader = self._loader
        if self._is_over:
            raise StopIteration
        if self._number != loader._begun:
            raise lz.PipelineError("the loader was closed, or a newer iteration of it has begun")
        try:
            batch = next(self._batches)
        except StopIteration:
            self._is_over = True
            loader._advance()
            raise
        loader._is_left = True
        return pinned(batch, arrays=True) if loader._pins and has_device() else batch

    def __len__(self) -> int:
        return len(self._loader)


def _fetch(dataset: Any, batchify: Callable[[list[Any]], Any], indices: Any) -> Any:
    """Return a batch, or a list of batches, for indices: the work of a worker."""
    if not isinstance(indices, Iterable):
        raise TypeError(
            f"a batch must be a list of indices, or of lists of them, got {brief(indices)}"
        )
    found = list(indices)
    first = found[0] if found else None
    if isinstance(first, (list, range)) or getattr(first, "ndim", 0) > 0:
        return [batchify([dataset[index] for index in shard]) for shard in found]
    return batchify([dataset[index] for index in found])


def default_batchify_fn(data: Sequence[Any]) -> Any:
    """Batch items like `lazyckpt.stack`, but tuples as lists of fields and lists as arrays.

    >>> default_batchify_fn([(1, [1.5, 2.0]), (2, [0.5, 1.0])])
    [array([1, 2]), array([[1.5, 2. ],
           [0.5, 1. ]])]
    """
    first = data[0] if len(data) else None
    if isinstance(first, tuple):
        return [default_batchify_fn(field) for field in zip(*data, strict=True)]
    return np.asarray(data) if isinstance(first, list) else lz.stack(data)


def _executor(workers: int, prefetch: int, is_threaded: bool) -> lz.Executor | None:
    """Return workers that compute batches from indices; samplers stay in their thread."""
    if not workers:
        return None
    busy = min(workers, max(prefetch, 1))
    make: Callable[..., lz.Executor] = lz.threads if is_threaded else lz.processes
    pool = make(busy, buffer_size=max(1, prefetch - busy), gated=True)
    return LastStageExecutor(pool.public, pool.arguments)


@lz.combinator(registered=False, checks={"batch_size": positive})
def rolling(upstream: Machine[Any], batch_size: int) -> Machine[list[Any]]:
    """Group items into batches of `batch_size`, across epochs.

    The items left at the end of an epoch begin the next one. Epoch e has the batches that are
    complete after e + 1 epochs of upstream but not after e.
    """
    length, jump = upstream.length, upstream.skip
    if jump is None or not isinstance(length, int):
        raise lz.ArgumentError(
            "ShardedDataLoader: last_batch='rollover' needs a sampler with a len() "
            "and, if it is a pipeline, random access"
        )
    endless = lz.registry["batch"].build(lz.registry["repeat"].build(upstream), batch_size)

    def flow(position: Position) -> Flow[list[Any]]:
        begin, given = position
        numbers = rolled(length, batch_size, upstream.epoch(begin))
        within("rollover", given, len(numbers))
        if begun(upstream, begin):
            raise lz.InvalidState("rollover: the epoch of the state doesn't begin at its start")

        def batches() -> Iterator[list[Any]]:
            if left := numbers[given:]:
                epoch, index = divmod(left[0] * batch_size, length)
                start = jump(upstream.init(epoch), index)[0]
                yield from islice(endless.flow(start), len(left))

        items, taken = counted(batches())
        return Flow(items, lambda: (begin, given + taken()), taken=taken)

    return stateful(
        "rollover",
        upstream,
        check=lambda given: within("rollover", given),
        rate=Rate(batch_size, length, epochs=math.inf),
        flow=flow,
    )


def rolled(length: int, batch_size: int, epoch: int) -> range:
    """Return the numbers of an epoch's batches among all batches."""
    return range(epoch * length // batch_size, (epoch + 1) * length // batch_size)
