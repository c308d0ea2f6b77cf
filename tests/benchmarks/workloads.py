"""The workloads that libraries are compared at."""

from __future__ import annotations

from data import LINES
from files import FIGURES
from harness import Contest

STATES = {
    "bytes": ("bytes of a state", "B", 1.0),
    "take": ("take a state", "µs", 1e6),
    "10%": ("resume at 10 %", "ms", 1e3),
    "50%": ("resume at 50 %", "ms", 1e3),
    "90%": ("resume at 90 %", "ms", 1e3),
    "inexact": ("resumes not exact", "of 3", 1.0),
    "inexact again": ("resumes of a resumed run not exact", "of 3", 1.0),
}
FIRST = {"first": ("the first", "ms", 1e3)}
FORMATS = {
    "text": "lines",
    "jsonl": "JSON lines",
    "gzip": "JSON lines in gzip",
    "zstd": "JSON lines in zstd",
    "parquet": "Parquet",
    "tar": "tar",
}
FOR_ALL = ("order", "columns", "peak", "index", "kept")
SECONDS = {"seconds": ("", "ns", 1e9)}

CONTESTS = [
    Contest("W1", "ints through map, filter, batch of 32", 100_000),
    Contest("W2", "rows of arrays, shuffled, in batches of 256", 100_000),
    Contest("W3", "gzip lines, shuffled in blocks, batches by length", LINES // 2),
    Contest("W4", "lines, buffered shuffle", LINES // 2, STATES, key="w4stream"),
    Contest("W4", "lines, shuffled in blocks", LINES // 2, STATES, key="w4blocks"),
    Contest("W4", "items, full shuffle", 400_000, STATES, key="w4indexed"),
    Contest("W5i", "ints from another process", 50_000, SECONDS | FIRST),
    Contest("W5t", "ints from another thread", 50_000, SECONDS | FIRST),
    Contest(
        "W5a",
        "arrays of 1 MB from another process",
        1_000,
        {"seconds": ("", "µs", 1e6)} | FIRST,
    ),
    Contest(
        "W6", "1 ms of Python an item, 2 processes", 1_000, {"seconds": ("", "ms", 1e3)} | FIRST
    ),
    Contest("W7", "a new process: imports, the first item", 1, {"seconds": ("", "ms", 1e3)}),
    Contest("W9", "mixture of 1,000 sources", 50_000, SECONDS | {"bytes": ("a state", "B", 1.0)}),
    Contest("W10", "documents split into rows of 2,048 tokens", 1_000_000, key="w10split"),
    Contest("W10", "documents packed whole, first fit", 1_000_000, key="w10fit"),
    *(
        Contest("W11", what, 1_000_000_000, FIGURES, key=f"w11{key}", for_all=FOR_ALL)
        for key, what in FORMATS.items()
    ),
    Contest(
        "W12",
        "training on packed tokens, 2 workers",
        200,
        {
            "waited": ("time waited", "%", 100.0),
            "seconds": ("a step", "ms", 1e3),
        },
    ),
]
