"""The protocol of Infinibatch's iterators, and a pipeline under it."""

from __future__ import annotations

import collections.abc
import copyreg
import warnings
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import chain, compress, repeat
from typing import Any, Self
from weakref import ref

import lazyckpt as lz
from lazyckpt.compat.infinibatch.checkpoints import Checkpoint, converted
from lazyckpt.compat.infinibatch.prefetch import has_prefetch, with_workers
from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import Machine, entered
from lazyckpt.core.stages import sourced
from lazyckpt.core.user_state import freeze, thaw
from lazyckpt.decorators import source_combinator
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.session import Session
from lazyckpt.pipeline import Pipeline
from lazyckpt.run import Run
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import State, as_state


class CheckpointableIterator(collections.abc.Iterator[Any]):
    """The protocol: an iterator that knows its state.

    Derive from it to write your own. A stage that takes it as its source owns it;
    what its `getstate` gives has to be made of JSON values and tuples.
    """

    @abstractmethod
    def __next__(self) -> Any:
        """The next item."""

    @abstractmethod
    def getstate(self) -> Any:
        """A checkpoint of the whole pipeline up to here; iterating on doesn't change it."""

    @abstractmethod
    def setstate(self, checkpoint: Any) -> None:
        """Go to a checkpoint, or with None to the beginning."""

    @abstractmethod
    def close(self) -> None:
        """End the workers of all prefetching in the pipeline."""


class _End:
    """Stands where `compress` asks whether to give an item, after the last one."""

    def __bool__(self) -> bool:
        raise StopIteration


_GIVEN: list[Any] = [True] * 256
_OVER: list[Any] = [_End()]


class BlockIterator(compress):  # type: ignore[type-arg]  # it takes none when it runs
    """An iterator over blocks of items, at no Python frame an item.

    At the end of all, and after an error, it asks again when `next` is called again.
    """

    # What is made of itertools is over for good at its end. So these never come to one:
    # there is always another block, at the end one with an item that is not given,
    # and what is asked whether to give it raises StopIteration.

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        given = [*_GIVEN]
        blocks = _blocks(given)
        next(blocks)
        self = super().__new__(cls, chain.from_iterable(blocks), chain.from_iterable(repeat(given)))
        blocks.send(ref(self))
        return self

    @abstractmethod
    def _block(self) -> Iterator[Any] | None:
        """The next items, or None at the end."""


def _blocks(given: list[Any]) -> Generator[Iterator[Any], Callable[[], Any], None]:
    owner = yield iter(())
    block: Iterator[Any] | None = iter(())
    while True:
        try:  # an interrupt may come at any `yield`
            while True:
                yield iter([None]) if block is None else block
                block = owner()._block()
                given[:] = _OVER if block is None else _GIVEN
        except GeneratorExit:
            return
        except BaseException as error:
            block = _raising(error)  # for a generator that raises is over for good


def _raising(error: BaseException) -> Iterator[Any]:
    raise error
    yield  # type: ignore[unreachable]  # which makes it a generator


