"""This library."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any

from contestant import Figures, Way
from data import (
    BINS,
    BLOCK,
    LENGTH,
    ROW,
    ROWS,
    SIZE,
    WEIGHTS,
    WINDOW,
    Documents,
    add,
    buffer_size,
    busy,
    files,
    keep,
    large,
    lines_of,
    table,
    texts,
    tokenize,
)
from files import BATCH, BLOCKS, corpus, figures, timed
from harness import fresh, spent, spent_by_workers
from resuming import AFTER, Started, mixed, resumes

import lazyckpt as lz


def w1(n: int) -> Way:
    data = list(range(n))
    return lambda: spent(lz.source(data) | lz.map(add) | lz.filter(keep) | lz.batch(32))


def w2(n: int) -> Way:
    x, y = table(n)
    rows = lz.columns(x=x, y=y) | lz.shuffle(seed=0) | lz.batch(256, collate=lz.stack)
    return lambda: spent(rows)


def w3(n: int) -> Way:
    lines = lz.source(files(n)) | lz.flat_map(lines_of) | lz.block_shuffle(BLOCK, seed=0)
    return lambda: spent(lines | lz.bucket_batch(SIZE, key=len, window_size=WINDOW, seed=0))


def w4stream(n: int) -> Way:
    def pipeline() -> lz.Pipeline[Any]:
        lines = lz.source(files(n)) | lz.flat_map(lines_of)
        return lines | lz.shuffle(buffer_size(n), seed=0) | lz.batch(32)

    return resumed(n, pipeline)


def w4blocks(n: int) -> Way:
    def pipeline() -> lz.Pipeline[Any]:
        lines = lz.source(files(n)) | lz.flat_map(lines_of)
        return lines | lz.block_shuffle(buffer_size(n), seed=0) | lz.batch(32)

    return resumed(n, pipeline)


def w4indexed(n: int) -> Way:
    data = list(range(n))
    return resumed(n, lambda: lz.source(data) | lz.shuffle(seed=0) | lz.map(add) | lz.batch(32))


def resumed(n: int, pipeline: Callable[[], lz.Pipeline[Any]]) -> Way:
    def start(text: bytes | None) -> Started:
        run = lz.run(pipeline(), text)
        return run, iter(run)

    return resumes(n // 32, start, lambda run: run.state.to_json().encode())


def w5i(n: int) -> Way:
    return run_in(lz.source(range(n)), lz.processes(), n)


def w5t(n: int) -> Way:
    return run_in(lz.source(range(n)), lz.threads(), n)


def w5a(n: int) -> Way:
    return run_in(lz.source(range(n)) | lz.map(large), lz.processes(), n)


def w6(n: int) -> Way:
    return run_in(lz.source(range(n)) | lz.map(busy), lz.processes(2), n)


def run_in(pipeline: lz.Pipeline[Any], executor: lz.Executor, n: int) -> Way:
    def go() -> Figures:
        with ExitStack() as stack:
            make = lambda: stack.enter_context(lz.run(pipeline, executor=executor))  # noqa: E731
            return spent_by_workers(make, n)

    return go


def w7(n: int) -> Way:
    return fresh("import lazyckpt as lz", "next(iter(lz.source(range(10)) | lz.map(abs)))")


def w9(n: int) -> Way:
    pipeline = lz.mix([lz.source(range(n)) for _ in WEIGHTS], WEIGHTS, seed=0)

    return mixed(n, lambda: lz.run(pipeline), lambda run: run.state.to_json().encode())


def w10split(n: int) -> Way:
    rows = lz.source(Documents(n)) | lz.concat_then_split(LENGTH)
    return lambda: spent(rows)


def w10fit(n: int) -> Way:
    rows = lz.source(Documents(n)) | lz.pack_first_fit(LENGTH, num_bins=BINS)
    return lambda: spent(rows)


def w12(n: int) -> Way:
    from training import trained

    rows = lz.source(texts(n)) | lz.repeat() | lz.map(tokenize) | lz.concat_then_split(ROW)
    batches = rows | lz.map(lambda row: row["tokens"]) | lz.batch(ROWS, collate=lz.stack)

    def run() -> Iterator[Any]:
        with lz.run(batches, executor=lz.processes(2)) as run:
            yield from run

    return trained(n, run)


def read(reader: Callable[..., Any], kind: str, n: int, *, has_columns: bool = False) -> Way:
    paths = corpus(kind, n)
    folder = paths[0].parent / f"index of {kind}"
    shutil.rmtree(folder, ignore_errors=True)

    def opened() -> Any:
        return reader(lz.io.files(paths), index_dir=folder)

    seconds, rows = timed(opened)
    kept = sum(path.stat().st_size for path in folder.iterdir())
    has_blocks = getattr(rows, "block_starts", None) is not None
    shuffled = rows | lz.shuffle(seed=0)

    def resumed() -> Figures:
        found: Figures = {"open": timed(opened)[0], "inexact": 0}
        for share in (10, 50, 90):
            run = lz.run(shuffled, lz.state_at(shuffled, len(rows) * share // 100))
            next(run)
            text, after = run.state.to_json(), [repr(next(run)) for _ in range(AFTER)]
            pipeline = opened() | lz.shuffle(seed=0)
            found[f"{share}%"], first = timed(lambda p=pipeline, text=text: next(lz.run(p, text)))
            rest = islice(lz.run(pipeline, text), 1, AFTER)
            found["inexact"] += [repr(first), *map(repr, rest)] != after
        return found

    return figures(
        order=lambda: lz.run(lz.source(opened())),
        columns=(lambda: opened() | lz.batch(BATCH, collate=lz.stack)) if has_columns else None,
        shuffled=lambda: opened() | lz.shuffle(seed=0),
        local=lambda: (
            opened() | lz.local_shuffle(BLOCKS, seed=0, block_size=None if has_blocks else 1_000)
        ),
        resumed=resumed,
        index=seconds / (n / 1e6),
        kept=kept / len(rows),
    )


def w11text(n: int) -> Way:
    return read(lz.io.read_text, "txt", n)


def w11jsonl(n: int) -> Way:
    return read(lz.io.read_jsonl, "jsonl", n)


def w11gzip(n: int) -> Way:
    return read(lz.io.read_jsonl, "jsonl.gz", n)


def w11zstd(n: int) -> Way:
    return read(lz.io.read_jsonl, "jsonl.zst", n)


def w11parquet(n: int) -> Way:
    return read(lz.io.read_parquet, "parquet", n, has_columns=True)


def w11tar(n: int) -> Way:
    return read(lz.io.read_tar, "tar", n)
