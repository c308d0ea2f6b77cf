"""A drop-in for `emloop.datasets.StreamWrapper`, with a state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Generic, TypeVar

from lazyckpt.compat.emloop_epochs import Passes, stream_epochs
from lazyckpt.core.checks import checked, function, integer
from lazyckpt.core.flow import Position
from lazyckpt.errors import InvalidState, SourceChanged
from lazyckpt.executors.local import threads
from lazyckpt.run import Run
from lazyckpt.state.state import State

__all__ = ["StreamWrapper"]

T = TypeVar("T")


class StreamWrapper(Iterator[T], Generic[T]):
    """A stream of batches in epochs, buffered by a thread if wanted. Iterating it is one epoch.

    - `stream_fn`: gives an iterable, which is one pass; called when the first
      batch of a pass is asked for, and so again whenever the stream has ended
    - `buffer_size`: batches held ready; below 1 there is no thread, `with` does
      nothing, and `empty()` is true
    - `epoch_size`: batches an epoch, over ends of the stream; below 1 an epoch is one pass
    - `name`: told in errors, the profile and the state
    - `profile`: `profile["read_batch_<name>"]` becomes a list of the seconds
      that each delivered batch was waited for

    One StopIteration ends an epoch, and the next `next` begins another. With a
    buffer batches are had within `with` alone. Leaving it ends the thread, and
    keeps the place and what is ready. Nothing is made that isn't waited for, but
    within `allow_buffering`, and then nothing beyond the epoch.

    What differs from emloop 0.2.1: no sleep before each batch; None is a batch
    as any other; `next` after `with` is refused as before it, and starts no
    thread; leaving `with` at an epoch's last batch adds none to it. Where making
    a batch fails, the batches before it come first, then the error; asking
    again tries the same batch, for which the pass is opened again and gone
    through to that place. With a buffer the error is a ChildProcessError, as it
    was, and its cause the error itself. A pass without batches ends the epoch,
    with a buffer too, where it hung: what an empty epoch means is for the loop
    to say. The epoch ends at its size or the stream's end, so a loop left at
    the last batch leaves an empty rest, as it did.

    State: `state_dict()`, at most 1 KB of JSON; after the last batch of an epoch
    it isn't yet that of the next.
    Resume: goes through the pass under way to its place; where `stream_fn` gives
    a sequence or an array, reads nothing again; where it gives a lazyckpt
    pipeline, what that reads again. The pipeline is in its next epoch in each
    pass, so it is shuffled anew. For other data with random access, give
    `source(data)`. `stream_fn` must give the same batches again; nothing but a
    resume and an error ask for them twice.
    Errors: `StateMismatch` for a state of another name or epoch size, or, when
    the stream is opened, of data of another length or another pipeline.

    >>> stream = StreamWrapper(lambda: iter(["a", "b", "c"]), epoch_size=2)
    >>> list(stream), next(stream)
    (['a', 'b'], 'c')
    >>> resumed = StreamWrapper(lambda: iter(["a", "b", "c"]), epoch_size=2)
    >>> resumed.load_state_dict(stream.state_dict())
    >>> list(resumed), list(resumed)
    (['a'], ['b', 'c'])
    """

    def __init__(
        self,
        stream_fn: Callable[[], Iterable[T]],
        buffer_size: int = 0,
        epoch_size: int = -1,
        name: str | None = None,
        profile: MutableMapping[str, list[float]] | None = None,
    ) -> None:
        stream_fn = checked("StreamWrapper", "stream_fn", stream_fn, function)
        self._name = name
        self._buffer_size = checked("StreamWrapper", "buffer_size", buffer_size, integer)
        self._epoch_size = checked("StreamWrapper", "epoch_size", epoch_size, integer)
        self._profile = profile
        self._passes = Passes(stream_fn)
        executor = None
        if self._buffer_size > 0:
            executor = threads(1, buffer_size=self._buffer_size, gated=True)
        epochs = stream_epochs(self._passes, max(self._epoch_size, 0), name)
        self._run: Run[T] = Run(epochs, executor=executor)
        self._inside = self._allowed = 0
        self._works = False

    @property
    def name(self) -> str | None:
        return self._name

    def __enter__(self) -> StreamWrapper[T]:
        self._inside += 1
        self._run.__enter__()
        self._settle()
        return self

    def __exit__(self, *error: object) -> None:
        self._inside -= 1
        self._settle()
        if self._buffer_size > 0 and not self._inside:
            self._run.close()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._buffer_size > 0 and not self._inside:
            raise ValueError(
                f"stream {self._name!r} has a buffer of {self._buffer_size} and so a thread: "
                "ask for batches within `with stream:`, which ends it"
            )
        begun = perf_counter()
        times = None
        if self._profile is not None:
            times = self._profile.setdefault(f"read_batch_{self._name}", [])
        try:
            batch = next(self._run)
        except StopIteration:
            state = self._run.state
            self._load(replace(state, position=_following(state.position, self._epoch_size)))
            raise
        except (InvalidState, SourceChanged):
            raise
        except Exception as error:
            if self._buffer_size < 1:
                raise
            raise ChildProcessError(f"the thread of stream {self._name!r} met {error!r}") from error
        if times is not None:
            times.append(perf_counter() - begun)
        return batch

    def empty(self) -> bool:
        """Whether the next batch has to be waited for."""
        made = self._passes.made
        return self._buffer_size < 1 or made is None or made() == self._run.state.position

    @property
    def allow_buffering(self) -> AbstractContextManager[None]:
        """A context in which batches are made ahead. Nests; without a thread it does nothing."""
        return _Allowing(self._allow)

    def state_dict(self) -> dict[str, Any]:
        """The state after the last delivered batch, as JSON values."""
        return self._run.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | State | str | bytes) -> None:
        """Go to a state, at any time; what is ready is dropped."""
        self._load(state)

    def _load(self, state: Mapping[str, Any] | State | str | bytes) -> None:
        self._run.load_state_dict(state)
        self._passes.made = None

    def _allow(self, by: int) -> None:
        self._allowed += by
        self._settle()

    def _settle(self) -> None:
        works = self._inside > 0 and self._allowed > 0
        if works != self._works:
            self._works = works
            (self._run.resume if works else self._run.pause)()


@dataclass(frozen=True)
class _Allowing(AbstractContextManager[None]):
    """A context that can be entered again and again."""

    allow: Callable[[int], None]

    def __enter__(self) -> None:
        self.allow(1)

    def __exit__(self, *error: object) -> None:
        self.allow(-1)


def _following(position: Position, epoch_size: int) -> Position:
    """Where the next epoch begins, after one that ended at a position."""
    number, given, *place = position
    return (number, 0, *place) if given == epoch_size else (number + 1, 0)
