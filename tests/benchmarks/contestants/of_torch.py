"""torch's DataLoader."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, cycle
from typing import Any

import numpy as np
import torch
from contestant import Way
from data import (
    BLOCK,
    ROW,
    ROWS,
    add,
    blocks_shuffled,
    busy,
    by_length,
    keep,
    large,
    lines,
    nothing,
    table,
    texts,
    tokenize,
)
from harness import by_workers, fresh, spent
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

Loader: Any = DataLoader  # torchdata's takes the same, and its place


class Stream(IterableDataset):  # type: ignore[misc,type-arg]  # torch may be missing
    def __init__(self, data: list[int]) -> None:
        self.data = data

    def __iter__(self) -> Iterator[int]:
        return filter(keep, map(add, self.data))


class Mapped(Dataset):  # type: ignore[misc,type-arg]  # torch may be missing
    """A map-style data set: a function of each index."""

    def __init__(self, n: int, function: Any) -> None:
        self.n, self.function = n, function

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return self.function(index)


class Batches(Dataset):  # type: ignore[misc,type-arg]  # torch may be missing
    """A map-style dataset that a loader asks for a whole batch."""

    def __init__(self, n: int) -> None:
        self.x, self.y = map(torch.from_numpy, table(n))

    def __len__(self) -> int:
        return len(self.x)

    def __getitems__(self, indices: list[int]) -> dict[str, Any]:
        return {"x": self.x[indices], "y": self.y[indices]}


class Grouped(IterableDataset):  # type: ignore[misc,type-arg]  # torch may be missing
    """Batches of lines of similar length: an order of its own is written by hand."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[list[bytes]]:
        rng = random.Random(0)
        return by_length(blocks_shuffled(lines(self.n), BLOCK, rng), rng)


class Packed(IterableDataset):  # type: ignore[misc,type-arg]  # torch may be missing
    """Rows of tokens; each worker packs its own share of the texts."""

    def __init__(self, data: list[str]) -> None:
        self.data = data

    def __iter__(self) -> Iterator[np.ndarray]:
        worker = get_worker_info()
        share = self.data[worker.id :: worker.num_workers] if worker else self.data
        held = np.zeros(0, np.int32)
        for text in cycle(share):
            held = np.concatenate([held, tokenize(text)])
            while len(held) >= ROW:
                yield held[:ROW]
                held = held[ROW:]


def w1(n: int, kind: Any = Loader) -> Way:
    data = Stream(list(range(n)))
    return lambda: spent(kind(data, batch_size=32, collate_fn=nothing))


def w2(n: int) -> Way:
    x, y = map(torch.from_numpy, table(n))
    rows = Mapped(n, lambda index: {"x": x[index], "y": y[index]})
    return lambda: spent(Loader(rows, batch_size=256, shuffle=True))


def w2_getitems(n: int, kind: Any = Loader) -> Way:
    rows = Batches(n)
    return lambda: spent(kind(rows, batch_size=256, shuffle=True, collate_fn=nothing))


def w3(n: int, kind: Any = Loader) -> Way:
    return lambda: spent(kind(Grouped(n), batch_size=None))


def w5i(n: int, kind: Any = Loader) -> Way:
    loader = kind(range(n), batch_size=256, num_workers=1, collate_fn=nothing)
    return by_workers(lambda: chain.from_iterable(loader), n)


def w5a(n: int, kind: Any = Loader) -> Way:
    arrays = Mapped(n, large)
    return by_workers(lambda: kind(arrays, batch_size=None, num_workers=1), n)


def w6(n: int, kind: Any = Loader) -> Way:
    items = Mapped(n, busy)
    return by_workers(lambda: kind(items, batch_size=16, num_workers=2, collate_fn=nothing), n)


def w7(n: int) -> Way:
    return fresh("from torch.utils.data import DataLoader", "next(iter(DataLoader(range(10))))")


def w12(n: int, kind: Any = Loader) -> Way:
    from training import trained

    rows = Packed(texts(n))
    return trained(n, lambda: kind(rows, batch_size=ROWS, num_workers=2))
