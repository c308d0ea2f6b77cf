"""The cost of an item, stage by stage, against the plainest loop that does the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from data import add, keep
from harness import Action, Row, compared, spent

import lazyckpt as lz

N = 1_000_000


def items(rounds: int) -> Iterator[Row]:
    for what, (ours, theirs) in stages(N).items():
        yield compared("items", what, ours, theirs, rounds, N)


def stages(n: int) -> dict[str, tuple[Action, Action]]:
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

    return {
        "source(list) / for": (going(source), lambda: spent(data)),
        "source|map / for": (going(source | lz.map(add)), mapped),
        "source|filter / for": (going(source | lz.filter(keep)), filtered),
        "source|batch(32) / slices": (going(source | lz.batch(32)), sliced),
        "source|shuffle / permutation.tolist()": (going(source | lz.shuffle(seed=0)), permuted),
        "flat_map, lists of 1,000 / nested for": (
            going(lz.source(lists) | lz.flat_map(lambda each: each)),
            nested,
        ),
        "repeat, 10 items per epoch / nested for": (
            going(lz.source(some) | lz.repeat(n // 10)),
            again,
        ),
    }


def going(pipeline: lz.Pipeline[object]) -> Action:
    return lambda: spent(pipeline)
