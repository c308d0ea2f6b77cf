"""Timers: their sums."""

from __future__ import annotations

from lazyckpt.timers.timings import StageTimer, Timing, Timings


def test_what_workers_have_made_adds_up() -> None:
    timer = StageTimer()
    timer.stages = {(0, 0): Timing(items=3)}
    told = [{(0, 0): Timing(items=4), (1, 0): Timing(items=6)}, {(0, 0): Timing(items=5)}]
    timer.received = [Timings((1, 2, ""), stages, []) for stages in told]
    assert timer.items == 12
