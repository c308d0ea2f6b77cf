"""A dataset for torch's DataLoader, and the pipeline's state inside a `StatefulDataLoader`'s."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

import torch
from torch.utils.data import IterableDataset, get_worker_info

from lazyckpt.core.call import runnable
from lazyckpt.core.checks import brief, checked, natural, optional, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Pipeline
from lazyckpt.run import Run
from lazyckpt.state.algebra import init
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import AnyState, State, as_state

T = TypeVar("T", covariant=True)


def dataset(
    pipeline: Pipeline[T], state: AnyState | None = None, *, batch_size: int | None = None
) -> Dataset[T]:
    """Convert a pipeline to an `IterableDataset` for torch's `DataLoader`.

    torchdata's `StatefulDataLoader` accepts it too.

    The order is the pipeline's with any `num_workers`, if you pass `batch_size`. Workers compute
    items, or whole batches, in turn. With random access a worker computes only its own items.
    Without, each worker reads the whole stream and drops the items of the others; the executors of
    `lz.torch.loader` are more efficient then.

    `StatefulDataLoader.state_dict()` has the state of each worker, and loads with the same number
    of workers. `lz.torch.state` extracts the pipeline's own state, for any number of workers here
    or for `lz.run`.

    As with torch's samplers, each loop yields the same epoch until `set_epoch(n)` chooses a
    different one. Call it before each loop, or put `repeat()` into the pipeline.

    Args:
        pipeline: Pipeline to read.
        state: State at which loops begin, as in `lz.run`; None for the beginning.
        batch_size: Batch size of the DataLoader, if it has one and several workers. None if the
            pipeline batches, with `DataLoader(..., batch_size=None)`.

    Raises:
        StateMismatch: If the state belongs to a different pipeline.

    >>> import lazyckpt as lz
    >>> from torch.utils.data import DataLoader
    >>> data = lz.torch.dataset(lz.source(range(4)) | lz.batch(2, collate=sum))
    >>> list(DataLoader(data, batch_size=None))
    [1, 5]
    """
    found = runnable("dataset", pipeline)
    size = checked("dataset", "batch_size", batch_size, optional(positive))
    start = None if state is None else matching(as_state(state), found)
    return Dataset(found, start, size or 1)


class Dataset(IterableDataset[T]):
    """A pipeline and the state at which loops begin; made by `dataset`.

    The positions are in the iterators.
    """

    def __init__(self, pipeline: Pipeline[T], state: State | None, batch_size: int) -> None:
        self._pipeline, self._state, self._size = pipeline, state, batch_size
        # In shared memory, so that persistent workers see changes of it.
        self._epoch = torch.tensor(-1).share_memory_()  # type: ignore[no-untyped-call]  # torch's

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, from 0, that loops yield: its rest, if `state` is in it."""
        self._epoch.fill_(checked("set_epoch", "epoch", epoch, natural))

    def __iter__(self) -> Iterator[T]:
        start, worker = self._start(), get_worker_info()
        if worker is None or worker.num_workers == 1:
            return Run(self._pipeline, start)
        mine, others = worker.id * self._size, (worker.num_workers - 1) * self._size
        return Turns(self._pipeline, start, mine, self._size, others)

    def __len__(self) -> int:
        return len(self._pipeline)

    def _start(self) -> State:
        epoch, state = int(self._epoch), self._state
        machine = self._pipeline.machine
        if state is not None and epoch in (-1, machine.epoch(state.position)):
            return state
        return init(self._pipeline, epoch=max(epoch, 0))


class Turns(Iterator[T]):
    """One worker's part of a stream: some items, then those of the others are skipped.

    - `ahead`: number of items to skip before the first
    - `own`: number of items per turn
    - `others`: number of items between turns
    """

    def __init__(
        self, pipeline: Pipeline[T], start: State, ahead: int, own: int, others: int
    ) -> None:
        self._pipeline, self._run = pipeline, Run[T](pipeline, start)
        self._ahead, self._left = ahead, own
        self._own, self._others = own, others

    def __next__(self) -> T:
        if not self._left:
            self._ahead, self._left = self._others, self._own
        if self._ahead:
            self._pass()
        item = next(self._run)
        self._left -= 1
        return item

    def _pass(self) -> None:
        skip, state = self._pipeline.machine.skip, self._run.state
        if skip is None:
            for _ in islice(self._run, self._ahead):
                self._ahead -= 1
        else:
            position, passed = skip(state.position, self._ahead)
            self._run.load_state_dict(state.at(position, state.items + passed))
            self._ahead = 0

    def state_dict(self) -> dict[str, Any]:
        return {"state": self._run.state_dict(), "ahead": self._ahead, "left": self._left}

    def load_state_dict(self, found: Mapping[str, Any]) -> None:
        self._run.load_state_dict(found["state"])
        self._ahead, self._left = found["ahead"], found["left"]


def state(found: Mapping[str, Any]) -> State:
    """Extract the pipeline's own state from the state of a `StatefulDataLoader`.

    Use it for a different number of workers, for `lz.run` or for `lz.rebase`.

    Args:
        found: Result of `StatefulDataLoader.state_dict()`.

    Raises:
        ArgumentError: If there is none, or it is older than the last batch, as with
            `snapshot_every_n_steps` above 1.

    Example:
        batches = StatefulDataLoader(lz.torch.dataset(pipeline), batch_size=None, num_workers=4)
        ...
        run = lz.run(pipeline, lz.torch.state(batches.state_dict()))

    >>> import lazyckpt as lz
    >>> pipeline = lz.source([1, 2, 3])
    >>> lz.torch.state({"any": {"where": lz.init(pipeline).to_dict()}}) == lz.init(pipeline)
    True
    """
    states = list(_states(found))
    if not states:
        raise ArgumentError(f"state: there is no state of a pipeline in {brief(found)}")
    if since := found.get("_steps_since_snapshot"):
        raise ArgumentError(
            f"state: its snapshot is {since} batches old; with snapshot_every_n_steps=1, "
            "StatefulDataLoader makes one per batch"
        )
    return max(states, key=lambda each: each.items)  # of the last worker that delivered a batch


def _states(found: Any) -> Iterator[State]:
    if isinstance(found, Mapping):
        if "lazyckpt" in found:
            yield State.from_dict(found)
        else:
            for value in found.values():
                yield from _states(value)
