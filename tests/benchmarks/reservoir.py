"""The streaming shuffle with a buffer: its state, its speed, its resume."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice

from harness import Row, compared, seconds, spent

import lazyckpt as lz
from lazyckpt.core.prng import draws

N = 1_000_000
SIZE = 65_536
STATES = 100


class Stream:
    """An iterable with no random access."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.n))


def reservoir(rounds: int) -> Iterator[Row]:
    """State size, time to take one, time per item, time to resume."""
    stream = lz.source(Stream(N)) | lz.shuffle(SIZE, seed=0)
    indexed = lz.source(range(N)) | lz.shuffle(SIZE, seed=0)
    for name, pipeline in {
        "stream": stream,
        "range": indexed,
        "pipeline of eight": eight_stages(),
    }.items():
        sizes, times = [], []
        run = lz.run(pipeline)
        for _ in islice(run, 0, 200_000, 1_999):
            sizes.append(float(len(run.state.to_json())))
            times.append(seconds(lambda r=run: [r.state for _ in range(STATES)]) / STATES * 1e6)
        largest = [max(sizes)]
        yield Row("reservoir", f"JSON of a state over a {name}, largest of 101", largest, "B", 1024)
        yield Row("reservoir", f"take a state over a {name}", times, "µs", 20)

    data = list(range(N))
    ours = lz.source(data) | lz.shuffle(SIZE, seed=0)
    for what, theirs in {"random.randrange": by_randrange, "the same draws": by_draws}.items():
        text = f"source(list)|shuffle(65_536) / generator with {what}"
        yield compared(
            "reservoir", text, lambda: spent(ours), lambda f=theirs: spent(f(data)), rounds, N
        )

    for name, pipeline in {"a stream": stream, "random access": indexed}.items():
        run, texts = lz.run(pipeline), []
        for _ in range(rounds):
            spent(islice(run, 700_000 // rounds))
            texts.append(run.state.to_json())
        found = [seconds(lambda t=t, p=pipeline: next(iter(lz.run(p, t)))) * 1e3 for t in texts]
        yield Row("reservoir", f"resume over {name}, first item", found, "ms")


def eight_stages() -> lz.Pipeline[list[int]]:
    return (
        lz.source(range(64))
        | lz.shuffle(seed=0)
        | lz.repeat()
        | lz.shard(num_shards=8, index=0)
        | lz.flat_map(lambda chunk: range(chunk * 5_000, chunk * 5_000 + 5_000))
        | lz.shuffle(buffer_size=SIZE, seed=1)
        | lz.map(lambda x: x + 1)
        | lz.batch(32)
    )


def by_randrange(data: Iterable[int], size: int = SIZE) -> Iterator[int]:
    """The algorithm as one writes it by hand."""
    stream, rng = iter(data), random.Random(0)
    buffer = list(islice(stream, size))
    for item in stream:
        slot = rng.randrange(size)
        yield buffer[slot]
        buffer[slot] = item
    rng.shuffle(buffer)
    yield from buffer


def by_draws(data: Iterable[int]) -> Iterator[int]:
    """The algorithm by hand, with the library's own draws, as cheap as they come."""
    stream, start = iter(data), SIZE
    buffer = list(islice(stream, SIZE))
    while chunk := list(islice(stream, SIZE)):
        slots = draws(0, start, start + len(chunk), SIZE).tolist()
        start += len(chunk)
        for slot, item in zip(slots, chunk, strict=True):
            yield buffer[slot]
            buffer[slot] = item
    random.Random(0).shuffle(buffer)
    yield from buffer
