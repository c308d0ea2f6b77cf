"""`compat.seqtools` beside SeqTools and torch's DataLoader, on the same work; below 1 is faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    data = list(range(N))
    for name, build in sequences(data).items():
        if name != "add_cache":  # theirs is passed over by who goes through it
            mine, other = (partial(walked, build(lib)) for lib in (ours, theirs))
            yield compared("sq", f"{name} / SeqTools", mine, other, rounds, N, 1)
        mine, other = (partial(indexed, build(lib)) for lib in (ours, theirs))
        yield compared("sq", f"{name}, by index / SeqTools", mine, other, rounds, FEW, 1)
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


def sequences(data: list[int]) -> dict[str, Callable[[Any], Any]]:
    """What each library has a function for, over lists, and some functions of each other's."""
    order = np.random.default_rng(0).permutation(N).tolist()
    halves = [data[: N // 2], data[N // 2 :]]
    bits = [i % 2 for i in order]
    return {
        "smap": lambda lib: lib.smap(add, data),
        "smap of two": lambda lib: lib.smap(pow, data, bits),
        "starmap": lambda lib: lib.starmap(pow, list(zip(data, bits, strict=True))),
        "smap, gather, batch": lambda lib: lib.batch(lib.gather(lib.smap(add, data), order), 32),
        "smap, cycle": lambda lib: lib.cycle(lib.smap(add, data), N),
        "arange": lambda lib: lib.arange(N),
        "repeat": lambda lib: lib.repeat(0, N),
        "cycle": lambda lib: lib.cycle(data[:100], N),
        "gather": lambda lib: lib.gather(data, order),
        "slice": lambda lib: lib.collate([data])[1:],
        "collate": lambda lib: lib.collate([data, order]),
        "concatenate": lambda lib: lib.concatenate(halves),
        "interleave": lambda lib: lib.interleave(*halves),
        "switch": lambda lib: lib.switch(bits, data, order),
        "case": lambda lib: lib.case(bits, data, order),
        "batch": lambda lib: lib.batch(data, 32),
        "unbatch": lambda lib: lib.unbatch(lib.batch(data, 32), 32, N % 32),
        "split": lambda lib: lib.split(data, N // 10 - 1),
        "add_cache": lambda lib: lib.add_cache(lib.smap(add, data), 10),
        "uniter": lambda lib: lib.uniter(data, size=N),
        "debug": lambda lib: lib.instrument.debug(data, told),
        "monitor_throughput": lambda lib: lib.instrument.monitor_throughput(data),
    }


def told(index: int, item: int) -> None:
    pass


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
