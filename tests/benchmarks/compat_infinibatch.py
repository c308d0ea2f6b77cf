"""`lazyckpt.compat.infinibatch` against Infinibatch 0.1.1, each class on its own work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import islice
from random import Random
from typing import Any

from harness import Row, compared, spent

from lazyckpt.compat.infinibatch import datasets, iterators

N = 200_000
LARGE = 1_000_000
FASTER = 1 / 1.5


def add(x: int) -> int:
    return x + 1


def tenfold(x: int) -> list[int]:
    return [x] * 10


def summed(total: int, x: int) -> tuple[int, int]:
    return total + x, total


def noisy(random: Random, x: int) -> float:
    return x + random.random()


def taken(make: Callable[[], Any], count: int = N) -> None:
    iterator = make()
    spent(islice(iterator, count))
    iterator.close()


def stages(it: Any, data: Any) -> dict[str, tuple[Callable[[], Any], int]]:
    """An iterator for each class, and how many items it gives or is asked for."""
    numbers = list(range(N))
    tenth = numbers[: N // 10]
    native = partial(it.NativeCheckpointableIterator, numbers)
    chunks = [numbers[i : i + 1000] for i in range(0, N, 1000)]
    control = [i % 2 for i in numbers]
    return {
        "Native": (native, N),
        "InfinitePermutation": (partial(it.InfinitePermutationSourceIterator, numbers, 1), N),
        "Multiplex": (
            lambda: it.MultiplexIterator(
                it.NativeCheckpointableIterator(control), [native(), native()]
            ),
            N,
        ),
        "SelectMany": (
            lambda: it.SelectManyIterator(it.NativeCheckpointableIterator(tenth), tenfold),
            N,
        ),
        "BufferedShuffle(4096)": (lambda: it.BufferedShuffleIterator(native(), 4096), N),
        "Map": (lambda: it.MapIterator(native(), add), N),
        "Zip": (lambda: it.ZipIterator(native(), native()), N),
        "Windowed(5)": (lambda: it.WindowedIterator(native(), 5), N),
        "FixedBatch(32)": (lambda: it.FixedBatchIterator(native(), 32), N // 32),
        "FixedBatch(4)": (lambda: it.FixedBatchIterator(native(), 4), N // 4),
        "Random": (it.RandomIterator, N),
        "Recurrent": (lambda: it.RecurrentIterator(native(), summed, 0), N),
        "SamplingRandomMap": (
            lambda: it.SamplingRandomMapIterator(it.NativeCheckpointableIterator(tenth), noisy),
            N // 10,
        ),
        "BlockwiseShuffle(1000)": (lambda: it.BlockwiseShuffleIterator(native(), 1000), N),
        "BlockwiseShuffle(65536)": (lambda: it.BlockwiseShuffleIterator(native(), 65536), N),
        "BucketedReadahead(10000, 32)": (
            lambda: it.BucketedReadaheadBatchIterator(native(), 10_000, (97).__rmod__, 32),
            N // 32,
        ),
        "chunked_dataset_iterator": (
            lambda: data.chunked_dataset_iterator(
                list(range(len(chunks))), chunks.__getitem__, 10_000, seed=1, transform=add
            ),
            N,
        ),
        "Prefetch(1000)": (
            lambda: it.PrefetchIterator(it.MapIterator(native(), add), 1000, True),
            N // 10,
        ),
        "ParallelMap(2, 1000)": (lambda: it.ParallelMapIterator(native(), add, 2, 1000), N),
    }


def compat_infinibatch(rounds: int) -> Iterator[Row]:
    """A row for each class, and one for a resume amid a million shuffled items."""
    if not find_spec("infinibatch"):
        return
    from infinibatch import datasets as old_data
    from infinibatch import iterators as old

    theirs = stages(old, old_data)
    for name, (make, count) in stages(iterators, datasets).items():
        yield compared(
            "infinibatch",
            f"{name} / the original",
            partial(taken, make, count),
            partial(taken, theirs[name][0], count),
            rounds,
            count,
            None if name in ("Native", "Random", "ParallelMap(2, 1000)") else FASTER,
        )
    yield resumed(rounds, iterators, old)


def resumed(rounds: int, new: Any, old: Any) -> Row:
    items = list(range(LARGE))
    sides = []
    for module in (new, old):
        iterator = module.InfinitePermutationSourceIterator(items, 1)
        spent(islice(iterator, LARGE // 2))
        fresh = partial(module.InfinitePermutationSourceIterator, items, 1)
        sides.append(partial(at, fresh, iterator.getstate()))
    what = "InfinitePermutation, resume amid 10**6 items / the original"
    return compared("infinibatch", what, *sides, rounds, 1, 1 / 5)


def at(make: Callable[[], Any], state: Any) -> None:
    """As another process would go on: nothing is remembered of the order."""
    iterator = make()
    iterator.setstate(state)
    next(iterator)


if __name__ == "__main__":
    for row in compat_infinibatch(5):
        print(f"{row.compared:<70}{row.median:>8.3f} {row.met:<4}{row.sides}", flush=True)
