"""Grain: MapDataset for what has random access, IterDataset behind it."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import grain
import numpy as np
from absl import flags
from contestant import Figures, Way
from data import (
    BINS,
    LENGTH,
    ROW,
    ROWS,
    WEIGHTS,
    Documents,
    buffer_size,
    busy,
    files,
    large,
    lines_of,
    texts,
    tokenize,
)
from files import corpus, figures, rows_of
from grain.experimental import (
    ConcatThenSplitIterDataset,
    FirstFitPackIterDataset,
    FlatMapIterDataset,
    FlatMapTransform,
    WindowShuffleIterDataset,
)
from harness import spent, spent_by_workers
from resuming import resumes
from wide import add, keep, table

flags.FLAGS.mark_as_parsed()  # as a program that uses absl's flags has
ALONE = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)  # advised for what is in memory


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
    return resumed(n, shuffled.batch(32, batch_fn=list))


def w4indexed(n: int) -> Way:
    items = grain.MapDataset.source(list(range(n))).shuffle(seed=0).map(add)
    return resumed(n, items.to_iter_dataset(ALONE).batch(32, batch_fn=list))


def resumed(n: int, batches: Any) -> Way:
    def start() -> tuple[Any, Any]:
        run = iter(batches)
        return run, run

    def resume(text: bytes) -> Any:
        run = iter(batches)
        run.set_state(json.loads(text))
        return run

    return resumes(n // 32, start, lambda run: json.dumps(run.get_state()).encode(), resume)


def w5a(n: int) -> Way:
    arrays = grain.MapDataset.range(n).map(large).to_iter_dataset(ALONE)
    options = grain.MultiprocessingOptions(num_workers=1)
    return lambda: spent_by_workers(arrays.mp_prefetch(options))


def w6(n: int) -> Way:
    items = grain.MapDataset.range(n).map(busy).to_iter_dataset(ALONE)
    options = grain.MultiprocessingOptions(num_workers=2, per_worker_buffer_size=16)
    return lambda: spent_by_workers(items.mp_prefetch(options))


def mixture(mixed: Any, n: int) -> Way:
    def go() -> Figures:
        begun, run = perf_counter(), iter(mixed)
        spent(islice(run, n))
        state = json.dumps(run.get_state())
        return {"seconds": perf_counter() - begun, "bytes": len(state)}

    return go


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

    return figures(order=rows, resumed=saved(rows, rows_of(n)))


def w11parquet_as_array_record(n: int) -> Way:
    """The same rows in its own format."""
    source = grain.sources.ArrayRecordDataSource([str(p) for p in corpus("arrayrecord", n)])
    rows = grain.MapDataset.source(source).map(json.loads)

    def shuffled() -> Any:
        return rows.shuffle(seed=0).to_iter_dataset(ALONE)

    return figures(
        order=lambda: rows.to_iter_dataset(ALONE),
        shuffled=shuffled,
        resumed=saved(shuffled, rows_of(n)),
    )


def saved(make: Any, n: int) -> Way:
    def start() -> tuple[Any, Any]:
        stream = iter(make())
        return stream, stream

    def resume(text: bytes) -> Any:
        stream = iter(make())
        stream.set_state(json.loads(text))
        return stream

    return resumes(n, start, lambda stream: json.dumps(stream.get_state()).encode(), resume)
