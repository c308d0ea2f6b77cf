"""Hugging Face's datasets: Arrow tables, and streams over them."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import random
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
from contestant import Way
from data import (
    BLOCK,
    LENGTH,
    WEIGHTS,
    WINDOW,
    Documents,
    add,
    buffer_size,
    files,
    keep,
    of_like_length,
    table,
)
from files import BATCH, corpus, figures, rows_of, timed
from harness import fresh, spent
from resuming import dumped, mixed, resumed

datasets.disable_progress_bars()
Columns = dict[str, list[Any]]


def w1(n: int) -> Way:
    def added(rows: Columns) -> Columns:
        return {"i": [add(x) for x in rows["i"]]}

    def kept(rows: Columns) -> list[bool]:
        return [bool(keep(x)) for x in rows["i"]]

    stream = datasets.Dataset.from_dict({"i": range(n)}).to_iterable_dataset()
    rows = stream.map(added, batched=True).filter(kept, batched=True).batch(32)
    return lambda: spent(rows)


def w1_table(n: int) -> Way:
    """Mapped and filtered as a whole, which its documentation advises for what fits."""
    rows = datasets.Dataset.from_dict({"i": range(n)})
    how = {"batched": True, "keep_in_memory": True, "load_from_cache_file": False}

    def go() -> None:
        added = rows.map(lambda some: {"i": [add(x) for x in some["i"]]}, **how)
        spent(added.filter(lambda some: [bool(keep(x)) for x in some["i"]], **how).iter(32))

    return go


def w2(n: int) -> Way:
    x, y = table(n)
    rows = datasets.Dataset.from_dict({"x": x, "y": y}).with_format("numpy").shuffle(seed=0)
    return lambda: spent(rows.iter(256))


def lines(n: int) -> Any:
    names = [str(path) for path in files(n)]
    return datasets.load_dataset("text", data_files=names, split="train", streaming=True)


def w3(n: int) -> Way:
    rng = random.Random(0)

    def grouped(rows: Columns) -> Columns:
        return {"lines": of_like_length(rows["text"], rng)}

    shuffled = lines(n).shuffle(seed=0, buffer_size=BLOCK)
    how = {"batched": True, "batch_size": WINDOW, "remove_columns": ["text"]}
    return lambda: spent(shuffled.map(grouped, **how))


def w4stream(n: int) -> Way:
    return resumed(n // 32, lambda: lines(n).shuffle(seed=0, buffer_size=buffer_size(n)).batch(32))


def w4indexed(n: int) -> Way:
    rows = datasets.Dataset.from_dict({"i": range(n)}).shuffle(seed=0)

    def make() -> Any:
        stream = rows.to_iterable_dataset()
        return stream.map(lambda row: {"i": add(row["i"])}).batch(32)

    return resumed(n // 32, make)


def w7(n: int) -> Way:
    rows = "datasets.Dataset.from_dict({'x': range(10)}).to_iterable_dataset()"
    return fresh("import datasets", f"next(iter({rows}.map(lambda row: {{'x': abs(row['x'])}})))")


def numbers(n: int) -> Any:
    for i in range(n):
        yield {"i": i}


def w9(n: int) -> Way:
    share = [weight / sum(WEIGHTS) for weight in WEIGHTS]

    def make() -> Any:
        streams = [
            datasets.IterableDataset.from_generator(numbers, gen_kwargs={"n": n + i})
            for i in range(len(WEIGHTS))
        ]
        return datasets.interleave_datasets(streams, probabilities=share, seed=0)

    return mixed(n, make, lambda stream: dumped(stream.state_dict()))


def cut(rows: Columns) -> Columns:
    tokens = list(chain.from_iterable(rows["tokens"]))
    whole = len(tokens) // LENGTH * LENGTH
    return {"tokens": [tokens[i : i + LENGTH] for i in range(0, whole, LENGTH)]}


def documents(n: int) -> Any:
    for tokens in Documents(n):
        yield {"tokens": tokens}


def w10split(n: int) -> Way:
    """Cuts texts as its examples do: a thousand documents at a time, dropping the remainder."""
    stream = datasets.IterableDataset.from_generator(partial(documents, n))
    return lambda: spent(stream.map(cut, batched=True))


def table_of(kind: str, form: str, n: int, *, has_columns: bool = False) -> Way:
    """Map-style: files converted to Arrow, whose rows are shuffled by number."""
    names = [str(path) for path in corpus(kind, n)]
    place = str(Path(names[0]).parent / "datasets")

    def made() -> Any:
        return datasets.load_dataset(form, data_files=names, split="train", cache_dir=place)

    seconds, rows = timed(made)
    shuffled = rows.shuffle(seed=0)
    kept = sum(path.stat().st_size for path in Path(place).rglob("*.arrow"))
    return figures(
        order=lambda: rows,
        columns=(lambda: rows.with_format("numpy").iter(BATCH)) if has_columns else None,
        shuffled=lambda: shuffled,
        resumed=resumed(rows_of(n), shuffled.to_iterable_dataset),
        index=seconds / (n / 1e6),
        kept=kept / len(rows),
    )


def w11text(n: int) -> Way:
    return table_of("txt", "text", n)


def w11jsonl(n: int) -> Way:
    return table_of("jsonl", "json", n)


def w11gzip(n: int) -> Way:
    return table_of("jsonl.gz", "json", n)


def w11parquet(n: int) -> Way:
    return table_of("parquet", "parquet", n, has_columns=True)
