"""Files that polars writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import lazyckpt as lz
from tests.io.cases import check_reader, folder


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_ipc_and_parquet_of_polars_are_read(compression: Any) -> None:
    place = folder()
    frame = pl.DataFrame({"n": [1, 2, 3], "text": ["a", None, "c"], "list": [[1], [], [2, 3]]})
    rows = [
        {"n": np.int64(n), "text": text, "list": np.array(some, np.int64)}
        for n, text, some in frame.iter_rows()
    ]
    frame.write_ipc(f"{place}/a.arrow", compression=compression)
    frame.write_ipc_stream(f"{place}/b.arrow", compression=compression)
    frame.write_parquet(f"{place}/a.parquet", compression=compression)
    for name in ("a.arrow", "b.arrow"):
        check_reader(lz.io.read_arrow(f"{place}/{name}", index_dir=place), rows)
    check_reader(lz.io.read_parquet(f"{place}/a.parquet", index_dir=place), rows)
