"""The executors that others provide, on this machine or beyond: `futures`, `ray`."""

from __future__ import annotations

import importlib.util
from functools import partial
from importlib import import_module
from typing import Any

from lazyckpt.core.checks import Unfit, optional, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.local import seconds
from lazyckpt.executors.pool_executor import PoolSpec, pool_executor
from lazyckpt.executors.sharing.executor import check_dealt


def submitting(value: Any) -> Any:
    """What has the `submit` of `concurrent.futures.Executor`."""
    if callable(getattr(value, "get_executor", None)):
        raise Unfit("a concurrent.futures.Executor; that of a Dask client is its get_executor()")
    if isinstance(value, type) or not callable(getattr(value, "submit", None)):
        raise Unfit("a concurrent.futures.Executor, or have its submit")
    return value


@pool_executor({"executor": submitting, "buffer_size": positive, "timeout": optional(seconds)})
def futures(executor: Any, *, buffer_size: int, timeout: float | None = None) -> PoolSpec:
    """Make items ahead in an executor of yours, on this machine or on others.

    What can't be cut in tasks, of a stream, runs in one thread beside the consumer.
    A worker keeps the functions that it was sent, until it has worked for eight
    other runs; in this process they aren't sent. Lambdas and closures need
    cloudpickle. Arrays come as those of `processes` do, in memory that can be
    written to. The global generators of another process are seeded by chance before its
    first task, as by `processes`.

    Leaving the run cancels what has not begun; what has begun ends by itself. An
    executor that breaks is a `WorkerDied`, whose cause is the executor's own error.
    If the executor recovers, the run can go on; else go on from the run's state
    with another executor.

    Two are equal if they have the same executor. They can be pickled if it can.

    Memory: the outcomes of `buffer_size` tasks here, and what workers hold.

    Args:
        executor: Anything with the `submit` of `concurrent.futures.Executor`: a
            ThreadPoolExecutor or ProcessPoolExecutor, loky's, mpi4py's, or that of
            a Dask client, `client.get_executor()`. Shutting it down stays up to you.
        buffer_size: How many tasks to have under way: items, or chunks of small ones
            and then twice as many. With fewer than there are workers, some idle.
        timeout: Seconds to wait for a task before `WorkerTimeout`.

    Returns:
        An executor.

    Raises:
        ArgumentError: An argument is out of range, or `executor` has no `submit`.

    >>> import lazyckpt as lz
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> pipeline = lz.source(range(5)) | lz.map(lambda x: x * x)
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(lz.run(pipeline, executor=lz.futures(pool, buffer_size=4)))
    [0, 1, 4, 9, 16]
    """
    module = import_module("lazyckpt.executors.pools.futures")

    place = f"as tasks of a {type(executor).__name__}"
    return PoolSpec(
        lambda handlers, count: module.FuturesPool(executor, handlers, buffer_size, timeout),
        buffer_size,
        "task",
        buffer_size,
        can_stream=False,
        place=place,
        timeout=timeout,
    )


def named(value: Any) -> str:
    """What can name an actor."""
    if not isinstance(value, str) or not value:
        raise Unfit("a name, as a str that isn't empty")
    return value


@pool_executor(
    {
        "workers": positive, "buffer_size": positive, "timeout": optional(seconds),
        "shared": optional(named), "chunk_size": positive,
    }
)  # fmt: skip
def ray(
    *,
    workers: int,
    buffer_size: int = 2,
    timeout: float | None = None,
    shared: str | None = None,
    chunk_size: int = 32,
    **options: Any,
) -> PoolSpec:
    """Make items ahead in Ray actors, on this machine or on those of a cluster.

    Starts Ray if it isn't running, with its own defaults and no dashboard, and leaves
    it running; leaving the run kills the actors. An actor that dies is a `WorkerDied`;
    the run can go on, with new ones.

    The pipeline is put into Ray's object store once. Arrays and CPU tensors come
    through that store, and are copied out of it once: unlike those that Ray hands
    out they can be written to, and take no room in it.

    **Shared work.** Without `shared`, each rank of a job has workers of its own, which do all
    that comes before `shard`. With the same name on all ranks, tasks of Ray make each common
    item once, and all ranks get it. Items, their order and the states are those of one rank
    alone. Errors, and records that `on_error="skip"` leaves out, are the same on all ranks, and
    so is a `WorkerDied`. Functions after `shard` run once per rank.

    Each index of `shard` is one process, connected to the cluster by `ray.init`, perhaps by Ray
    Train. All ranks open the same runs. They compare stages, settings, the position, and a sample
    of the data, and refuse to go on if they differ. A rewind, a pause, and going on after an error
    are a new beginning, which all ranks make together.

    An actor without CPUs knows which object is which outcome. It has the name in the namespace
    `lazyckpt`, lives on the node of one rank, and ends with the last of them; if all were killed,
    after the time limit. If it dies, each rank has a `WorkerDied`, and the runs can go
    on with another. Outcomes that are lost with a node are made again, and are an error if they
    come out differently. A rank that is lost is a `RankMissing` once another one waits for it.

    Memory: `buffer_size` items, and one or two chunks of small ones for each worker. With
    `shared`, the object stores also hold the outcomes of up to four tasks per worker that some
    rank has still to take; a rank that is further ahead waits.

    Args:
        workers: How many actors. One runs the whole pipeline; several make items at
            the same time, which still come in order. With `shared`, how many tasks are under
            way, for all ranks in sum.
        buffer_size: How many items to hold ready. Small ones travel in chunks.
        timeout: Seconds to wait for an item before `WorkerTimeout`. They include the
            start of actors, for which Ray may have no room. With `shared`, seconds that a task
            may take; and to wait for ranks and for the keeper, for which None is 60.
        shared: A name for this training, the same on all its ranks and used by no other.
        chunk_size: With `shared`, how many items, or files that are read, are one task.
        **options: Of the actors, as those of Ray's `options`: `num_cpus=1`,
            `resources={"loader": 1}`, `scheduling_strategy="SPREAD"`. With `shared`, of tasks.

    Returns:
        An executor.

    Raises:
        ArgumentError: An argument is out of range, or Ray is not installed.
        PipelineError: When it runs, with `shared`: the pipeline has no `shard`, ranks have places
            of their own as after `shard(...) | filter(...)`, ranks differ, or two trainings have
            one name.

    Example:
        with lz.run(pipeline, executor=lz.ray(workers=8, num_cpus=1)) as run:
            for batch in run:
                ...

        executor = lz.ray(workers=64, shared="run-17")  # on each rank
        batches = lz.torch.loader(pipeline(world_size, rank), executor, state)
    """
    if importlib.util.find_spec("ray") is None:
        raise ArgumentError('ray: the package ray is not installed; pip install "lazyckpt[ray]"')
    if shared is not None:
        module = import_module("lazyckpt.executors.sharing.kept_pool")
        start = partial(
            module.KeptPool, name=shared, buffer_size=buffer_size, chunk_size=chunk_size,
            timeout=timeout, options=options,
        )  # fmt: skip
        other = f"ray(workers={workers})"
        return PoolSpec(
            start,
            workers,
            "Ray worker",
            buffer_size,
            can_stream=False,
            timeout=timeout,
            check=lambda chain: check_dealt(chain, "ray", other),
        )
    module = import_module("lazyckpt.executors.pools.actors")

    start = partial(module.ActorPool, buffer_size=buffer_size, timeout=timeout, options=options)
    return PoolSpec(start, workers, "Ray actor", buffer_size, timeout=timeout)
