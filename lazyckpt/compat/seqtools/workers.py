"""What a loader's workers are told: who they are, and where their generators begin."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np

from lazyckpt.combinators.enumerate import numbered
from lazyckpt.combinators.interleave import Turns
from lazyckpt.core.call import Chain
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.core.prng import derive
from lazyckpt.decorators import combinator
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.plan.handlers import Reader
from lazyckpt.executors.plan.positions import Rereader
from lazyckpt.executors.plan.tasks import stream_tasks
from lazyckpt.executors.pools.pool import PrefetchGate
from lazyckpt.executors.prefetcher import Prefetcher
from lazyckpt.executors.session import Session

_started: tuple[int, bool] | None = None  # a worker's seed, and whether torch is to be seeded


class Start(NamedTuple):
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


def seed_batch(seed: int, *place: int) -> None:
    """Seed a worker's generators for what it makes next, but torch's if `worker_init_fn` did."""
    if _started is not None:
        seed_generators(worker_seed(seed, *place), _started[1])


def is_worker(seed: int) -> bool:
    """Whether this process is a worker of the loader with that seed."""
    return _started is not None and _started[0] == seed


def tell(worker: int, num_workers: int, seed: int, dataset: Any) -> None:
    """Have torch's `get_worker_info` give this."""
    if module := _torch_worker():
        module._worker_info = module.WorkerInfo(
            id=worker, num_workers=num_workers, seed=seed, dataset=dataset
        )


def _torch_worker() -> Any:
    return sys.modules.get("torch.utils.data._utils.worker")


@contextmanager
def standing_in(held: list[Any]) -> Iterator[None]:
    """Be a worker for a while: `held` is where its generators are, once they have begun."""
    own = _place()
    if held:
        _go_to(*held.pop())
    try:
        yield
    finally:
        held.append(_place())
        _go_to(*own)


def _place() -> tuple[Any, ...]:
    torch, module = sys.modules.get("torch"), _torch_worker()
    numbers = random.getstate(), np.random.get_state(), torch and torch.get_rng_state()
    return *numbers, module and module._worker_info, _started


def _go_to(of_random: Any, of_numpy: Any, of_torch: Any, info: Any, started: Any) -> None:
    global _started
    _started = started
    random.setstate(of_random)
    np.random.set_state(of_numpy)
    if of_torch is not None:
        sys.modules["torch"].set_rng_state(of_torch)
    if module := _torch_worker():
        module._worker_info = info


class Seeds:
    """Has a worker's generators begin anew before each item, wherever that is made."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def before_each(self, items: Iterator[Any], epoch: int, number: int) -> Iterator[Any]:
        return self._seeding(items, epoch, number) if is_worker(self.seed) else items

    def _seeding(self, items: Iterator[Any], epoch: int, number: int) -> Iterator[Any]:
        for each in count(number):
            seed_batch(self.seed, epoch, each)
            some = [*islice(items, 1)]
            if not some:
                return
            yield some.pop()


@combinator(registered=False, unrecorded=("seeds",), pointwise=True)
def seeded(upstream: Machine[Any], seeds: Seeds) -> Machine[Any]:
    """The items, each made with generators that its number has seeded. State: a count of items."""

    def made(epoch: int, first: int) -> Callable[[Any], Iterator[Any]]:
        return lambda items: seeds.before_each(iter(items), epoch, first)

    return numbered("seeded", upstream, made)


class Readers(Executor):
    """Reads each of the pipelines that are interleaved in a process of its own."""

    __slots__ = ()

    def open(self, chain: Chain) -> Session:
        gate = PrefetchGate(is_gated=False)
        pipelines = chain.calls[0].arguments["pipelines"]
        for pipeline, executor in zip(pipelines, self.arguments["executors"], strict=True):
            gate.pools.append(executor.spec.start([Reader(pipeline)], 1))
        machines = [pipeline.machine for pipeline in pipelines]
        return Session(chain.machine, lambda position: _Together(machines, gate, position), gate)


class _Together:
    """The readers' items in turn: all read ahead, whose turn it is or not."""

    def __init__(
        self, machines: list[Machine[Any]], gate: PrefetchGate, position: Position
    ) -> None:
        self._machines, self._position = machines, position
        self._each = [
            Prefetcher(pool, gate, 0, stream_tasks, place, Rereader(machine))
            for pool, place, machine in zip(gate.pools, position[0], machines, strict=True)
        ]

    def flow(self) -> Flow[Any]:
        pairs = zip(self._machines, self._each, strict=True)
        flows = [machine._replace(flow=_flow_of(each)) for machine, each in pairs]
        items = Turns(flows).flow(self._position)
        return Flow(self._filled(items.pull), items.snapshot, taken=items.taken)

    def _filled(self, items: Iterator[Any]) -> Iterator[Any]:
        self.fill()
        yield from items

    def fill(self) -> None:
        for number, each in enumerate(self._each):
            if not self._position[1] >> number & 1:  # it hasn't ended
                each.fill()

    def suspend(self) -> None:
        for each in self._each:
            each.suspend()


def _flow_of(prefetcher: Prefetcher) -> Callable[[Position], Flow[Any]]:
    return lambda position: prefetcher.flow()
