"""What a loader's workers are told: who they are, and where their generators begin."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from lazyckpt.combinators.enumerate import numbered
from lazyckpt.combinators.machines.turns import Turns
from lazyckpt.core.call import Chain
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.core.prng import derive
from lazyckpt.decorators import combinator
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.pools.pool import PrefetchGate
from lazyckpt.executors.session import Session

_started: tuple[int, bool] | None = None  # a worker's seed, and whether torch is to be seeded


@dataclass(frozen=True, eq=False)
class Start:
    """How a worker starts: it knows who it is, its generators are seeded, `init` is called.

    `worker` is its number, where it is the only one of its pool.
    """

    seed: int
    epoch: int
    dataset: Any
    num_workers: int
    init: Callable[[int], Any] | None
    worker: int | None = None

    def __call__(self, number: int) -> None:
        global _started
        number = number if self.worker is None else self.worker
        first = worker_seed(self.seed, self.epoch, number)
        seed_generators(first)
        tell(number, self.num_workers, first, self.dataset)
        if self.init is not None:
            self.init(number)
        torch = sys.modules.get("torch")
        _started = self.seed, torch is None or torch.initial_seed() == first


def worker_seed(seed: int, epoch: int, *place: int) -> int:
    """A seed for a worker in an epoch, or for a batch; torch takes it as a signed number."""
    return derive(seed, "workers", epoch, *place) >> 1


def seed_generators(seed: int, with_torch: bool = True) -> None:
    """Seed `random`, NumPy and, where it is loaded, torch."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    if with_torch and (torch := sys.modules.get("torch")):
        torch.default_generator.manual_seed(seed)  # manual_seed looks at all devices each time


def tell(worker: int, num_workers: int, seed: int, dataset: Any) -> None:
    """Have torch's `get_worker_info` give this."""
    module: Any = sys.modules.get("torch.utils.data._utils.worker")
    if module is not None:
        module._worker_info = module.WorkerInfo(
            id=worker, num_workers=num_workers, seed=seed, dataset=dataset
        )


def seed_batch(seed: int, *place: int) -> None:
    """Seed a worker's generators for what it makes next, but torch's if `worker_init_fn` did."""
    assert _started is not None
    seed_generators(worker_seed(seed, *place), _started[1])


def seeding(items: Iterable[Any], begin: Callable[[int], None], number: int) -> Iterator[Any]:
    """Items from a number on, before each of which `begin` is called with its number."""
    return (item for _, item in zip(map(begin, count(number)), items))  # noqa: B905  # it is endless


@combinator(registered=False, unrecorded=("start",), pointwise=True)
def seeded(upstream: Machine[Any], start: Start) -> Machine[Any]:
    """The items, each made with generators that its number has seeded. State: a count of items."""
    seed = start.seed

    def made(epoch: int, first: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
        if _started is None or _started[0] != seed:  # this is no worker of that loader
            return iter
        return lambda items: seeding(items, partial(seed_batch, seed, epoch), first)

    return numbered("seeded", upstream, made)


class Readers(Executor):
    """Reads each of the pipelines that are interleaved in a process of its own."""

    __slots__ = ()

    def open(self, chain: Chain) -> Session:
        gate = PrefetchGate(is_gated=False)
        pairs = zip(chain.calls[0].arguments["pipelines"], self.arguments["executors"], strict=True)
        sessions = [executor.open(pipeline, gate) for pipeline, executor in pairs]
        return Session(chain.machine, partial(_Together, sessions), gate)


class _Together:
    """The readers' items in turn: all read ahead, whose turn it is or not."""

    def __init__(self, sessions: list[Session], position: Position) -> None:
        _, ended, *_ = position
        self._reading = [each for n, each in enumerate(sessions) if not ended >> n & 1]
        self._items = Turns([each.machine for each in sessions]).flow(position)

    def flow(self) -> Flow[Any]:
        items = self._items
        return Flow(self._filled(items.pull), items.snapshot, taken=items.taken)

    def _filled(self, items: Iterator[Any]) -> Iterator[Any]:
        self.fill()
        yield from items

    def fill(self) -> None:
        for each in self._reading:
            each.fill()

    @property
    def ready(self) -> int:
        return sum(each.ready for each in self._reading)

    def suspend(self) -> None:
        for each in self._reading:
            if each.prefetching is not None:
                each.prefetching.suspend()
