"""Measure the time of each stage, by timers around its functions, in every worker."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import numpy as np

Stage = tuple[int, int]  # its number, and 1 for an inner part whose items aren't outputs
Span = tuple[Stage, float, float]  # the stage, its begin and its end

_SLOW = 20e-6  # seconds from which the CPU clock is read, which is slower than the wall clock
_SPANS = 10_000  # spans that a worker, or a task, keeps
_LOOKS = 64  # checks of the random generators; one takes as long as a slow timer


@dataclass(slots=True)
class Timing:
    """The measurements of a stage in one worker.

    Attributes:
        seconds: Wall time, without the time of the stages before it.
        working: CPU time within `seconds`.
        items: Number of items computed.
        sized: Number of items whose size was measured.
        size: Total size of these items in bytes.
        calls: How many times its timer was started.
        inner: How many times other timers were started within it.
        draws: Whether it was seen to draw from a global random generator.
    """

    seconds: float = 0.0
    working: float = 0.0
    items: int = 0
    sized: int = 0
    size: float = 0.0
    calls: int = 0
    inner: int = 0
    draws: bool = False


class Timings(NamedTuple):
    """The measurements of one worker since its last report.

    Attributes:
        worker: The ids of its process and thread, and a name.
        stages: Measurements by stage.
        spans: The first calls: the stage, its begin and its end.
    """

    worker: tuple[int, int, str]
    stages: dict[Stage, Timing]
    spans: list[Span]


class StageTimer:
    """Tracks which stage is running in one thread, and charges the time to that stage alone."""

    def __init__(self) -> None:
        is_alone = threading.current_thread() is threading.main_thread()
        self._looks = _LOOKS if is_alone else 0  # in other threads, other code may draw too
        self._generators: Any = None
        self.stages: dict[Stage, Timing] = {}
        self.spans: list[Span] = []
        self.received: list[Timings] = []  # from this thread's own workers
        self._at_work: Timing | None = None
        self._since = 0.0
        self._quick = 0.0  # seconds in short spells since the CPU clock was read
        self._worked = 0.0  # the CPU clock at that time

    @property
    def calls(self) -> int:
        """How many times timers were started, here and in received measurements."""
        return sum(timing.calls for told in self._told() for timing in told.values())

    @property
    def items(self) -> int:
        """The number of items of the stage with the most items."""
        made = Counter[Stage]()
        for told in self._told():
            made.update({stage: timing.items for stage, timing in told.items()})
        return max(made.values(), default=0)

    def _told(self) -> Iterator[dict[Stage, Timing]]:
        yield self.stages
        yield from (each.stages for each in self.received)

    def enter(self, stage: Stage) -> Timing | None:
        """Start charging a stage; return the one that was charged before."""
        self._charge()
        self._look()
        before = self._at_work
        found = self.stages.get(stage)
        if found is None:
            found = self.stages[stage] = Timing()
        found.calls += 1
        if before is not None:
            before.inner += 1
        self._at_work = found
        return before

    def leave(self, before: Timing | None, stage: Stage, begun: float) -> Timing | None:
        """Stop charging a stage, and charge `before` again; return the stage's measurements."""
        self._charge()
        self._look()
        found, self._at_work = self._at_work, before
        if len(self.spans) < _SPANS:
            self.spans.append((stage, begun, self._since))
        return found

    def _charge(self) -> None:
        now, timing = perf_counter(), self._at_work
        spell = now - self._since
        if timing is not None:
            timing.seconds += spell
        if spell < _SLOW:
            self._quick += spell
            if timing is not None:
                timing.working += spell
            self._since = now
            return
        cpu = thread_time()
        if timing is not None:
            timing.working += min(spell, max(0.0, cpu - self._worked - self._quick))
        self._worked, self._quick = cpu, 0.0
        self._since = perf_counter()

    def _look(self) -> None:
        """Check whether the running stage has drawn random numbers; charge no stage for it."""
        if self._looks:
            self._looks -= 1
            found = _generators()
            if self._at_work is not None and found != self._generators:
                self._at_work.draws = True
            self._generators = found
            self.rest()

    def pause(self) -> Timing | None:
        """Charge no stage, while waiting for workers; return the one that was charged before."""
        self._charge()
        before, self._at_work = self._at_work, None
        return before

    def go_on(self, before: Timing | None) -> None:
        """Charge a stage again; the time since the last switch isn't charged to it."""
        self._charge()
        self._at_work = before

    def rest(self) -> None:
        """Charge no stage for the time since the last switch."""
        self._since = perf_counter()


def _generators() -> tuple[Any, ...]:
    """Return the states of the global random generators of this process."""
    legacy: Any = np.random.get_state()
    torch = sys.modules.get("torch")
    more = b"" if torch is None else torch.get_rng_state().numpy().tobytes()
    return random.getstate(), legacy[1].tobytes(), legacy[2:], more


class _Own(threading.local):
    timer: StageTimer | None = None


_own = _Own()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: vars(_own).clear())


def own_timer() -> StageTimer:
    """Return the timer of this thread; make one if there is none."""
    found = _own.timer
    if found is None:
        found = _own.timer = StageTimer()
    return found


@contextmanager
def using(timer: StageTimer) -> Iterator[None]:
    """Return a context in which `timer` is the timer of this thread."""
    before, _own.timer = _own.timer, timer
    try:
        yield
    finally:
        _own.timer = before


def pause() -> Timing | None:
    """Charge no stage in this thread; return the one that was charged before."""
    timer = _own.timer
    return None if timer is None else timer.pause()


def go_on(before: Timing | None) -> None:
    """Charge a stage of this thread again."""
    if before is not None:
        own_timer().go_on(before)


def taken() -> list[Timings] | None:
    """Return the measurements of this thread and its workers since the last call."""
    timer = _own.timer
    if timer is None or not (timer.stages or timer.received):
        return None
    found, timer.received = timer.received, []
    if timer.stages:
        found.append(Timings(_worker(), timer.stages, timer.spans))
        timer.stages, timer.spans = {}, []
    return found


def receive(timings: list[Timings]) -> None:
    """Keep the measurements of a worker, for the next report of this thread."""
    own_timer().received += timings


def _worker() -> tuple[int, int, str]:
    thread = threading.current_thread()
    name = thread.name
    if thread is threading.main_thread() and (found := sys.modules.get("multiprocessing")):
        name = found.current_process().name
    return os.getpid(), threading.get_ident(), name
