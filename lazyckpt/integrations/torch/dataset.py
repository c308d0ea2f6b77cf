"""A dataset for torch's DataLoader, and the pipeline's own state out of that of its workers."""

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
    """A pipeline as an `IterableDataset`, for `DataLoader` and torchdata's `StatefulDataLoader`.

    The order is the pipeline's, whatever `num_workers` is, if you give `batch_size`:
    workers make items, or whole batches, in turn. With random access a worker makes only its
    own; else each reads the whole stream and drops those of the others, and
    executors, as in `lz.torch.loader`, are the better workers.

    `StatefulDataLoader.state_dict()` has the state of each worker, and loads into
    as many of them. `lz.torch.state` finds the pipeline's own state in it, which
    resumes here with any number of workers, or under `lz.run`.

    As with torch's samplers, each loop gives the same epoch until `set_epoch(n)`
    says which: call it before each, or put `repeat()` into the pipeline.

    Args:
        pipeline: What to read.
        state: Where loops begin, as for `lz.run`; None is the beginning.
        batch_size: That of the DataLoader, where it has one and several workers;
            None where the pipeline batches, with `DataLoader(..., batch_size=None)`.

    Raises:
        StateMismatch: The state belongs to another pipeline.

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
    """What `dataset` makes: where loops begin, and no more. The place is an iterator's."""

    def __init__(self, pipeline: Pipeline[T], state: State | None, batch_size: int) -> None:
        self._pipeline, self._state, self._size = pipeline, state, batch_size
        # Persistent workers, which have a copy of this, see it there.
        self._epoch = torch.tensor(-1).share_memory_()  # type: ignore[no-untyped-call]  # torch's

    def set_epoch(self, epoch: int) -> None:
        """The epoch, from 0, that loops give from now on: its rest, where `state` is in it."""
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
    """One worker's part of a stream: some items, then those of the others passed over.

    - `ahead`: items to pass over before the first
    - `own`: items at a turn
    - `others`: items from one turn to the next
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
    """The pipeline's own state, out of a `StatefulDataLoader`'s.

    It is for another number of workers, `lz.run` or `lz.rebase`.

    Args:
        found: What `StatefulDataLoader.state_dict()` gave.

    Raises:
        ArgumentError: There is none, or it is older than the last batch, as with
            `snapshot_every_n_steps` above 1.

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
            f"state: its snapshot is {since} batches old; StatefulDataLoader makes one with each "
            "where snapshot_every_n_steps=1"
        )
    return max(states, key=lambda each: each.items)  # of the worker that came last


def _states(found: Any) -> Iterator[State]:
    if isinstance(found, Mapping):
        if "lazyckpt" in found:
            yield State.from_dict(found)
        else:
            for value in found.values():
                yield from _states(value)
