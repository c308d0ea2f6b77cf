"""Executors around other software, on this machine or others: `futures`, `ray`."""

from __future__ import annotations

import importlib.util
from functools import partial
from importlib import import_module
from typing import Any

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import Unfit, optional, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.local import seconds
from lazyckpt.executors.pool_executor import PoolExecutor, PoolSpec, pool_executor

_PATIENCE = 60.0  # seconds to wait for ranks, if there is no timeout


def submitting(value: Any) -> Any:
    """Return an object with the `submit` of `concurrent.futures.Executor`, for `checked`."""
    if callable(getattr(value, "get_executor", None)):
        raise Unfit("a concurrent.futures.Executor; for a Dask client, pass get_executor()")
    if isinstance(value, type) or not callable(getattr(value, "submit", None)):
        raise Unfit("a concurrent.futures.Executor or an object with its submit method")
    return value


@pool_executor({"executor": submitting, "buffer_size": positive, "timeout": optional(seconds)})
def futures(executor: Any, *, buffer_size: int, timeout: float | None = None) -> PoolSpec:
    """Compute items ahead of the consumer in your own executor, on this machine or others.

    Parts of a stream that can't be split into tasks run in one separate thread of this process.
    Workers cache the functions that they receive until they have worked for eight other runs;
    within this process, functions aren't sent. Lambdas and closures need cloudpickle. Arrays
    arrive in writable memory, as with `processes`. The global random generators of a different
    process are seeded before its first task, as with `processes`.

    Closing the run cancels tasks that have not begun; the others finish on their own. If the
    executor breaks, `WorkerDied` is raised, with the executor's own error as its cause. If the
    executor recovers, the run can continue. Otherwise, resume from the run's state with a new
    executor.

    Two `futures` executors are equal if they wrap the same executor. A `futures` executor can
    be pickled if the wrapped executor can.

    Memory: the results of the tasks in flight in this process, plus the memory of the workers.

    Args:
        executor: An object with the `submit` of `concurrent.futures.Executor`: a
            ThreadPoolExecutor or ProcessPoolExecutor, an executor of loky or mpi4py, or
            `client.get_executor()` of a Dask client. You shut it down yourself.
        buffer_size: Number of tasks in flight, at least the number of workers. Small items
            are grouped into chunks, of which about three times as many are in flight.
        timeout: Seconds to wait for a task before raising `WorkerTimeout`.

    Returns:
        An executor.

    Raises:
        ArgumentError: If an argument is out of range or `executor` has no `submit`.

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
    """Return the name of an actor, for `checked`."""
    if not isinstance(value, str) or not value:
        raise Unfit("a non-empty string")
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
    """Compute items ahead of the consumer in Ray actors, on this machine or a cluster.

    If Ray isn't running, it is started with its defaults and no dashboard, and left running.
    Closing the run kills the actors. If an actor dies, `WorkerDied` is raised; the run can
    continue, with new actors.

    The pipeline is put into Ray's object store once. Arrays and CPU tensors travel through
    that store and are copied out of it once. Unlike arrays that Ray itself returns, they are
    writable and take no space in the store.

    **Shared work.** Without `shared`, each rank of a job has its own actors, which run
    everything before `shard`. With the same name on all ranks, the ranks take turns, as with
    `lz.torch.shared`: each computes its part of the common items in its actors, and sends them
    to the others. Large items, and the tokens of packed rows, go only to the rank that needs
    them. Items, order and states are the same as for one rank alone. Errors, `WorkerDied`, and
    the records that `on_error="skip"` skips are the same on all ranks. Functions after `shard`
    run once per rank.

    Each rank mixes and packs for itself. If the ranks are a torch process group, pass
    `lz.torch.shared(lz.ray(workers=8))` instead: then one rank per host does so for all of its
    ranks.

    Each index of `shard` is one process, connected to the cluster by `ray.init` or by Ray
    Train. All ranks open the same runs. They compare stages, settings, the position, a sample
    of the data, and the names of the functions before `shard` with the values bound to them,
    and refuse to continue if these differ. To rewind, to enter a closed run, or to continue
    after an error or a Ctrl-C, all ranks must do so together.

    Ranks connect to each other by TCP. An actor of rank 0, with the given name in the namespace
    `lazyckpt`, tells them where; it reserves no CPUs and ends with rank 0's last run. If a rank
    is lost, the others raise a `RankMissing` that names it, at the first item that it should
    have computed, or that it holds. Messages are pickled, so all members of the cluster are
    trusted.

    Memory: `buffer_size` items, plus one or two chunks of small items per worker. With
    `shared`, also what `lz.torch.shared` states.

    Args:
        workers: Number of actors. A single actor runs the whole pipeline. Several compute
            items in parallel and deliver them in order. With `shared`, the actors of all ranks
            in sum; each rank has at least one.
        buffer_size: Number of items to hold ready. Small items travel in chunks.
        timeout: Seconds to wait for an item before raising `WorkerTimeout`, including the
            start of actors, for which Ray may have no room. With `shared`, also the seconds to
            wait for ranks that don't come, and for an awaited rank that sends nothing, but at
            least 2; None then waits 60 seconds for these. A rank that saves for longer than this
            before the first item of a run, or between epochs of a finite pipeline, is missing.
        shared: A name for this training run, the same on all its ranks and used by no other
            run.
        chunk_size: With `shared`, the number of items, or of files that are read, per task.
        **options: Options of the actors, as in Ray's `options`: `num_cpus=1`,
            `resources={"loader": 1}`, `scheduling_strategy="SPREAD"`.

    Returns:
        An executor.

    Raises:
        ArgumentError: If an argument is out of range or Ray is not installed.
        PipelineError: When it runs with `shared`: if the pipeline has no `shard`, if ranks
            have different positions, as after `shard(...) | filter(...)`, if a stream is dealt
            with `remainder="repeat"`, if ranks differ, or if two training runs have the same name.

    Example:
        with lz.run(pipeline, executor=lz.ray(workers=8, num_cpus=1)) as run:
            for batch in run:
                ...

        executor = lz.ray(workers=64, shared="run-17")  # on each rank
        batches = lz.torch.loader(pipeline(world_size, rank), executor, state)
    """
    if importlib.util.find_spec("ray") is None:
        raise ArgumentError('ray: the package ray is not installed; pip install "lazyckpt[ray]"')
    module = import_module("lazyckpt.executors.pools.actors")
    start = partial(module.ActorPool, buffer_size=buffer_size, timeout=timeout, options=options)
    spec = PoolSpec(start, workers, "Ray actor", buffer_size, timeout=timeout)
    if shared is None:
        return spec

    def for_chain(chain: Chain) -> PoolExecutor:
        share, mesh = chain.machine.share, import_module("lazyckpt.executors.sharing.mesh")
        patience = max(timeout or _PATIENCE, mesh.LEAST_PATIENCE)
        each = {"workers": max(1, workers // share.ranks), "timeout": timeout, **options}
        meetings = import_module("lazyckpt.executors.sharing.ray_meeting")
        meeting = meetings.RayMeeting(shared, share.rank, share.ranks, patience)
        found: PoolExecutor = import_module("lazyckpt.executors.sharing.executor").shared(
            ray,
            ray(buffer_size=buffer_size, **each),
            meeting,
            {"chunk_size": chunk_size, "timeout": patience},
        )
        return found

    return spec._replace(can_stream=False, for_chain=for_chain)
