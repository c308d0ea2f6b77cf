"""indexed_gzip by itself: lines in order, and by offsets that we know."""

from __future__ import annotations

from typing import Any

from contestant import Way
from files import corpus, seeking
from indexed_gzip import IndexedGzipFile


def opened(path: str) -> Any:
    return IndexedGzipFile(path)


def w11gzip(n: int) -> Way:
    return seeking([str(path) for path in corpus("jsonl.gz", n)], opened)
