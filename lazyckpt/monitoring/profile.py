"""`profile`: what each stage of a pipeline takes, and which one is slow."""

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

_SHARE = 0.002  # of the time, at most, that timers may take; there is more to it than they know
_LEAST = 0.5e-3  # seconds that they may take in any case
_LEAST_OF_WORKERS = 20e-3  # the same in workers, all of which are to be measured
_SHARE_OF_WORKERS = 0.03  # of the time, at most, that timers may take in these,
_RESTART = 0.15  # or so many seconds, as other workers start and make again what was ahead
_BLOCK = 1e-2  # seconds between two looks at the clock

_above_0 = finite("of seconds above 0", lambda value: 0 < value < 1e9)


def profile(
    pipeline: Chain,
    n: int = 1000,
    *,
    seconds: float | None = None,
    executor: Executor | None = None,
    state: State | str | bytes | Mapping[str, Any] | None = None,
) -> Profile:
    """Read items of a pipeline, and measure what each of its stages takes.

    It reads what a run of so many items reads, calls your functions as that does, and
    changes no state. Where stages are so quick that timers would be much of the time,
    some items are read with timers and the others without; it goes on there as a resume
    does, with workers of its own, if what that reads again takes less time than timers
    would. Errors are raised as by a run, and so is a Ctrl-C; no worker is left behind.

    Args:
        pipeline: What to read.
        n: How many of its items, or all if there are fewer.
        seconds: How long to read, in place of `n`.
        executor: Who makes the items, as in `run`. Its workers are measured, with what
            they make ahead.
        state: Where to begin; by default at the beginning.

    Returns:
        A `Profile`. Printed it is a table, and says which stage is slow and what to do.

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
    is_inline = chosen is None or type(chosen) is Executor  # whose consumer does all of it
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
    """Whether timers have taken their share of what the whole will take."""
    spent = cost * timer.calls
    worked = max(0.0, reading.worked - spent)
    return reading.items > 0 and spent > max(_LEAST, _SHARE * worked * reading.parts)


def _is_sampled_of_workers(reading: _Reading, timer: StageTimer, cost: float) -> bool:
    """Whether timers would take more of the rest than it takes to begin again without them."""
    spent = cost * timer.calls
    if reading.seconds <= 2 * reading.first or spent < _LEAST_OF_WORKERS:  # they are starting
        return False
    most = max(_RESTART, _SHARE_OF_WORKERS * reading.seconds * reading.parts)
    return spent * (reading.parts - 1) > most


def _is_cheap(again: ResumeCost, reading: _Reading, timer: StageTimer, costs: TimerCosts) -> bool:
    """Whether a resume takes less time than timers would of the rest."""
    resuming = again.items * reading.seconds / max(1, timer.items)
    return resuming < sum(costs) * timer.calls * (reading.parts - 1)


class _Reading:
    """What was read, until there are `n` items, or until so many seconds are over.

    Attributes:
        items: How many were read.
        seconds: How long that took.
        worked: Of these, those in which this thread worked.
        first: How long the first took.
        is_over: Whether no more are to be read.
    """

    def __init__(self, n: int, limit: float | None) -> None:
        self.n, self.limit = n, limit
        self.items, self.seconds, self.worked, self.first = 0, 0.0, 0.0, 0.0
        self.is_over = False

    def read(self, run: Run[Any], is_enough: Callable[[], bool] | None = None) -> None:
        """Read on in blocks, until it is over, or enough, which is asked for more often."""
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
        """How many times as much the whole is as what was read."""
        return self.n / self.items if self.limit is None else self.limit / self.seconds

    def rest(self) -> _Reading:
        """What is left to read."""
        limit = None if self.limit is None else self.limit - self.seconds
        return _Reading(self.n - self.items, limit)
