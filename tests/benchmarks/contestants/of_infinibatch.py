"""Infinibatch: checkpointable iterators, composed by wrapping."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import accumulate, islice
from typing import Any

from contestant import Figures, Way
from data import (
    BLOCK,
    SIZE,
    WEIGHTS,
    WINDOW,
    add,
    buffer_size,
    busy,
    files,
    keep,
    lines_of,
    nothing,
    table,
)
from harness import fresh, spent, spent_by_workers
from infinibatch.iterators import (
    BlockwiseShuffleIterator,
    BucketedReadaheadBatchIterator,
    BufferedShuffleIterator,
    CheckpointableIterator,
    FixedBatchIterator,
    InfinitePermutationSourceIterator,
    MapIterator,
    MultiplexIterator,
    NativeCheckpointableIterator,
    ParallelMapIterator,
    PrefetchIterator,
    RandomIterator,
    SelectManyIterator,
)
from resuming import dumped, mixed, resumed


def w1(n: int) -> Way:
    data = list(range(n))

    def go() -> None:
        mapped = MapIterator(NativeCheckpointableIterator(data), add)
        kept = SelectManyIterator(mapped, lambda x: [x] if keep(x) else [])
        spent(FixedBatchIterator(kept, 32))

    return go


def w2(n: int) -> Way:
    x, y = table(n)

    def take(indices: list[int]) -> dict[str, Any]:
        return {"x": x.take(indices, axis=0), "y": y.take(indices)}

    def go() -> None:
        order = InfinitePermutationSourceIterator(list(range(n)), seed=0)
        spent(islice(MapIterator(FixedBatchIterator(order, 256), take), n // 256))

    return go


def lines(n: int) -> CheckpointableIterator:
    return SelectManyIterator(NativeCheckpointableIterator(files(n)), lines_of)


def w3(n: int) -> Way:
    def go() -> None:
        shuffled = BlockwiseShuffleIterator(lines(n), BLOCK, seed=0)
        spent(BucketedReadaheadBatchIterator(shuffled, WINDOW, len, SIZE, seed=0))

    return go


def w4stream(n: int) -> Way:
    def make() -> CheckpointableIterator:
        return FixedBatchIterator(BufferedShuffleIterator(lines(n), buffer_size(n), seed=0), 32)

    return resumed(n // 32, make, "getstate", "setstate")


def w4blocks(n: int) -> Way:
    def make() -> CheckpointableIterator:
        return FixedBatchIterator(BlockwiseShuffleIterator(lines(n), buffer_size(n), seed=0), 32)

    return resumed(n // 32, make, "getstate", "setstate")


def w4indexed(n: int) -> Way:
    data = list(range(n))

    def make() -> CheckpointableIterator:
        order = InfinitePermutationSourceIterator(data, seed=0)
        return FixedBatchIterator(MapIterator(order, add), 32)

    return resumed(n // 32, make, "getstate", "setstate")


def ahead(n: int, make: Callable[[CheckpointableIterator], CheckpointableIterator]) -> Way:
    def go() -> Figures:
        numbers = NativeCheckpointableIterator(list(range(n)))
        with ExitStack() as stack:
            return spent_by_workers(lambda: stack.enter_context(closing(make(numbers))), n)

    return go


def w5i(n: int) -> Way:
    return ahead(n, lambda numbers: ParallelMapIterator(numbers, nothing, 1, 256))


def w5i_prefetch(n: int) -> Way:
    return ahead(n, lambda numbers: PrefetchIterator(numbers, 256))


def w5t(n: int) -> Way:
    return ahead(n, lambda numbers: PrefetchIterator(numbers, 256, True))


def w6(n: int) -> Way:
    return ahead(n, lambda numbers: ParallelMapIterator(numbers, busy, 2, 16))


def w7(n: int) -> Way:
    first = "next(iter(it.MapIterator(it.NativeCheckpointableIterator(list(range(10))), abs)))"
    return fresh("import infinibatch.iterators as it", first)


def w9(n: int) -> Way:
    bounds = list(accumulate(WEIGHTS))
    data = list(range(n))

    def make() -> CheckpointableIterator:
        choices = MapIterator(RandomIterator(0), lambda r: bisect(bounds, r * bounds[-1]))
        return MultiplexIterator(choices, [NativeCheckpointableIterator(data) for _ in WEIGHTS])

    return mixed(n, make, lambda run: dumped(run.getstate()))
