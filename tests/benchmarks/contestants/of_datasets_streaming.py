"""Hugging Face's datasets, streaming: files read from the front."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import datasets
from contestant import Way
from files import BATCH, BUFFER, corpus, figures, rows_of
from resuming import resumed


def read(kind: str, form: str, n: int, *, has_columns: bool = False) -> Way:
    names = [str(path) for path in corpus(kind, n)]

    stream = datasets.load_dataset(form, data_files=names, split="train", streaming=True)

    return figures(
        order=lambda: stream,
        columns=(lambda: stream.with_format("numpy").iter(BATCH)) if has_columns else None,
        local=lambda: stream.shuffle(seed=0, buffer_size=BUFFER),
        resumed=resumed(rows_of(n), lambda: stream),
    )


def w11text(n: int) -> Way:
    return read("txt", "text", n)


def w11jsonl(n: int) -> Way:
    return read("jsonl", "json", n)


def w11gzip(n: int) -> Way:
    return read("jsonl.gz", "json", n)


def w11zstd(n: int) -> Way:
    return read("jsonl.zst", "json", n)


def w11parquet(n: int) -> Way:
    return read("parquet", "parquet", n, has_columns=True)
