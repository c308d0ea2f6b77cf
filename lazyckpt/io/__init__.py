"""Files as sequences: rows by number, whatever the format, on POSIX systems.

    files = lz.io.files("data/*.jsonl.zst")
    rows = lz.io.read_jsonl(files)
    pipeline = rows | lz.shuffle(seed=0) | lz.repeat() | lz.batch(32)

Names are imported when first used. Each module imports only from those before it:

- cache, range_cache, storage, remote, decompress, content, files
- rows, index, records
- arrow_columns, row_groups
- text, csv and a reader for each other format
- stream, writers, conversion
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lazyckpt.core.checks import missing_name

# Imported eagerly, because they have the names of their modules.
from lazyckpt.io.files import Files, files
from lazyckpt.io.index import Index, Scan, index

if TYPE_CHECKING:
    from lazyckpt.io.array_record import read_array_record
    from lazyckpt.io.arrow import read_arrow
    from lazyckpt.io.conversion import convert
    from lazyckpt.io.csv import read_csv
    from lazyckpt.io.decompress import Zstd
    from lazyckpt.io.huggingface import read_dataset, stream_dataset
    from lazyckpt.io.mds import read_mds
    from lazyckpt.io.parquet import read_parquet
    from lazyckpt.io.records import read_files
    from lazyckpt.io.rows import RecordError, Rows
    from lazyckpt.io.sqlite import read_sqlite
    from lazyckpt.io.storage import File, RowOrigin, Storage
    from lazyckpt.io.stream import iter_jsonl, iter_text
    from lazyckpt.io.tar import read_tar
    from lazyckpt.io.text import read_jsonl, read_text
    from lazyckpt.io.tfrecord import read_tfrecord
    from lazyckpt.io.tokens import read_tokens

__all__ = [
    "File",
    "Files",
    "Index",
    "RecordError",
    "RowOrigin",
    "Rows",
    "Scan",
    "Storage",
    "Zstd",
    "convert",
    "files",
    "index",
    "iter_jsonl",
    "iter_text",
    "read_array_record",
    "read_arrow",
    "read_csv",
    "read_dataset",
    "read_files",
    "read_jsonl",
    "read_mds",
    "read_parquet",
    "read_sqlite",
    "read_tar",
    "read_text",
    "read_tfrecord",
    "read_tokens",
    "stream_dataset",
]

_MODULES = {  # each is imported when one of its names is first used
    "array_record": "read_array_record",
    "arrow": "read_arrow",
    "conversion": "convert",
    "csv": "read_csv",
    "decompress": "Zstd",
    "huggingface": "read_dataset stream_dataset",
    "mds": "read_mds",
    "parquet": "read_parquet",
    "records": "read_files",
    "rows": "RecordError Rows",
    "sqlite": "read_sqlite",
    "storage": "File RowOrigin Storage",
    "stream": "iter_jsonl iter_text",
    "tar": "read_tar",
    "tfrecord": "read_tfrecord",
    "tokens": "read_tokens",
    "text": "read_jsonl read_text",
}
_places = {
    name: f"lazyckpt.io.{module}" for module, names in _MODULES.items() for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name not in _places:
        raise missing_name("lazyckpt.io", name, __all__)
    found = globals()[name] = getattr(import_module(_places[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
