"""The executors of one machine: `inline`, `threads`, `processes`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from lazyckpt.core.checks import Unfit, boolean, finite, function, natural, optional, positive
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.plan.handlers import Handler
from lazyckpt.executors.pool_executor import PoolSpec, pool_executor
from lazyckpt.executors.pools.pool import WorkerPool
from lazyckpt.executors.pools.threads import ThreadPool


def inline() -> Executor:
    """Make items in the consumer's thread, when it asks for them. The default.

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
    """Make items ahead, in threads of this process.

    Threads suit work that waits or releases the GIL: reading, decoding, NumPy.

    Small items come in chunks, of up to 16,384 items, 256 KiB and 32 ms, and two
    chunks a worker are held ready.

    Workers make what comes of an item, by `map`, `filter` or `flat_map`, beside each
    other. What depends on the items before runs in one more thread, see `explain`.

    Memory: for each segment that workers do, see `explain`, `buffer_size` items, and
    for each worker one item, or three chunks of small ones. What comes of an item, where that is
    many, comes in parts of 1 MiB or one item, of which those of small items fill up to
    4.5 MiB for each worker. Pipelines that are joined share that, as what joins them
    chooses its next items where it knows them, and each has at least one item.

    Args:
        workers: How many threads. One runs the whole pipeline beside the consumer;
            several make items at the same time, which still come in order.
        buffer_size: How many items to hold ready.
        gated: Whether to make only what is waited for, and what
            `Run.allow_buffering` allows.
        timeout: Seconds to wait for an item before `WorkerTimeout`.
        worker_init: Called in each thread that starts, with its number from 0.

    Returns:
        An executor.

    Raises:
        ArgumentError: An argument is out of range.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(5)) | lz.map(lambda x: x * x)
    >>> list(lz.run(pipeline, executor=lz.threads(2)))
    [0, 1, 4, 9, 16]
    """

    return PoolSpec(
        partial(ThreadPool, buffer_size=buffer_size, timeout=timeout, worker_init=worker_init),
        workers,
        "thread",
        buffer_size,
        is_gated=gated,
        timeout=timeout,
        worker_init=worker_init,
    )


def start_method(value: object) -> str:
    """One of multiprocessing's."""
    methods = ("fork", "forkserver", "spawn")
    if value not in methods:
        raise Unfit(" or ".join(map(repr, methods)))
    return str(value)


@pool_executor(
    {
        "workers": positive,
        "buffer_size": positive,
        "start_method": optional(start_method),
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
    """Make items ahead, in processes of this machine.

    Processes suit work that is Python code. Arrays, CPU tensors and large messages come
    through shared memory, and the rest through pipes. Functions are pickled once; lambdas
    and closures need cloudpickle, or fork. So are the data of a source: all workers have its
    arrays and the items of its lists in the same memory. Threads of runs rest while workers
    are forked.

    Workers make what comes of an item, by `map`, `filter` or `flat_map`, beside each
    other. What depends on the items before, as in a buffer or a packed row, runs in
    one more process, see `explain`, which is worker number `workers`; what that has
    ready is made again if the run is left and entered.

    Your functions always run in workers, so a crash can't end the program that trains. To
    send an item takes a microsecond or more: if it is cheaper to make, use `inline()`, and
    see what `lazyckpt.profile` says. Each item arrives as an object of its own: writing into it
    changes no other item, even if a function returned the same array twice.

    The global generators of Python, NumPy and torch are seeded by chance in each worker
    before `worker_init`, so that no two draw the same; `random_map` gives draws that a
    resume repeats.

    A worker that dies is a `WorkerDied` at the item that it was making, behind those
    made before; the run can go on, with new workers. With `on_error="skip"` that item
    is left out, as is one that hangs, where its function may leave out what fails; it is
    tried again before that, at least once. With forkserver and spawn, guard
    the main part of a script with `if __name__ == "__main__"`, as multiprocessing
    requires; one without is refused.

    Small items come in chunks, of up to 16,384 items, 256 KiB and 32 ms, and two
    chunks a worker are held ready.

    Memory: for each segment that workers do, see `explain`, `buffer_size` items, and
    for each worker three: one that it makes, one on its way, and one in a slot that
    comes free; in place of one there may be a chunk of small ones. What comes of an
    item, where that is many, comes in parts of 1 MiB or one item, of which those of small items
    fill up to 4.5 MiB for each worker. Pipelines that are joined share that, as what
    joins them chooses its next items where it knows them, and each has at least one item.
    Shared memory holds what has arrays of 16 KiB or more, with up to four messages of
    each worker that you keep; of others you have copies. It is freed when the run is left.

    Args:
        workers: How many processes. One runs the whole pipeline beside the consumer;
            several make items at the same time, which still come in order.
        buffer_size: How many items to hold ready.
        start_method: "fork", "forkserver" or "spawn". None is multiprocessing's
            default; if that is fork, and other software has threads which may hold
            locks, a warning says so once.
        shared_memory: Whether arrays go through it, or are pickled too.
        gated: Whether to make only what is waited for, and what
            `Run.allow_buffering` allows.
        timeout: Seconds that an item may take before `WorkerTimeout`; twice that and one
            more where the process hangs that reads what depends on the items before.
        retries: How often an item is tried again at which a worker died or hung, by
            itself and with new workers.
        worker_init: Called in each worker that starts, with its number from 0.
        library_threads: Threads of BLAS, OpenMP and torch in a worker; None leaves them.

    Returns:
        An executor.

    Raises:
        ArgumentError: An argument is out of range.

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
        pickled: list[Any] = []  # once for all of them
        return [start(handlers, 1, number=n, shared=pickled) for n in range(workers)]

    patience = timeout and 2 * timeout + 1  # for its workers are late before it is
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
