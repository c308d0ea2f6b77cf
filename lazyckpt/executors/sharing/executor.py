"""Executors whose workers compute each item that all ranks need once, and share it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from lazyckpt.core.call import Chain
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Machine
from lazyckpt.errors import PipelineError
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Handler
from lazyckpt.executors.plan.segments import Segment, needs_reader
from lazyckpt.executors.planned import Plan, handlers_of
from lazyckpt.executors.pool_executor import PoolExecutor, PoolSpec
from lazyckpt.executors.pools.pool import PrefetchGate, WorkerPool
from lazyckpt.executors.session import Session
from lazyckpt.executors.sharing.agreement import told_of
from lazyckpt.executors.sharing.fetching import FetchingPool, cut_at_shard
from lazyckpt.executors.sharing.link import Meeting, Reach
from lazyckpt.executors.sharing.pool import SharedPool
from lazyckpt.executors.sharing.presence import MetFlows
from lazyckpt.failures.skipping import apart, leaves_out, skip_log_of, stage_behind

P = TypeVar("P", bound=WorkerPool)

_LINGER = 8.0  # seconds for a reading process to announce that it leaves


class SharedExecutor(PoolExecutor):
    """The workers of an executor on each rank; each task common to all ranks is done once."""

    __slots__ = ("__weakref__",)

    @property
    def inner(self) -> PoolExecutor:
        """The executor with the workers of this rank."""
        inner = self.arguments["executor"]
        assert isinstance(inner, PoolExecutor)
        return inner

    @property
    def spec(self) -> PoolSpec:
        inner = self.inner.spec

        def start(handlers: list[Handler], workers: int) -> WorkerPool:
            return self.start(SharedPool, handlers)

        reader = inner.start_reader and partial(inner.start_reader, linger=_LINGER)
        more: dict[str, Any] = {"can_stream": False, "deals_first": False, "stream_chunk": 1}
        return inner._replace(start=start, start_reader=reader, **more)

    def start(self, kind: Callable[..., P], handlers: list[Handler]) -> P:
        """Make a pool for the tasks that ranks share."""
        inner, arguments = self.inner.spec, self.arguments
        each, count = inner.start_each, inner.workers
        pools = each(handlers) if each else [inner.start(handlers, count)] * count
        found = kind(
            pools, handlers, arguments["meeting"], arguments["chunk_size"], arguments["timeout"]
        )
        found.is_gated = inner.is_gated
        return found

    def open(self, chain: Chain, gate: PrefetchGate | None = None) -> Session:
        check_dealt(chain, "shared", repr(self.inner))
        is_divided = not needs_reader(self.spec.split(chain))
        if is_divided or (self.arguments["meeting"].nodes and _by_node().shard_of(chain) is None):
            session = self.inner.open(chain, gate)  # each rank computes its own items
            agree = partial(self._agree, chain, session.gate)
            session.wrap = MetFlows(self.arguments["meeting"].presence, agree)
            return session
        gate = gate or PrefetchGate(self.spec.is_gated)
        gate.is_steady = not gate.is_gated  # other ranks may need what this one computes ahead
        session = super().open(chain, gate)
        session.meets, session.wrap = True, MetFlows(self.arguments["meeting"].presence)
        return session

    def _agree(self, chain: Chain, gate: PrefetchGate, position: Position) -> None:
        """Compare settings, data and the position with other ranks, though nothing is shared.

        So ranks that differ are an error, as they are where work is shared.
        """
        meeting: Meeting = self.arguments["meeting"]
        told = {**told_of(chain, self.arguments["chunk_size"]), "position": repr(position)}

        def look() -> None:
            if gate.is_closed:
                raise TaskLost

        meeting.join(told, Reach(1, 1), look).close()
        meeting.leave()

    def driven(
        self,
        chain: Chain,
        segments: list[Segment],
        gate: PrefetchGate,
    ) -> tuple[list[WorkerPool], Machine[Any]]:
        if self.arguments["meeting"].nodes:
            found: tuple[list[WorkerPool], Machine[Any]]
            found = _by_node().driven_by_node(self, chain, segments, gate)
            return found
        if (parts := cut_at_shard(chain, segments)) is None:
            return super().driven(chain, segments, gate)
        calls, inner_log = apart(parts.calls)  # not the log of the thread that drives the pools
        inner = cut_at_shard(Chain(calls), self.spec.split(Chain(calls)))
        assert inner is not None
        handlers, skip_log = handlers_of([*inner.before, *parts.after]), skip_log_of(chain)
        pool = self.start(SharedPool, handlers)
        common = Plan(pool, gate, inner_log).machine(inner.before)
        pool.stays = inner.stays
        fetching = FetchingPool(pool, Chain(calls), common)
        machine = fetching.machine(gate, skip_log)
        plan = Plan(pool, gate, skip_log, first=len(handlers_of(inner.before)))
        if parts.after:
            machine = plan.machine(parts.after, upstream=machine)
        return [pool, fetching], pool.opening(chain, machine)


def _by_node() -> Any:
    return import_module("lazyckpt.executors.sharing.node")


def check_dealt(chain: Chain, name: str, other: str) -> None:
    """Raise a PipelineError unless all ranks read the same items, and each knows its number.

    Args:
        chain: The pipeline.
        name: The name of the executor.
        other: An executor that can run the pipeline.
    """
    if not is_dealt(chain):
        raise PipelineError(
            f"{name}: the pipeline has no shard, so that nothing says which items are this "
            f"rank's; add shard(num_shards=..., index=...), or run it with {other}"
        )
    if (parting := chain.own_rank) is not None:
        stage = chain.partings[-1][0]
        skips = leaves_out(stage)
        shown = f"items are skipped before {stage_behind(stage)}" if skips else repr(stage)
        failing = "what may fail (a map, a collate), and a filter or packing after it,"
        remedy = f"put {failing if skips else 'it'} before shard"
        if stage.combinator.is_source:
            remedy = f"run it with {other}"
        raise PipelineError(
            f"{name}: ranks have positions of their own after {shown}, as the states of "
            f"{parting} and of others differ; {remedy}"
        )
    for call, machine in zip(chain.calls, chain.machines, strict=True):
        is_stream = machine.upstream is not None and machine.upstream.skip is None
        if is_stream and call.arguments.get("remainder") == "repeat":
            raise PipelineError(
                f"{name}: with {call!r} some ranks read items again that others don't wait for; "
                f'pass remainder="pad" or "drop", or run it with {other}'
            )


def is_dealt(chain: Chain) -> bool:
    """Return whether a stage has the arguments of `shard`, even for a single rank."""
    inner = any(is_dealt(each) for call in chain.calls for each in call.chains)
    return inner or any("num_shards" in call.arguments for call in chain.calls)


def shared(
    public: Callable[..., Executor], executor: Executor, meeting: Meeting, more: Mapping[str, Any]
) -> SharedExecutor:
    """Make the executor that a public function returns."""
    return SharedExecutor(public, {"executor": executor, "meeting": meeting, **more})
