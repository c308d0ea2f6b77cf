"""The protocol of Infinibatch's iterators, and pipelines under it, prefetched in parts."""

from __future__ import annotations

import collections.abc
import logging
import multiprocessing
import pickle
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import lazyckpt as lz
from lazyckpt.compat.infinibatch.checkpoints import Checkpoint, converted
from lazyckpt.core.call import Chain
from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import Machine, entered
from lazyckpt.core.stages import passing, sourced
from lazyckpt.core.user_state import freeze, thaw
from lazyckpt.decorators import combinator, source_combinator
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.local import processes, threads
from lazyckpt.executors.prefetcher import Prefetcher
from lazyckpt.executors.session import Session
from lazyckpt.pipeline import Pipeline
from lazyckpt.run import Run
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import State, as_state

logger = logging.getLogger("lazyckpt.compat.infinibatch")

_NAME = "infinibatch_prefetch"


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
        """Go to a state of this pipeline, or of Infinibatch's; None is the beginning."""
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

    def __getstate__(self) -> tuple[Any, ...]:
        return self._pipeline, self._sources, self.getstate()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        pipeline, sources, checkpoint = state
        PipelineIterator.__init__(self, pipeline, *sources)
        self.setstate(checkpoint)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._pipeline!r}>"

    def __del__(self) -> None:
        if self._run is not None and self._sessions and not self._is_closed:
            warnings.warn(f"unclosed PrefetchIterator {self!r}", ResourceWarning, 2, source=self)

    def __next__(self) -> Any:
        self._check_open()
        if self._run is None:
            self._run = Run(with_workers(self._pipeline, self._sessions), self._begun)
        return next(self._run)

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


@combinator(registered=False, keeps_items=True, unrecorded=("executor", "logs"))
def infinibatch_prefetch(upstream: Machine[Any], executor: Executor, logs: bool) -> Machine[Any]:
    """The items as they are; an executor makes what comes before ahead. State: none."""
    return passing(upstream)


def prefetched(
    pipeline: Pipeline[Any], workers: int, buffer_size: int, logs: bool = False
) -> Pipeline[Any]:
    """A pipeline that processes make ahead, or threads where it can't be sent to processes.

    With `logs` there is a warning when an item is asked for and none is ready.
    """
    make: Callable[..., Executor] = processes
    if multiprocessing.get_start_method() != "fork":
        try:
            pickle.dumps(pipeline)
        except Exception:
            make = threads
    return pipeline | infinibatch_prefetch(make(workers, buffer_size=buffer_size), logs)


def has_prefetch(pipeline: Chain) -> bool:
    """Whether any part of a pipeline is prefetched."""
    return any(call.name == _NAME or any(map(has_prefetch, call.chains)) for call in pipeline.calls)


def with_workers(pipeline: Pipeline[Any], sessions: list[Session]) -> Pipeline[Any]:
    """The same pipeline, with workers for its parts, whose sessions are added to the list."""
    calls = pipeline.calls
    begin = max((n for n, call in enumerate(calls, 1) if call.name == _NAME), default=0)
    machine: Machine[Any] | None = None
    if begin:  # what is prefetched before that is made by the same worker
        part: Pipeline[Any] = Pipeline(calls[:begin])
        arguments = calls[begin - 1].arguments
        session = arguments["executor"].open(part)
        sessions.append(session)
        flow = partial(_logged, session) if arguments["logs"] else session.machine.flow
        machine = part.machine._replace(flow=flow, view=None)
    for call in calls[begin:]:
        machine = call.with_chains(lambda each: with_workers(each, sessions)).build(machine)
    found: Pipeline[Any] = Pipeline(calls)
    found.__dict__["machine"] = machine
    return found


def _logged(session: Session, position: Position) -> Flow[Any]:
    """The flow of a session, which logs when nothing is ready."""
    made: Flow[Any] = session.machine.flow(position)
    prefetcher = session.prefetching
    assert isinstance(prefetcher, Prefetcher)

    def look() -> None:
        if not prefetcher.is_ready:
            logger.warning("trying to fetch item, but prefetch buffer is empty")

    looks = iter(look, True)  # before each item
    return Flow((item for _, item in zip(looks, made)), made.snapshot)  # noqa: B905  # endless
