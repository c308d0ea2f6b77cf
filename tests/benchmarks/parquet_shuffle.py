"""Figures for the page on shuffling Parquet.

`python tests/benchmarks/parquet_shuffle.py FOLDER ORDER` writes 1 GB of Parquet, if the
folder has none, and reads it in an order, such as `shuffle`.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet

import lazyckpt as lz

FILES, GROUPS, ROWS, BYTES = 16, 8, 8192, 1024  # files, row groups per file, rows, bytes per row
DECODED = ROWS * (BYTES + 16)  # bytes of a decoded row group, about
BATCH = 256


def write(folder: Path) -> None:
    """Rows of a number and a text that doesn't compress well."""
    rng = np.random.default_rng(0)
    for number in range(FILES):
        texts = rng.integers(32, 127, (GROUPS * ROWS, BYTES), np.uint8)
        rows = np.arange(GROUPS * ROWS) + number * GROUPS * ROWS
        table = pyarrow.table({"row": rows, "text": [text.tobytes() for text in texts]})
        parquet.write_table(table, folder / f"{number:02}.parquet", ROWS, compression="zstd")


def seconds(act: Callable[[], Any]) -> tuple[float, Any]:
    begin = perf_counter()
    found = act()
    return perf_counter() - begin, found


def batches(rows: Any, order: Any, count: int, state: Any = None) -> int:
    """Read some batches, as lists of rows; how many rows."""
    run = lz.run(rows | order | lz.batch(BATCH), state)
    return sum(map(len, islice(run, count)))


def orders() -> Iterator[tuple[str, Any, int, int]]:
    """A name, stages, the row groups to keep, and how many batches to read."""
    yield "in order", lz.skip(0), 2, 4096
    for window in (4, 16, 64):
        order = lz.local_shuffle(window, seed=0)
        yield f"local_shuffle({window})", order, window, 4096
        yield f"local_shuffle({window}), half kept", order, window // 2, 64
    yield "shuffle", lz.shuffle(seed=0), 16, 2


def peak() -> int:
    """MiB that this process has used at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def opened(folder: Path, index: str) -> Any:
    """The rows; it prints how long it takes to open them for the first time, and again."""
    files = lz.io.files(f"{folder}/*.parquet")
    first, _ = seconds(lambda: lz.io.read_parquet(files, index_dir=index))
    again, rows = seconds(lambda: lz.io.read_parquet(files, index_dir=index))
    size = sum(path.stat().st_size for path in folder.glob("*.parquet"))
    print(f"{size:,} bytes, {len(rows):,} rows; first open {first:.3f} s, then {again:.3f} s")
    return files


def measure(files: Any, index: str, name: str, order: Any, groups: int, count: int) -> None:
    kept = {"index_dir": index, "cache_bytes": groups * DECODED}
    rows, before = lz.io.read_parquet(files, **kept), peak()
    took, read = seconds(lambda: batches(rows, order, count))
    most = peak() - before
    saved = lz.state_at(rows | order | lz.batch(BATCH), len(rows) // BATCH // 2)
    fresh = lz.io.read_parquet(files, **kept)
    resumed, _ = seconds(lambda: batches(fresh, order, 1, saved))
    print(
        f"{name}: {read / took:,.0f} rows/s, {read * BYTES / took / 1e6:,.1f} MB/s, "
        f"{most} MiB more, resume {resumed:.3f} s"
    )


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if not [*place.glob("*.parquet")]:
        write(place)
    with TemporaryDirectory() as indices:
        listing = opened(place, indices)
        for each in orders():
            if each[0] in sys.argv[2:]:  # one per process, whose peak of memory it is
                measure(listing, indices, *each)