class PipelineIterator(BlockIterator, CheckpointableIterator):
    """A pipeline under the protocol. The iterators that it is made of stay where they are."""

    _run: Run[Any] | None = None
    _is_closed = False

    def __init__(
        self,
        made: Pipeline[Any] | Callable[..., Pipeline[Any]],
        *sources: CheckpointableIterator,
        begin: Callable[..., Position] | None = None,
    ) -> None:
        """A pipeline, or one made of the sources'; it begins at the place made of theirs."""
        pipelines = list(map(_pipeline_of, sources))
        if len(set(map(id, sources))) < len(sources):
            raise ArgumentError("the same iterator stands twice; give two of them")
        self._pipeline = made if isinstance(made, Pipeline) else made(*pipelines)
        self._sources = sources
        init = self._pipeline.machine.init
        place = begin(*map(_position_of, sources)) if begin else init(0)
        self._begun = State(self._pipeline.entries, 0, place)
        self._sessions: list[Session] = []

    def getstate(self) -> dict[str, Any]:
        """The state as a dict of JSON values: lazyckpt's, which knows its pipeline."""
        return self._state().to_dict()

    def setstate(self, checkpoint: Checkpoint | str | None) -> None:
        """Go to a state of this pipeline, or of the same one in Infinibatch; None is the beginning.

        Raises:
            InvalidState: It is no state, or, as a `StateMismatch`, another pipeline's.
            RuntimeError: A source became too short; or a prefetched iterator is closed.
        """
        self._check_open()
        if checkpoint is None:
            state = lz.init(self._pipeline)
        elif isinstance(checkpoint, Mapping) and "lazyckpt" not in checkpoint:
            state = State(self._pipeline.entries, 0, converted(self._pipeline, checkpoint))
        else:
            state = matching(as_state(checkpoint), self._pipeline)
        if self._run is None:
            entered(self._pipeline.machine, state.position)
            self._begun = state
        else:
            self._run.load_state_dict(state)

    def close(self) -> None:
        if has_prefetch(self._pipeline):
            self._is_closed = True
            if self._run is not None:
                self._run.close()
            for session in self._sessions:
                session.stop()
        for each in self._sources:
            each.close()

    def __reduce__(self) -> tuple[Any, ...]:
        state = self._pipeline, self._sources, self.getstate()
        return copyreg.__newobj__, (type(self),), state  # type: ignore[attr-defined]  # for pickle

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        pipeline, sources, checkpoint = state
        PipelineIterator.__init__(self, pipeline, *sources)
        self.setstate(checkpoint)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._pipeline!r}>"

    def __del__(self) -> None:
        if self._run is not None and self._sessions and not self._is_closed:
            warnings.warn(f"unclosed PrefetchIterator {self!r}", ResourceWarning, 2, source=self)

    def _block(self) -> Iterator[Any] | None:
        self._check_open()
        if self._run is None:
            self._run = Run(with_workers(self._pipeline, self._sessions), self._begun)
        return self._run.next_block()

    def _state(self) -> State:
        return self._begun if self._run is None else self._run.state

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{self!r} has been closed")


@source_combinator(registered=False, describe=lambda iterator: {"type": type(iterator).__name__})
def infinibatch_foreign(iterator: Any) -> Machine[Any]:
    """A user's own CheckpointableIterator. State: a count of items, and its own as it is."""
    name = type(iterator).__name__
    current: object = None  # of flows, which share the iterator

    def flow(position: Position) -> Flow[Any]:
        epoch, index, mine = position
        turn = object()

        def items() -> Iterator[Any]:
            nonlocal current
            current = turn
            iterator.setstate(None if mine == 0 else thaw(mine))
            for item in iterator:
                yield item
                if current is not turn:
                    raise RuntimeError(f"{iterator!r} is used by two at once")

        def snapshot() -> Position:
            if current is not turn:
                return position
            return epoch, index + taken(), freeze(iterator.getstate(), name)

        stream, taken = counted(items())
        return Flow(stream, snapshot, taken=taken)

    return sourced(name, first=(0,), check=lambda mine: mine == 0 or thaw(mine), flow=flow)


def _pipeline_of(source: Any) -> Pipeline[Any]:
    """The pipeline of a source; `ValueError` for what is no CheckpointableIterator."""
    if isinstance(source, PipelineIterator):
        return source._pipeline
    if isinstance(source, CheckpointableIterator):
        return infinibatch_foreign(source)
    raise ArgumentError(
        f"a source must be a CheckpointableIterator, got {brief(source)} ({type(source).__name__})"
    )


def _position_of(source: Any) -> Position:
    """Where a partly consumed source is."""
    if isinstance(source, PipelineIterator):
        return source._state().position
    return 0, 0, freeze(source.getstate(), type(source).__name__)
