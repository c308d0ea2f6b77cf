"""`ShardedDataLoader`: batches, or lists of batches, in epochs, with a state."""

from __future__ import annotations

import math
import weakref
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
    """Batches of a data set, or lists of batches, one a shard; each `iter` is another epoch.

    Leaving an iteration ends its epoch, unless nothing was delivered; what rolls over is
    not lost. Another `iter` ends the one before it. After an error the same iterator tries the
    same batch again. Orders are those of lazyckpt, not of `np.random.shuffle`.

    A resumed loader gives the rest of the epoch, or the next one where nothing is left. What
    `lazyckpt.torch.sampler` says of samplers holds here too. Arguments are the original's; of
    these there is more to say.

    Args:
        sampler: Gives the indices: an iterable, a sampler of this module, or a pipeline,
            asked anew in each epoch, in this process and thread.
        last_batch: "keep" (None) a shorter last batch, "discard" it, or have its
            items begin the next epoch ("rollover").
        batch_sampler: Gives the batches, likewise. One whose first element is a
            list, a range or an array with a dimension is a list of shards, each
            batchified on its own; tuples are indices.
        num_workers: Processes, or with `thread_pool` threads; they stay until `close`.
        pin_memory: Also of arrays, where torch finds a device.
        prefetch: Batches made ahead, `2 * num_workers` by default; one more where it
            is no larger than `num_workers`. With 0, or less, none are.
        seed: That of `shuffle`; None takes one from `np.random`.

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
                    "ShardedDataLoader: with a batch_sampler there is no batch_size, shuffle, "
                    "sampler or last_batch"
                )
        elif batch_size is None:
            raise lz.ArgumentError("ShardedDataLoader: batch_size is needed, or a batch_sampler")
        elif shuffle and sampler is not None:
            raise lz.ArgumentError("ShardedDataLoader: shuffle the data set or give a sampler")
        self._sampler = sampler if batch_sampler is None else batch_sampler
        if self._sampler is None:
            self._sampler = range(len(dataset))
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
        self._is_left = False  # whether an iteration has given batches of this epoch
        # A run with workers is part of a cycle; they are to end with the loader at once.
        weakref.finalize(self, self._run.close).atexit = False
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
            self._run.unpause()  # for nothing is made ahead before
        return _Epoch(self, self._begun)

    def __len__(self) -> int:
        """Batches of the epoch under way, or of the next one where that has ended."""
        items: int = len(self._sampler)
        size = self._batch_size or 1
        if self._last_batch == "rollover":
            return len(rolled(items, size, self._epochs.epoch))
        return items // size if self._last_batch == "discard" else -(-items // size)

    def _advance(self) -> None:
        self._epochs.advance()
        self._is_left = False

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, after the last batch delivered: a dict of JSON values."""
        return self._run.state_dict()

    def load_state_dict(self, state: lz.State | str | bytes | Mapping[str, Any]) -> None:
        """Go where a state says. The next `iter`, or the iterator under way, goes on there."""
        self._run.load_state_dict(state)
        self._is_left = False

    def close(self) -> None:
        """End the workers. The state stays; another iteration starts them again."""
        self._begun += 1
        self._run.close()

    def __exit__(self, *error: object) -> None:
        self.close()


def _sampled(sampler: Any, rolling_by: int = 0) -> lz.Pipeline[Any]:
    """What a sampler gives; `rolling_by` is the batch size where batches roll over."""
    if isinstance(sampler, Sampler):
        return sampler.pipeline
    if isinstance(sampler, lz.Pipeline):
        return sampler
    if isinstance(sampler, range):
        return lz.source(sampler)
    if not hasattr(sampler, "__iter__") and not hasattr(sampler, "__getitem__"):
        raise lz.ArgumentError(f"ShardedDataLoader: a sampler is iterable, got {brief(sampler)}")
    return any_sampler(sampler, window=rolling_by)


class _Epoch(Iterator[Any]):
    """One iteration of a loader, which it keeps alive."""

    def __init__(self, loader: ShardedDataLoader, number: int) -> None:
        self._loader, self._number, self._is_over = loader, number, False
        self._batches = loader._run.epoch()

    def __next__(self) -> Any:
        loader = self._loader
        if self._is_over:
            raise StopIteration
        if self._number != loader._begun:
            raise lz.PipelineError("the loader was closed, or another iteration of it has begun")
        try:
            batch = next(self._batches)
        except StopIteration:
            self._is_over = True
            loader._advance()
            raise
        except BaseException:  # a generator that has raised is over
            self._batches = loader._run.epoch()
            raise
        loader._is_left = True
        return pinned(batch, arrays=True) if loader._pins and has_device() else batch

    def __len__(self) -> int:
        return len(self._loader)


def _fetch(dataset: Any, batchify: Callable[[list[Any]], Any], indices: Any) -> Any:
    """A batch, or a list of batches, for indices: what the workers do."""
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
    """Items as `lazyckpt.stack` batches them; tuples as a list of batched fields, lists as arrays.

    >>> default_batchify_fn([(1, [1.5, 2.0]), (2, [0.5, 1.0])])
    [array([1, 2]), array([[1.5, 2. ],
           [0.5, 1. ]])]
    """
    first = data[0] if len(data) else None
    if isinstance(first, tuple):
        return [default_batchify_fn(field) for field in zip(*data, strict=True)]
    return np.asarray(data) if isinstance(first, list) else lz.stack(data)


def _executor(workers: int, prefetch: int, is_threaded: bool) -> lz.Executor | None:
    """Workers that make batches of indices; samplers stay in the thread that they were made for."""
    if not workers:
        return None
    busy = min(workers, max(prefetch, 1))
    make: Callable[..., lz.Executor] = lz.threads if is_threaded else lz.processes
    pool = make(busy, buffer_size=max(1, prefetch - busy), gated=True)
    return LastStageExecutor(pool.public, pool.arguments)


@lz.combinator(registered=False, checks={"batch_size": positive})
def rolling(upstream: Machine[Any], batch_size: int) -> Machine[list[Any]]:
    """Batches of `batch_size` items each; what is left of an epoch begins the next one.

    Epoch e has the batches that are complete once e + 1 epochs of upstream are
    there and weren't after e.
    """
    length, jump = upstream.length, upstream.skip
    if jump is None or not isinstance(length, int):
        raise lz.ArgumentError(
            "ShardedDataLoader: last_batch='rollover' needs a sampler with a len() "
            "and, where it is a pipeline, random access"
        )
    endless = lz.registry["batch"].build(lz.registry["repeat"].build(upstream), batch_size)

    def flow(position: Position) -> Flow[list[Any]]:
        begin, given = position
        numbers = rolled(length, batch_size, upstream.epoch(begin))
        within("rollover", given, len(numbers))
        if begun(upstream, begin):
            raise lz.InvalidState("rollover: a state whose epoch begins in its midst")

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
    """The numbers of an epoch's batches, among those of all."""
    return range(epoch * length // batch_size, (epoch + 1) * length // batch_size)
