"""W11: files of each format, and the figures of libraries that read them.

Speed is measured as CPU time, so that other work on the machine counts little.
"""

from __future__ import annotations

import io
import json
import os
import random
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from contestant import Figures, Way

ROWS = 60_000  # that are read in order at most
SECONDS = 1.0  # of CPU time that a shuffled pass takes at most
PARTS = 10  # files
BATCH = 1_024  # rows, of columns
BLOCKS = 16  # blocks that a local shuffle mixes
BUFFER = 10_000  # rows that a peer's local shuffle mixes
PEER_ROWS = 200_000  # rows at which peers resume, by share, as they read up to there first
FOLDER = "LAZYCKPT_BENCHMARK_FILES"  # the variable with the folder of files

FIGURES = {
    "order": ("in order", "µs", 1e6),
    "columns": ("batches of columns, a row", "µs", 1e6),
    "shuffled": ("shuffled globally", "µs", 1e6),
    "local": ("shuffled locally", "µs", 1e6),
    "open": ("open", "ms", 1e3),
    "10%": ("resume at 10 %", "ms", 1e3),
    "50%": ("resume at 50 %", "ms", 1e3),
    "90%": ("resume at 90 %", "ms", 1e3),
    "inexact": ("resumes not exact", "of 3", 1.0),
    "index": ("index, a MB", "ms", 1e3),
    "kept": ("index, a row", "B", 1.0),
    "peak": ("memory at its peak", "MB", 1e-6),
}


def corpus(kind: str, n: int) -> list[Path]:
    """Files of about n bytes without compression, created if they don't exist yet."""
    folder = Path(os.environ.setdefault(FOLDER, tempfile.gettempdir()), f"{n}")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:02}.{kind}" for number in range(PARTS)]
    for number, path in enumerate(paths):
        if not path.exists():
            part = path.with_name(path.name + ".part")
            _WRITERS[kind](part, number, n // PARTS)
            part.rename(path)
    return paths


@cache
def documents() -> list[tuple[int, str]]:
    """Numbers and texts of some 240 letters, 5 MB in all."""
    rng = random.Random(0)
    words = [f"{rng.getrandbits(40):x}" for _ in range(20_000)]
    return [(i, " ".join(rng.choices(words, k=rng.randrange(5, 40)))) for i in range(20_000)]


def chunks(part: int, size: int) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Enough documents to fill a number of bytes, in chunks, each chunk with a number."""
    found = documents()
    each = sum(len(text) + 30 for _, text in found)
    for number in range(-(-size // each)):
        share = min(1.0, (size - number * each) / each)
        yield part * 1_000 + number, found[: max(1, int(len(found) * share))]


def rows_of(n: int) -> int:
    """The number of rows among which peers resume in files of documents."""
    each = sum(len(found) for _, found in chunks(0, n // PARTS))
    return min(PEER_ROWS, PARTS * each)


def json_lines(part: int, size: int) -> Iterator[bytes]:
    for number, found in chunks(part, size):
        rows = ({"chunk": number, "id": i, "text": text} for i, text in found)
        yield b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _text(path: Path, part: int, size: int) -> None:
    with path.open("w") as out:
        for number, found in chunks(part, size):
            out.writelines(f"{number} {i} {text}\n" for i, text in found)


def _jsonl(path: Path, part: int, size: int) -> None:
    with path.open("wb") as out:
        out.writelines(json_lines(part, size))


def _gzip(path: Path, part: int, size: int) -> None:
    """One member, as gzip writes it."""
    inner = zlib.compressobj(1, wbits=31)
    with path.open("wb") as out:
        out.writelines(map(inner.compress, json_lines(part, size)))
        out.write(inner.flush())


def _zstd(path: Path, part: int, size: int) -> None:
    """Frames of 1 MiB."""
    try:
        from compression import zstd  # from Python 3.14 on
    except ImportError:
        from backports import zstd

    content = b"".join(json_lines(part, size))
    with path.open("wb") as out:
        for begin in range(0, len(content), 1 << 20):
            out.write(zstd.compress(content[begin : begin + (1 << 20)], 1))


def _parquet(path: Path, part: int, size: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    writer = None
    for number, found in chunks(part, size):
        ids, texts = zip(*found, strict=True)
        values = np.random.default_rng(number).random((len(ids), 4), np.float32)
        columns = {"chunk": np.full(len(ids), number), "id": ids, "text": texts}
        table = pa.table(columns | {f"x{i}": values[:, i] for i in range(4)})
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=10_000)
    assert writer
    writer.close()


def _tar(path: Path, part: int, size: int) -> None:
    """Samples of 8 KB and a label."""
    content = np.random.default_rng(part).bytes(16_000)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(max(1, size // 9_728)):
            begin = number % 8_000
            members = {"bin": content[begin : begin + 8_000], "cls": b"%d" % (number % 10)}
            for name, held in members.items():
                info = tarfile.TarInfo(f"{part:02}-{number:07}.{name}")
                info.size = len(held)
                archive.addfile(info, io.BytesIO(held))


def _array_record(path: Path, part: int, size: int) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1")
    for content in json_lines(part, size):
        for line in content.splitlines():
            writer.write(line)
    writer.close()


_WRITERS: dict[str, Callable[[Path, int, int], None]] = {
    "txt": _text,
    "jsonl": _jsonl,
    "jsonl.gz": _gzip,
    "jsonl.zst": _zstd,
    "parquet": _parquet,
    "tar": _tar,
    "arrayrecord": _array_record,
}


def peak_memory() -> int:
    """The most bytes that this process has held since it began, on Linux.

    `getrusage` counts the memory of the process that forked it.
    """
    told = Path("/proc/self/status").read_text()
    return int(told.partition("VmHWM:")[2].split()[0]) * 1024


def figures(
    *,
    order: Callable[[], Iterable[Any]] | None = None,
    columns: Callable[[], Iterable[Any]] | None = None,
    shuffled: Callable[[], Iterable[Any]] | None = None,
    local: Callable[[], Iterable[Any]] | None = None,
    resumed: Callable[[], Figures | None] | None = None,
    **known: float,
) -> Way:
    """The measurements of a contestant, each taken again; `known` ones are measured already."""
    passes = {"order": order, "shuffled": shuffled, "local": local}

    def measure() -> Figures:
        found: Figures = dict(known)
        for key, begin in passes.items():
            if begin is not None:
                found[key] = row_seconds(begin(), ROWS)
        if columns is not None:
            found["columns"] = row_seconds(columns(), ROWS // BATCH) / BATCH
        resumes = resumed and resumed()
        for key, value in (resumes or {"inexact": 3}).items():
            if key in FIGURES:
                found[key] = value
        found["peak"] = peak_memory()
        return found

    return measure


def row_seconds(rows: Iterable[Any], most: int) -> float:
    """CPU seconds per row, without the first row, which opens the files."""
    stream = iter(rows)
    next(stream)
    begun, count = process_time(), 0
    while count < most and process_time() - begun < SECONDS:
        given = sum(1 for _ in islice(stream, min(1_000, most - count)))
        count += given
        if not given:
            break
    return (process_time() - begun) / max(1, count)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds that a call takes, and its result."""
    begun = perf_counter()
    found = call()
    return perf_counter() - begun, found
