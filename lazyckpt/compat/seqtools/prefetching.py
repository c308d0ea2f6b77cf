"""`prefetch`: items computed ahead by threads or processes, read in any order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import lazyckpt as lz
from lazyckpt.compat.seqtools.sequence import (
    WORKER_ERRORS,
    EvaluationError,
    LazySequence,
    Past,
    places,
    random_access,
    sliced,
)
from lazyckpt.core.checks import checked, function, integer, one_of, optional, positive
from lazyckpt.core.show import written_at

T = TypeVar("T")


def prefetch(
    seq: Iterable[T],
    nworkers: int = 0,
    method: str = "thread",
    max_buffered: int = 10,
    start_hook: Callable[..., Any] | None = None,
    shm_size: int = 0,
) -> Iterable[T]:
    """Return the same sequence, with workers that compute the items after the last one read.

    Workers start immediately and end with the sequence. They follow jumps by index. After a
    `WorkerDied`, reading again starts new workers. A slice has its own prefetching.

    Args:
        nworkers: Number of workers; -n leaves n processors free, and 0 returns `seq` unchanged.
        max_buffered: Number of items to hold ready; for small, cheap items, more are held.
        start_hook: Function called when a worker starts; if it raises, reading an item raises that
            error.
        shm_size: Not needed: shared memory is as large as the arrays.
    """
    check = partial(checked, "prefetch")
    workers = check("nworkers", nworkers, integer)
    buffer = check("max_buffered", max_buffered, positive)
    hook = check("start_hook", start_hook, optional(function))
    check("method", method, one_of("thread", "process"))
    if workers < 0:
        workers = check("nworkers", len(os.sched_getaffinity(0)) + workers, positive)
    if not workers:
        return seq
    make: Callable[..., lz.Executor] = lz.processes
    if method == "thread":
        make, hook = lz.threads, hook and partial(_called, hook)
    executor = make(workers, buffer_size=buffer, worker_init=hook)
    ahead = Ahead(LazySequence.of(seq), executor, written_at())
    ahead.begin()
    return Prefetched(ahead)


class Prefetched(LazySequence[T]):
    """A sequence with its own workers, which follow the reads."""

    def __init__(self, ahead: Ahead) -> None:
        self._ahead = ahead
        super().__init__(places(ahead.items.machine.length) | lz.map(ahead.item))

    def _slice(self, key: slice) -> LazySequence[T]:
        ahead = self._ahead
        return Prefetched(Ahead(sliced(ahead.items, key), ahead.executor, ahead.at))


class Ahead:
    """Reads a pipeline by index, while workers compute the items after the last one read."""

    def __init__(self, items: lz.Pipeline[Any], executor: lz.Executor, at: str) -> None:
        self.items, self.executor, self.at = random_access(items), executor, at
        self._run: lz.Run[Any] | None = None
        self._next = 0  # number of the run's next item
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Ahead, (self.items, self.executor, self.at)

    def begin(self) -> lz.Run[Any]:
        if self._run is None:
            self._run = lz.Run(self.items, executor=self.executor)
            self._run.unpause()
        return self._run

    def item(self, number: int) -> Any:
        with self._lock:
            run = self.begin()
            if number != self._next:
                run.load_state_dict(lz.state_at(self.items, number))
                self._next = number
            try:
                item = next(run)
            except StopIteration:
                raise Past(f"sequence index {number} out of range") from None
            except (Past, *WORKER_ERRORS):
                raise
            except Exception as error:
                what = f"item {number} of prefetch"
                raise EvaluationError.of(error, what, self.at)  # noqa: B904  # it has its cause
            self._next = number + 1
            return item


def _called(hook: Callable[[], Any], number: int) -> None:
    hook()
