"""`compat.seqtools` beside SeqTools and torch's DataLoader, on the same work; below 1 is faster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import seqtools as theirs
from harness import Action, Row, compared, spent
from torch.utils.data import DataLoader

from lazyckpt.compat import seqtools as ours

N = 50_000
FEW = 5_000
LARGE = 400
PICTURE = (3, 128, 128)


def compat_seqtools(rounds: int) -> Iterator[Row]:
    """Sequences iterated over and indexed; prefetching and loaders with their workers' start."""
    order = np.random.default_rng(0).permutation(N).tolist()
    data = list(range(N))
    cases: dict[str, Any] = {
        "smap": lambda lib: lib.smap(add, data),
        "smap, gather, batch": lambda lib: lib.batch(lib.gather(lib.smap(add, data), order), 32),
        "smap, cycle": lambda lib: lib.cycle(lib.smap(add, data), N),
        "collate": lambda lib: lib.collate([data, order]),
        "concatenate": lambda lib: lib.concatenate([data[: N // 2], data[N // 2 :]]),
        "interleave": lambda lib: lib.interleave(data[: N // 2], data[N // 2 :]),
        "unbatch": lambda lib: lib.unbatch(lib.batch(data, 32), 32, N % 32),
    }
    for name, build in cases.items():
        mine, other = (partial(walked, build(lib)) for lib in (ours, theirs))
        yield compared("sq", f"{name} / SeqTools", mine, other, rounds, N)
        mine, other = (partial(indexed, build(lib)) for lib in (ours, theirs))
        yield compared("sq", f"{name}, by index / SeqTools", mine, other, rounds, FEW)
    few = max(1, rounds // 3)
    for method in ("thread", "process"):
        mine, other = (prefetched(lib, method) for lib in (ours, theirs))
        yield compared("sq", f"prefetch, 2 {method} / SeqTools", mine, other, few, FEW)
    for workers in (0, 2):
        mine, other = (loaded(kind, data, workers) for kind in (ours.DataLoader, DataLoader))
        yield compared("sq", f"DataLoader, ints, {workers} workers / torch", mine, other, few, N)
        mine, other = (loaded(kind, Pictures(), workers) for kind in (ours.DataLoader, DataLoader))
        what = f"DataLoader, 6 MB batches, {workers} workers / torch"
        yield compared("sq", what, mine, other, few, LARGE)


def add(x: int) -> int:
    return x + 1


def walked(items: Any) -> None:
    spent(items)


def indexed(items: Any) -> None:
    for index in range(0, len(items), max(1, len(items) // FEW)):
        items[index]


def prefetched(library: Any, method: str) -> Action:
    def go() -> None:
        ahead = library.prefetch(library.smap(add, range(FEW)), 2, method)
        for index in range(FEW):  # theirs can be iterated over too, which is the same
            ahead[index]

    return go


def loaded(kind: Any, dataset: Any, workers: int) -> Action:
    return lambda: spent(kind(dataset, 32, True, num_workers=workers))


class Pictures:
    def __len__(self) -> int:
        return LARGE

    def __getitem__(self, index: int) -> Any:
        return np.full(PICTURE, index, np.float32)
