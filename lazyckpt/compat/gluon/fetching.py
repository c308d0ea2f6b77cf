"""How a loader makes batches of indices, and which workers do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyckpt.combinators.batch import stack
from lazyckpt.core.call import Chain
from lazyckpt.core.checks import brief
from lazyckpt.executors.executor import Executor, PoolExecutor
from lazyckpt.executors.local import processes, threads
from lazyckpt.executors.plan.handlers import Mapper, build_machine
from lazyckpt.executors.plan.positions import Rereader
from lazyckpt.executors.plan.tasks import pointwise_tasks
from lazyckpt.executors.pools.pool import PrefetchGate
from lazyckpt.executors.prefetcher import Prefetcher
from lazyckpt.executors.session import Session


class Fetch:
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
    """Items as `lazyckpt.stack` batches them; tuples as a list of batched fields, lists as arrays.

    >>> default_batchify_fn([(1, [1.5, 2.0]), (2, [0.5, 1.0])])
    [array([1, 2]), array([[1.5, 2. ],
           [0.5, 1. ]])]
    """
    first = data[0] if len(data) else None
    if isinstance(first, tuple):
        return [default_batchify_fn(field) for field in zip(*data, strict=True)]
    return np.asarray(data) if isinstance(first, list) else stack(data)


def pool_executor(workers: int, prefetch: int, is_threaded: bool) -> Executor | None:
    """Workers for a loader; None for none."""
    if not workers:
        return None
    busy = min(workers, max(prefetch, 1))
    make: Callable[..., Executor] = threads if is_threaded else processes
    pool = make(busy, buffer_size=max(1, prefetch - busy), gated=True)
    return _FetchExecutor(pool.public, pool.arguments)


class _FetchExecutor(PoolExecutor):
    """Workers for the last stage alone: samplers stay in the thread that they were made for."""

    __slots__ = ()

    def open(self, chain: Chain) -> Session:
        spec = self.spec
        gate, fetch = PrefetchGate(spec.is_gated), chain.calls[-1:]
        pool = spec.start([Mapper(fetch)], spec.workers)
        gate.pools.append(pool)
        samples = build_machine(chain.calls[:-1], None)
        tasks = pointwise_tasks(samples, fetch, Rereader(samples))
        again = Rereader(chain.machine)
        return Session(chain.machine, lambda at: Prefetcher(pool, gate, 0, tasks, at, again), gate)
