"""A dataset for torch's DataLoader, and a loader where none is needed: `lz.torch`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

from lazyckpt.combinators.sampler import sampler
from lazyckpt.core.call import runnable
from lazyckpt.core.checks import boolean, brief, checked, natural, optional, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.device import move_tensors
from lazyckpt.executors.executor import Executor
from lazyckpt.failures.skip_log import Skipped
from lazyckpt.pipeline import Pipeline, run
from lazyckpt.run import Run
from lazyckpt.state.algebra import init
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import AnyState, State, as_state

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as error:
    raise ImportError(f"lz.torch: pip install lazyckpt[torch] ({error})") from None

__all__ = ["Dataset", "Loader", "dataset", "loader", "sampler", "state"]

T = TypeVar("T", covariant=True)


def loader(
    pipeline: Pipeline[T],
    executor: Executor | None = None,
    state: AnyState | None = None,
    *,
    epoch_size: int | None = None,
    pin_memory: bool = False,
    strict: bool = True,
    on_error: Literal["raise", "skip"] = "raise",
) -> Loader[T]:
    """Batches for a training loop, without a DataLoader: an iterable that can be saved.

    NumPy arrays of numbers come as tensors that share their memory, also within
    dicts, lists, tuples and named tuples; all else stays as it is.

    Each loop gives one epoch: the rest of the current one, or the next one, as
    `Run.epoch` does. `len` is that of a whole epoch. The state is the pipeline's
    own, after the last item delivered.

    Args:
        pipeline: What to run.
        executor: Who makes the items, as for `lz.run`; `lz.to_device(...)` for a GPU.
        state: Where to go on, as for `lz.run`.
        epoch_size: How many items an epoch has, across ends of the stream, for a
            pipeline that is endless or whose length is unknown.
        pin_memory: Whether to copy tensors to pinned memory, for
            `batch.to(device, non_blocking=True)`. It needs a GPU; the copy is made
            where the item is asked for.
        strict: As for `lz.run`.
        on_error: As for `lz.run`.

    Raises:
        ArgumentError: With `pin_memory`, where torch finds no GPU.
        StateMismatch: The state belongs to another pipeline, and `strict` is set.

    >>> import lazyckpt as lz
    >>> batches = lz.torch.loader(lz.columns(x=[1, 2, 3]) | lz.batch(2, collate=lz.stack))
    >>> len(batches), next(iter(batches))
    (2, {'x': tensor([1, 2])})
    >>> saved = batches.state_dict()
    >>> list(batches)
    [{'x': tensor([3])}]
    >>> batches.load_state_dict(saved)
    >>> list(batches)
    [{'x': tensor([3])}]
    """
    size = checked("loader", "epoch_size", epoch_size, optional(positive))
    pins = checked("loader", "pin_memory", pin_memory, boolean)
    if pins and not torch.cuda.is_available():
        raise ArgumentError("loader: pin_memory=True needs a GPU, and torch finds none")
    made = run(pipeline, state, strict=strict, executor=executor, on_error=on_error)
    return Loader(pipeline, made, size, pins)


class Loader(Iterable[T], Generic[T]):
    """What `loader` makes: one run, over and over."""

    def __init__(
        self, pipeline: Pipeline[T], run: Run[T], epoch_size: int | None, pins: bool
    ) -> None:
        self._pipeline, self._run, self._size = pipeline, run, epoch_size
        self._move = _pinned if pins else _same

    def __iter__(self) -> Iterator[T]:
        for item in self._run.epoch(self._size):
            yield move_tensors(self._move, item, torch)

    def __len__(self) -> int:
        return len(self._pipeline) if self._size is None else self._size

    @property
    def state(self) -> State:
        """The state after the last delivered item."""
        return self._run.state

    @property
    def skipped(self) -> Skipped:
        """How many items `on_error="skip"` has left out, as an int; `first` tells of some."""
        return self._run.skipped

    def state_dict(self) -> dict[str, Any]:
        """The state as a flat dict of ints and texts, for any checkpointer."""
        return self._run.state_dict()

    def load_state_dict(self, state: AnyState) -> None:
        """Go to a state; a loop under way goes on from there."""
        self._run.load_state_dict(state)

    def close(self) -> None:
        """End workers; the state stays readable."""
        self._run.close()

    def __enter__(self) -> Loader[T]:
        self._run.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._run.close()

    def __repr__(self) -> str:
        return f"<loader of {self._run!r}>"


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.pin_memory() if tensor.device.type == "cpu" else tensor


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
            self._run.load_state_dict(replace(state, position=position, items=state.items + passed))
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
