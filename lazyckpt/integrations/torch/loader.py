"""Batches for a training loop, without a DataLoader."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Generic, Literal, TypeVar

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

T = TypeVar("T", covariant=True)


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
    """Batches for a training loop, without a DataLoader: an iterable that can be saved.

    NumPy arrays of numbers come as tensors that share their memory, also within
    dicts, lists, tuples and named tuples; all else stays as it is.

    Each loop yields one epoch, as with torch's DataLoader: a loop that was left early does
    not continue in the next one, which begins the next epoch. Only the first loop from a
    state, after `state=` or `load_state_dict`, yields the rest of its epoch, or the next
    epoch if nothing is left. An endless stream continues where the last loop was left;
    `keep_rest` chooses. After an error of the pipeline, the next loop tries the same item
    again. A loop begins when it takes its first item; from then on, older ones raise.

    `len` is the length of a whole epoch, including items that `on_error="skip"` leaves out.
    The state is the pipeline's own, after the last item delivered. A bar starts at the
    position in the epoch with `lz.progress(loader)` or `tqdm(loader, initial=loader.start)`.

    With a `group` all its ranks end each loop at the same step, however many items
    each has: where filters, packing or files of its own give them different numbers.
    A loop ends where the first rank has come to the end of its epoch. What others have
    left comes first in the next loop, also after a resume: no item is lost. So ranks
    may be in different epochs. `Loader.state_dict` is equal on all ranks: where each is
    at a place of its own, it has the places of all. An error on one rank is a `RankFailed`
    on the others, at the same step.

    The ranks agree for `agree_ahead` steps at a time, over connections of their own,
    which no other collective uses; so many items wait on each. An agreement costs one
    all-gather by gloo, of 2 KB a rank: about a millisecond. In it all learn the states
    of all: where a rank was lost, the others call `Loader.join` with the new process
    group, and the one in its place makes a loader without a state, and gets its own.

    Args:
        pipeline: What to run.
        executor: Who makes the items, as for `lz.run`; `lz.to_device(...)` for a GPU.
        state: Where to go on, as for `lz.run`.
        epoch_size: How many items an epoch has, across ends of the stream, for a
            pipeline that is endless or whose length is unknown.
        keep_rest: If True, a loop continues where the last one was left: with the rest of that
            epoch, or with `epoch_size` items from there. If False, it begins the next epoch,
            that of an endless stream included. By default True for endless streams alone.
        pin_memory: Whether to copy tensors to pinned memory, for
            `batch.to(device, non_blocking=True)`. It needs a GPU; the copy is made
            where the item is asked for.
        strict: As for `lz.run`.
        on_error: As for `lz.run`.
        group: The process group, of any backend, whose ranks end together; such as
            `torch.distributed.group.WORLD`. All make their loaders at the same time.
        agree_ahead: For how many steps the ranks of the group agree at a time.
        timeout: Seconds to wait for all ranks of the group.

    Raises:
        ArgumentError: With `pin_memory`, where torch finds no GPU.
        StateMismatch: The state belongs to another pipeline, and `strict` is set; or the
            ranks of the group have different pipelines.
        RankMissing: A rank of the group does not come, in time.
        RankFailed: Another rank raises an error.

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
    """What `loader` makes: one run, over and over.

    Attributes:
        batch_sampler: Its `sampler.set_epoch(n)` is for trainers, such as Lightning, that tell
            a loader's sampler in which epoch they are: the next loop begins no earlier one.
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
        self._loops = 0  # that have begun
        self._is_left = False  # the last one, unless it asks for another item
        self.batch_sampler = EpochSampler()
        self._hooks: list[RemovableHandle] = []  # of the optimizers that it follows
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

    def _begin(self) -> Iterator[T]:
        """Go to where a loop begins; its items."""
        iter(self._run)  # an error if it is closed
        is_trained = self._trained is not None and self._trained == self.state
        told, self.batch_sampler.epoch = self.batch_sampler.epoch, 0
        items = self._paced.epoch(self._size)
        if self._size is not None:
            self._begin_after_multiple(self._size, told)
        elif self._continues:
            pass
        elif self._ranked is not None:
            items = self._ranked.epoch(least=told, is_left=self._is_left)
        else:
            epochs = EpochLoader(self._run)
            epoch = max(epochs.epoch + self._is_left, told)
            if epoch > epochs.epoch:
                epochs.advance(epoch)
        self._is_left = False
        if is_trained:
            self._note_trained()
        return items

    def _begin_after_multiple(self, size: int, told: int) -> None:
        items = self.state.items
        is_left = self._is_left or told > items // size
        left = None if self._ranked is None or not self._is_left else self._ranked.left
        left = -items % size if left is None else left
        if is_left and left:
            if self._continues:
                self._paced.load_state_dict(renumbered(self.state, int(left)))
            else:
                self._pass_over(int(left))
        self._pass_over(told * size - self.state.items)

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
        """Whether a loop continues where the last one was left."""
        keeps_rest = self._keeps_rest
        return is_endless(self._paced.pipeline) if keeps_rest is None else keeps_rest

    @property
    def start(self) -> int:
        """How many items of its epoch come before the first one of the next loop.

        Above 0 after a resume, for `tqdm(loader, initial=loader.start)`, or for
        `enumerate(loader, loader.start)`. Of an endless stream without `epoch_size`, all
        items so far. If the length of an epoch is unknown, it is 0 after the first epoch.
        """
        state, size = self.state, self._size
        if self._is_left and not (self._continues and size is None):
            return 0
        if size is not None:
            return state.items % size
        pipeline = self._paced.pipeline
        found = items_in_epoch(pipeline, state)
        return 0 if found == pipeline.machine.length else found

    def __len__(self) -> int:
        if self._size is not None:
            return self._size
        if self._ranked is None or self._ranked.length == math.inf:
            return len(Pipeline(self._run.pipeline.calls))
        if self._ranked.length is None:
            raise TypeError("how many items all ranks have: only reading tells")
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

        The batch in hand comes again, and so do batches whose gradients were only accumulated.
        With a `group`, all ranks call it after the same step.
        """
        trained = self.trained
        if self._ranked is None:
            self._run.load_state_dict(trained)
        else:
            self._ranked.rewind(trained)
        self._is_left = False
        self._note_trained()

    def follow(self, *optimizers: Optimizer) -> None:
        """Note the state after each step of these optimizers, for `trained` and `rewind`.

        Args:
            optimizers: They replace those that were followed before. If several step for one
                batch, give the one that is last.

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
        """How fast items are made, and how much the loop waits, as of `Run.stats`."""
        return self._run.stats

    @property
    def skipped(self) -> Skipped:
        """How many items `on_error="skip"` has left out, as an int; `first` tells of some."""
        return self._paced.skipped

    def state_dict(self) -> dict[str, Any]:
        """The state as a flat dict of ints and texts, for any checkpointer.

        Where all ranks are at one place, or there is a `group`, it is equal on all of them.
        Else it has one text, below the name of this rank: save that of each rank.
        """
        return self._paced.state_dict()

    def load_state_dict(self, state: AnyState) -> None:
        """Go to a state; a loop under way goes on from there, or else the next one."""
        self._paced.load_state_dict(state)
        self._is_left = False
        self._note_trained()

    def leave(self) -> None:
        """Have the next loop begin as after a `break`, also after a resume in the middle of one.

        >>> import lazyckpt as lz
        >>> pipeline = lz.source(range(3))
        >>> batches = lz.torch.loader(pipeline, state=lz.state_at(pipeline, 1))
        >>> batches.leave()
        >>> list(batches)
        [0, 1, 2]
        """
        self._is_left = not EpochLoader(self._paced).is_fresh

    def change(self, pipeline: Pipeline[T]) -> None:
        """Go on as another pipeline, from the next item on, as `Run.change` does.

        The ranks of a `group` all change after the same item. Where one doesn't, all learn
        which at their next agreement.
        """
        trained = self._trained
        if trained is not None:
            trained = followed(trained, runnable("change", pipeline), self._paced.pipeline)
        self._paced.change(pipeline)
        self._trained = trained

    def join(self, group: dist.ProcessGroup, items: int | None = None) -> None:
        """Go on with a new process group, after a rank was lost. All that are left call it.

        The one in the lost rank's place calls `loader(..., group=group)` meanwhile, with no
        state: it goes on where that rank was. So it is for several. All go on after
        the same step, that of the rank which has had the fewest items.

        Args:
            group: The new process group, in which each has the rank that it had.
            items: After how many items of this rank to go on, such as those that
                the model was trained on; all delivered if None. It can go back by up to
                `agree_ahead` items.

        Raises:
            PipelineError: The loader has no group; the others don't know the place of a
                new rank, or have to go back too far.
            RankMissing: A rank does not come, in time.
        """
        checked("join", "group", group, _group)
        if self._ranked is None:
            raise PipelineError("join: the loader has no group; make it with loader(..., group=)")
        reached = checked("join", "items", items, optional(at_least(0, self.state.items)))
        self._ranked.join(group, reached)
        self._is_left = False
        self._note_trained()

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


def torch_loader(value: Any) -> Loader[Any]:
    """The value, if it is a loader: a check of arguments."""
    if not isinstance(value, Loader):
        raise Unfit("what lz.torch.loader gives")
    return value


class EpochSampler:
    """What a trainer tells in which epoch it is; it samples nothing."""

    batch_size = 1  # which DeepSpeed shows; the loader's own is not known

    def __init__(self) -> None:
        self.sampler, self.epoch = self, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def _unwrapped(value: Any) -> Optimizer:
    """An optimizer, without what Accelerate or Lightning has put around it."""
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
