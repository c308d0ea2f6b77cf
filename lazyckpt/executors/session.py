"""A session: an executor's workers on one pipeline, for one run."""

from __future__ import annotations

import os
import threading
import weakref
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.executors.pools.forking import own_threads
from lazyckpt.executors.pools.pool import PrefetchGate, WorkerPool


class Prefetching(Protocol):
    """Items from some position on, made ahead."""

    def flow(self) -> Flow[Any]: ...

    def fill(self) -> None:
        """Have items made ahead."""

    @property
    def ready(self) -> int:
        """How many items are made already."""

    def suspend(self) -> None:
        """Close what is open in this thread, and keep what is there."""


class Session:
    """An executor's workers on one pipeline, for one run.

    They start when the first item is asked for, and end with `stop`, at the
    interpreter's end, or when nobody holds the session any more.

    Attributes:
        gate: Whether items are made ahead.
        prefetching: The items under way, once a flow is open.
    """

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
        self._finalizer = weakref.finalize(self, _finalize, gate.pools, self._owner)

    @property
    def machine(self) -> Machine[Any]:
        """The pipeline's machine, with a flow that workers make."""
        return self._machine._replace(flow=self._flow)  # kept here it would be a cycle

    def _flow(self, position: Position) -> Flow[Any]:
        self._machine.flow(position)  # which checks it
        self.prefetching = self._prefetch_from(position)
        return self.prefetching.flow()

    def add_buffering(self, count: int, *, fill: bool = False) -> None:
        """Count a reason to make items ahead, or with -1 take one back."""
        self.gate.add_reason(count)
        if fill and self.gate.is_open:
            self.fill()

    def take_over(self, other: Session) -> None:
        """Be for a run, from its first item on, what another session was."""
        self.gate.add_reason(other.gate.reasons - self.gate.reasons)
        self._lost_before = other.losses

    def fill(self) -> None:
        """Have items made ahead, where that has begun."""
        if self.prefetching is not None:
            self.prefetching.fill()

    @property
    def ready(self) -> int:
        """How many items are made already."""
        return 0 if self.prefetching is None else self.prefetching.ready

    @property
    def losses(self) -> int:
        """How often a worker died or hung."""
        return self._lost_before + sum(pool.losses for pool in self.gate.pools)

    def start(self) -> None:
        """Let workers start when they are needed, as at first: now, where buffering is allowed."""
        self.gate.is_closed = False
        if self.gate.is_gated and self.gate.is_open:
            self.fill()

    def stop(self) -> None:
        """End all workers. What is ready stays, and after `start` they start again."""
        self.gate.is_closed = True
        _stop(self.gate.pools, self._owner)
        if self.prefetching is not None:
            self.prefetching.suspend()


def _stop(pools: list[WorkerPool], owner: int) -> None:
    is_forked = os.getpid() != owner  # so that the pools are the parent's
    for pool in pools:
        if not (pool.is_external and is_forked):
            pool.stop()


def _stop_beside(pools: list[WorkerPool], owner: int) -> None:
    # Waiting lists this thread, and up to Python 3.12 as long as the process lives.
    own_threads.add(threading.current_thread())
    _stop(pools, owner)


def _finalize(pools: list[WorkerPool], owner: int) -> None:
    """Stop pools; in a thread where that may wait, as garbage collection may interrupt anything."""
    if any(pool.is_external for pool in pools):
        with suppress(RuntimeError):  # the interpreter ends
            start_new_thread(_stop_beside, (pools, owner))
    else:
        _stop(pools, owner)
