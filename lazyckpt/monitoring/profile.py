"""`profile`: the time of each stage of a pipeline, and which one is slow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import count, islice
from time import perf_counter, thread_time
from typing import Any

from lazyckpt.core.call import Call, Chain, runnable
from lazyckpt.core.checks import checked, finite, optional, positive
from lazyckpt.executors.executor import Executor, as_executor
from lazyckpt.monitoring.report import Profile
from lazyckpt.monitoring.summary import Read, Row, summary
from lazyckpt.run import Run
from lazyckpt.state.resume_cost import ResumeCost, resume_cost
from lazyckpt.state.state import State
from lazyckpt.timers.timed import TimerCosts, measuring, timer_costs
from lazyckpt.timers.timings import Stage, StageTimer, taken, using

_SHARE = 0.002  # most of the time that timers may take; their real cost is above their estimate
_LEAST = 0.5e-3  # seconds that they may take in any case
_LEAST_OF_WORKERS = 20e-3  # the same in workers, so that each is measured
_SHARE_OF_WORKERS = 0.03  # most of the time that timers may take in workers,
_RESTART = 0.15  # or seconds that it takes to start new workers and recompute prefetched items
_BLOCK = 1e-2  # seconds between two reads of the clock

_above_0 = finite("of seconds above 0", lambda value: 0 < value < 1e9)


def profile(
    pipeline: Chain,
    n: int = 1000,
    *,
    seconds: float | None = None,
    executor: Executor | None = None,
    state: State | str | bytes | Mapping[str, Any] | None = None,
) -> Profile:
    """Read items of a pipeline, and measure the time of each stage.

    It reads the same data as a run of that many items, calls your functions like a run, and changes
    no state. If stages are so fast that timers would dominate, only some of the items are timed.
    The others are read without timers, by a second run that resumes from the first one with its own
    workers, if re-reading takes less time than the timers would. Errors and Ctrl-C are raised as by
    a run; no worker survives.

    Args:
        pipeline: Pipeline to read.
        n: Number of items to read, or all if there are fewer.
        seconds: Time to read, instead of `n`.
        executor: How items are computed, as in `run`. Its workers are measured, including items
            that they compute ahead.
        state: State to begin from; by default the beginning.

    Returns:
        A `Profile`. Printed, it is a table, with the bottleneck and what to do about it.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(500)) | lz.map(str) | lz.batch(100)
    >>> found = lz.profile(pipeline)
    >>> found.items, [(stage.name, stage.items) for stage in found.stages]
    (5, [('source(range(0, 500))', 500), ('map(str)', 500), ('batch(100)', 5)])
    """
    chain: Chain = runnable("profile", pipeline)
    n = checked("profile", "n", n, positive)
    seconds = checked("profile", "seconds", seconds, optional(_above_0))
    chosen = as_executor(executor)
    rows, numbers = list[Row](), count()

    def number(call: Call, chain: Chain, depth: int) -> Stage | None:
        if call.covers:
            return None
        rows.append(Row(call, chain, depth))
        return next(numbers), 0

    timed, costs = measuring(chain, number), timer_costs()
    sample, timer = _Reading(n, seconds), StageTimer()
    is_inline = chosen is None or type(chosen) is Executor  # the consumer does all the work
    is_enough = _is_sampled if is_inline else _is_sampled_of_workers
    run: Run[Any]
    with using(timer), Run(timed, state, executor=chosen) as run:
        sample.read(run, lambda: is_enough(sample, timer, sum(costs)))
        after = run.state
        if not (sample.is_over or _is_cheap(resume_cost(chain, after), sample, timer, costs)):
            sample.read(run)
        timings = taken() or []
    rest = sample.rest()
    if not sample.is_over:
        with Run(chain, after, executor=chosen) as run:
            rest.read(run)
    items, seconds = sample.items + rest.items, sample.seconds
    if rest.items:
        seconds = items * rest.seconds / rest.items
    read = Read(items, seconds, sample.items, sample.seconds, sample.first)
    return summary(read, rows, timings, costs, chosen)


def _is_sampled(reading: _Reading, timer: StageTimer, cost: float) -> bool:
    """Return whether timers have taken their share of the expected total time."""
    spent = cost * timer.calls
    worked = max(0.0, reading.worked - spent)
    return reading.items > 0 and spent > max(_LEAST, _SHARE * worked * reading.parts)


def _is_sampled_of_workers(reading: _Reading, timer: StageTimer, cost: float) -> bool:
    """Return whether timing the rest would take longer than restarting without timers."""
    spent = cost * timer.calls
    if reading.seconds <= 2 * reading.first or spent < _LEAST_OF_WORKERS:  # workers are starting
        return False
    most = max(_RESTART, _SHARE_OF_WORKERS * reading.seconds * reading.parts)
    return spent * (reading.parts - 1) > most


def _is_cheap(again: ResumeCost, reading: _Reading, timer: StageTimer, costs: TimerCosts) -> bool:
    """Return whether a resume takes less time than timers would take for the rest."""
    resuming = again.items * reading.seconds / max(1, timer.items)
    return resuming < sum(costs) * timer.calls * (reading.parts - 1)


class _Reading:
    """The items that were read, up to `n` items or up to a time limit.

    Attributes:
        items: Number of items.
        seconds: Time that reading took.
        worked: The part of it in which this thread worked.
        first: Time until the first item.
        is_over: True if no more items are to be read.
    """

    def __init__(self, n: int, limit: float | None) -> None:
        self.n, self.limit = n, limit
        self.items, self.seconds, self.worked, self.first = 0, 0.0, 0.0, 0.0
        self.is_over = False

    def read(self, run: Run[Any], is_enough: Callable[[], bool] | None = None) -> None:
        """Continue reading in blocks until it is over or `is_enough` returns True."""
        size, last, start = 1, perf_counter(), run.state.items - self.items
        begun, since = last - self.seconds, thread_time() - self.worked
        while not self.is_over and not (is_enough and is_enough()):
            size = size if self.limit is not None else min(size, self.n - self.items)
            deque(islice(run, size), 0)
            now, given = perf_counter(), run.state.items - start - self.items
            self.items += given
            self.seconds, self.worked = now - begun, thread_time() - since
            self.first = self.first or self.seconds
            is_late = self.items >= self.n if self.limit is None else self.seconds >= self.limit
            self.is_over = given < size or is_late
            most = self.items // 4 if is_enough else 2 * size
            size, last = max(1, size // 2 if now - last > _BLOCK else most), now

    @property
    def parts(self) -> float:
        """The expected total, relative to the part that was read."""
        return self.n / self.items if self.limit is None else self.limit / self.seconds

    def rest(self) -> _Reading:
        """Return the reading of the remaining items."""
        limit = None if self.limit is None else self.limit - self.seconds
        return _Reading(self.n - self.items, limit)
