"""The bottleneck of a profile, and advice about it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from lazyckpt.core.call import Call, Chain
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.plan.segments import is_shared, split_pipeline
from lazyckpt.monitoring.report import Profile, cut_name, said_size, said_time

CONSUMER = "the consumer"

_QUICK = 20e-6  # seconds per item below which workers don't pay off
_BRIEF = 20e-3  # total seconds below which noise dominates on a busy machine
_MOST = 2 / 3  # share of the time from which on it counts as most
_BUSY = 0.8  # share of the time in which workers are busy, from which on more of them help
_THREADS = 8  # suggested number of threads if stages wait


def bottleneck(
    found: Profile, calls: Sequence[Call], chain: Chain, executor: Executor | None
) -> str:
    """Return a sentence that names the slow stage and what to do about it.

    Args:
        found: The profile, whose bottleneck is still empty.
        calls: Its stages, in their order.
        chain: The pipeline.
        executor: The executor of the run.
    """
    total = sum(stage.seconds for stage in found.stages)
    if not found.items:
        return "nothing was read: the pipeline has no items"
    if not total:
        return "no stage takes as long as a timer does: workers would cost more than they save"
    number = max(range(len(calls)), key=lambda n: found.stages[n].seconds)
    stage = found.stages[number]
    said = f"{cut_name(stage.name)} takes {stage.seconds / total:.0%} of the time"
    is_waiting = stage.waiting > _MOST * stage.seconds
    can_share = is_shared(split_pipeline(chain, workers=2, can_stream=False), calls[number])
    if len(found.workers) > 1 or (executor is not None and found.workers[0].name != CONSUMER):
        return _with_workers(found, said, number, is_waiting=is_waiting, can_share=can_share)
    if total / found.items < _QUICK:
        return (
            f"{said}, but an item takes only {said_time(total / found.items)} in total: "
            "workers would cost more than they save"
        )
    if total < _BRIEF:
        return f"{said}, but {said_time(total)} in total is too short to judge: profile more items"
    if not can_share:
        kind = "threads" if is_waiting else "processes"
        return (
            f"{said}, serially, because it needs items in order; executor=lz.{kind}() runs it "
            "while you compute; with random access before it, several workers can share it"
        )
    if is_waiting:
        return f"{said}, mostly waiting; let several threads wait: executor=lz.threads({_THREADS})"
    return f"{said}; run it in workers: executor=lz.processes({max(2, processors())})"


def _with_workers(
    found: Profile, said: str, number: int, *, is_waiting: bool, can_share: bool
) -> str:
    if found.first > _MOST * found.seconds:
        return (
            f"{said}; the first item took {said_time(found.first)} of "
            f"{said_time(found.seconds)}, so profile more items to see whether workers are busy"
        )
    seconds = max(found.seconds - found.first, 1e-9)
    workers = [each for each in found.workers if each.stages[number]]
    busy = min(1.0, sum(each.seconds for each in workers) / seconds / len(workers))
    text = f"{said}; its workers are busy {busy:.0%} of the time"
    if busy > _BUSY and not can_share:
        return f"{text}, serially; make it cheaper, or shard the data before it"
    working = sum(each.working for each in workers)
    in_threads = all(each.process == os.getpid() for each in workers)
    if in_threads and len(workers) > 1 and working > _BUSY * seconds and not is_waiting:
        return f"{text}; threads take turns at Python code: lz.processes({max(2, processors())})"
    if busy > _BUSY:
        is_full = len(workers) >= processors() and not is_waiting
        return f"{text}; " + ("only less work helps" if is_full else "more workers help")
    if in_threads:
        return f"{text}: the consumer waits for something else; try fewer workers"
    last = found.stages[-1]
    size = said_size(last.bytes / last.items if last.items else 0.0)
    return f"{text}: items of {size} take longer to send than to compute; try fewer workers"


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
