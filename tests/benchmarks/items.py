"""What an item costs, stage by stage, against the plainest loop that does the same."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
from harness import Row, compared, spent
from wide import add, keep

import lazyckpt as lz

N = 1_000_000
FEW = 20_000  # items of what is slow


def items(rounds: int) -> Iterator[Row]:
    """Stages first, then the ways to have states."""
    data = list(range(N))
    some = data[:FEW]
    lists = [data[i : i + 1_000] for i in range(0, N, 1_000)]

    def row(what: str, ours: object, theirs: object, n: int = N) -> Row:
        return compared("items", what, ours, theirs, rounds, n)  # type: ignore[arg-type]

    def mapped() -> None:
        for x in data:
            add(x)

    def filtered() -> None:
        for x in data:
            keep(x)

    def sliced() -> None:
        for i in range(0, N, 32):
            _ = data[i : i + 32]

    def permuted() -> None:
        for i in np.random.default_rng(0).permutation(N).tolist():
            _ = data[i]

    def nested() -> None:
        for each in lists:
            for _ in each:
                pass

    def again() -> None:
        for _ in range(N // 10):
            for _ in some[:10]:
                pass

    def nexts() -> None:
        run = lz.run(lz.source(data))
        for _ in range(N):
            next(run)

    def plain_nexts() -> None:
        stream = iter(data)
        for _ in range(N):
            next(stream)

    source = lz.source(data)
    yield row("source(list) / for", lambda: spent(source), lambda: spent(data))
    yield row("next(run) / next(iter(list))", nexts, plain_nexts)
    yield row("source|map / for", lambda: spent(source | lz.map(add)), mapped)
    yield row("source|filter / for", lambda: spent(source | lz.filter(keep)), filtered)
    yield row("source|batch(32) / slices", lambda: spent(source | lz.batch(32)), sliced)
    yield row(
        "source|shuffle / permutation.tolist()",
        lambda: spent(source | lz.shuffle(seed=0)),
        permuted,
    )
    yield row(
        "flat_map, lists of 1,000 / nested for",
        lambda: spent(lz.source(lists) | lz.flat_map(lambda each: each)),
        nested,
    )
    yield row(
        "repeat, 10 items an epoch / nested for",
        lambda: spent(lz.source(some[:10]) | lz.repeat(N // 10)),
        again,
    )
    yield from states(rounds, some)


def states(rounds: int, some: list[int]) -> Iterator[Row]:
    """A state for every item; by hand a tuple or a dict of the index."""
    pipeline = lz.source(some)

    def counting() -> None:
        for index, _ in enumerate(some):
            _ = (0, index + 1)

    def dumping() -> None:
        for index, _ in enumerate(some):
            json.dumps({"index": index + 1})

    def stepping() -> None:
        state = lz.init(pipeline)
        for _ in some:
            state, _ = lz.step(pipeline, state)

    def taking() -> None:
        run = lz.run(pipeline)
        for _ in run:
            _ = run.state

    def writing() -> None:
        run = lz.run(pipeline)
        for _ in run:
            run.state.to_json()

    for what, ours, theirs in [
        ("lz.step / enumerate, a tuple", stepping, counting),
        ("run.state at each item / enumerate, a tuple", taking, counting),
        (
            "with_state() / enumerate, a tuple",
            lambda: spent(lz.run(pipeline).with_state()),
            counting,
        ),
        ("run.state.to_json() / json.dumps of the index", writing, dumping),
    ]:
        yield compared("items", what, ours, theirs, rounds, len(some))
