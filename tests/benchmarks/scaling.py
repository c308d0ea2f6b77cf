"""W8: the cost of an item and the size of a state, as data and pipelines grow.

A slope is a slope of logarithms: 0 for a constant cost, 1 for a cost that grows like the size.
Times are CPU times, the lowest of several: disturbances only add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import islice
from time import process_time
from typing import Any

import numpy as np
from data import add
from harness import Action, Row, spent

import lazyckpt as lz

FEW = 20_000  # items that are timed
Make = Callable[[int], lz.Pipeline[Any]]


def numbers(size: int = 10**9) -> lz.Pipeline[int]:
    return lz.source(range(size))


def stages(size: int) -> lz.Pipeline[Any]:
    return reduce(lambda pipeline, _: pipeline | lz.map(add), range(size), numbers())


def takes(size: int) -> lz.Pipeline[Any]:
    return reduce(lambda pipeline, _: pipeline | lz.take(10**8), range(size), numbers())


def many(size: int) -> list[lz.Pipeline[int]]:
    return [numbers(10**6 + i) for i in range(size)]


FLAT, LINEAR = 0.15, 1.1  # limits of slopes, with the error of measurements
POWERS = [10**k for k in range(3, 10)]
MANY = [1, 10, 100, 2_000]

MIXTURES: list[tuple[str, int, Any]] = [
    ("a mix", 3, [5, 3, 2]),
    ("a mix of 20", 20, [*range(1, 21)]),
    ("a scheduled mix", 3, lz.schedule({0: [5, 3, 2], 10**8: [1, 1, 1]})),
]

# Of each: sizes, the pipeline, and the slopes that its documentation says: of an
# item, of a state, of a resume.
SIZES: dict[str, tuple[list[int], Make, tuple[float, float, float]]] = {
    "source of n": (POWERS, numbers, (FLAT, FLAT, FLAT)),
    "shuffle of n": (POWERS, lambda n: numbers(n) | lz.shuffle(seed=0), (FLAT, FLAT, FLAT)),
    "shuffle(100) of n": (
        POWERS,
        lambda n: numbers(n) | lz.shuffle(100, seed=0),
        (FLAT, FLAT, FLAT),
    ),
    "n stages, map": ([1, 4, 16, 64], stages, (LINEAR, LINEAR, LINEAR)),
    "n stages, take": ([1, 4, 16, 64], takes, (LINEAR, LINEAR, LINEAR)),
    "shard, one of n": (
        [1, 32, 1_024],
        lambda n: numbers() | lz.shuffle(seed=0) | lz.shard(num_shards=n, index=0),
        (FLAT, FLAT, FLAT),
    ),
    "mix of n": (MANY, lambda n: lz.mix(many(n), [1] * n, seed=0), (FLAT, LINEAR, LINEAR)),
    **{
        f"shard of {what}, one of n": (
            [2, 32, 1_024],
            lambda n, count=count, weights=weights: (
                lz.mix([numbers()] * count, weights, seed=0) | lz.shard(num_shards=n, index=1)
            ),
            (FLAT, FLAT, FLAT),
        )
        for what, count, weights in MIXTURES
    },
    "interleave of n": (MANY, lambda n: lz.interleave(*many(n)), (FLAT, LINEAR, LINEAR)),
    "lanes of n": (
        MANY,
        lambda n: lz.lanes(many(n), num_shards=1, index=0),
        (FLAT, LINEAR, LINEAR),
    ),
}
FIGURES = (("an item", "ns"), ("a state", "B"), ("a resume", "ms"))


def scaling(rounds: int) -> Iterator[Row]:
    """An item, a state's bytes, and the first item from a state, for each size."""
    for what, (sizes, make, bounds) in SIZES.items():
        found = [of_size(make(size), max(5, rounds)) for size in sizes]
        for (figure, unit), bound, values in zip(
            FIGURES, bounds, zip(*found, strict=True), strict=True
        ):
            pairs = zip(sizes, values, strict=True)
            each = ", ".join(f"{size:,}: {value:,.4g}" for size, value in pairs)
            slope = float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
            words = f"{what}, {figure}: slope"
            said = judged(slope, bound)
            yield Row("W8", words, [slope], "-", bound, remark=f"{said}; {unit} of {each}")


def judged(slope: float, bound: float) -> str:
    if slope > bound:
        return "steeper than documented"
    return "flat" if slope <= FLAT else "grows, as documented"


def seconds(action: Action) -> float:
    begun = process_time()
    action()
    return process_time() - begun


def of_size(pipeline: lz.Pipeline[Any], rounds: int) -> tuple[float, float, float]:
    few = min(FEW, (len(pipeline) if _has_length(pipeline) else 10**9) // 3)
    times, runs = [], [lz.run(pipeline) for _ in range(rounds)]
    for run in runs:
        spent(islice(run, few))  # what starting costs, of each of many pipelines, is not an item's
        times.append(seconds(lambda run=run: spent(islice(run, few))) / few)  # type: ignore[misc]
    text = runs[0].state.to_json()
    resumed = min(seconds(lambda: next(lz.run(pipeline, text))) for _ in range(rounds))
    return min(times) * 1e9, float(len(text)), resumed * 1e3


def _has_length(pipeline: lz.Pipeline[Any]) -> bool:
    try:
        return len(pipeline) > 0
    except TypeError:
        return False
