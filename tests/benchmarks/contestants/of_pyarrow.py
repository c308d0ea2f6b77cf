"""pyarrow: record batches of Parquet in order, rows taken by number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from contestant import Way
from files import BATCH, corpus, figures
from pyarrow import dataset, parquet


def w11parquet(n: int) -> Way:
    paths = corpus("parquet", n)

    def batches() -> Iterator[Any]:
        for path in paths:
            yield from parquet.ParquetFile(path).iter_batches(BATCH, use_threads=False)

    def rows() -> Iterator[Any]:
        for batch in batches():
            yield from batch.to_pylist()

    def shuffled() -> Iterator[Any]:
        table = dataset.dataset(paths)
        order = np.random.default_rng(0).permutation(table.count_rows())
        for begin in range(0, len(order), BATCH):
            yield from table.take(order[begin : begin + BATCH]).to_pylist()

    def columns() -> Iterator[Any]:
        for batch in batches():
            held = zip(batch.schema.names, batch.columns, strict=True)
            yield {name: values_of(values) for name, values in held}

    return figures(order=rows, columns=columns, shuffled=shuffled)


def values_of(values: Any) -> Any:
    return values.to_pylist() if str(values.type) == "string" else values.to_numpy()
