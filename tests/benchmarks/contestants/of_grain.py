"""Grain: MapDataset for data with random access, IterDataset after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import grain
import numpy as np
import resuming
from absl import flags
from contestant import Way
from data import (
    BINS,
    LENGTH,
    ROW,
    ROWS,
    WEIGHTS,
    Documents,
    add,
    buffer_size,
    busy,
    files,
    keep,
    large,
    lines_of,
    table,
    texts,
    tokenize,
)
from files import corpus, figures, rows_of
from grain.experimental import (
    ConcatThenSplitIterDataset,
    FirstFitPackIterDataset,
    FlatMapIterDataset,
    FlatMapTransform,
    ThreadPrefetchIterDataset,
    WindowShuffleIterDataset,
)
from harness import by_workers, fresh, spent
from resuming import dumped, mixed

flags.FLAGS.mark_as_parsed()  # as a program that uses absl's flags has
ALONE = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)  # as advised for data in memory


def w1(n: int) -> Way:
    kept = grain.MapDataset.source(list(range(n))).map(add).filter(keep)
    batches = kept.to_iter_dataset(ALONE).batch(32, batch_fn=list)
    return lambda: spent(batches)


def w1_iter_dataset(n: int) -> Way:
    kept = grain.MapDataset.source(list(range(n))).to_iter_dataset(ALONE).map(add).filter(keep)
    batches = kept.batch(32, batch_fn=list)
    return lambda: spent(batches)


class Rows:
    def __init__(self, n: int) -> None:
        self.x, self.y = table(n)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self.x[index], "y": self.y[index]}


def w2(n: int) -> Way:
    batches = grain.MapDataset.source(Rows(n)).shuffle(seed=0).batch(256)
    return lambda: spent(batches.to_iter_dataset(ALONE))


def w2_indices_then_take(n: int) -> Way:
    x, y = table(n)

    def take(indices: np.ndarray) -> dict[str, Any]:
        return {"x": x.take(indices, axis=0), "y": y.take(indices)}

    batches = grain.MapDataset.range(n).shuffle(seed=0).batch(256).map(take)
    return lambda: spent(batches.to_iter_dataset(ALONE))


class Lines(FlatMapTransform):  # type: ignore[misc]  # a base without types
    max_fan_out = 1_000_000

    def flat_map(self, element: Path) -> list[bytes]:
        return list(lines_of(element))


def w4blocks(n: int) -> Way:
    lines = FlatMapIterDataset(grain.MapDataset.source(files(n)).to_iter_dataset(ALONE), Lines())
    shuffled = WindowShuffleIterDataset(lines, window_size=buffer_size(n), seed=0)
    return resumed(n // 32, lambda: shuffled.batch(32, batch_fn=list))


def w4indexed(n: int) -> Way:
    items = grain.MapDataset.source(list(range(n))).shuffle(seed=0).map(add)
    return resumed(n // 32, lambda: items.to_iter_dataset(ALONE).batch(32, batch_fn=list))


def resumed(count: int, make: Callable[[], Any]) -> Way:
    return resuming.resumed(count, lambda: iter(make()), "get_state", "set_state")


def in_blocks(n: int) -> Any:
    return grain.MapDataset.range(n).batch(256).to_iter_dataset(ALONE)


def w5i(n: int) -> Way:
    ahead = in_blocks(n).mp_prefetch(grain.MultiprocessingOptions(num_workers=1))
    return by_workers(lambda: chain.from_iterable(ahead), n)


def w5t(n: int) -> Way:
    ahead = ThreadPrefetchIterDataset(in_blocks(n), prefetch_buffer_size=8)
    return by_workers(lambda: chain.from_iterable(ahead), n)


def w5a(n: int) -> Way:
    arrays = grain.MapDataset.range(n).map(large).to_iter_dataset(ALONE)
    options = grain.MultiprocessingOptions(num_workers=1)
    return by_workers(lambda: arrays.mp_prefetch(options), n)


def w6(n: int) -> Way:
    items = grain.MapDataset.range(n).map(busy).to_iter_dataset(ALONE)
    options = grain.MultiprocessingOptions(num_workers=2, per_worker_buffer_size=16)
    return by_workers(lambda: items.mp_prefetch(options), n)


def w7(n: int) -> Way:
    return fresh("import grain", "next(iter(grain.MapDataset.range(10).map(abs)))")


def mixture(mixture: Any, n: int) -> Way:
    return mixed(n, lambda: iter(mixture), lambda run: dumped(run.get_state()))


def w9(n: int) -> Way:
    ranges = [grain.MapDataset.range(n) for _ in WEIGHTS]
    return mixture(grain.MapDataset.mix(ranges, weights=WEIGHTS).to_iter_dataset(ALONE), n)


def w9_iter_dataset(n: int) -> Way:
    ranges = [grain.MapDataset.range(n).to_iter_dataset(ALONE) for _ in WEIGHTS]
    return mixture(grain.IterDataset.mix(ranges, weights=WEIGHTS), n)


def features(n: int) -> Any:
    documents = grain.MapDataset.source(Documents(n)).map(lambda tokens: {"tokens": tokens})
    return documents.to_iter_dataset(ALONE)


def w10split(n: int) -> Way:
    rows = ConcatThenSplitIterDataset(features(n), length_struct={"tokens": LENGTH})
    return lambda: spent(rows)


def w10fit(n: int) -> Way:
    rows = FirstFitPackIterDataset(
        features(n), length_struct={"tokens": LENGTH}, num_packing_bins=BINS, shuffle_bins=False
    )
    return lambda: spent(rows)


def w12(n: int) -> Way:
    from training import trained

    tokens = grain.MapDataset.source(texts(n)).repeat().map(lambda text: {"tokens": tokenize(text)})
    rows = ConcatThenSplitIterDataset(tokens.to_iter_dataset(), length_struct={"tokens": ROW})
    batches = rows.map(lambda row: row["tokens"]).batch(ROWS)
    ahead = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    return trained(n, lambda: ahead)


def w11parquet(n: int) -> Way:
    paths = [str(path) for path in corpus("parquet", n)]

    def rows() -> Any:
        return grain.experimental.InterleaveIterDataset(
            [grain.experimental.ParquetIterDataset(path) for path in paths], cycle_length=1
        )

    return figures(order=rows, resumed=resumed(rows_of(n), rows))


def w11parquet_as_array_record(n: int) -> Way:
    """The same rows in its own format."""
    source = grain.sources.ArrayRecordDataSource([str(p) for p in corpus("arrayrecord", n)])
    rows = grain.MapDataset.source(source).map(json.loads)

    def shuffled() -> Any:
        return rows.shuffle(seed=0).to_iter_dataset(ALONE)

    return figures(
        order=lambda: rows.to_iter_dataset(ALONE),
        shuffled=shuffled,
        resumed=resumed(rows_of(n), shuffled),
    )
