"""SeqTools: sequences whose items are computed when asked for. A state is an index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import seqtools as st
from contestant import Way
from data import add, busy, large, table
from harness import by_workers, fresh, spent
from resuming import Started, resumes


def fields(rows: Iterable[Any]) -> list[Any]:
    return [np.stack(field) for field in zip(*rows, strict=True)]


def w2(n: int) -> Way:
    x, y = table(n)

    def go() -> None:
        order = np.random.default_rng(0).permutation(n)
        rows = st.collate([st.gather(x, order), st.gather(y, order)])
        spent(st.batch(rows, 256, collate_fn=fields))

    return go


def w4indexed(n: int) -> Way:
    data = list(range(n))

    def batches(place: list[int]) -> Iterator[Any]:
        order = np.random.default_rng(0).permutation(n)
        batches = st.batch(st.smap(add, st.gather(data, order)), 32)
        for number in range(place[0], len(batches)):
            place[0] = number + 1
            yield batches[number]

    def start(text: bytes | None) -> Started:
        place = json.loads(text) if text else [0]
        return place, batches(place)

    return resumes(n // 32, start, lambda place: json.dumps(place).encode())


def in_blocks(n: int, method: str) -> Iterator[int]:
    blocks = st.prefetch(st.batch(range(n), 256), 1, method=method, max_buffered=8)
    return chain.from_iterable(blocks)


def w5i(n: int) -> Way:
    return by_workers(lambda: in_blocks(n, "process"), n)


def w5t(n: int) -> Way:
    return by_workers(lambda: in_blocks(n, "thread"), n)


def w5a(n: int) -> Way:
    arrays = st.smap(large, range(n))
    return by_workers(
        lambda: st.prefetch(arrays, 1, method="process", max_buffered=8, shm_size=32_000_000), n
    )


def w5a_two_processes(n: int) -> Way:
    arrays = st.smap(large, range(n))
    return by_workers(
        lambda: st.prefetch(arrays, 2, method="process", max_buffered=8, shm_size=32_000_000), n
    )


def w6(n: int) -> Way:
    items = st.smap(busy, range(n))
    return by_workers(lambda: st.prefetch(items, 2, method="process", max_buffered=32), n)


def w7(n: int) -> Way:
    return fresh("import seqtools", "next(iter(seqtools.smap(abs, range(10))))")
