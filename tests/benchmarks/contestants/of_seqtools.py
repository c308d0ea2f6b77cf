"""SeqTools: sequences whose items are computed when asked for. A state is an index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import seqtools as st
from contestant import Way
from data import busy, large
from harness import spent, spent_by_workers
from resuming import resumes
from wide import add, table


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
    place = [0]

    def start(begin: int = 0) -> Iterator[Any]:
        order = np.random.default_rng(0).permutation(n)
        batches = st.batch(st.smap(add, st.gather(data, order)), 32)
        for place[0] in range(begin, len(batches)):
            yield batches[place[0]]

    return resumes(
        n // 32,
        lambda: (place, start()),
        lambda place: json.dumps(place[0] + 1).encode(),
        lambda text: start(json.loads(text)),
    )


def w5a(n: int) -> Way:
    arrays = st.smap(large, range(n))
    return lambda: spent_by_workers(
        st.prefetch(arrays, 1, method="process", max_buffered=8, shm_size=32_000_000)
    )


def w5a_two_processes(n: int) -> Way:
    arrays = st.smap(large, range(n))
    return lambda: spent_by_workers(
        st.prefetch(arrays, 2, method="process", max_buffered=8, shm_size=32_000_000)
    )


def w6(n: int) -> Way:
    items = st.smap(busy, range(n))
    return lambda: spent_by_workers(st.prefetch(items, 2, method="process", max_buffered=32))
