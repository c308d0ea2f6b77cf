"""The executors of one machine: `inline`, `threads`, `processes`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from lazyckpt.core.checks import Unfit, boolean, function, optional, positive
from lazyckpt.executors.crew import Crew
from lazyckpt.executors.executor import Executor, Staff, staffed
from lazyckpt.executors.parts import Part
from lazyckpt.executors.threads import Threads


def inline() -> Executor:
    """Items are made in the consumer's thread, when it asks for them. The default.

    >>> import lazyckpt as lz
    >>> list(lz.run(lz.source([1, 2]), executor=lz.inline()))
    [1, 2]
    """
    return Executor(inline, {})


def seconds(value: object) -> float:
    """A finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
        raise Unfit("a number of seconds above 0")
    return float(value)


@staffed(
    {
        "workers": positive,
        "buffer_size": positive,
        "gated": boolean,
        "timeout": optional(seconds),
    }
)
def threads(
    workers: int = 1, *, buffer_size: int = 2, gated: bool = False, timeout: float | None = None
) -> Staff:
    """Items are made ahead by threads of this process.

    Good where making them waits, or releases the GIL: reading, decoding, NumPy.

    - `workers`: one walks through the whole pipeline, beside the consumer; more
      make items at the same time, which come in order all the same
    - `buffer_size`: items held ready. Small ones come in lots, of up to 2,048
      that take 256 KiB and 32 ms; of these two a worker are held ready
    - `gated`: nothing is made but what is waited for, and what `allow_buffering` allows
    - `timeout`: seconds to wait for an item before `WorkerTimeout`

    Memory: for each part that workers do, see `explain`, `buffer_size` items, and
    for each worker one, or a lot of half as many and 2.5 MiB where they are quickly
    made, or three lots of small ones.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(5)) | lz.map(lambda x: x * x)
    >>> list(lz.run(pipeline, executor=lz.threads(2)))
    [0, 1, 4, 9, 16]
    """

    def start(parts: list[Part], count: int) -> Crew:
        return Threads(parts, count, buffer_size, timeout)

    return Staff(start, workers, "thread", buffer_size, gated=gated, timeout=timeout)


def start_method(value: object) -> str:
    """One of multiprocessing's."""
    methods = ("fork", "forkserver", "spawn")
    if value not in methods:
        raise Unfit(" or ".join(map(repr, methods)))
    return str(value)


@staffed(
    {
        "workers": positive,
        "buffer_size": positive,
        "start_method": optional(start_method),
        "shared_memory": boolean,
        "gated": boolean,
        "timeout": optional(seconds),
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
    worker_init: Callable[[int], Any] | None = None,
    library_threads: int | None = 1,
) -> Staff:
    """Items are made ahead by processes of this machine.

    Good where making them is Python code. Arrays and CPU tensors come through
    shared memory; all else is pickled. Functions are sent to each worker once;
    lambdas and closures can be where cloudpickle is installed, or with fork.

    - `workers`: one walks through the whole pipeline, beside the consumer; more
      make items at the same time, which come in order all the same
    - `buffer_size`: items held ready. Small ones come in lots, of up to 2,048
      that take 256 KiB and 32 ms; of these two a worker are held ready
    - `start_method`: "fork", "forkserver" or "spawn"; None is multiprocessing's
      default, or forkserver where that is fork and threads of a run are alive
    - `shared_memory`: whether arrays go through it, or are pickled too
    - `gated`: nothing is made but what is waited for, and what `allow_buffering` allows
    - `timeout`: seconds to wait for an item before `WorkerTimeout`
    - `worker_init`: called with its number, from 0, where a worker starts
    - `library_threads`: threads of BLAS, OpenMP and torch in a worker; None leaves them

    A worker that dies is a `WorkerDied`; the run can go on, with new ones. With
    forkserver and spawn a script guards its main part with
    `if __name__ == "__main__"`, as multiprocessing wants it.

    Memory: for each part that workers do, see `explain`, `buffer_size` items, and
    for each worker three: one that it makes, one on its way, and one in a slot that
    comes free. In place of one there may be a lot of half as many and 2.5 MiB where
    they are quickly made, or three small lots.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(5)) | lz.map(str)
    >>> with lz.run(pipeline, executor=lz.processes(2)) as run:
    ...     list(run)
    ['0', '1', '2', '3', '4']
    """
    module = import_module("lazyckpt.executors.processes")  # and multiprocessing with it
    settings = module.Settings(worker_init, library_threads, 0, shared_memory)

    def start(parts: list[Part], count: int) -> Crew:
        crew: Crew = module.Processes(parts, count, buffer_size, timeout, start_method, settings)
        return crew

    return Staff(start, workers, "process", buffer_size, gated=gated, timeout=timeout)
