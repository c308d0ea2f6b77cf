"""`StreamWrapper`: a stream of batches in epochs, with an optional buffer filled by a thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np

import lazyckpt as lz
from lazyckpt.core.checks import checked, function, integer
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import End, Machine, entered, within
from lazyckpt.core.stages import sourced

T = TypeVar("T")
Place = tuple[Any, ...]
_Pass = tuple[int, Flow[Any], Iterator[Any]]  # checksum, flow, batches

_DIGITS = 13  # digits of a digest that every JSON reader keeps as an int


class StreamWrapper(Iterator[T], Generic[T]):
    """A stream of batches in epochs, optionally buffered by a thread.

    Iterating over it yields one epoch.

    With a buffer, call `next` inside `with stream:`. Leaving the block ends the thread, but keeps
    the position and the batches that are ready. A later `next` outside the block uses a thread for
    that call only. Batches are computed ahead only within `allow_buffering`, and only up to the end
    of the epoch.

    An error is raised after the batches before it, and calling `next` again tries the same batch.
    With a buffer it is raised as a ChildProcessError. A pass without batches ends the epoch.

    Resume: re-iterates the current pass up to its position. If `stream_fn` returns a sequence or an
    array, it seeks; if it returns a pipeline, which starts its next epoch in each pass, it re-reads
    what the pipeline re-reads. `stream_fn` must yield the same batches again.

    Args:
        stream_fn: Function that returns an iterable of one pass; called when the first batch of a
            pass is requested.
        buffer_size: Number of batches to hold ready; below 1 there is no thread.
        epoch_size: Number of batches per epoch, across passes; below 1, an epoch is one pass.
        name: Name in errors, the profile and the state.
        profile: Dict of timings; `profile["read_batch_<name>"]` becomes a list of the seconds
            waited for each delivered batch.

    >>> stream = StreamWrapper(lambda: iter(["a", "b", "c"]), epoch_size=2)
    >>> list(stream), next(stream)
    (['a', 'b'], 'c')
    """

    def __init__(
        self,
        stream_fn: Callable[[], Iterable[T]],
        buffer_size: int = 0,
        epoch_size: int = -1,
        name: str | None = None,
        profile: MutableMapping[str, list[float]] | None = None,
    ) -> None:
        check = partial(checked, "StreamWrapper")
        passes = Passes(check("stream_fn", stream_fn, function))
        self._buffer_size = buffer = check("buffer_size", buffer_size, integer)
        self._size = max(check("epoch_size", epoch_size, integer), 0)
        self.name, self._profile = name, profile
        executor = lz.threads(1, buffer_size=buffer, gated=True) if buffer > 0 else None
        self._run: lz.Run[T] = lz.Run(stream_epochs(passes, self._size, name), executor=executor)
        self._inside = 0
        self._was_entered = False
        if buffer > 0:
            self._run.close()  # until it is entered

    def __enter__(self) -> StreamWrapper[T]:
        self._was_entered = True
        self._inside += 1
        self._run.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inside -= 1
        if self._buffer_size > 0 and not self._inside:
            self._run.close()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._buffer_size > 0 and not self._inside:
            if not self._was_entered:
                raise ValueError(
                    f"stream {self.name!r} has a buffer of {self._buffer_size} and so a thread: "
                    "call next inside `with stream:`, which ends it"
                )
            with self:
                return next(self)
        profile = {} if self._profile is None else self._profile
        times = profile.setdefault(f"read_batch_{self.name}", [])
        begun = perf_counter()
        try:
            batch = next(self._run)
        except StopIteration:
            end = self._run.state
            self._run.load_state_dict(end.at(next_start(self._size, end.position)))
            raise
        except Exception as error:
            if self._buffer_size < 1 or isinstance(error, (lz.InvalidState, lz.SourceChanged)):
                raise
            raise ChildProcessError(f"the thread of stream {self.name!r} got {error!r}") from error
        times.append(perf_counter() - begun)
        return batch

    def empty(self) -> bool:
        """Return whether the next batch isn't ready yet."""
        return not self._run.stats.ready

    @property
    def allow_buffering(self) -> AbstractContextManager[None]:
        """A context in which batches are computed ahead; without a thread it has no effect."""
        return self._run.allow_buffering

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last delivered batch, as JSON values."""
        return self._run.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | lz.State | str | bytes) -> None:
        """Move to a state, at any time; batches that are ready are dropped."""
        self._run.load_state_dict(state)


class Passes:
    """The passes of a stream function; the last one stays open, also for the next epoch."""

    def __init__(self, stream_fn: Callable[[], Iterable[Any]]) -> None:
        self._stream_fn = stream_fn
        self._open: dict[tuple[int, Place], _Pass] = {}  # by its number and place, one at most

    def step(self, number: int, place: Place) -> tuple[Place, Any]:
        """Return the place after the next batch of a pass, and the batch; `End` if there is none.

        A place is empty at the beginning, else a checksum of the stream and the position in it.
        """
        found = self._open.pop((number, place), None) or self._opened(number, place)
        check, flow, batches = found  # after an error it isn't open: its iterator looks exhausted
        for batch in batches:
            place = check, flow.snapshot()
            self._open = {(number, place): found}
            return place, batch
        raise End(place)

    def _opened(self, number: int, place: Place) -> _Pass:
        pipeline = _readable(self._stream_fn())
        check = int(pipeline.digest[:_DIGITS], 16)
        if place and place[0] != check:
            raise lz.StateMismatch(
                "the state belongs to a different stream than stream_fn returns: "
                f"one with a different length, or with other stages than {pipeline!r}"
            )
        position = place[1] if place else pipeline.machine.init(number)
        flow = entered(pipeline.machine, position)
        return check, flow, iter(flow)


def _readable(found: Any) -> lz.Pipeline[Any]:
    """Return the result of `stream_fn` as a pipeline, with random access if that is equivalent."""
    if isinstance(found, lz.Pipeline):
        return found
    kind = type(found)
    is_sequence = isinstance(found, (Sequence, np.ndarray)) or not hasattr(kind, "__iter__")
    is_indexed = hasattr(kind, "__len__") and hasattr(kind, "__getitem__")
    if is_sequence and is_indexed and not isinstance(found, str):
        return lz.source(found)
    return lz.once(found) | lz.flat_map(chain)  # `iter` is called when the first item is requested


@lz.source_combinator(
    registered=False, describe=lambda passes, size, name: {"epoch_size": size, "name": name}
)
def stream_epochs(passes: Passes, size: int, name: str | None) -> Machine[Any]:
    """Yield pass after pass in epochs of `size` batches; if it is 0, an epoch is one pass.

    State: the pass, a count of the epoch's batches, and within a pass a checksum of its stream and
        the position in it.
    """
    most = size or sys.maxsize

    def check(*place: Any) -> None:
        if place:
            checksum, _ = place
            within("StreamWrapper", checksum)

    def step(position: Position) -> tuple[Position, Any]:
        number, given, *found = position
        place = tuple(found)
        while given < most:
            try:
                place, batch = passes.step(number, place)
            except End:
                if not (size and place):  # the epoch is a pass, or the pass was empty
                    break
                number, place = number + 1, ()
            else:
                return (number, given + 1, *place), batch
        raise End((number, given, *place))

    return sourced("StreamWrapper", check=check, most=most, step=step)


def next_start(size: int, position: Position) -> Position:
    """Return the position at which the next epoch begins after one that ended at a position."""
    number, given, *place = position
    return (number, 0, *place) if 0 < size == given else (number + 1, 0)
