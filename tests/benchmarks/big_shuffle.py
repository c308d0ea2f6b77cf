"""A permutation of 10**9 numbers: nothing of it is stored, so nothing of it costs."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from itertools import islice

from harness import Row, seconds, spent

import lazyckpt as lz

N = 10**9
AT_ONCE = 100


def shuffled(n: int = N) -> lz.Pipeline[int]:
    return lz.source(range(n)) | lz.shuffle(seed=0)


def big_shuffle(rounds: int) -> Iterator[Row]:
    """First item, memory, random access, resume."""
    times = range(5 * rounds)
    first = [seconds(lambda: next(iter(shuffled()))) * 1e3 for _ in times]
    yield Row("big", "build the pipeline, start it, first of 10**9 items", first, "ms", 5)

    grown = [(peak(N) - peak(10**6)) / 1024 for _ in range(min(rounds, 3))]
    yield Row("big", "memory at its peak, of 10**9 less of 10**6, 200,000 items", grown, "KiB", 64)

    pipeline = shuffled()
    last = [seconds(lambda: [pipeline[N - 1] for _ in range(AT_ONCE)]) for _ in times]
    yield Row("big", "pipeline[10**9 - 1]", [s / AT_ONCE * 1e6 for s in last], "µs", 100)

    places = random.Random(0)
    texts = [lz.state_at(pipeline, places.randrange(N)).to_json() for _ in times]
    found = [seconds(lambda t=text: next(iter(lz.run(shuffled(), t)))) * 1e3 for text in texts]
    yield Row("big", "build, run(pipeline, JSON) anywhere, first item", found, "ms", 1)


def peak(n: int) -> int:
    """Bytes that Python and NumPy held at most, going through some items of n."""
    tracemalloc.start()
    spent(islice(shuffled(n), 200_000))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most
