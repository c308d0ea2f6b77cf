"""`StreamWrapper`: a stream of batches in epochs, which a thread buffers if wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeVar

from lazyckpt.compat.emloop.passes import Passes, next_start, stream_epochs
from lazyckpt.core.checks import checked, function, integer
from lazyckpt.epochs import EpochLoader
from lazyckpt.errors import InvalidState, SourceChanged
from lazyckpt.executors.local import threads
from lazyckpt.run import Run
from lazyckpt.state.state import State

T = TypeVar("T")


class StreamWrapper(Iterator[T], Generic[T]):
    """A stream of batches in epochs, buffered by a thread if wanted. Iterating it is one epoch.

    With a buffer, the first `next` wants `with stream:`. Leaving it ends the thread,
    and keeps the place and what is ready; a later `next` outside of it has a thread
    for itself. Nothing is made that isn't waited for, but within `allow_buffering`,
    and then nothing beyond the epoch.

    An error comes after the batches before it, and asking again tries the same batch; a
    buffer makes a ChildProcessError of it. A pass without batches ends the epoch.

    Resume: goes through the pass under way to its place; where `stream_fn` gives a
    sequence, an array or a pipeline, which is in its next epoch in each pass, it
    re-reads what that does. `stream_fn` must give the same batches again.

    Args:
        stream_fn: Gives an iterable, which is one pass; called when the first batch
            of a pass is asked for.
        buffer_size: Batches held ready; below 1 there is no thread.
        epoch_size: Batches an epoch, over ends of the stream; below 1, one pass.
        name: Told in errors, the profile and the state.
        profile: `profile["read_batch_<name>"]` becomes a list of the seconds that
            each delivered batch was waited for.

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
        self._passes = Passes(check("stream_fn", stream_fn, function))
        self._buffer_size = buffer = check("buffer_size", buffer_size, integer)
        size = max(check("epoch_size", epoch_size, integer), 0)
        self.name, self._profile = name, profile
        executor = threads(1, buffer_size=buffer, gated=True) if buffer > 0 else None
        batches = stream_epochs(self._passes, size, name)
        self._run: Run[T] = Run(batches, executor=executor)
        self._epochs = EpochLoader(self._run, batches.machine, partial(next_start, size))
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
                    "ask for batches within `with stream:`, which ends it"
                )
            with self:
                return next(self)
        profile = {} if self._profile is None else self._profile
        times = profile.setdefault(f"read_batch_{self.name}", [])
        begun = perf_counter()
        try:
            batch = next(self._run)
        except StopIteration:
            self._epochs.advance()
            self._passes.made = None
            raise
        except Exception as error:
            if self._buffer_size < 1 or isinstance(error, (InvalidState, SourceChanged)):
                raise
            raise ChildProcessError(f"the thread of stream {self.name!r} met {error!r}") from error
        times.append(perf_counter() - begun)
        return batch

    def empty(self) -> bool:
        """Whether the next batch has to be waited for."""
        made = self._passes.made
        return self._buffer_size < 1 or made is None or made() == self._run.state.position

    @property
    def allow_buffering(self) -> AbstractContextManager[None]:
        """A context in which batches are made ahead. Nests; without a thread it does nothing."""
        return self._run.allow_buffering

    def state_dict(self) -> dict[str, Any]:
        """The state after the last delivered batch, as JSON values."""
        return self._run.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | State | str | bytes) -> None:
        """Go to a state, at any time; what is ready is dropped."""
        self._epochs.load_state_dict(state)
        self._passes.made = None
