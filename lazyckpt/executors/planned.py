"""Build a pipeline's machine with workers, segment by segment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.executors.lookahead import Work
from lazyckpt.executors.plan.handlers import Handler, Mapper, Reader, build_machine
from lazyckpt.executors.plan.joins import with_machines
from lazyckpt.executors.plan.layers import Layers
from lazyckpt.executors.plan.runs import RunReader, run_tasks
from lazyckpt.executors.plan.segments import Segment
from lazyckpt.executors.plan.shares import Joined, Share
from lazyckpt.executors.plan.tasks import TaskGenerator, pointwise_tasks, random_access_tasks
from lazyckpt.executors.pools.pool import PrefetchGate, WorkerPool
from lazyckpt.executors.prefetcher import Prefetcher
from lazyckpt.failures.skip_log import SkipLog


def handlers_of(segments: list[Segment]) -> list[Handler]:
    """Return the handlers of the segments, in the order in which `Plan` uses them."""
    found: list[Handler] = []
    for segment in segments:
        for part in segment.parts:
            found += handlers_of(part)
        if segment.has_tasks:
            found.append(_handler(segment, is_last=segment is segments[-1]))
    return found


def _handler(segment: Segment, *, is_last: bool) -> Handler:
    if segment.kind == "items":
        return Mapper(segment.calls)
    if segment.kind == "runs":
        return RunReader(segment.calls, segment.seekable, is_last=is_last)
    return Reader(Chain(segment.calls))


def tasks_of(segment: Segment, pool: WorkerPool) -> TaskGenerator:
    """Return the task generator of a segment that begins with a source."""
    if segment.kind == "runs":
        layers = Layers(segment.calls, segment.seekable)
        return run_tasks(layers, in_parts=pool.can_continue)
    return random_access_tasks(build_machine(segment.calls, None))


class Plan:
    """Builds the machine of a pipeline whose non-local segments run in a pool.

    The pool's handlers are those of `handlers_of`. Skipped records are logged as their items
    are yielded.
    """

    def __init__(
        self, pool: WorkerPool, gate: PrefetchGate, skip_log: SkipLog | None, first: int = 0
    ) -> None:
        """Prepare to build; `first` is the number of the first handler to use."""
        self._pool, self._gate, self._skip_log = pool, gate, skip_log
        pool.skip_log = skip_log
        self._numbers = count(first)

    def machine(
        self,
        segments: list[Segment],
        share: Share | None = None,
        upstream: Machine[Any] | None = None,
    ) -> Machine[Any]:
        """Build the machine of segments.

        Args:
            segments: The segments.
            share: The segments' share of the buffer.
            upstream: The machine of the stages before the segments.
        """
        share, machine = share or Share(), upstream
        for segment in segments:
            calls, joined = self._with_parts(segment, share)
            below = machine
            for call in calls:
                machine = call.build(machine)
                if joined is not None and call is calls[0]:
                    machine = joined.follow(machine, segment.calls[0].build(None))
            assert machine is not None
            if segment.kind == "local":
                continue
            if below is None:
                generate = tasks_of(segment, self._pool)
            else:
                generate = pointwise_tasks(below, calls, self._skip_log)
            work = Work(
                self._pool,
                self._gate,
                next(self._numbers),
                generate,
                calls,
                inner_log=self._skip_log,
                share=share,
                holds_items=below is not None,
            )
            flows = DrivenFlows(work, may_wait=below is not None)
            machine = machine._replace(flow=flows, item=None, view=None)
        assert machine is not None
        return machine

    def _with_parts(self, segment: Segment, share: Share) -> tuple[tuple[Call, ...], Joined | None]:
        """Return the stages of a segment, with the pipelines that its first stage joins planned."""
        if not segment.parts:
            return segment.calls, None
        first, *others = segment.calls
        joined, machines = Joined(share), list[Machine[Any] | None]()
        for number, part in enumerate(segment.parts):
            is_chosen = part[0].kind == "chosen"
            machines.append(None if is_chosen else self.machine(part, share=Share(joined, number)))
        return (with_machines(first, machines), *others), joined


class DrivenFlows:
    """Flows for the thread that drives a pool: a new flow reuses the items of a stopped one."""

    def __init__(self, work: Work, *, may_wait: bool) -> None:
        self._work, self._may_wait = work, may_wait
        self._stopped: Prefetcher | None = None

    def __call__(self, position: Position) -> Flow[Any]:
        found, self._stopped = self._stopped, None
        can_resume = self._work.pool.can_resume
        if found is None or not (can_resume and found.resume(position)):
            found = Prefetcher(self._work, position)
        self._work.share.hold(found, may_wait=self._may_wait)
        return found.flow(_DrivenChunks(found, self._let_go))

    def _let_go(self, prefetcher: Prefetcher) -> None:
        if self._work.gate.is_closed:
            prefetcher.suspend()
            self._stopped = prefetcher
        else:
            prefetcher.close()


class _DrivenChunks:
    """The chunks of a prefetcher, which is released once its flow is dropped.

    The release runs in the thread that drives a pool, which no signal handler interrupts.
    """

    def __init__(self, prefetcher: Prefetcher, let_go: Callable[[Prefetcher], None]) -> None:
        self._prefetcher, self._let_go = prefetcher, let_go

    def next_chunk(self) -> Iterator[Any] | None:
        return self._prefetcher.next_chunk()

    def end_chunk(self) -> None:
        self._prefetcher.end_chunk()

    def close(self) -> None:
        self._prefetcher.close()

    _is_finalizing = staticmethod(sys.is_finalizing)  # module globals may be gone in `__del__`

    def __del__(self) -> None:
        if not self._is_finalizing():
            self._let_go(self._prefetcher)
