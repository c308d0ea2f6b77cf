"""A loader of batches for a training loop, without torch's DataLoader."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, Generic, Literal, NoReturn, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from lazyckpt.core.call import runnable
from lazyckpt.core.checks import Unfit, at_least, boolean, checked, optional, positive
from lazyckpt.epochs import EpochLoader, is_endless, items_in_epoch, passed_over, renumbered
from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.executors.device import move_tensors
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.local import seconds
from lazyckpt.failures.skip_log import Skipped
from lazyckpt.integrations.torch.ranked_run import RankedRun
from lazyckpt.pipeline import Pipeline, run
from lazyckpt.run import Run
from lazyckpt.state.rebase import followed
from lazyckpt.state.state import AnyState, State
from lazyckpt.stats import Stats

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", covariant=True)

_REMEDIES = {  # for arguments of DataLoader
    "num_workers": "pass executor=lz.processes(n)",
    "prefetch_factor": "pass executor=lz.processes(n, buffer_size=...)",
    "batch_size": "put batch(n, collate=lz.stack) in the pipeline",
    "collate_fn": "put batch(n, collate=...) in the pipeline",
    "drop_last": "put batch(n, drop_last=True) in the pipeline",
    "shuffle": "put shuffle(seed=...) in the pipeline",
    "sampler": "put shuffle, sample or gather in the pipeline",
}


def _hinting(function: Callable[P, R]) -> Callable[P, R]:
    """Say what to write in place of an argument of torch's `DataLoader`."""

    @wraps(function)
    def public(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs.keys() & _REMEDIES.keys():
            raise ArgumentError(
                f"loader: got an unexpected keyword argument {name!r}; {_REMEDIES[name]}"
            )
        return function(*args, **kwargs)

    return public


@_hinting
def loader(
    pipeline: Pipeline[T],
    executor: Executor | None = None,
    state: AnyState | None = None,
    *,
    epoch_size: int | None = None,
    keep_rest: bool | None = None,
    pin_memory: bool = False,
    strict: bool = True,
    on_error: Literal["raise", "skip"] = "raise",
    group: dist.ProcessGroup | None = None,
    agree_ahead: int = 4,
    timeout: float = 600,
) -> Loader[T]:
    """Return an iterable of batches for a training loop, with a state that can be saved.

    It replaces a DataLoader. NumPy arrays of numbers become tensors that share their memory, also
    inside dicts, lists, tuples and named tuples; all other values are left as they are.

    Each loop yields one epoch, as with torch's DataLoader. If a loop is left early, the next loop
    does not continue it but begins the next epoch. Only the first loop from a state, after `state=`
    or `load_state_dict`, yields the rest of its epoch, or the next epoch if nothing is left. An
    endless stream continues where the last loop was left; `keep_rest` changes that. After an error
    of the pipeline, the next loop tries the same item again. A loop begins when it takes its first
    item; from then on, older loops raise an error. `len` is the length of a whole epoch, including
    items that `on_error="skip"` skips. The state is the pipeline's own, after the last item
    delivered. A progress bar starts at the position in the epoch with `lz.progress(loader)` or
    `tqdm(loader, initial=loader.start)`.

    With a `group`, all its ranks end each loop at the same step, even if filters, packing or files
    of their own give them different numbers of items. A loop ends when the first rank reaches the
    end of its epoch. The remaining items of other ranks come first in their next loop, also after a
    resume: no item is lost. So ranks may be in different epochs. `Loader.state_dict` is equal on
    all ranks: if their positions differ, it has the positions of all. An error on one rank is a
    `RankFailed` on the others, at the same step.

    The ranks agree on `agree_ahead` steps at a time, and each rank holds that many items. They use
    separate connections, so this doesn't interfere with other collectives. An agreement costs one
    all-gather by gloo, of 2 KB per rank: about a millisecond. It shares the states of all ranks. If
    a rank is lost, the others call `Loader.join` with the new process group; the replacement makes
    a loader without a state, and receives the state of the lost rank.

    Args:
        pipeline: Pipeline to run.
        executor: How items are computed, as in `lz.run`; `lz.to_device(...)` for a GPU.
        state: State to resume from, as in `lz.run`.
        epoch_size: Number of items per epoch, across ends of the stream, for a pipeline that is
            endless or whose length is unknown.
        keep_rest: If True, a loop continues where the last one was left: with the rest of that
            epoch, or with `epoch_size` items from there. If False, it begins the next epoch, even
            of an endless stream. By default True for endless streams only.
        pin_memory: If True, copy tensors to pinned memory, for `batch.to(device,
            non_blocking=True)`. It needs a GPU. The copy is made when an item is taken, in the
            thread of the loop.
        strict: As in `lz.run`.
        on_error: As in `lz.run`.
        group: Process group, of any backend, whose ranks end together, such as
            `torch.distributed.group.WORLD`. All ranks make their loaders at the same time.
        agree_ahead: Number of steps per agreement of the group.
        timeout: Seconds to wait for all ranks of the group.

    Raises:
        ArgumentError: With `pin_memory`, if torch finds no GPU.
        StateMismatch: If the state belongs to a different pipeline and `strict` is True, or if the
            ranks of the group have different pipelines.
        RankMissing: If a rank of the group doesn't answer in time.
        RankFailed: If a different rank raises an error.

    >>> import lazyckpt as lz
    >>> batches = lz.torch.loader(lz.columns(x=[1, 2, 3]) | lz.batch(2, collate=lz.stack))
    >>> len(batches), next(iter(batches))
    (2, {'x': tensor([1, 2])})
    >>> saved = batches.state_dict()
    >>> list(batches)
    [{'x': tensor([1, 2])}, {'x': tensor([3])}]
    >>> batches.load_state_dict(saved)
    >>> list(batches)
    [{'x': tensor([3])}]
    """
    size = checked("loader", "epoch_size", epoch_size, optional(positive))
    keeps = checked("loader", "keep_rest", keep_rest, optional(boolean))
    pins = checked("loader", "pin_memory", pin_memory, boolean)
    if pins and not torch.cuda.is_available():
        raise ArgumentError("loader: pin_memory=True needs a GPU, and torch finds none")
    ahead = checked("loader", "agree_ahead", agree_ahead, positive)
    limit = checked("loader", "timeout", timeout, seconds)
    if group is not None:
        checked("loader", "group", group, _group)
    begin = state if group is None else None
    made = run(pipeline, begin, strict=strict, executor=executor, on_error=on_error)
    ranked = None
    if group is not None:
        ranked = RankedRun(pipeline, made, ahead, limit)
        if state is not None:
            ranked.load(state, group.rank(), group.size())
        ranked.join(group)
    return Loader(made, size, keeps, pins, ranked, skips=on_error == "skip")


def _group(value: Any) -> dist.ProcessGroup:
    if not isinstance(value, dist.ProcessGroup):
        raise Unfit("a process group of torch.distributed that this process belongs to")
    return value


class Loader(Iterable[T], Generic[T]):
    """A run as an iterable of loops; made by `loader`.

    Attributes:
        batch_sampler: Its `sampler.set_epoch(n)` is for trainers, such as Lightning, that set the
            epoch of a loader's sampler. The next loop begins in epoch n at the earliest.
    """

    def __init__(
        self,
        run: Run[T],
        epoch_size: int | None,
        keeps_rest: bool | None,
        pins: bool,
        ranked: RankedRun[T] | None = None,
        *,
        skips: bool = False,
    ) -> None:
        self._run, self._size, self._keeps_rest, self._skips = run, epoch_size, keeps_rest, skips
        self._move = _pinned if pins else _same
        self._ranked = ranked
        self._paced: Run[T] | RankedRun[T] = ranked or run
        self._loops = 0  # number of loops that have begun
        self._is_left = False  # True if the last loop was left, unless it takes one more item
        self._end: State | None = None  # of the last loop that wasn't left
        self.batch_sampler = EpochSampler()
        self._hooks: list[RemovableHandle] = []  # on the optimizers that it follows
        self._trained: State | None = None

    def __iter__(self) -> Iterator[T]:
        items = self._begin()
        number = self._loops = self._loops + 1
        for item in items:
            self._is_left = True
            yield move_tensors(self._move, item, torch)
            if number != self._loops:
                raise PipelineError("loader: a newer loop has begun, so this one is over")
            self._is_left = False
        self._end = self.state

    def _begin(self) -> Iterator[T]:
        """Move to the start of a loop and return its items."""
        iter(self._run)  # raises an error if it is closed
        is_trained = self._trained is not None and self._trained == self.state
        chosen, self.batch_sampler.epoch = self.batch_sampler.epoch, 0
        items = self._paced.epoch(self._size)
        if self._size is not None:
            self._begin_after_multiple(self._size, chosen)
        elif self._continues:
            pass
        elif self._ranked is not None:
            items = self._ranked.epoch(least=chosen, is_left=self._is_left)
        else:
            epochs = EpochLoader(self._run)
            epoch = max(epochs.epoch + self._is_left, chosen)
            if epoch > epochs.epoch:
                epochs.advance(epoch)
        self._is_left = False
        if is_trained:
            self._note_trained()
        return items

    def _begin_after_multiple(self, size: int, chosen: int) -> None:
        items = self.state.items
        is_left = self._is_left or chosen > items // size
        left = None if self._ranked is None or not self._is_left else self._ranked.left
        left = -items % size if left is None else left
        if is_left and left:
            if self._continues:
                self._paced.load_state_dict(renumbered(self.state, int(left)))
            else:
                self._pass_over(int(left))
        self._pass_over(chosen * size - self.state.items)

    def _pass_over(self, left: int) -> None:
        run, state = self._paced, self.state
        machine = run.pipeline.machine
        if left <= 0:
            return
        if machine.skip is None or self._skips:
            deque(run.epoch(state.items + left), 0)
        else:
            run.load_state_dict(passed_over(machine, state, left))

    @property
    def _continues(self) -> bool:
        """True if a loop continues where the last one was left."""
        keeps_rest = self._keeps_rest
        return is_endless(self._paced.pipeline) if keeps_rest is None else keeps_rest

    @property
    def start(self) -> int:
        """The number of items of the epoch before the first item of the next loop.

        It is above 0 after a resume, for `tqdm(loader, initial=loader.start)` or for
        `enumerate(loader, loader.start)`. For an endless stream without `epoch_size`, it counts all
        items delivered. If the length of an epoch is unknown, it is 0 after the first epoch.
        """
        state, size = self.state, self._size
        if self._is_left and not (self._continues and size is None):
            return 0
        if size is not None:
            return state.items % size
        pipeline = self._paced.pipeline
        found = items_in_epoch(pipeline, state)
        return 0 if found == pipeline.machine.length or state == self._end else found

    def __len__(self) -> int:
        if self._size is not None:
            return self._size
        if self._ranked is None or self._ranked.length == math.inf:
            return len(Pipeline(self._run.pipeline.calls))
        if self._ranked.length is None:
            raise TypeError("the number of items on all ranks can't be known without reading")
        return int(self._ranked.length)

    @property
    def state(self) -> State:
        """The state after the last delivered item."""
        return self._paced.state

    @property
    def trained(self) -> State:
        """The state after the last batch that the weights include.

        With `follow`, it is the state after the last step of an optimizer, or the state that was
        loaded last. Otherwise it is `state`.
        """
        return self.state if self._trained is None else self._trained

    def rewind(self) -> None:
        """Go back to `trained`, so that a checkpoint on an exception is exact.

        The current batch is delivered again, and so are batches whose gradients were only
        accumulated. With a `group`, all ranks call it after the same step.
        """
        trained = self.trained
        if self._ranked is None:
            self._run.load_state_dict(trained)
        else:
            self._ranked.rewind(trained)
        self._is_left = False
        self._note_trained()

    def follow(self, *optimizers: Optimizer) -> None:
        """Record the state after each step of these optimizers, for `trained` and `rewind`.

        Args:
            optimizers: The optimizers; they replace those that were followed before. If several
                step for one batch, pass the last of them.

        >>> import lazyckpt as lz
        >>> weight = torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = torch.optim.SGD([weight])
        >>> batches = lz.torch.loader(lz.source(range(5)))
        >>> batches.follow(optimizer)
        >>> for batch in batches:
        ...     if batch % 2:  # gradients of two batches were accumulated
        ...         optimizer.step()
        >>> batches.state.items, batches.trained.items
        (5, 4)
        """
        found = [_unwrapped(each) for each in optimizers]
        for hook in self._hooks:
            hook.remove()
        self._hooks = [each.register_step_post_hook(self._note_trained) for each in found]
        self._trained = None
        self._note_trained()

    def _note_trained(self, *_: Any) -> None:
        self._trained = self.state if self._hooks else None
        if self._ranked is not None:
            self._ranked.keep()

    @property
    def stats(self) -> Stats:
        """The throughput of the run and the waiting time of the loop, as in `Run.stats`."""
        return self._run.stats

    @property
    def skipped(self) -> Skipped:
        """The number of items skipped by `on_error="skip"`; `first` describes some of them."""
        return self._paced.skipped

    def state_dict(self) -> dict[str, Any]:
        """Return the state as a flat dict of ints and strings, for any checkpointer.

        If all ranks have the same position, or there is a `group`, it is equal on all ranks.
        Otherwise it has one string, with this rank in its key: save the dict of each rank.
        """
        return self._paced.state_dict()

    def load_state_dict(self, state: AnyState) -> None:
        """Move to a state; a running loop continues from there, or else the next loop does."""
        self._paced.load_state_dict(state)
        self._is_left = False
        self._note_trained()

    def leave(self) -> None:
        """Make the next loop begin as after a `break`, even after a resume within an epoch.

        >>> import lazyckpt as lz
        >>> pipeline = lz.source(range(3))
        >>> batches = lz.torch.loader(pipeline, state=lz.state_at(pipeline, 1))
        >>> batches.leave()
        >>> list(batches)
        [0, 1, 2]
        """
        self._is_left = not EpochLoader(self._paced).is_fresh

    def change(self, pipeline: Pipeline[T]) -> None:
        """Continue as a different pipeline from the next item on, like `Run.change`.

        The ranks of a `group` must all change after the same item, and wait for each other. If one
        of them doesn't change, its next agreement raises an error on all of them that names it. If
        one can't, none changes, and the others raise a `RankFailed`.
        """
        found = runnable("change", pipeline)
        trained = self._trained
        if self._ranked is not None:
            trained = self._ranked.change(found, trained)
        else:
            trained = trained and followed(trained, found, self._run.pipeline)
            self._run.change(found)
        self._trained = trained

    def join(self, group: dist.ProcessGroup, items: int | None = None) -> None:
        """Continue with a new process group after a rank was lost; all remaining ranks call it.

        Meanwhile the replacement process calls `loader(..., group=group)` without a state and
        continues from the lost rank's position. Several ranks can be replaced at the same time. All
        ranks continue after the same step: that of the rank that has received the fewest items.

        Args:
            group: The new process group, in which each process keeps its rank.
            items: Number of items of this rank after which to continue, such as those that the
                model was trained on; None for all delivered. It can go back by up to `agree_ahead`
                items.

        Raises:
            PipelineError: If the loader has no group, or if the others don't know the position of a
                new rank, or would have to go back too far.
            RankMissing: If a rank doesn't answer in time.
        """
        checked("join", "group", group, _group)
        if self._ranked is None:
            raise PipelineError("join: the loader has no group; make it with loader(..., group=)")
        reached = checked("join", "items", items, optional(at_least(0, self.state.items)))
        self._ranked.join(group, reached)
        self._is_left = False
        self._note_trained()

    def close(self) -> None:
        """Stop workers; the state stays readable."""
        self._run.close()

    def __enter__(self) -> Loader[T]:
        self._run.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._run.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a loader can't be pickled or copied; make one in each process, with the pipeline and "
            "the state"
        )

    def __repr__(self) -> str:
        return f"<loader of {self._run!r}>"


def torch_loader(value: Any) -> Loader[Any]:
    """Check that an argument is a loader."""
    if not isinstance(value, Loader):
        raise Unfit("a loader from lz.torch.loader")
    return value


class EpochSampler:
    """A stand-in for a sampler, by which a trainer sets the epoch; it samples nothing."""

    batch_size = 1  # shown by DeepSpeed; the loader's own is not known

    def __init__(self) -> None:
        self.sampler, self.epoch = self, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def _unwrapped(value: Any) -> Optimizer:
    """Return an optimizer without the wrappers of Accelerate and Lightning."""
    inner = getattr(value, "optimizer", value)
    found: Optimizer = checked("follow", "optimizers", inner, _optimizer)
    return found


def _optimizer(value: Any) -> Optimizer:
    if not isinstance(value, Optimizer):
        raise Unfit("optimizers of torch.optim")
    return value


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.pin_memory() if tensor.device.type == "cpu" else tensor
