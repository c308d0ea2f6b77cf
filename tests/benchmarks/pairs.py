"""Compare lazyckpt with code by hand, in turn in one process; and the first item of processes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from contestants import by_hand, of_lazyckpt
from data import BINS, LENGTH, LINES, Documents, busy, large, pool
from harness import Action, Case, Row, compared, fresh, seconds, spent

import lazyckpt as lz

ARRAYS = 2_000
HEAVY = 1_000
PACKED = 50_000
ROWS = 20_000


def pair(name: str, what: str, n: int, bound: float) -> Case:
    """The setup of both sides of a row."""

    def measured(rounds: int) -> Iterator[Row]:
        ours, theirs = (getattr(side, name.lower())(n) for side in (of_lazyckpt, by_hand))
        yield compared(name, what, ours, theirs, rounds, n, bound)

    return measured


w1 = pair("W1", "source(list)|map|filter|batch(32), 10**6 ints / loop", 10**6, 1.05)
w2 = pair("W2", "columns|shuffle|batch(256, stack), 10**6 rows / permutation and take", 10**6, 1.3)
w3 = pair("W3", "gzip|block_shuffle(65,536)|bucket_batch(64), all lines / loop", LINES, 1.05)


def w5a(rounds: int) -> Iterator[Row]:
    """Workers are started and ended within what is timed, on both sides, here and below."""
    arrays = lz.source(range(ARRAYS)) | lz.map(large)
    for workers, size in ((1, 1), (1, 2), (1, 8), (1, 32), (2, 2), (2, 32)):
        executor = lz.processes(workers, buffer_size=size)
        ours = afresh(partial(walked, arrays, executor))
        theirs = afresh(lambda: spent(by_hand.ring(ARRAYS)))
        what = f"processes({workers}, buffer_size={size}), 1 MB arrays / a ring of 8 slots"
        yield compared("W5a", what, ours, theirs, rounds, ARRAYS, 1.3)


def w6(rounds: int) -> Iterator[Row]:
    few = max(1, rounds // 3)
    yield from pair("W6", "processes(2), 1 ms an item / pool.map(chunksize=16)", HEAVY, 1.0)(few)
    alone = lz.source(range(HEAVY)) | lz.map(busy)
    ours = of_lazyckpt.w6(HEAVY)
    yield compared("W6", "processes(2) / inline", ours, lambda: spent(alone), few, HEAVY)


def w10(rounds: int) -> Iterator[Row]:
    arrays = Documents(PACKED)
    for kind, documents in {"arrays": arrays, "lists": [each.tolist() for each in arrays]}.items():
        alone = lz.source(documents) | lz.pack_first_fit(LENGTH, num_bins=BINS)
        ours, theirs = (partial(spent, alone | lz.shard(num_shards=n, index=0)) for n in (64, 1))
        what = f"{kind} of tokens, packed for 64 ranks by one of them / for one"
        yield compared("W10", what, ours, theirs, rounds, PACKED)


def w11(rounds: int) -> Iterator[Row]:
    with TemporaryDirectory() as folder:
        many, few = (partial(looked_up, scattered(Path(folder), files)) for files in (1_000, 50))
        yield compared(
            "W11", "rows at random, of 1,000 files / of 50", many, few, rounds, ROWS, 1.5
        )


def scattered(folder: Path, files: int) -> lz.io.Rows[str]:
    """The rows of some files, the same number of rows in all."""
    place = folder / str(files)
    place.mkdir()
    for number in range(files):
        (place / f"{number:04}.txt").write_text(f"{number:0100}\n" * (1_000_000 // files))
    return lz.io.read_text(str(place / "*.txt"), index_dir=place)


def looked_up(rows: lz.io.Rows[str]) -> None:
    numbers = random.Random(0)
    for _ in range(ROWS):
        rows[numbers.randrange(len(rows))]


def first_items(rounds: int) -> Iterator[Row]:
    for method in ("forkserver", "spawn", "fork"):
        executor = lz.processes(2, start_method=method)
        code = f"next(lz.run(lz.source(range(10)) | lz.map(abs), executor=lz.{executor!r}))"
        once = fresh("import lazyckpt as lz", code)
        times = [seconds(once) * 1e3 for _ in range(rounds)]
        yield Row("W7", f"a new process: the first item from processes(2), {method}", times, "ms")
        first(executor)  # for which the server starts, once per process
        times = [seconds(partial(first, executor)) * 1e3 for _ in range(rounds)]
        bound = 150.0 if method != "spawn" else None
        yield Row("W7", f"first item from processes(2), {method}, and its end", times, "ms", bound)


def first(executor: lz.Executor) -> None:
    with lz.run(lz.source(range(10)) | lz.map(abs), executor=executor) as run:
        next(run)


def walked(pipeline: lz.Pipeline[Any], executor: lz.Executor) -> None:
    with lz.run(pipeline, executor=executor) as run:
        spent(run)


def afresh(action: Action) -> Action:
    """Have each run make its arrays, in whichever process."""

    def go() -> None:
        pool.cache_clear()
        action()

    return go
