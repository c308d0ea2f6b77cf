"""What each stage takes, by timers around its modes, in whichever worker it runs."""

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

Stage = tuple[int, int]  # its number, and 1 for a part of it whose items are no items of it
Span = tuple[Stage, float, float]  # when it began, and when it ended

_SLOW = 20e-6  # seconds that are worth a look at the processor's clock, which takes longer
_SPANS = 10_000  # that a worker keeps, or a task of it
_LOOKS = 64  # at the generators of random numbers; one takes as long as a slow timer


@dataclass(slots=True)
class Timing:
    """What a stage has taken in one worker.

    Attributes:
        seconds: Without those of the stages before it.
        working: Of these, those in which the processor worked.
        items: How many it has made.
        sized: Of how many of them the size is known.
        size: How large those are together, in bytes.
        calls: How often its timer was started.
        inner: How often those were that ran within it.
        draws: Whether it was seen to draw from a global generator of random numbers.
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
    """What one worker has measured since it last told.

    Attributes:
        worker: Its process, its thread, and a name.
        stages: By stage.
        spans: The first of the calls: the stage, when it began, and when it ended.
    """

    worker: tuple[int, int, str]
    stages: dict[Stage, Timing]
    spans: list[Span]


class StageTimer:
    """Says in one thread which stage is at work; the time goes to that one alone."""

    def __init__(self) -> None:
        is_alone = threading.current_thread() is threading.main_thread()
        self._looks = _LOOKS if is_alone else 0  # what has changed is its own stages' doing
        self._generators: Any = None
        self.stages: dict[Stage, Timing] = {}
        self.spans: list[Span] = []
        self.received: list[Timings] = []  # from this thread's own workers
        self._at_work: Timing | None = None
        self._since = 0.0
        self._quick = 0.0  # seconds since the processor's clock was read, in short spells
        self._worked = 0.0  # what it said then

    @property
    def calls(self) -> int:
        """How often timers were started, here and in what was received."""
        return sum(timing.calls for told in self._told() for timing in told.values())

    @property
    def items(self) -> int:
        """How many items the stage has made that has made most."""
        made = Counter[Stage]()
        for told in self._told():
            made.update({stage: timing.items for stage, timing in told.items()})
        return max(made.values(), default=0)

    def _told(self) -> Iterator[dict[Stage, Timing]]:
        yield self.stages
        yield from (each.stages for each in self.received)

    def enter(self, stage: Stage) -> Timing | None:
        """Have a stage at work, and say whose turn it was."""
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
        """Give the turn back to whose it was, and say what the stage has taken."""
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
        """See whether the stage at work has drawn random numbers; that takes nobody's time."""
        if self._looks:
            self._looks -= 1
            found = _generators()
            if self._at_work is not None and found != self._generators:
                self._at_work.draws = True
            self._generators = found
            self.rest()

    def pause(self) -> Timing | None:
        """Have no stage at work, as workers are waited for, and say whose turn it was."""
        self._charge()
        before, self._at_work = self._at_work, None
        return before

    def go_on(self, before: Timing | None) -> None:
        """Give the turn back; what was done since it was taken is nobody's."""
        self._charge()
        self._at_work = before

    def rest(self) -> None:
        """Charge nobody with the time since the last call."""
        self._since = perf_counter()


def _generators() -> tuple[Any, ...]:
    """The states of the generators that all of this process shares."""
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
    """The timer of this thread."""
    found = _own.timer
    if found is None:
        found = _own.timer = StageTimer()
    return found


@contextmanager
def using(timer: StageTimer) -> Iterator[None]:
    """A context in which that is the timer of this thread."""
    before, _own.timer = _own.timer, timer
    try:
        yield
    finally:
        _own.timer = before


def pause() -> Timing | None:
    """Have no stage at work in this thread, and say whose turn it was."""
    timer = _own.timer
    return None if timer is None else timer.pause()


def go_on(before: Timing | None) -> None:
    """Give the turn back."""
    if before is not None:
        own_timer().go_on(before)


def taken() -> list[Timings] | None:
    """What this thread, and its own workers, have measured since the last call."""
    timer = _own.timer
    if timer is None or not (timer.stages or timer.received):
        return None
    found, timer.received = timer.received, []
    if timer.stages:
        found.append(Timings(_worker(), timer.stages, timer.spans))
        timer.stages, timer.spans = {}, []
    return found


def receive(timings: list[Timings]) -> None:
    """Keep what a worker has measured, until this thread tells."""
    own_timer().received += timings


def _worker() -> tuple[int, int, str]:
    thread = threading.current_thread()
    name = thread.name
    if thread is threading.main_thread() and (found := sys.modules.get("multiprocessing")):
        name = found.current_process().name
    return os.getpid(), threading.get_ident(), name
