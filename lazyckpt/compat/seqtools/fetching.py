"""What a loader's workers call, and how samplers are made to repeat themselves."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from lazyckpt.combinators.batch import stack
from lazyckpt.core.prng import derive

_END: Any = object()
_NESTED = ("sampler", "batch_sampler")  # where samplers hold those that they are made of


class Fetch:
    """The batch, or the item, at some indices of a data set."""

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], is_batched: bool) -> None:
        self._dataset, self._collate, self._is_batched = dataset, collate, is_batched

    def __call__(self, index: Any) -> Any:
        if not self._is_batched:
            return self._collate(self._dataset[index])
        many = getattr(self._dataset, "__getitems__", None)
        return self._collate(many(index) if many else [self._dataset[i] for i in index])


class Sampled:
    """An epoch's indices, the same each time: what a sampler draws from torch depends on the epoch.

    `seeds` are the loader's, then those that generators of the sampler's own had at
    first, who begin the first epoch so, as for torch. The global generator is
    afterwards as it was.
    """

    def __init__(self, sampler: Any, seeds: list[int], epoch: int) -> None:
        self._sampler, self._seeds, self._epoch = sampler, seeds, epoch

    def __iter__(self) -> Iterator[Any]:
        with self._seeded():
            indices = iter(self._sampler)
            first = next(indices, _END)  # when torch's samplers draw
        if first is not _END:
            yield first
            yield from indices

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        torch = sys.modules.get("torch")
        if torch is None:
            yield
            return
        own, (seed, *seeds) = generators(self._sampler), self._seeds
        for generator, first in zip(own, seeds, strict=True):
            generator.manual_seed(derive(first, "sampler", self._epoch) if self._epoch else first)
        shared = torch.default_generator
        before = shared.get_state()
        shared.manual_seed(derive(seed, "sampler", self._epoch))
        try:
            yield
        finally:
            shared.set_state(before)


def generators(sampler: Any) -> Iterator[Any]:
    """Torch's generators that a sampler and those within it have of their own."""
    generator = getattr(sampler, "generator", None)
    if hasattr(generator, "manual_seed"):
        yield generator
    for name in _NESTED:
        if (inner := getattr(sampler, name, None)) is not None:
            yield from generators(inner)


class Start:
    """How a worker starts: with random numbers of its own."""

    def __init__(self, key: int, then: Callable[[int], Any] | None) -> None:
        self._key, self._then = key, then

    def __call__(self, worker: int) -> None:
        seed = derive(self._key, worker)
        random.seed(seed)
        np.random.seed(seed % (1 << 32))
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(seed)
        if self._then is not None:
            self._then(worker)


def initial_seed() -> int:
    """Torch's, or 0 where it isn't loaded."""
    torch = sys.modules.get("torch")
    return 0 if torch is None else int(torch.initial_seed()) % (1 << 64)


def standard_collate(alone: bool) -> Callable[[Any], Any]:
    """Torch's, for batches or for items alone; without torch `stack`, or nothing."""
    try:
        data = import_module("torch.utils.data")
    except ImportError:
        return _same if alone else stack
    found: Callable[[Any], Any] = data.default_convert if alone else data.default_collate
    return found


def _same(item: Any) -> Any:
    return item
