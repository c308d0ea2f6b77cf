"""`DataLoader`: batches of a dataset, with a state; it also replaces torch's."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from functools import cached_property, partial
from types import GenericAlias
from typing import Any
from weakref import ref

import numpy as np

import lazyckpt as lz
from lazyckpt.compat.pinning import has_device, pinned
from lazyckpt.compat.seqtools.fetching import (
    Readers,
    Start,
    carried,
    fetched,
    generators,
    has_state,
    is_torchs_stream,
    iterable,
    sampled,
    seeded,
    standard_collate,
    state_of,
    streamed,
)
from lazyckpt.compat.seqtools.sequence import LazySequence, forgiving, is_iterable, places
from lazyckpt.core.checks import brief, checked, finite, function, natural, optional, positive
from lazyckpt.core.content import decode, encode
from lazyckpt.core.machine import begun, fitting
from lazyckpt.core.user_state import freeze, thaw
from lazyckpt.epochs import next_epoch
from lazyckpt.state.state import as_state

_PLAIN = {list, tuple, range, np.ndarray}  # indexing them is equivalent to iterating
_FIXED = {
    "batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers",
}  # fmt: skip


class DataLoader:
    """Batches of a dataset, computed by worker processes, with a state to save and resume.

    It replaces `torch.utils.data.DataLoader`, with the same order of arguments, and the DataLoader
    of SeqTools' documentation. Each `iter` begins the next epoch, in a new order if it is shuffled.
    After an error, iterating continues with the next batch; if there are no indices or a worker
    died, it tries the same batch again.

    The state is exact after any batch, even with work in flight. At the end of an epoch it is the
    start of the next one. For data with indices, the number of workers changes neither batches nor
    their order nor states. An `IterableDataset` of torch is read by each worker, as in torch, with
    its own `get_worker_info()`. A state then has the position of each worker. It resumes with any
    `num_workers`, including 0, with the same number of readers. Any other iterable is read once,
    not once per worker.

    The states of datasets, samplers and iterators with `state_dict` and `load_state_dict` are saved
    and restored, as in torchdata's loader; they must be JSON values and tuples. For a dataset with
    indices this works only without workers. Objects without a state are iterated over again to
    resume, so they must yield the same items for an epoch. Call `set_epoch` of a
    `DistributedSampler` first. For a stream of Hugging Face, call it before each epoch after a
    resume, or it begins at the state again. Torch's random samplers are seeded for each epoch here;
    a sampler with its own generator begins the first epoch with that generator's seed, as in torch.

    In workers, `random`, NumPy and torch are seeded for each batch. Random numbers there depend on
    the seed, the epoch and the batch, but not on the worker. Without workers, they come from the
    program's own generators.

    Some features of torch are left out on purpose: its permutations; one `torch.initial_seed()` per
    worker, and batch i by worker i; `in_order=False`; warnings about lengths and numbers of
    workers; states of other types. Accelerate leaves the loader alone, and Lightning treats it as
    torch's. `tests/world/compat/seqtools/behaviours.md` lists the behaviour that torch's tests
    check.

    Arguments are torch's. The following differ from torch or from the original ([D]).

    Args:
        dataset: Also an iterable that can be iterated repeatedly, or a pipeline.
        shuffle: If True, use one permutation per epoch, computed from `seed` and the epoch. It
            isn't torch's, which has no small state.
        sampler, batch_sampler: Iterables, but not one-shot iterators. `batch_sampler` takes
            precedence over `sampler`, and that over `shuffle`. An empty one yields nothing ([D]: it
            yielded everything).
        collate_fn: By default torch's, and without torch `lazyckpt.stack`. [D]: floats become
            tensors and strings stay; they became None.
        pin_memory: If True, pin memory, if torch finds a device. [D]: values that aren't tensors
            became None.
        worker_init_fn: Function called after seeding; if it seeds torch, that seed is kept.
        generator: Generator whose initial seed is the `seed`.
        pin_memory_device, in_order, shm_size: Not needed: shared memory is as large as the batches
            ([D]: the default size failed).
        seed: Seed of `shuffle`, samplers and workers; by default torch's initial seed.
            `load_state_dict` adopts the seed of a state unless one was passed.

    Raises:
        StateMismatch: If the state belongs to other data, samplers or batches.
        InvalidState: If it isn't a state.

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
        self.num_workers = check("num_workers", num_workers, natural)
        self.pin_memory, self.drop_last = bool(pin_memory), bool(drop_last)
        self.timeout = check("timeout", timeout, finite("of seconds >= 0", lambda s: s >= 0))
        self.worker_init_fn = check("worker_init_fn", worker_init_fn, optional(function))
        self.multiprocessing_context, self.generator = multiprocessing_context, generator
        self.prefetch_factor = check("prefetch_factor", prefetch_factor, optional(positive))
        self.persistent_workers = bool(persistent_workers)
        self.pin_memory_device, self.in_order = pin_memory_device, in_order
        given = seed if seed is not None or generator is None else generator.initial_seed()
        self._given_seed = check("seed", given, optional(natural))
        self._has_batches = batch_sampler is not None  # instead of indices
        self._index_sampler = batch_sampler if self._has_batches else sampler
        self._shuffles = bool(shuffle)
        self._refuse_what_does_not_fit()
        collate = check("collate_fn", collate_fn, optional(function))
        self.collate_fn = collate or standard_collate(batch_size is None and not self._has_batches)
        torch = sys.modules.get("torch")
        standard = 0 if torch is None else torch.initial_seed() % (1 << 64)
        own = standard if given is None else self._given_seed
        self._seeds = [own, *(each.initial_seed() for each in generators(self._index_sampler))]
        self._readers = num_workers if is_torchs_stream(dataset) else 0
        self._compose()
        self._executor(0)  # to reject bad options of workers
        self._go_to(lz.init(self._pipeline))
        self.sampler, self.batch_sampler = shown_samplers(self, sampler, batch_sampler)
        self._is_made = True

    @cached_property
    def _is_accelerate_prepared(self) -> bool:
        """True, so that Accelerate leaves the loader alone; an error if there are several ranks."""
        torch: Any = sys.modules.get("torch.distributed")
        if torch is None or not torch.is_initialized() or torch.get_world_size() == 1:
            return True
        raise lz.ArgumentError(
            "DataLoader: accelerator.prepare would make a loader without this one's state; give "
            "each rank its part with sampler=DistributedSampler(dataset), don't pass the loader to "
            "prepare, and save it with accelerator.register_for_checkpointing(loader)"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        is_made = not name.startswith("_") and "_is_made" in self.__dict__
        if is_made and name in _FIXED:
            raise lz.ArgumentError(f"DataLoader: {name} can't be changed; make a new loader")
        super().__setattr__(name, value)
        if is_made:
            if name == "num_workers" and is_torchs_stream(self.dataset):
                self._readers = value
            self._compose()
            if self._following.stages != self._pipeline.entries:
                self._go_to(lz.init(self._pipeline))

    def _refuse_what_does_not_fit(self) -> None:
        sampler = self._index_sampler
        if self.batch_size is None and self.drop_last and not self._has_batches:
            raise lz.ArgumentError("DataLoader: drop_last=True needs a batch_size")
        if is_iterable(self.dataset) and (sampler is not None or self._shuffles):
            raise lz.ArgumentError("DataLoader: an iterable dataset takes no sampler or shuffle")
        if isinstance(sampler, Iterator):
            raise lz.ArgumentError(
                "DataLoader: a sampler must begin again each epoch, got the one-shot iterator "
                f"{brief(sampler)}"
            )

    @property  # type: ignore[misc]  # object's can be set
    def __class__(self) -> Any:
        """Torch's class, because trainers check for it; Lightning then uses `type(loader)`."""
        torch = sys.modules.get("torch.utils.data")
        return type(self) if torch is None else torch.DataLoader

    def _compose(self) -> None:
        """Build the pipeline, whose source may be a sampler."""
        self._run: lz.Run[Any] | None = None  # kept if workers are persistent
        data, size, sampler = self.dataset, self.batch_size, self._index_sampler
        is_batched = self._has_batches or size is not None
        self._length: Any = None  # the length of data with indices
        if is_torchs_stream(data) or (is_iterable(data) and has_state(data)):
            starts = [self._start(0, number) for number in range(self._readers) or [None]]
            opened = [partial(streamed, start, size or 1) for start in starts]
            streams = [iterable(each) | self._collated() for each in opened]
            self._pipeline = lz.interleave(*streams) if self._readers else streams[0]
            return
        found: lz.Pipeline[Any]
        if sampler is not None:
            is_plain = type(sampler) in _PLAIN or isinstance(sampler, LazySequence)
            found = (
                lz.source(sampler) if is_plain else iterable(partial(sampled, sampler, self._seeds))
            )
            if is_batched and not self._has_batches:
                found = found | lz.batch(size, drop_last=self.drop_last)
            found = found | lz.map(partial(fetched, data, self.collate_fn, is_batched))
        else:
            found = LazySequence.of(data)
            self._length = found.machine.length
            if self._shuffles:
                found = found | lz.shuffle(seed=self._seeds[0])
            found = found | self._collated()
        is_by_index = sampler is not None or found.machine.skip is not None
        self._pipeline = found | seeded(self._start(0, None)) if is_by_index else found

    def _collated(self) -> lz.Stage[Any, Any]:
        if self.batch_size is None:
            return lz.map(self.collate_fn)
        return lz.batch(self.batch_size, drop_last=self.drop_last, collate=self.collate_fn)

    @property
    def _has_state(self) -> bool:
        """True if the dataset, read by index in this process, has a state of its own."""
        return not self.num_workers and not is_iterable(self.dataset) and has_state(self.dataset)

    def _executor(self, epoch: int) -> lz.Executor | None:
        method, ahead = self.multiprocessing_context, self.prefetch_factor or 2

        def pool(workers: int, number: int | None = None) -> lz.Executor:
            return lz.processes(
                workers,
                buffer_size=workers * ahead,
                start_method=getattr(method, "get_start_method", lambda: method)(),
                timeout=self.timeout or None,
                worker_init=self._start(epoch, number).__call__,
            )

        if self._readers:
            return Readers(lz.processes, {"executors": [pool(1, n) for n in range(self._readers)]})
        return pool(self.num_workers) if self.num_workers else None

    def _start(self, epoch: int, worker: int | None) -> Start:
        count = self._readers or self.num_workers
        return Start(self._seeds[0], epoch, self.dataset, count, self.worker_init_fn, worker)

    def _go_to(self, state: lz.State) -> None:
        """Set the state at which the next iterator begins."""
        self._place: lz.Run[Any] = lz.Run(self._pipeline, state)
        self._following = state

    def __iter__(self) -> Batches:
        machine, position = self._pipeline.machine, self._following.position
        epoch = machine.epoch(position)
        is_changed = isinstance(self._length, int) and len(self.dataset) != self._length
        if is_changed and not begun(machine, position):
            self._compose()
            self._following = lz.init(self._pipeline, epoch=epoch)
        state, run = self._following, self._run
        if run is None:
            run = lz.Run(self._pipeline, state, executor=self._executor(epoch))
        else:
            run.load_state_dict(state)
        self._run = run if self.persistent_workers else None
        self._following = lz.init(self._pipeline, epoch=epoch + 1)
        self._place = run
        return Batches(self, run)

    def enumerate(self, start: int = 0) -> Iterator[tuple[int, Any]]:
        """Yield batches with their numbers, which continue from the position of a loaded state."""
        return enumerate(self, start + self._following.items)

    def __len__(self) -> int:
        sampler: Any = self._index_sampler
        size: int = len(self.dataset if sampler is None else sampler)
        if self._has_batches or self.batch_size is None:
            return size
        count: int = size // self.batch_size if self.drop_last else -(-size // self.batch_size)
        return count

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch yielded, as JSON values, and the seed."""
        found = {**self._place.state.to_dict(), "seeds": " ".join(map(hex, self._seeds))}
        if self._has_state:
            own = freeze(state_of(self.dataset), "DataLoader: the data set's state_dict")
            found["dataset"] = encode(own)
        return found

    def load_state_dict(self, state: str | bytes | Mapping[str, Any]) -> None:
        """Make the next `iter` continue from a state: with the rest of its epoch, if any."""
        seeds, of_dataset, found = parted(state)
        if len(seeds) != len(self._seeds):
            raise lz.StateMismatch(
                f"the state belongs to a sampler with {len(seeds) - 1} generators of its own, "
                f"not {len(self._seeds) - 1}"
            )
        if self._given_seed not in (None, seeds[0]):
            raise lz.StateMismatch(
                f"the state belongs to a loader with seed={seeds[0]}, not {self._given_seed}"
            )
        changed = copy(self)
        changed._seeds = seeds
        changed._readers = len(found.stages[0].pipelines) if is_torchs_stream(self.dataset) else 0
        changed._compose()
        changed._go_to(found)
        if of_dataset is not None and self._has_state:
            self.dataset.load_state_dict(*of_dataset)
        vars(self).update(vars(changed))

    def order(self) -> Iterator[int]:
        """Yield the indices of the next epoch, if it shuffles."""
        epoch = self._pipeline.machine.epoch(self._following.position)
        order = places(len(self.dataset)) | lz.shuffle(seed=self._seeds[0])
        return iter(lz.Run(order, lz.init(order, epoch=epoch)))

    def _finish(self, run: lz.Run[Any]) -> None:
        """Stop the workers of a finished run, unless persistent, and move to the next epoch."""
        if self._place is run:
            with suppress(lz.InvalidState):  # state_dict raises it when it is called
                end, machine = run.state, run.pipeline.machine
                start = next_epoch(machine, end.position)
                if self._readers or run.pipeline.calls[0].name == iterable.__name__:
                    start = carried(machine, start, end.position)
                self._go_to(lz.State(end.stages, 0, start))
        self._leave(run)

    def _leave(self, run: lz.Run[Any]) -> None:
        if run is not self._run:
            run.close()


def shown_samplers(loader: Any, sampler: Any, batch_sampler: Any) -> tuple[Any, Any]:
    """Return a loader's `sampler` and `batch_sampler`; by default torch's, if there are indices."""
    torch = sys.modules.get("torch.utils.data")
    if torch is None or is_iterable(loader.dataset):
        return sampler, batch_sampler
    if sampler is None:
        shuffles, data = loader._shuffles, loader.dataset
        sampler = _order(torch, loader) if shuffles else torch.SequentialSampler(data)
    if batch_sampler is None and loader.batch_size is not None:
        batch_sampler = torch.BatchSampler(sampler, loader.batch_size, loader.drop_last)
    return sampler, batch_sampler


def _order(torch: Any, loader: Any) -> Any:
    """Return a `RandomSampler` in the order of the loader's next epoch."""
    found: Any = ref(loader)

    class Order(torch.RandomSampler):  # type: ignore[misc]  # its base is Any
        def __iter__(self) -> Iterator[int]:
            return iter(found().order())

    order: Any = Order(range(1))
    order.data_source = loader.dataset  # which may be empty, or grow
    return order


class Batches(Iterator[Any]):
    """One epoch of a loader, or the rest of one."""

    def __init__(self, loader: DataLoader, run: lz.Run[Any]) -> None:
        self._loader, self._run = loader, run
        self._pins = loader.pin_memory and has_device()
        self._items = forgiving(run, partial(loader._finish, run))

    def __next__(self) -> Any:
        batch = next(self._items)
        return pinned(batch) if self._pins else batch

    def __len__(self) -> int:
        return len(self._loader)

    def __del__(self) -> None:
        with suppress(Exception):  # the loop was left
            self._loader._leave(self._run)


def parted(state: Any) -> tuple[list[int], tuple[Any] | None, lz.State]:
    """Split a loader's state: the seeds, the dataset's state, the pipeline's state."""
    if isinstance(state, (str, bytes)):
        with suppress(ValueError, RecursionError):
            state = json.loads(state)
    if not isinstance(state, Mapping) or "seeds" not in state:
        raise lz.InvalidState(f"expected a state of a DataLoader, got {brief(state)}")
    rest = dict(state)
    own = rest.pop("dataset", None)
    with fitting(state):
        seeds = [int(each, 16) for each in str.split(rest.pop("seeds"))]
        of_dataset = None if own is None else (thaw(decode(own)),)
    return seeds, of_dataset, as_state(rest)
