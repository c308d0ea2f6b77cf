"""`prefetch`: items made ahead by threads or processes, read in any order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from lazyckpt.compat.seqtools.errors import WORKER_ERRORS, EvaluationError, Past, chosen
from lazyckpt.compat.seqtools.sequence import Arrangement, LazySequence
from lazyckpt.core.checks import checked, function, integer, natural, one_of, optional, positive
from lazyckpt.core.show import written_at
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.local import processes, threads
from lazyckpt.pipeline import Pipeline
from lazyckpt.run import Run
from lazyckpt.state.algebra import state_at

T = TypeVar("T")


def prefetch(
    seq: Iterable[T],
    nworkers: int = 0,
    method: str = "thread",
    max_buffered: int = 10,
    start_hook: Callable[..., Any] | None = None,
    shm_size: int = 0,
) -> Iterable[T]:
    """The same sequence, items made ahead by workers of the ones that were read last.

    Workers start at once and end with the sequence. Jumps by index are followed. After a
    `WorkerDied` reading again goes on with new ones. A slice prefetches by itself.

    Args:
        nworkers: How many; -n leaves n processors free, and 0 gives `seq` back as it is.
        max_buffered: Items held ready; of small ones that are quickly made, more.
        start_hook: If it raises, that is an error of the item that is read.
        shm_size: Not needed: shared memory is as large as arrays are.
    """
    check = partial(checked, "prefetch")
    workers = check("nworkers", nworkers, integer)
    buffer = check("max_buffered", max_buffered, positive)
    hook = check("start_hook", start_hook, optional(function))
    check("shm_size", shm_size, natural)
    check("method", method, one_of("thread", "process"))
    if workers < 0:
        workers = check("nworkers", len(os.sched_getaffinity(0)) + workers, positive)
    if not workers:
        return seq
    make: Callable[..., Executor] = processes
    if method == "thread":
        make, hook = threads, hook and partial(_called, hook)
    executor = make(workers, buffer_size=buffer, worker_init=hook)
    found: Prefetched[T] = Prefetched(LazySequence.of(seq), executor, written_at())
    found.begin()
    return found


class Prefetched(LazySequence[T]):
    """A sequence with workers of its own, which follow what is read."""

    is_plain = False

    def __init__(self, pipeline: Pipeline[T], executor: Executor, at: str) -> None:
        super().__init__(pipeline)
        self._executor, self._at = executor, at
        self._run: Run[T] | None = None
        self._next = 0  # the item that the run stands before
        self._lock = threading.Lock()
        self.position(0)  # which only a sequence with indices has

    def begin(self) -> Run[T]:
        """Have workers make items."""
        if self._run is None:
            self._run = Run(self.pipeline, executor=self._executor)
            self._run.unpause()
        return self._run

    def _arranged(self, arrange: Arrangement) -> LazySequence[T]:
        return Prefetched(arrange(self.pipeline), self._executor, self._at)

    def _item(self, number: int) -> T:
        with self._lock:
            run = self.begin()
            if number != self._next:
                run.load_state_dict(state_at(self.pipeline, number))
                self._next = number
            try:
                item = next(run)
            except (Past, *WORKER_ERRORS, StopIteration):
                raise
            except Exception as error:
                told = EvaluationError.of(error, f"item {number} of prefetch", self._at)
                raise chosen(told)  # noqa: B904  # the same error, or its cause
            self._next = number + 1
            return item

    def __iter__(self) -> Iterator[T]:
        return _Items(self._item)

    def __reduce__(self) -> tuple[Any, ...]:
        return Prefetched, (self.pipeline, self._executor, self._at)


class _Items(Iterator[T]):
    """Items in order, which outlives an error: the next one comes, or the same if a worker died."""

    def __init__(self, read: Callable[[int], T]) -> None:
        self._read, self._next = read, 0

    def __next__(self) -> T:
        number, self._next = self._next, self._next + 1
        try:
            return self._read(number)
        except (Past, StopIteration):
            self._next = number
            raise StopIteration from None
        except WORKER_ERRORS:
            self._next = number
            raise


def _called(hook: Callable[[], Any], number: int) -> None:
    hook()
