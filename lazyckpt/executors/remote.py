"""The executors that others provide, on this machine or beyond: `futures`, `ray`."""

from __future__ import annotations

import importlib.util
from importlib import import_module
from typing import Any

from lazyckpt.core.checks import Unfit, optional, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.crew import Crew
from lazyckpt.executors.executor import Staff, staffed
from lazyckpt.executors.local import seconds
from lazyckpt.executors.parts import Part


def submitting(value: Any) -> Any:
    """What has the `submit` of `concurrent.futures.Executor`."""
    if callable(getattr(value, "get_executor", None)):
        raise Unfit("a concurrent.futures.Executor; that of a Dask client is its get_executor()")
    if isinstance(value, type) or not callable(getattr(value, "submit", None)):
        raise Unfit("a concurrent.futures.Executor, or have its submit")
    return value


@staffed({"executor": submitting, "buffer_size": positive, "timeout": optional(seconds)})
def futures(executor: Any, *, buffer_size: int, timeout: float | None = None) -> Staff:
    """Items are made ahead by an executor of yours, on this machine or on others.

    - `executor`: anything with the `submit` of `concurrent.futures.Executor`: a
      ThreadPoolExecutor or ProcessPoolExecutor, loky's, mpi4py's, or that of a
      Dask client, `client.get_executor()`. It stays yours to shut down
    - `buffer_size`: tasks under way: items, or chunks of small ones and then twice
      as many. At least the workers that there are, or some have nothing to do
    - `timeout`: seconds to wait for a task before `WorkerTimeout`

    The part of a stream that can't be cut in tasks runs in one thread beside the
    consumer. Functions are kept by a worker, and sent to it again where it has
    worked for eight other runs since; in this process they aren't sent. Lambdas
    and closures can be where cloudpickle is installed. Arrays come as those of
    `processes` do, in memory that can be written to.

    Leaving the run cancels what has not begun; what has, ends by itself, and so
    does what has hung. An executor that breaks is a `WorkerDied`, with what it
    says as its cause: where it mends itself the run can go on, else from its
    state with another one.

    Two are equal if they have the same executor. They can be pickled if it can.

    Memory: the outcomes of `buffer_size` tasks here, and what workers hold.

    >>> import lazyckpt as lz
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> pipeline = lz.source(range(5)) | lz.map(lambda x: x * x)
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(lz.run(pipeline, executor=lz.futures(pool, buffer_size=4)))
    [0, 1, 4, 9, 16]
    """
    module = import_module("lazyckpt.executors.futures")

    def start(parts: list[Part], count: int) -> Crew:
        crew: Crew = module.Futures(executor, parts, buffer_size, timeout)
        return crew

    place = f"as tasks of a {type(executor).__name__}"
    return Staff(start, buffer_size, "task", buffer_size, moves=False, place=place, timeout=timeout)


@staffed({"workers": positive, "buffer_size": positive, "timeout": optional(seconds)})
def ray(
    *, workers: int, buffer_size: int = 2, timeout: float | None = None, **options: Any
) -> Staff:
    """Items are made ahead by Ray actors, on this machine or on those of a cluster.

    - `workers`: how many actors. One walks through the whole pipeline; more make
      items at the same time, which come in order all the same
    - `buffer_size`: items held ready. Small ones travel together, and count for
      one at least
    - `timeout`: seconds to wait for an item before `WorkerTimeout`; the start of
      actors counts, for which Ray may have no room
    - `options`: of the actors, as those of Ray's `options`: `num_cpus=1`,
      `resources={"loader": 1}`, `scheduling_strategy="SPREAD"`

    Ray is started if it isn't, with its own defaults and no dashboard, and is left
    running; the actors are killed where the run is left. One that dies is a
    `WorkerDied`; the run can go on, with new ones.

    The pipeline is put into Ray's object store once. Arrays and CPU tensors come
    through that store, and are copied out of it once: unlike those that Ray hands
    out they can be written to, and hold no room in it.

    Memory: `buffer_size` items, and one or two chunks of small ones for each actor.

        with lz.run(pipeline, executor=lz.ray(workers=8, num_cpus=1)) as run:
            for batch in run:
                ...
    """
    if importlib.util.find_spec("ray") is None:
        raise ArgumentError("ray: the package ray is not installed; pip install lazyckpt[ray]")
    module = import_module("lazyckpt.executors.actors")

    def start(parts: list[Part], count: int) -> Crew:
        crew: Crew = module.Actors(parts, count, buffer_size, timeout, options)
        return crew

    return Staff(start, workers, "Ray actor", buffer_size, timeout=timeout)
