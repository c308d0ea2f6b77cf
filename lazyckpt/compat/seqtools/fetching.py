"""The data of a loader, and the identity and random seeds of its workers.

Data are read by index or are iterables, which are told the epoch and may have states. Iterables are
datasets, read by one of several workers or alone, and samplers, which are made repeatable.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import chain, count, islice, repeat
from typing import Any, TypeAlias

import numpy as np
from toolz import identity

import lazyckpt as lz
from lazyckpt.combinators.enumerate import numbered
from lazyckpt.combinators.machines.turns import Turns
from lazyckpt.core.call import Chain
from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import Machine, Reread, within
from lazyckpt.core.prng import derive
from lazyckpt.core.stages import sourced
from lazyckpt.core.user_state import Own, freeze, thaw
from lazyckpt.executors.pools.pool import PrefetchGate
from lazyckpt.executors.session import Session

NONE = freeze((None, None), "")  # if neither the data nor its iterator has a state of its own


def fetched(dataset: Any, collate: Callable[[Any], Any], is_batched: bool, index: Any) -> Any:
    """Return the batch, or the item, at some indices of a dataset."""
    if not is_batched:
        return collate(dataset[index])
    many = getattr(dataset, "__getitems__", None)
    return collate(many(index) if many else [dataset[i] for i in index])


# Items, and a function for the current states of data and iterator; None if there is no state.
Opened: TypeAlias = tuple[Iterator[Any], Callable[[], Any]]


@lz.source_combinator(registered=False, describe=lambda opened: {})
def iterable(opened: Callable[[int, int, Any], Opened]) -> Machine[Any]:
    """Yield the items of an iterable that `opened` begins, or continues from states of its own.

    State: the epoch, a count of items, the data's and the iterator's own states, and whether it has
    ended.
    """

    def check(own: Any, ended: Any) -> None:
        states = thaw(own)
        if type(states) is not tuple or len(states) != 2:
            raise lz.InvalidState(f"iterable: a state with {brief(states)} does not fit")
        within("iterable", ended, 1)

    def flow(position: Position) -> Flow[Any]:
        epoch, index, own, ended = position
        reached: Callable[[], Position] = partial(tuple, position)  # before reading begins

        def items() -> Iterator[Any]:
            nonlocal reached, ended
            if ended:
                return
            stream, states = opened(epoch, index, thaw(own))
            passed = index if own != NONE else sum(1 for _ in islice(stream, index))
            if passed < index:
                raise lz.SourceChanged(
                    f"DataLoader: the state is after item {index} of an iterable "
                    f"which now has {passed}"
                )
            stream, taken = counted(stream)

            def reached() -> Position:
                place = epoch, index + taken()
                return *place, freeze(states(), "DataLoader: a state_dict of the data"), ended

            yield from stream
            ended = 1

        return Flow(items(), lambda: reached())

    return sourced(
        "iterable",
        first=(NONE, 0),
        check=check,
        rereads=lambda position: (Reread(None, position[1] if position[2] == NONE else 0),),
        flow=flow,
    )


def carried(machine: Machine[Any], start: Position, end: Position) -> Position:
    """Return the start of the epoch after one that has ended, with the data's states."""
    if machine.children:
        pairs = zip(machine.children, start[0], end[0], strict=True)
        return tuple([carried(*each) for each in pairs]), *start[1:]
    if machine.upstream is not None and machine.owns:
        return carried(machine.upstream, start[0], end[0]), *start[1:]
    if machine.upstream is not None:
        return carried(machine.upstream, start, end)
    of_data = end[2][0][0]
    return start if of_data is None else (*start[:2], Own(((of_data, None),)), 0)


def begun(data: Any, index: int, states: Any, asks: bool = True) -> Opened:
    """Return an iterator over data, both in the states that they had after `index` items.

    In a state at the end of an epoch, data may have no more items. If the data are in that state
    already, they just continue. Otherwise they load it. If they then yield nothing, they are
    iterated over again, and after that from the state that they had before.
    """
    of_data, of_items = states
    beginnings, current = [of_data], data
    if of_data is not None and index == 0:
        before = state_of(data)
        beginnings = [None] if before == of_data else [of_data, None, before]

    def parts() -> Iterator[Iterator[Any]]:
        nonlocal current
        for state in beginnings:
            if state is not None:
                data.load_state_dict(state)
            current = iter(data)
            if of_items is not None:
                current.load_state_dict(of_items)
            # If data is its own iterator, a second `iter` may rewind it.
            found = map(next, repeat(data)) if current is data else current
            for item in found:
                yield iter([item])
                yield found
                return

    def now() -> Any:
        return None if current is data else state_of(data), state_of(current)

    return chain.from_iterable(parts()), now if asks else lambda: (None, None)


def is_torchs_stream(data: Any) -> bool:
    """Return whether data is an `IterableDataset` of torch."""
    torch = sys.modules.get("torch.utils.data")
    return torch is not None and isinstance(data, torch.IterableDataset)


def has_state(data: Any) -> bool:
    return hasattr(data, "state_dict") and hasattr(data, "load_state_dict")


