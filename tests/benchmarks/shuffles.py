"""How well shuffles mix: how far items move, and how much neighbours are correlated.

Each order has `BUFFERS` times `SIZE` items; for streams, the edges are left out. Correlations are
computed after subtracting the mean of the `SIZE` items around an item, so that orders that mix
within a buffer can be compared with an order that mixes everything.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from harness import Row
from numpy.typing import NDArray

import lazyckpt as lz

SIZE, BUFFERS, EDGE = 2_048, 40, 4
CELLS = 8  # of the numbers, and so 64 of pairs
PHASES = 16  # of a buffer
SHOWN = 5  # buffers in a picture
Order = NDArray[np.int64]


def reservoir(items: Iterable[Any], size: int) -> Iterator[Any]:
    """A shuffle with a buffer as one writes it by hand."""
    stream, rng = iter(items), random.Random(0)
    buffer = list(islice(stream, size))
    for item in stream:
        slot = rng.randrange(size)
        yield buffer[slot]
        buffer[slot] = item
    rng.shuffle(buffer)
    yield from buffer


def orders() -> dict[str, Order]:
    n = SIZE * BUFFERS
    source = lz.source(range(n))
    found: dict[str, Any] = {
        "shuffle of everything": source | lz.shuffle(seed=0),
        f"shuffle({SIZE:,})": source | lz.shuffle(SIZE, seed=0),
        f"reservoir of {SIZE:,}, by hand": reservoir(range(n), SIZE),
        f"block_shuffle({SIZE:,})": source | lz.block_shuffle(SIZE, seed=0),
        f"local_shuffle(16), blocks of {SIZE // 16}": (
            source | lz.local_shuffle(16, seed=0, block_size=SIZE // 16)
        ),
    }
    return {name: np.fromiter(order, np.int64) for name, order in found.items()}


def shuffles(rounds: int) -> Iterator[Row]:
    """The same whatever the machine: they are counted, not timed."""
    for name, order in orders().items():
        row = partial(Row, "shuffles", contestant=name)
        moved = np.quantile(displacements(order), np.linspace(0, 1, 101))
        yield row("displacement, quantiles", rounded(moved), "buffers")
        rest = residuals(order)
        yield row("correlation of neighbours", rounded(correlation(rest)), "-")
        yield row("chi-square of pairs, a degree of freedom", rounded(chi_square(rest)), "-")
        yield row("mean at a place in the buffer, range", rounded(boundaries(rest)), "deviations")


def rounded(values: Any) -> list[float]:
    return [round(float(value), 3) for value in np.atleast_1d(values)]


def inner(values: NDArray[Any]) -> NDArray[Any]:
    return values[EDGE * SIZE : -EDGE * SIZE]


def displacements(order: Order) -> NDArray[np.float64]:
    """How much later an item comes than in the input, in buffers."""
    return inner(np.arange(len(order)) - order) / SIZE


def residuals(order: Order) -> NDArray[np.float64]:
    sums = np.cumsum(order, dtype=np.float64)
    half = SIZE // 2
    means = np.zeros(len(order))
    means[half:-half] = (sums[SIZE:] - sums[:-SIZE]) / SIZE
    return inner(order - means)


def correlation(rest: NDArray[np.float64]) -> float:
    return float(np.corrcoef(rest[:-1], rest[1:])[0, 1])


def chi_square(rest: NDArray[np.float64]) -> float:
    """Of pairs that have no item in common, in cells that are equally full: 1 by chance."""
    ranks = np.argsort(np.argsort(rest)) * CELLS // len(rest)
    counts = np.histogram2d(ranks[::2], ranks[1::2], bins=CELLS)[0]
    expected = np.outer(counts.sum(1), counts.sum(0)) / counts.sum()
    return float(((counts - expected) ** 2 / expected).sum() / (CELLS - 1) ** 2)


def boundaries(rest: NDArray[np.float64]) -> float:
    """How much the mean depends on the position in a buffer, in its standard deviations."""
    phases = rest[: len(rest) // SIZE * SIZE].reshape(-1, PHASES, SIZE // PHASES)
    return float(np.ptp(phases.mean((0, 2))) / rest.std())


def picture(path: Path) -> None:
    """Above, positions in the output and the input; below, their differences; all in buffers."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    found = orders()
    figure, axes = plt.subplots(
        2, len(found), figsize=(9, 4.8), height_ratios=[3, 2], layout="constrained"
    )
    stream = np.arange(SHOWN * SIZE) + BUFFERS // 2 * SIZE
    for (above, below), (name, order) in zip(axes.T, found.items(), strict=True):
        above.plot(stream / SIZE, order[stream] / SIZE, ",", color="tab:blue")
        above.set_title(fill(name, 20), fontsize=9)
        above.set_xlabel("position in the output", fontsize=8)
        below.hist(displacements(order), bins=60, density=True, color="tab:orange")
        below.set_xlabel("moved later, in buffers", fontsize=8)
        below.set_yticks([])
        for each in (above, below):
            each.tick_params(labelsize=8)
    axes[0, 0].set_ylabel("position in the input", fontsize=9)
    axes[1, 0].set_ylabel("share of items", fontsize=9)
    figure.savefig(path, dpi=180, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    picture(Path(sys.argv[1]))
