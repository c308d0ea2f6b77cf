"""Conversion of timings to a profile."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.machine import UNKNOWN, Rate
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.plan.segments import shown_stage
from lazyckpt.monitoring.advice import CONSUMER, bottleneck
from lazyckpt.monitoring.report import Profile, StageProfile, WorkerProfile, cut_name
from lazyckpt.timers.timed import TimerCosts
from lazyckpt.timers.timings import Timing, Timings

_NOTHING = Timing()


class Row(NamedTuple):
    """A stage, its pipeline, and the number of stages that contain the pipeline."""

    call: Call
    chain: Chain
    depth: int

    @property
    def is_last(self) -> bool:
        return self.call is self.chain.calls[-1]

    @property
    def rate(self) -> Rate:
        """The number of items that it reads from the stage before it."""
        number = next(n for n, call in enumerate(self.chain.calls) if call is self.call)
        return self.chain.machines[number].rate


class Read(NamedTuple):
    """The number of items read and the time this took; the same for the timed ones.

    `first` is the time until the first item.
    """

    items: int
    seconds: float
    timed: int
    timed_seconds: float
    first: float


def summary(
    read: Read,
    rows: list[Row],
    timings: list[Timings],
    costs: TimerCosts,
    executor: Executor | None,
) -> Profile:
    """Extrapolate the measurements of the timed items to all items."""
    measured = [each for found in timings for each in found.stages.values()]
    if not any(map(costs.without, measured)):  # the machine was slower when they were measured
        costs = TimerCosts(0.0, 0.0)
    stages = [_stage(row, number, timings, costs) for number, row in enumerate(rows)]
    workers = list(_workers(timings, costs, len(rows)))
    times = counts = 1.0
    if read.timed < read.items:
        counts = read.items / (stages[-1].items or read.timed)
        times = read.seconds / (_elapsed(read, timings, costs, workers) or read.seconds)
    found = Profile(
        read.items,
        read.seconds,
        read.first,
        tuple([_scaled(stage, times, counts) for stage in _counted(stages, rows)]),
        tuple([_slower(worker, times) for worker in workers]),
        "",
        CONSUMER if executor is None else repr(executor),
        tuple([(worker[0], worker[1], spans) for worker, _, spans in timings]),
        tuple(_warnings(stages, timings)),
    )
    calls = [row.call for row in rows]
    return replace(found, bottleneck=bottleneck(found, calls, rows[-1].chain, executor))


def _warnings(stages: list[StageProfile], timings: list[Timings]) -> Iterator[str]:
    drawing = {key[0] for found in timings for key, each in found.stages.items() if each.draws}
    for number in sorted(drawing):
        yield (
            f"{cut_name(stages[number].name)} draws from a global random generator, which no "
            "state contains: a resume yields different values; use random_map, whose random "
            "numbers depend only on the item"
        )


def _elapsed(
    read: Read, timings: list[Timings], costs: TimerCosts, workers: list[WorkerProfile]
) -> float:
    """Return the time that reading would have taken with timers that cost nothing."""
    at_work = [worker.seconds for worker in workers]
    if all(worker.name == CONSUMER for worker in workers):
        return sum(at_work)
    calls = sum(each.calls for found in timings for each in found.stages.values())
    return max(*at_work, read.timed_seconds - calls * sum(costs) / len(at_work))


def _slower(worker: WorkerProfile, times: float) -> WorkerProfile:
    return replace(
        worker,
        seconds=worker.seconds * times,
        working=worker.working * times,
        stages=tuple([seconds * times for seconds in worker.stages]),
    )


def _stage(row: Row, number: int, timings: list[Timings], costs: TimerCosts) -> StageProfile:
    whole = [each for found in timings for key, each in found.stages.items() if key[0] == number]
    ends = [found.stages.get((number, 0), _NOTHING) for found in timings]
    measured, seconds = sum(each.seconds for each in whole), sum(map(costs.without, whole))
    working = sum(each.working for each in whole)
    made, sized = sum(each.items for each in ends), sum(each.sized for each in ends)
    return StageProfile(
        shown_stage(row.call),
        row.depth,
        seconds,
        min(seconds, working * seconds / measured) if measured else 0.0,
        made,
        sum(each.size for each in ends) / sized * made if sized else 0.0,
    )


def _counted(stages: list[StageProfile], rows: list[Row]) -> Iterator[StageProfile]:
    """Yield the stages; a stage whose items the next one looks up counts the items read by that."""
    found: list[StageProfile] = []
    behind: dict[int, tuple[int, Rate]] = {}  # by chain, the items and rate of the next stage
    for stage, row in zip(reversed(stages), reversed(rows), strict=True):
        items, rate = (0, UNKNOWN) if row.is_last else behind[id(row.chain)]
        if not stage.items and rate.each < math.inf:
            stage = replace(stage, items=int(items * rate.each))
        behind[id(row.chain)] = stage.items, row.rate
        found.append(stage)
    return reversed(found)


def _scaled(stage: StageProfile, times: float, counts: float) -> StageProfile:
    return replace(
        stage,
        seconds=stage.seconds * times,
        working=stage.working * times,
        items=round(stage.items * counts),
        bytes=stage.bytes * counts,
    )


def _workers(timings: list[Timings], costs: TimerCosts, count: int) -> Iterator[WorkerProfile]:
    by_worker: dict[tuple[int, int, str], list[tuple[int, Timing]]] = {}
    for worker, stages, _ in timings:
        by_worker.setdefault(worker, []).extend((key[0], each) for key, each in stages.items())
    for (process, thread, name), pairs in sorted(by_worker.items(), key=lambda pair: pair[0][::-1]):
        if not any(each.items for _, each in pairs):  # it only checked that the state fits
            continue
        took = [0.0] * count
        for number, each in pairs:
            took[number] += costs.without(each)
        working = sum(each.working for _, each in pairs)
        if (process, thread) == (os.getpid(), threading.get_ident()):
            name = CONSUMER
        yield WorkerProfile(name, sum(took), min(working, sum(took)), tuple(took), process, thread)
