"""The protocol of Infinibatch's iterators, and a pipeline under it."""

from __future__ import annotations

import collections.abc
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import lazyckpt as lz
from lazyckpt.compat.infinibatch.block_iterator import BlockIterator
from lazyckpt.compat.infinibatch.checkpoints import Checkpoint, converted
from lazyckpt.compat.infinibatch.prefetch import executor_of, has_prefetch, with_workers
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
    """The protocol: an iterator that knows its state. Derive from it to write your own.

    A stage takes one of your own as its source if what its `getstate` gives is
    made of JSON values and tuples. It then belongs to the stage.
    """

    def __iter__(self) -> CheckpointableIterator:
        return self

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


class PipelineIterator(BlockIterator, CheckpointableIterator):
    """A pipeline under the protocol. The iterators that it is made of stay where they are."""

    _run: Run[Any] | None = None
    _is_closed = _is_looping = False

    def __init__(
        self,
        pipeline: Pipeline[Any],
        *sources: CheckpointableIterator,
        begin: Position | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._sources = sources
        self._begin = begin
        self._sessions: list[Session] = []

    def getstate(self) -> dict[str, Any]:
        """The state as a dict of JSON values: lazyckpt's, which knows its pipeline."""
        return self._state().to_dict()

    def setstate(self, checkpoint: Checkpoint | str | None) -> None:
        """Go to a state of this pipeline, or of the same one in Infinibatch; None is the beginning.

        Raises:
            StateMismatch: The state belongs to another pipeline.
            InvalidState: It is none.
            RuntimeError: A source became too short; or anything is prefetched, and
                the iterator is closed.
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
            self._begin = state.position
        else:
            self._run.load_state_dict(state)

    def close(self) -> None:
        if not self._is_closed and has_prefetch(self._pipeline):
            self._is_closed = True
            if self._run is not None:
                self._run.close()
            for session in self._sessions:
                session.stop()
        for each in self._sources:
            each.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self._pipeline, self._sources, self.getstate())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._pipeline!r}>"

    def __del__(self) -> None:
        if self._run is not None and not self._is_closed and has_prefetch(self._pipeline):
            warnings.warn(f"unclosed PrefetchIterator {self!r}", ResourceWarning, 2, source=self)

    def _block(self) -> Iterator[Any] | None:
        self._check_open()
        self._is_looping = not self._is_looping
        return iter(self._run or self._start()) if self._is_looping else None  # a loop is over

    def _start(self) -> Run[Any]:
        pipeline, executor = self._pipeline, executor_of(self._pipeline)
        if executor is None and has_prefetch(pipeline):
            pipeline = with_workers(pipeline, self._sessions)
        self._run = Run(pipeline, self._state(), executor=executor)
        return self._run

    def _state(self) -> State:
        if self._run is not None:
            return self._run.state
        begin = self._pipeline.machine.init(0) if self._begin is None else self._begin
        return State(self._pipeline.entries, 0, begin)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{self!r} has been closed")


def _restored(
    kind: type[PipelineIterator],
    pipeline: Pipeline[Any],
    sources: tuple[CheckpointableIterator, ...],
    state: dict[str, Any],
) -> PipelineIterator:
    found = kind.__new__(kind)
    PipelineIterator.__init__(found, pipeline, *sources)
    found.setstate(state)
    return found


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


def pipeline_of(source: Any, name: str = "source_iterator") -> Pipeline[Any]:
    """The pipeline of a source; `ValueError` for what is no CheckpointableIterator."""
    if isinstance(source, PipelineIterator):
        return source._pipeline
    if isinstance(source, CheckpointableIterator):
        return infinibatch_foreign(source)
    raise ArgumentError(
        f"{name} must be a CheckpointableIterator, got {brief(source)} ({type(source).__name__})"
    )


def position_of(source: Any) -> Position:
    """Where a partly consumed source is."""
    if isinstance(source, PipelineIterator):
        return source._state().position
    pipeline_of(source)
    return 0, 0, freeze(source.getstate(), type(source).__name__)


def refuse_twice(iterators: Sequence[Any]) -> None:
    """Refuse one iterator in two places."""
    if len(set(map(id, iterators))) < len(iterators):
        raise ArgumentError("the same iterator stands twice; give two of them")
