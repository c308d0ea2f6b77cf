"""A session: an executor's workers on one pipeline, for one run."""

from __future__ import annotations

import os
import weakref
from _thread import start_new_thread
from collections.abc import Callable
from itertools import chain
from typing import Any, Protocol

from lazyckpt.core.flow import Chunks, Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.executors.pools.pool import PrefetchGate, WorkerPool


class Prefetching(Protocol):
    """Items computed ahead, from a position on."""

    def flow(self) -> Flow[Any]: ...

    def fill(self) -> None:
        """Submit tasks for items to be computed ahead."""

    @property
    def ready(self) -> int:
        """The number of items that are ready."""

    def suspend(self) -> None:
        """Close everything open in this thread, and keep the items that are ready."""


class Session:
    """An executor's workers on one pipeline, for one run.

    The workers start when the first item is requested. They end with `stop`, with the
    interpreter, or when the session is garbage collected.

    Attributes:
        gate: Says whether items are computed ahead.
        prefetching: The items being computed; None until a flow is open.
        meets: Whether its flows begin on several ranks together. Then `stop` keeps no items that
            are ready, as their number differs between ranks.
        wrap: Function from the chunks of a flow, and its position, to chunks in their place.
    """

    meets = False
    wrap: Callable[[Chunks[Any], Position], Chunks[Any]] | None = None

    def __init__(
        self,
        machine: Machine[Any],
        prefetch_from: Callable[[Position], Prefetching],
        gate: PrefetchGate,
    ) -> None:
        self.gate = gate
        self.prefetching: Prefetching | None = None
        self._prefetch_from = prefetch_from
        self._machine = machine
        self._lost_before = 0
        self._owner = os.getpid()
        self._stop_with_this()

    def _stop_with_this(self) -> None:
        """End all workers once this session is dropped."""
        # In a thread, as a signal that came while Python code runs in a finalizer would be lost.
        pools = self.gate.pools
        self._end = weakref.finalize(self, start_new_thread, _stop, (pools, self._owner))
        self._end.atexit = False

    @property
    def machine(self) -> Machine[Any]:
        """The pipeline's machine, with a flow whose items workers compute."""
        return self._machine._replace(flow=self._flow)  # stored, it would be a reference cycle

    def _flow(self, position: Position) -> Flow[Any]:
        self._machine.flow(position)  # checks the position
        self.prefetching = self._prefetch_from(position)
        flow = self.prefetching.flow()
        if self.wrap is not None and flow.chunks is not None:
            flow.chunks = chunks = self.wrap(flow.chunks, position)
            flow.pull = chain.from_iterable(iter(chunks.next_chunk, None))
        return flow

    def add_buffering(self, count: int, *, fill: bool = False) -> None:
        """Add reasons to compute items ahead; a negative count removes some."""
        self.gate.add_reason(count)
        if fill and self.gate.is_open:
            self.fill()

    def take_over(self, other: Session) -> None:
        """Replace another session of the same run: take over its gate's reasons and losses."""
        self.gate.add_reason(other.gate.reasons - self.gate.reasons)
        self._lost_before = other.losses

    def fill(self) -> None:
        """Submit tasks for items to be computed ahead, if a flow is open."""
        if self.prefetching is not None:
            self.prefetching.fill()

    @property
    def ready(self) -> int:
        """The number of items that are ready."""
        return 0 if self.prefetching is None else self.prefetching.ready

    @property
    def losses(self) -> int:
        """How many times a worker died or hung."""
        return self._lost_before + sum(pool.losses for pool in self.gate.pools)

    def start(self) -> None:
        """Let workers start when they are needed; if buffering is allowed, start them now."""
        self.gate.is_closed = False
        if not self._end.alive:
            self._stop_with_this()
        if self.gate.is_gated and self.gate.is_open:
            self.fill()

    def give_up(self) -> None:
        """End workers that may still wait for other ranks, for items that aren't wanted now."""
        if self.meets:
            _stop(self.gate.pools, self._owner)

    def stop(self) -> None:
        """End all workers; after `start`, they can start again."""
        self.gate.is_closed = True
        _stop(self.gate.pools, self._owner)
        self._end.detach()
        if self.prefetching is not None:
            self.prefetching.suspend()


def _stop(pools: list[WorkerPool], owner: int) -> None:
    is_forked = os.getpid() != owner  # then the pools belong to the parent process
    for pool in pools:
        if not (pool.is_external and is_forked):
            pool.stop()
