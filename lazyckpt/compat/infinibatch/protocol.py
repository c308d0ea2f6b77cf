"""The protocol of Infinibatch's iterators, and pipelines under it."""

from __future__ import annotations

import collections.abc
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from lazyckpt.compat.infinibatch.checkpoints import Checkpoint, converted
from lazyckpt.compat.infinibatch.stages import has_prefetch, infinibatch_foreign
from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Position
from lazyckpt.core.user_state import freeze
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Pipeline
from lazyckpt.run import Run
from lazyckpt.state.state import State


class CheckpointableIterator(collections.abc.Iterator[Any]):
    """The protocol: an iterator that knows its state, of JSON values and tuples.

    Derive from it to write your own; a stage that takes it as its source owns it.
    """

    @abstractmethod
    def getstate(self) -> Any:
        """A checkpoint of the whole pipeline up to here; iterating on doesn't change it."""

    @abstractmethod
    def setstate(self, checkpoint: Any) -> None:
        """Go to a checkpoint, or with None to the beginning."""

    @abstractmethod
    def close(self) -> None:
        """End the workers of all prefetching in the pipeline."""


class PipelineIterator(CheckpointableIterator):
    """A pipeline under the protocol. The iterators that it is made of stay where they are."""

    _has_begun = _is_closed = False

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
        self._run: Run[Any] = Run(self._pipeline)
        if begin is not None:
            self._go_to(begin(*map(_position_of, sources)))

    def getstate(self) -> dict[str, Any]:
        """The state as a dict of JSON values: lazyckpt's, which knows its pipeline."""
        return self._run.state.to_dict()

    def setstate(self, checkpoint: Checkpoint | str | None) -> None:
        """Go to a state of this pipeline, or of Infinibatch's; None is the beginning."""
        self._check_open()
        if checkpoint is None:
            self._go_to(self._pipeline.machine.init(0))
        elif isinstance(checkpoint, Mapping) and "lazyckpt" not in checkpoint:
            self._go_to(converted(self._pipeline, checkpoint))
        else:
            self._run.load_state_dict(checkpoint)

    def close(self) -> None:
        if has_prefetch(self._pipeline):
            self._is_closed = True
            self._run.close()
        for each in self._sources:
            each.close()

    def __getstate__(self) -> tuple[Any, ...]:
        return self._pipeline, self._sources, self.getstate()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        pipeline, sources, checkpoint = state
        PipelineIterator.__init__(self, pipeline, *sources)
        self.setstate(checkpoint)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._pipeline!r}>"

    def __del__(self) -> None:
        if self._has_begun and not self._is_closed and has_prefetch(self._pipeline):
            warnings.warn(f"unclosed PrefetchIterator {self!r}", ResourceWarning, 2, source=self)

    def __next__(self) -> Any:
        self._check_open()
        self._has_begun = True
        return next(self._run)

    def _go_to(self, position: Position) -> None:
        self._run.load_state_dict(State(self._pipeline.entries, 0, position))

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{self!r} has been closed")


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
        return source._run.state.position
    return 0, 0, freeze(source.getstate(), type(source).__name__)