def state_of(data: Any) -> Any:
    """Return the state of data; None if it has none."""
    return data.state_dict() if has_state(data) else None


def streamed(start: Start, batch_size: int, epoch: int, index: int, states: Any) -> Opened:
    """Open an iterable dataset, read by one of several workers or in this process.

    A worker's generators are seeded again for each batch, so that a resume draws the same numbers.
    """
    items, found = begun(start.dataset, index, states)
    seed, worker = start.seed, start.worker
    if worker is None:
        return items, found
    tell(worker, start.num_workers, worker_seed(seed, epoch, worker), start.dataset)

    def begin(number: int) -> None:
        if number % batch_size == 0:
            seed_batch(seed, epoch, worker, number // batch_size)

    return seeding(items, begin, index if states != (None, None) else 0), found


def sampled(sampler: Any, seeds: list[int], epoch: int, index: int, states: Any) -> Opened:
    """Open a sampler such that it yields the same indices for the same epoch.

    Its draws from torch depend on the epoch. `seeds` are the loader's, then the initial seeds of
    the sampler's own generators, which start the first epoch with them, as in torch. The global
    generator is restored afterwards.
    """
    torch, own = sys.modules.get("torch"), list(generators(sampler))
    if torch is None:
        return begun(sampler, index, states)
    with torch.random.fork_rng(devices=[]):
        for generator, first in zip(own, seeds[1:], strict=True):
            generator.manual_seed(derive(first, "sampler", epoch) if epoch else first)
        torch.default_generator.manual_seed(derive(seeds[0], "sampler", epoch))
        indices, found = begun(sampler, index, states, asks=not own)  # generators aren't JSON
        opening = [*islice(indices, 1)]  # torch's samplers draw their seed here
    return chain(opening, indices), found


def generators(sampler: Any) -> Iterator[Any]:
    """Yield torch's generators that belong to a sampler and to the samplers inside it."""
    generator = getattr(sampler, "generator", None)
    if hasattr(generator, "manual_seed"):
        yield generator
    for name in ("sampler", "batch_sampler"):  # samplers inside it
        if (inner := getattr(sampler, name, None)) is not None:
            yield from generators(inner)


def standard_collate(alone: bool) -> Callable[[Any], Any]:
    """Return torch's default collate function, for batches or single items.

    Without torch it is `stack` for batches, and does nothing for single items.
    """
    try:
        data = import_module("torch.utils.data")
    except ImportError:
        return identity if alone else lz.stack
    found: Callable[[Any], Any] = data.default_convert if alone else data.default_collate
    return found


_started: tuple[int, bool] | None = None  # a worker's seed, and whether torch must be seeded


@dataclass(frozen=True, eq=False)
class Start:
    """The start of a worker: set its identity, seed its generators, call `init`.

    `worker` is its number if it is the only one of its pool.
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
    """Return a seed for a worker in an epoch, or for a batch; torch takes it as a signed number."""
    return derive(seed, "workers", epoch, *place) >> 1


def seed_generators(seed: int, with_torch: bool = True) -> None:
    """Seed `random`, NumPy and, if it is imported, torch."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    if with_torch and (torch := sys.modules.get("torch")):
        torch.default_generator.manual_seed(seed)  # manual_seed looks at all devices each time


def tell(worker: int, num_workers: int, seed: int, dataset: Any) -> None:
    """Set the values that torch's `get_worker_info` returns."""
    module: Any = sys.modules.get("torch.utils.data._utils.worker")
    if module is not None:
        module._worker_info = module.WorkerInfo(
            id=worker, num_workers=num_workers, seed=seed, dataset=dataset
        )


def seed_batch(seed: int, *place: int) -> None:
    """Seed a worker's generators for the next batch, except torch's if `worker_init_fn` did."""
    assert _started is not None
    seed_generators(worker_seed(seed, *place), _started[1])


def seeding(items: Iterable[Any], begin: Callable[[int], None], number: int) -> Iterator[Any]:
    """Yield items, calling `begin` with the number of each before it; the first is `number`."""
    return (item for _, item in zip(map(begin, count(number)), items))  # noqa: B905  # endless


@lz.combinator(registered=False, unrecorded=("start",), pointwise=True)
def seeded(upstream: Machine[Any], start: Start) -> Machine[Any]:
    """Yield items, each computed with generators seeded by its number. State: a count of items."""
    seed = start.seed

    def made(epoch: int, first: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
        if _started is None or _started[0] != seed:  # this isn't a worker of that loader
            return iter
        return lambda items: seeding(items, partial(seed_batch, seed, epoch), first)

    return numbered("seeded", upstream, made)


class Readers(lz.Executor):
    """An executor that reads each of the interleaved pipelines in its own process."""

    __slots__ = ()

    def open(self, chain: Chain) -> Session:
        gate = PrefetchGate(is_gated=False)
        pairs = zip(chain.calls[0].arguments["pipelines"], self.arguments["executors"], strict=True)
        sessions = [executor.open(pipeline, gate) for pipeline, executor in pairs]
        return Session(chain.machine, partial(_Together, sessions), gate)


class _Together:
    """The readers' items in turn; all readers read ahead, not only the current one."""

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
