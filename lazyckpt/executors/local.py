"""Executors on this machine: `inline`, `threads`, `processes`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from lazyckpt.core.checks import boolean, finite, function, natural, one_of, optional, positive
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.plan.handlers import Handler
from lazyckpt.executors.pool_executor import PoolSpec, pool_executor
from lazyckpt.executors.pools.pool import WorkerPool
from lazyckpt.executors.pools.threads import ThreadPool


def inline() -> Executor:
    """Compute items in the consumer's thread, when it asks for them. The default.

    Returns:
        An executor.

    >>> import lazyckpt as lz
    >>> list(lz.run(lz.source([1, 2]), executor=lz.inline()))
    [1, 2]
    """
    return Executor(inline, {})


seconds = finite("of seconds above 0", lambda value: 0 < value < 1e9)


@pool_executor(
    {
        "workers": positive,
        "buffer_size": positive,
        "gated": boolean,
        "timeout": optional(seconds),
        "worker_init": optional(function),
    }
)
def threads(
    workers: int = 1,
    *,
    buffer_size: int = 2,
    gated: bool = False,
    timeout: float | None = None,
    worker_init: Callable[[int], Any] | None = None,
) -> PoolSpec:
    """Compute items ahead of the consumer, in threads of this process.

    Threads suit work that waits or releases the GIL: reading, decoding, NumPy.

    Small items travel in chunks of up to 16,384 items, 256 KiB and 32 ms of work. If items
    become slow, what is ready after 0.1 s is delivered. Two chunks per worker are held ready.

    Workers run `map`, `filter` and `flat_map` in parallel, each on its own item. Stages that
    need items in order run in one separate thread; `lz.explain` shows which.

    Memory: each segment run by workers (see `explain`) holds `buffer_size` items, plus one
    item per worker, or three chunks of small items per worker. If one input has many outputs,
    they travel in parts of at most 1 MiB or one item; parts of small items fill up to 4.5 MiB
    per worker. Joined pipelines share these limits, each with at least one item. If the
    choices of the join are known in advance, each pipeline's share follows them.

    Args:
        workers: Number of threads. A single thread runs the whole pipeline. Several compute
            items in parallel and deliver them in order.
        buffer_size: Number of items to hold ready.
        gated: If True, compute only items that the consumer waits for, and those that
            `Run.allow_buffering` allows.
        timeout: Seconds to wait for an item before raising `WorkerTimeout`.
        worker_init: Function called in each thread that starts, with its number from 0.

    Returns:
        An executor.

    Raises:
        ArgumentError: If an argument is out of range.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(5)) | lz.map(lambda x: x * x)
    >>> list(lz.run(pipeline, executor=lz.threads(2)))
    [0, 1, 4, 9, 16]
    """

    start = partial(ThreadPool, buffer_size=buffer_size, timeout=timeout, worker_init=worker_init)
    return PoolSpec(
        start,
        workers,
        "thread",
        buffer_size,
        is_gated=gated,
        timeout=timeout,
        worker_init=worker_init,
        start_each=lambda handlers: [start(handlers, 1, number=n) for n in range(workers)],
    )


@pool_executor(
    {
        "workers": positive,
        "buffer_size": positive,
        "start_method": optional(one_of("forkserver", "spawn", "fork")),
        "shared_memory": boolean,
        "gated": boolean,
        "timeout": optional(seconds),
        "retries": natural,
        "worker_init": optional(function),
        "library_threads": optional(positive),
    }
)
def processes(
    workers: int = 1,
    *,
    buffer_size: int = 2,
    start_method: str | None = None,
    shared_memory: bool = True,
    gated: bool = False,
    timeout: float | None = None,
    retries: int = 0,
    worker_init: Callable[[int], Any] | None = None,
    library_threads: int | None = 1,
) -> PoolSpec:
    """Compute items ahead of the consumer, in processes on this machine.

    Processes suit work that is Python code. Arrays, CPU tensors and large messages travel
    through shared memory, everything else through pipes. Functions and the data of sources
    are pickled once; all workers read a source's arrays and list items from the same memory.
    Lambdas, closures and functions of the main module need cloudpickle, or fork.

    Workers start clean: they inherit no lock, no thread and no open file of this process, but
    its paths, its environment variables, its standard output, and its limits of recursion and
    open files. They don't import the main module, so a script needs no guard
    `if __name__ == "__main__"`. The first start of a program starts a server, which imports the
    modules that your functions need once for all workers. A module that starts threads when it
    is imported is imported by each worker of each run instead.

    Workers run `map`, `filter` and `flat_map` in parallel, each on its own item. Stages that
    need items in order, such as a buffer or a packing stage, run in one separate process (see
    `explain`), which is worker number `workers`. If the run is closed and reopened, items
    that this process held ready are computed again.

    Your functions always run in workers, so a crash can't end the training process. Sending
    an item takes a microsecond or more; if computing it is cheaper, use `inline()`.
    `lazyckpt.profile` measures this. Each item arrives as a separate object: writing into it
    changes no other item, even if a function returned the same array twice.

    Each worker seeds the global random generators of Python, NumPy and torch differently,
    before `worker_init`. For random numbers that a resume repeats, use `random_map`.

    If a worker dies, `WorkerDied` is raised at the item that it was computing, after all
    earlier items. If it had read ahead, such as several rows of a file or the input of a later
    `map`, it is raised before the items that it had read. The run can continue, with new
    workers. With `on_error="skip"`, an item that kills or hangs its worker is tried again at
    least once and then skipped, if its stage may skip items that fail.

    Small items travel in chunks of up to 16,384 items, 256 KiB and 32 ms of work. If items
    become slow, what is ready after 0.1 s is delivered. Two chunks per worker are held ready.

    Memory: each segment run by workers (see `explain`) holds `buffer_size` items, plus three
    items per worker: one being computed, one in transit, and one in a slot about to be freed.
    A chunk of small items counts as one item. If one input has many outputs, they travel in
    parts of at most 1 MiB or one item; parts of small items fill up to 4.5 MiB per worker.
    Joined pipelines share these limits, each with at least one item. If the choices of the
    join are known in advance, each pipeline's share follows them. Messages with arrays of
    16 KiB or more lie in shared memory, including up to four messages per worker that you
    keep; if you keep more, they are copied. Shared memory is freed when the run is closed.
    Opening a run copies the data of its sources to shared memory, which takes about 0.7 s per
    GB of arrays and 1.6 s per GB of items: keep large data in files.

    Args:
        workers: Number of processes. A single process runs the whole pipeline. Several
            compute items in parallel and deliver them in order.
        buffer_size: Number of items to hold ready.
        start_method: "forkserver" forks workers from the server. "spawn" starts a new
            interpreter for each, which takes longer. "fork" forks this process: nothing is
            pickled, but if other threads hold locks, a worker that needs one hangs, so it warns
            of other threads. None is "forkserver", on macOS "spawn".
        shared_memory: If True, send arrays through shared memory instead of pickling them.
        gated: If True, compute only items that the consumer waits for, and those that
            `Run.allow_buffering` allows.
        timeout: Seconds that an item may take before `WorkerTimeout` is raised. For the
            process that runs stages in order: twice that, plus one second.
        retries: Number of times that an item is tried again, alone and with new workers, if
            its worker died or hung.
        worker_init: Function called in each worker that starts, with its number from 0.
        library_threads: Number of BLAS, OpenMP and torch threads per worker. None keeps the
            defaults of these libraries.

    Returns:
        An executor.

    Raises:
        ArgumentError: If an argument is out of range.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(5)) | lz.map(str)
    >>> with lz.run(pipeline, executor=lz.processes(2)) as run:
    ...     list(run)
    ['0', '1', '2', '3', '4']
    """
    module = import_module("lazyckpt.executors.pools.processes")  # and multiprocessing with it
    settings = module.WorkerSettings(worker_init, library_threads, 0, shared_memory)

    start = partial(
        module.ProcessPool,
        buffer_size=buffer_size,
        timeout=timeout,
        start_method=start_method,
        settings=settings,
        retries=retries,
    )

    def start_each(handlers: list[Handler]) -> list[WorkerPool]:
        pickled = module.PickledOnce()  # for all of them
        return [start(handlers, 1, number=n, pickled=pickled) for n in range(workers)]

    patience = timeout and 2 * timeout + 1  # so that its workers time out first
    return PoolSpec(
        start,
        workers,
        "process",
        buffer_size,
        is_gated=gated,
        start_reader=partial(start, workers=1, number=workers, patience=patience),
        timeout=timeout,
        in_transit=module.ProcessPool.in_transit,
        slots=partial(module.slot_count, workers, buffer_size) if shared_memory else None,
        start_each=start_each,
    )
