"""What `lz.profile` takes beyond a run of the same items, and what reading `run.stats` does.

Seconds of the processors, also of workers, so that what else runs on the machine counts less.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import islice, product
from typing import Any

from harness import Row, spent
from wide import add, keep

import lazyckpt as lz

BOUND = 1.05
EXECUTORS = (None, lz.threads(2), lz.processes(2))
TIMES = 1000  # that stats are read


def work(count: int, x: int) -> int:
    return sum(range(count)) and x


def pipelines() -> Iterator[tuple[str, Any, int]]:
    """A name, a pipeline, and how many of its items take some seconds."""
    data = lz.source(range(100_000_000))
    yield "ints through map, filter, batch of 32", data | lz.map(add) | lz.filter(keep), 9_000_000
    for count, n in ((100, 2_000_000), (1_000, 200_000), (10_000, 20_000)):
        stage = lz.map(partial(work, count))
        yield f"sums of {count:,}, shuffled, in batches", data | lz.shuffle(seed=0) | stage, n


def profiles(rounds: int) -> Iterator[Row]:
    for (name, items, n), executor in product(pipelines(), EXECUTORS):
        batches = items | lz.batch(32)
        plain, profile = partial(walk, batches, n // 32, executor), partial(lz.profile, batches)
        ratios, sides = [], []
        for _ in range(rounds + 1):
            alone, ours = cpu(plain), cpu(partial(profile, n // 32, executor=executor))
            ratios.append(ours / alone)
            sides.append(f"{ours / n * 1e9:,.0f} / {alone / n * 1e9:,.0f} ns")
        where = f"{executor or 'inline'}: profile / run"
        yield Row("profile", f"{name}, {where}", ratios[1:], "", BOUND, sides[-1])
    run = lz.run(lz.source(range(100)))
    next(run)
    reads = [cpu(lambda: [run.stats for _ in range(TIMES)]) / TIMES * 1e6 for _ in range(rounds)]
    yield Row("profile", "run.stats, read", reads, "µs", 10)
    shown = lz.source(range(200_000))
    bars = [cpu(lambda: spent(lz.progress(shown, leave=False))) * 5 for _ in range(rounds)]
    yield Row("profile", "an item of lz.progress", bars, "µs", 1)


def walk(pipeline: Any, count: int, executor: Any) -> None:
    with lz.run(pipeline, executor=executor) as run:
        deque(islice(run, count), 0)


def cpu(action: Any) -> float:
    begun = sum(os.times()[:4])
    action()
    return sum(os.times()[:4]) - begun
