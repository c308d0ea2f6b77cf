"""Token rows, choices and draws of an item's own, against NumPy by hand; padding of rows."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, compared, seconds, spent
from numpy.typing import NDArray

import lazyckpt as lz

LENGTH = 2_048
BINS = 8
N = 100_000
DOCUMENTS = 10_000_000

Tokens = NDArray[np.int64]


def packing(rounds: int) -> Iterator[Row]:
    """Rows of short and of longer sequences; then single items."""
    for mean in (50, 500):
        sequences = drawn_sequences(mean)
        split = lz.source(sequences) | lz.concat_then_split(LENGTH)
        packed = lz.source(sequences) | lz.pack_first_fit(LENGTH, num_bins=BINS)
        yield row(f"concat_then_split, about {mean} tokens", split, cut, sequences, rounds)
        yield row(f"pack_first_fit, about {mean} tokens", packed, fitted, sequences, rounds)
        best = lz.source(sequences) | lz.pack_best_fit(LENGTH, num_bins=BINS)
        what = f"pack_best_fit / pack_first_fit, about {mean} tokens"
        yield compared(
            "packing", what, partial(spent, best), partial(spent, packed), rounds, len(sequences)
        )
        plan = lz.plan_packing([*map(len, sequences)], LENGTH, seed=0)
        planned = lz.source(sequences) | lz.pack_by_plan(plan)
        numbers = [[piece.document for piece in pieces] for pieces in plan]
        hand = partial(looked_up, numbers)
        yield row(f"pack_by_plan, about {mean} tokens", planned, hand, sequences, rounds, 1.5)
    data = list(range(N))
    bits = [i % 2 for i in data]
    chosen = lz.switch(lz.source(bits), lz.source(data), lz.source(data))
    yield row("switch of two lists", chosen, partial(picked, bits, data), data, rounds)
    some = data[:5_000]
    noisy = lz.source(some) | lz.random_map(lambda rng, x: x + rng.random(), seed=0)
    yield row("random_map / default_rng((seed, i))", noisy, with_noise, some, rounds)
    yield planning(rounds)
    yield from padding()


def row(
    what: str,
    ours: Any,
    theirs: Callable[[Any], Any],
    data: Any,
    rounds: int,
    bound: float = 1.3,
) -> Row:
    what = f"{what} / by hand"
    mine, other = partial(spent, ours), lambda: spent(theirs(data))
    return compared("packing", what, mine, other, rounds, len(data), bound)


def planning(rounds: int) -> Row:
    """Seconds for a plan of many documents, about 800 tokens each, some longer than a row."""
    lengths = np.minimum(np.random.default_rng(0).lognormal(6, 1.2, DOCUMENTS), 200_000)
    sizes = lengths.astype(np.int64) + 1
    plan = partial(lz.plan_packing, sizes, LENGTH, seed=0, overflow="split")
    values = [seconds(plan) for _ in range(rounds)]
    return Row("packing", f"plan_packing of {DOCUMENTS:,} documents", values, "s", 10)


def padding() -> Iterator[Row]:
    """Percent of rows that no token fills, of files of the standard library in random order."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = [*folder.glob("*.py"), *folder.glob("[a-z]*/*.py")]
    texts = [file.read_bytes() for file in sorted(files) if "test" not in str(file)]
    sizes = [len(re.findall(rb"\w+|[^\w\s]", text)) for text in texts]
    documents = lz.source([np.zeros(size, np.uint16) for size in sizes]) | lz.shuffle(seed=0)
    found = {
        f"{pack.__name__}(num_bins={bins})": len(
            list(documents | pack(LENGTH, num_bins=bins, overflow="split"))
        )
        for bins in (8, 64, 512)
        for pack in (lz.pack_first_fit, lz.pack_best_fit)
    }
    found["plan_packing"] = len(lz.plan_packing(sizes, LENGTH, seed=0, overflow="split"))
    found["the optimum, at least"] = -(-sum(sizes) // LENGTH)
    for name, rows in found.items():
        share = 100 - 100 * sum(sizes) / (rows * LENGTH)
        yield Row("packing", f"padding of {len(sizes)} files, {name}", [share], "%")


def looked_up(numbers: list[list[int]], sequences: list[Tokens]) -> Iterator[dict[str, Any]]:
    for row_numbers in numbers:
        yield filled([sequences[number] for number in row_numbers])


def drawn_sequences(mean: int) -> list[Tokens]:
    rng = np.random.default_rng(0)
    sizes = np.minimum(rng.geometric(1 / mean, 1_000_000 // mean), LENGTH)
    return [rng.integers(0, 50_000, size) for size in sizes.tolist()]


def cut(sequences: Iterable[Tokens]) -> Iterator[dict[str, Any]]:
    room, parts = LENGTH, []
    for tokens in sequences:
        begin = 0
        while begin < len(tokens):
            end = min(len(tokens), begin + room)
            parts.append(tokens[begin:end])
            room, begin = room - (end - begin), end
            if not room:
                yield filled(parts)
                room, parts = LENGTH, []
    if parts:
        yield filled(parts)


def fitted(sequences: Iterable[Tokens]) -> Iterator[dict[str, Any]]:
    bins: list[list[Tokens]] = []
    rooms: list[int] = []
    for tokens in sequences:
        for number, room in enumerate(rooms):
            if room >= len(tokens):
                bins[number].append(tokens)
                rooms[number] -= len(tokens)
                break
        else:
            if len(bins) == BINS:
                yield from map(filled, bins)
                bins, rooms = [], []
            bins.append([tokens])
            rooms.append(LENGTH - len(tokens))
    yield from map(filled, bins)


def filled(parts: list[Tokens]) -> dict[str, Any]:
    tokens = np.zeros(LENGTH, parts[0].dtype)
    segments, places = np.zeros(LENGTH, np.int32), np.zeros(LENGTH, np.int32)
    begin = 0
    for number, part in enumerate(parts, 1):
        end = begin + len(part)
        tokens[begin:end], segments[begin:end] = part, number
        places[begin:end] = np.arange(len(part))
        begin = end
    return {"tokens": tokens, "segment_ids": segments, "positions": places}


def picked(bits: list[int], data: list[int], other: list[int]) -> Iterator[int]:
    for bit, a, b in zip(bits, data, other, strict=True):
        yield a if bit else b


def with_noise(data: Iterable[int]) -> Iterator[float]:
    for i, x in enumerate(data):
        yield x + np.random.default_rng((0, i)).random()
