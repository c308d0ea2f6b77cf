"""torchdata.nodes: nodes of a pipeline, in a Loader."""

from __future__ import annotations

from typing import Any

import torch
from contestant import Way
from data import WEIGHTS, add, busy, keep, large, nothing, table
from harness import by_workers, fresh, spent
from resuming import dumped, mixed, resumed
from torch.utils.data import BatchSampler, RandomSampler
from torchdata.nodes import (
    Batcher,
    IterableWrapper,
    Loader,
    Mapper,
    MultiNodeWeightedSampler,
    ParallelMapper,
    Prefetcher,
    SamplerWrapper,
)


def w1(n: int) -> Way:
    """There is no filter among the nodes."""
    data = list(range(n))
    return lambda: spent(
        Loader(Batcher(IterableWrapper(filter(keep, map(add, data))), 32, drop_last=False))
    )


def w2(n: int) -> Way:
    x, y = map(torch.from_numpy, table(n))

    def take(indices: list[int]) -> dict[str, Any]:
        return {"x": x[indices], "y": y[indices]}

    batches = BatchSampler(RandomSampler(range(n)), 256, drop_last=False)
    return lambda: spent(Loader(Mapper(SamplerWrapper(batches), take)))


def w4indexed(n: int) -> Way:
    def make() -> Any:
        order = RandomSampler(range(n), generator=torch.Generator().manual_seed(0))
        return Loader(Batcher(Mapper(SamplerWrapper(order), add), 32))

    return resumed(n // 32, make)


def w5i(n: int) -> Way:
    ints = ParallelMapper(
        IterableWrapper(range(n)), nothing, num_workers=1, method="process", prebatch=256
    )
    return by_workers(lambda: Loader(ints), n)


def w5t(n: int) -> Way:
    return by_workers(lambda: Loader(Prefetcher(IterableWrapper(range(n)), 256)), n)


def w5t_mapper(n: int) -> Way:
    ints = ParallelMapper(IterableWrapper(range(n)), nothing, num_workers=1, prebatch=256)
    return by_workers(lambda: Loader(ints), n)


def w5a(n: int) -> Way:
    arrays = ParallelMapper(IterableWrapper(range(n)), large, num_workers=1, method="process")
    return by_workers(lambda: Loader(arrays), n)


def w6(n: int) -> Way:
    items = ParallelMapper(
        IterableWrapper(range(n)), busy, num_workers=2, method="process", prebatch=16
    )
    return by_workers(lambda: Loader(items), n)


def w7(n: int) -> Way:
    imports = "from torchdata.nodes import IterableWrapper, Loader, Mapper"
    return fresh(imports, "next(iter(Loader(Mapper(IterableWrapper(range(10)), abs))))")


def w9(n: int) -> Way:
    def make() -> Any:
        names = [f"{i}" for i in range(len(WEIGHTS))]
        nodes = {name: IterableWrapper(range(n)) for name in names}
        weights = dict(zip(names, map(float, WEIGHTS), strict=True))
        return Loader(MultiNodeWeightedSampler(nodes, weights, seed=0))

    return mixed(n, make, lambda loader: dumped(loader.state_dict()))
