"""`DataLoader`: batches of a data set, with a state; it stands in for torch's too."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import GenericAlias
from typing import Any
from weakref import ref

import numpy as np

from lazyckpt.compat.pinning import has_device, pinned
from lazyckpt.compat.seqtools.fetching import (
    Fetch,
    Sampled,
    Start,
    generators,
    initial_seed,
    standard_collate,
)
from lazyckpt.compat.seqtools.sequence import (
    ForgivingIterator,
    LazySequence,
    is_iterable,
    produced,
    stage,
)
from lazyckpt.core.checks import brief, checked, function, natural, optional, positive
from lazyckpt.core.machine import entered
from lazyckpt.core.prng import derive
from lazyckpt.epochs import next_epoch
from lazyckpt.errors import ArgumentError, InvalidState, StateMismatch
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.local import processes
from lazyckpt.pipeline import Pipeline
from lazyckpt.run import Run
from lazyckpt.state.algebra import init
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import State, as_state

_PLAIN = {list, tuple, range, np.ndarray}  # whose indices give what iterating does


class DataLoader:
    """Batches of a data set, made by worker processes, whose place can be saved and resumed.

    A stand-in for `torch.utils.data.DataLoader`, whose order of arguments it has,
    and for the DataLoader of SeqTools' documentation. Each `iter` begins the next
    epoch, in a new order if it is shuffled. Workers change neither batches nor
    their order nor states: an iterable is gone through once for all, and
    `get_worker_info()` is None. What an item draws from global generators depends
    on its worker; use `lazyckpt.random_map`. After an error, iterating goes on with
    the next batch, or tries again where there are no indices or a worker died.

    A sampler is iterated over anew to resume, so it must give the same for an
    epoch: `DistributedSampler` wants its `set_epoch` first. Torch's random ones are
    seeded for each epoch here, the first one with a generator of its own as torch
    does it; a state has those generators' first seeds. The state is exact at any
    batch with work in flight; at the end of an epoch it's the start of the next.

    Arguments are torch's, of which these differ, or the original's ([D]).

    Args:
        dataset: Also an iterable that begins anew each time, or a pipeline.
        shuffle: A permutation for each epoch, of `seed` and the epoch, and not the one
            torch would draw, which has no small state.
        sampler, batch_sampler: No one-shot iterators. The second comes before the first,
            that before `shuffle`. An empty one gives nothing ([D]: it gave everything).
        collate_fn: By default torch's, and without torch `lazyckpt.stack`. [D]: floats
            become tensors and strings stay; they became None.
        pin_memory: Where torch finds a device. [D]: what is no tensor became None.
        worker_init_fn: Called after `random`, NumPy and torch are seeded there.
        generator: Its initial seed is the `seed`.
        persistent_workers: Keep them for the next epoch; not with a sampler.
        pin_memory_device, in_order, shm_size: Not needed: shared memory is as large as
            batches are ([D]: the default size failed).
        seed: Of `shuffle`, samplers and workers; by default torch's initial seed.
            `load_state_dict` takes over the one of a state unless one is given.

    Raises:
        StateMismatch: The state is of other data, samplers or batches.
        InvalidState: It is none.

    >>> loader = DataLoader(range(5), batch_size=2, collate_fn=list)
    >>> batches = iter(loader)
    >>> next(batches), len(loader)
    ([0, 1], 3)
    >>> resumed = DataLoader(range(5), batch_size=2, collate_fn=list)
    >>> resumed.load_state_dict(loader.state_dict())
    >>> list(resumed), list(resumed)
    ([[2, 3], [4]], [[0, 1], [2, 3], [4]])
    """

    __class_getitem__: Any = classmethod(GenericAlias)

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        shm_size: int | None = None,
        seed: int | None = None,
    ) -> None:
        check = partial(checked, "DataLoader")
        self.dataset = dataset
        self.batch_size = check("batch_size", batch_size, optional(positive))
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.num_workers = check("num_workers", num_workers, natural)
        self.pin_memory, self.drop_last = bool(pin_memory), bool(drop_last)
        self.timeout, self.worker_init_fn = timeout, worker_init_fn
        self.multiprocessing_context, self.generator = multiprocessing_context, generator
        self.prefetch_factor = check("prefetch_factor", prefetch_factor, optional(positive))
        self.persistent_workers = bool(persistent_workers)
        self.pin_memory_device, self.in_order = pin_memory_device, in_order
        check("shm_size", shm_size, optional(natural))
        check("worker_init_fn", worker_init_fn, optional(function))
        given = seed if seed is not None or generator is None else generator.initial_seed()
        self._given_seed = check("seed", given, optional(natural))
        self._seed: int = initial_seed() if given is None else self._given_seed
        self._is_iterable = is_iterable(dataset)
        self._refuse_what_does_not_fit(shuffle)
        self._shuffles = bool(shuffle)
        collate = check("collate_fn", collate_fn, optional(function))
        is_alone = batch_size is None and batch_sampler is None
        self.collate_fn = collate or standard_collate(is_alone)
        self._batches: Callable[[], Batches | None] = lambda: None
        self._run: Run[Any] | None = None  # kept, with its workers
        self._seeds = [each.initial_seed() for each in generators(self._index_sampler)]
        self._compose()
        self._state = self._following = init(self._pipeline(0))  # where the next iterator begins

    def _refuse_what_does_not_fit(self, shuffle: Any) -> None:
        index_sampler = self._index_sampler
        if self.batch_size is None and self.drop_last and self.batch_sampler is None:
            raise ArgumentError("DataLoader: drop_last=True has no meaning with batch_size=None")
        if self._is_iterable and (index_sampler is not None or shuffle):
            raise ArgumentError("DataLoader: an iterable data set takes no sampler and no shuffle")
        if isinstance(index_sampler, Iterator):
            raise ArgumentError(
                "DataLoader: a sampler must begin anew each epoch, got the one-shot iterator "
                f"{brief(index_sampler)}"
            )
        if not isinstance(self.timeout, (int, float)) or self.timeout < 0:
            raise ArgumentError(f"DataLoader: timeout must be >= 0, got {brief(self.timeout)}")

    @property
    def _index_sampler(self) -> Iterable[Any] | None:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _compose(self) -> None:
        """The stages behind the source of an epoch, which may be a sampler."""
        batched = partial(stage, "batch", self.batch_size, drop_last=self.drop_last)
        is_batched = self.batch_sampler is not None or self.batch_size is not None
        self._source: Pipeline[Any] | None = None
        self._stages = []
        if self._index_sampler is not None:
            if self.batch_sampler is None and is_batched:
                self._stages.append(batched())
            self._stages.append(stage("map", Fetch(self.dataset, self.collate_fn, is_batched)))
            return
        self._source = LazySequence.of(self.dataset)
        if self._shuffles:
            self._stages.append(stage("shuffle", seed=self._seed))
        last = batched(collate=self.collate_fn) if is_batched else stage("map", self.collate_fn)
        self._stages.append(last)

    def _pipeline(self, epoch: int) -> Pipeline[Any]:
        sampler = self._index_sampler
        pipeline = self._source
        if pipeline is None:
            is_plain = type(sampler) in _PLAIN or isinstance(sampler, LazySequence)
            order = sampler if is_plain else Sampled(sampler, [self._seed, *self._seeds], epoch)
            pipeline = produced("source", order)
        for each in self._stages:
            pipeline = pipeline | each
        return pipeline

    def _executor(self, epoch: int) -> Executor | None:
        if not self.num_workers:
            return None
        method = self.multiprocessing_context
        return processes(
            self.num_workers,
            buffer_size=self.num_workers * (self.prefetch_factor or 2),
            start_method=getattr(method, "get_start_method", lambda: method)(),
            timeout=self.timeout or None,
            worker_init=Start(derive(self._seed, "workers", epoch), self.worker_init_fn),
        )

    def __iter__(self) -> Batches:
        state = self._following
        epoch = self._pipeline(0).machine.epoch(state.position)
        pipeline = self._pipeline(epoch)
        keeps = self.persistent_workers and self._index_sampler is None
        run = self._run if keeps else None
        if run is None:
            run = Run(pipeline, state, executor=self._executor(epoch))
        else:
            run.load_state_dict(state)
        self._run = run if keeps else None
        self._following = init(pipeline, epoch=epoch + 1)
        batches = Batches(self, run, pipeline, keeps)
        self._batches = batches.known
        return batches

    def __len__(self) -> int:
        sampler: Any = self._index_sampler
        size: int = len(self.dataset if sampler is None else sampler)
        if self.batch_sampler is not None or self.batch_size is None:
            return size
        count: int = size // self.batch_size if self.drop_last else -(-size // self.batch_size)
        return count

    def state_dict(self) -> dict[str, Any]:
        """The place after the last batch that was given, as JSON values, and the seed."""
        batches = self._batches()
        state = self._state if batches is None else batches.run.state
        seeds = {"sampler_seeds": [hex(seed) for seed in self._seeds]} if self._seeds else {}
        return {**state.to_dict(), "seed": hex(self._seed), **seeds}

    def load_state_dict(self, state: State | str | bytes | Mapping[str, Any]) -> None:
        """Have the next `iter` go on from a state: with the rest of its epoch, if there is any."""
        seed, seeds, found = _parted(state)
        if seed is not None and seed != self._seed and self._given_seed is not None:
            raise StateMismatch(f"the state belongs to a loader with seed={seed}, not {self._seed}")
        if seeds and len(seeds) != len(self._seeds):
            raise StateMismatch(
                f"the state belongs to a sampler with {len(seeds)} generators of its own, "
                f"not {len(self._seeds)}"
            )
        before = self._seed, self._seeds
        try:
            self._reseed(self._seed if seed is None else seed, seeds or self._seeds)
            pipeline = self._pipeline(0)
            entered(pipeline.machine, matching(found, pipeline).position)
        except BaseException:
            self._reseed(*before)
            raise
        self._state = self._following = found
        self._batches = lambda: None

    def _reseed(self, seed: int, seeds: list[int]) -> None:
        if seed != self._seed:
            self._seed, self._run = seed, None
            self._compose()
        self._seeds = seeds


class Batches(Iterator[Any]):
    """One epoch of a loader, or the rest of one."""

    def __init__(
        self, loader: DataLoader, run: Run[Any], pipeline: Pipeline[Any], keeps: bool
    ) -> None:
        self.known = ref(self)
        self._loader, self.run, self._keeps = loader, run, keeps
        self._pins = loader.pin_memory and has_device()
        self._items = ForgivingIterator(run, pipeline).items

    def __next__(self) -> Any:
        try:
            batch = next(self._items)
        except StopIteration:
            state, machine = self.run.state, self._loader._pipeline(0).machine
            self._leave(State(state.stages, 0, next_epoch(machine, state.position)))
            raise
        return pinned(batch) if self._pins else batch

    def __len__(self) -> int:
        return len(self._loader)

    def __del__(self) -> None:
        with suppress(Exception):  # a loop is left
            self._leave(self.run.state)

    def _leave(self, state: State) -> None:
        """End workers, and have the loader remember the place."""
        loader = self._loader
        if loader._batches is self.known:
            loader._state, loader._batches = state, lambda: None
        if not self._keeps:
            self.run.close()


def _parted(state: Any) -> tuple[int | None, list[int], State]:
    """A loader's state as its seed, its sampler's and the pipeline's; that alone will do."""
    if isinstance(state, (str, bytes)):
        with suppress(ValueError, RecursionError):
            state = json.loads(state)
    if not isinstance(state, Mapping) or "seed" not in state:
        return None, [], as_state(state)
    rest = dict(state)
    try:
        seed, *seeds = (
            int(each, 16) for each in [rest.pop("seed"), *rest.pop("sampler_seeds", [])]
        )
    except (TypeError, ValueError):
        raise InvalidState(f"a state's seeds must be hexadecimal, got {brief(state)}") from None
    return seed, seeds, as_state(rest)
