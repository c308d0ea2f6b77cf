"""Files against plain loops: `python -m tests.benchmarks.files [megabytes]`.

Each figure is of CPU time: loop over reader, the two taken in turns, the median of many rounds.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import orjson
from backports import zstd

import lazyckpt as lz

ROUNDS, ROWS = 21, 20_000


def main(megabytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = {name: Path(folder, f"a.{name}") for name in ("jsonl", "jsonl.gz", "jsonl.zst")}
        content = lines(megabytes)
        made["jsonl"].write_bytes(content)
        made["jsonl.gz"].write_bytes(gzip.compress(content, 6))
        parts = range(0, len(content), 1 << 20)
        frames = (zstd.compress(content[part : part + (1 << 20)]) for part in parts)
        made["jsonl.zst"].write_bytes(b"".join(frames))
        for name, path in made.items():
            report(name, path, len(content))


def report(name: str, path: Path, size: int) -> None:
    index = path.parent / f"{name}.index"
    seconds = cpu(lambda: lz.io.read_jsonl(path, index_dir=index))
    rows = lz.io.read_jsonl(path, index_dir=index)
    kept = sum(each.stat().st_size for each in index.iterdir())
    print(f"{name}: {size / 1e6 / seconds:,.0f} MB/s to index, {kept / len(rows):.1f} bytes a row")
    ratios = [
        cpu(lambda: take(loop(path))) / cpu(lambda: take(lz.run(lz.source(rows))))
        for _ in range(ROUNDS)
    ]
    print(f"    in order {median(ratios):.2f} of a loop's speed")
    count = min(2000, len(rows)) if name == "jsonl" else 100
    shuffled = rows | lz.shuffle(seed=0)
    seconds = cpu(lambda: [row for row, _ in zip(shuffled, range(count), strict=False)])
    print(f"    shuffled {seconds / count * 1e6:,.0f} us a row")
    for part in (0.1, 0.5, 0.9):
        state = lz.state_at(shuffled, int(len(rows) * part))
        begun = perf_counter()
        next(lz.run(shuffled, state))
        print(
            f"    first row after a resume at {part:.0%}: {(perf_counter() - begun) * 1e3:.1f} ms"
        )


def lines(megabytes: int) -> bytes:
    rng = random.Random(0)
    words = [f"{rng.getrandbits(40):x}" for _ in range(20_000)]
    found, size = [], 0
    while size < megabytes * 1_000_000:
        text = " ".join(rng.choices(words, k=40))
        found.append(json.dumps({"id": len(found), "text": text}).encode() + b"\n")
        size += len(found[-1])
    return b"".join(found)


def loop(path: Path) -> Iterator[Any]:
    opened: Any = {".gz": gzip.open, ".zst": zstd.open}.get(path.suffix, open)
    with opened(path, "rb") as file:
        for line in file:
            yield orjson.loads(line)


def take(items: Iterable[Any]) -> None:
    for _ in zip(range(ROWS), items, strict=False):
        pass


def cpu(call: Callable[[], Any]) -> float:
    begun = process_time()
    call()
    return process_time() - begun


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
