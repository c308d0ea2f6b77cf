"""Blocks of origins as a Parquet file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from lazyckpt.io.storage import optional_module


def write_parquet(blocks: Iterable[Any], path: str | os.PathLike[str], row_group: int) -> int:
    """Write blocks to a file, some per row group; return the number of rows."""
    arrow = optional_module("pyarrow", "arrow", "Seen.to_parquet")
    parquet = optional_module("pyarrow.parquet", "arrow", "Seen.to_parquet")
    texts = arrow.dictionary(arrow.int32(), arrow.string())
    kinds = {"stage": texts, "file": texts}
    names = ("item", "stage", "epoch", "index", "file", "record")
    schema = arrow.schema([(name, kinds.get(name, arrow.int64())) for name in names])
    name = os.fspath(path)
    beside, total = f"{name}.{os.urandom(8).hex()}.tmp", 0
    pending: list[Any] = []
    try:
        with parquet.ParquetWriter(
            beside, schema, compression="zstd", use_dictionary=["stage", "file"]
        ) as writer:

            def write() -> int:
                count = sum(map(len, pending))
                if count:
                    writer.write_table(_table(arrow, schema, pending), row_group_size=count)
                pending.clear()
                return count

            for block in blocks:
                pending.append(block)
                if sum(map(len, pending)) >= row_group:
                    total += write()
            total += write()
        os.replace(beside, name)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(beside)
        raise
    return total


def _table(arrow: Any, schema: Any, blocks: list[Any]) -> Any:
    def column(name: str) -> Any:
        values = np.concatenate([getattr(block, name) for block in blocks])
        is_text = name in ("stage", "file")
        unknown = values < 0 if name in ("file", "record") else None
        found = arrow.array(values.astype(np.int32) if is_text else values, mask=unknown)
        if not is_text:
            return found
        texts = blocks[-1].stages if name == "stage" else blocks[-1].files
        return arrow.DictionaryArray.from_arrays(found, arrow.array(texts, arrow.string()))

    return arrow.Table.from_arrays([column(name) for name in schema.names], schema=schema)
