"""What an item costs, stage by stage, against the plainest loop that does the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import numpy as np
from harness import Action, Row, compared, spent
from wide import add, keep

import lazyckpt as lz

N = 1_000_000
FEW = 20_000  # items of what is slow
Pairs = dict[str, tuple[Action, Action]]


def items(rounds: int) -> Iterator[Row]:
    """Stages first, then the ways to have states."""
    for n, pairs in ((N, stages(N)), (FEW, states(FEW))):
        for what, (ours, theirs) in pairs.items():
            yield compared("items", what, ours, theirs, rounds, n)


def stages(n: int) -> Pairs:
    """Ours and the plainest loop, for n items."""
    data = list(range(n))
    some = data[:10]
    lists = [data[i : i + 1_000] for i in range(0, n, 1_000)]
    source = lz.source(data)

    def mapped() -> None:
        for x in data:
            add(x)

    def filtered() -> None:
        for x in data:
            keep(x)

    def sliced() -> None:
        for i in range(0, n, 32):
            _ = data[i : i + 32]

    def permuted() -> None:
        for i in np.random.default_rng(0).permutation(n).tolist():
            _ = data[i]

    def nested() -> None:
        for each in lists:
            for _ in each:
                pass

    def again() -> None:
        for _ in range(n // 10):
            for _ in some:
                pass

    def nexts() -> None:
        run = lz.run(source)
        for _ in range(n):
            next(run)

    def plain_nexts() -> None:
        stream = iter(data)
        for _ in range(n):
            next(stream)

    return {
        "source(list) / for": (going(source), lambda: spent(data)),
        "next(run) / next(iter(list))": (nexts, plain_nexts),
        "source|map / for": (going(source | lz.map(add)), mapped),
        "source|filter / for": (going(source | lz.filter(keep)), filtered),
        "source|batch(32) / slices": (going(source | lz.batch(32)), sliced),
        "source|shuffle / permutation.tolist()": (going(source | lz.shuffle(seed=0)), permuted),
        "flat_map, lists of 1,000 / nested for": (
            going(lz.source(lists) | lz.flat_map(lambda each: each)),
            nested,
        ),
        "repeat, 10 items an epoch / nested for": (
            going(lz.source(some) | lz.repeat(n // 10)),
            again,
        ),
    }


def going(pipeline: lz.Pipeline[object]) -> Action:
    return lambda: spent(pipeline)


def states(n: int) -> Pairs:
    """A state for every item; by hand a tuple or a dict of the index."""
    some = list(range(n))
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

    with_state: Callable[[], None] = lambda: spent(lz.run(pipeline).with_state())  # noqa: E731
    return {
        "lz.step / enumerate, a tuple": (stepping, counting),
        "run.state at each item / enumerate, a tuple": (taking, counting),
        "with_state() / enumerate, a tuple": (with_state, counting),
        "run.state.to_json() / json.dumps of the index": (writing, dumping),
    }
