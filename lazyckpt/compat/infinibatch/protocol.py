"""The protocol of Infinibatch's iterators, and what walks through a pipeline by it."""

from __future__ import annotations

import collections.abc
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import lazyckpt as lz
from lazyckpt.compat.infinibatch.ahead import is_ahead, led, live
from lazyckpt.compat.infinibatch.lasting import Lasting
from lazyckpt.compat.infinibatch.sources import infinibatch_foreign
from lazyckpt.compat.infinibatch.twister import Seed, fresh, located
from lazyckpt.core.checks import Unfit, brief, checked
from lazyckpt.core.machine import Position, entered, within
from lazyckpt.core.user_state import freeze
from lazyckpt.errors import ArgumentError, InvalidState
from lazyckpt.executors.session import Session
from lazyckpt.pipeline import Pipeline, Stage
from lazyckpt.run import Run
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import State, as_state

Checkpoint = Mapping[str, Any]


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


class Walk(Lasting, CheckpointableIterator):
    """A pipeline under the protocol. It walks on its own: the iterators it is made of stay."""

    _run: Run[Any] | None = None
    _is_closed = False

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

        Errors: `StateMismatch` for a state of another pipeline, `InvalidState`
        for what is none; `RuntimeError` for a source that became too short and,
        if anything is made ahead, after `close`.
        """
        self._check_open()
        if checkpoint is None:
            state = lz.init(self._pipeline)
        elif isinstance(checkpoint, Mapping) and "lazyckpt" not in checkpoint:
            state = State(self._pipeline.identity, 0, self._translate(checkpoint))
        else:
            state = matching(as_state(checkpoint), self._pipeline)
        if self._run is None:
            entered(self._pipeline.machine, state.position)
            self._begin = state.position
        else:
            self._run.load_state_dict(state)

    def close(self) -> None:
        if not self._is_closed and is_ahead(self._pipeline):
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
        if self._run is not None and not self._is_closed and is_ahead(self._pipeline):
            warnings.warn(f"unclosed PrefetchIterator {self!r}", ResourceWarning, 2, source=self)

    def _block(self) -> Iterator[Any] | None:
        self._check_open()
        return (self._run or self._start())._block()

    def _start(self) -> Run[Any]:
        pipeline, executor = self._pipeline, None
        if is_ahead(pipeline):
            executor = led(pipeline)
            pipeline = live(pipeline, self._sessions) if executor is None else pipeline
        self._run = Run(pipeline, self._state(), executor=executor)
        return self._run

    def _state(self) -> State:
        if self._run is not None:
            return self._run.state
        begin = self._pipeline.machine.init(0) if self._begin is None else self._begin
        return State(self._pipeline.identity, 0, begin)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{self!r} has been closed")

    def _translate(self, found: Checkpoint) -> Position:
        """The position that a state of Infinibatch's own stands for."""
        try:
            position = self._position(found)
            entered(self._pipeline.machine, position)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise InvalidState(
                f"neither a lazyckpt state nor one of Infinibatch's {type(self).__name__}: "
                f"{brief(found)} ({error!r})"
            ) from None
        return position

    def _position(self, found: Checkpoint) -> Position:
        raise KeyError("a state of another library")

    def _upstream(self, found: Checkpoint | None, number: int = 0) -> Position:
        """The same for a source; None is its beginning."""
        source = self._sources[number]
        machine = piped(source).machine
        position = machine.init(0) if found is None else None
        if position is None and isinstance(source, Walk):
            position = source._position(found)  # type: ignore[arg-type]
        elif position is None:
            position = 0, freeze(found, type(source).__name__)
        return position

    def _later(self, found: Checkpoint | None, count: int) -> Position:
        """A place in the source, so many items after a state of it."""
        within(type(self).__name__, count)
        flow = piped(self._sources[0]).machine.flow(self._upstream(found))
        if sum(1 for _ in islice(flow.pull, count)) < count:
            raise InvalidState(f"the state stands {count} items on, where there are fewer")
        return flow.snapshot()

    def _within(self, found: Checkpoint | None, given: int) -> tuple[Position, int]:
        """A place in the source, and how many items of what is made of the next one were given.

        At the end Infinibatch still counts those of the last one.
        """
        position = self._upstream(found)
        return position, given if not given or self._has_more(position) else 0

    def _has_more(self, position: Position) -> bool:
        try:
            return any(True for _ in piped(self._sources[0]).machine.flow(position).pull)
        except Exception:  # which `next` meets again
            return True

    def _drawn(self, state: Any) -> tuple[int, int]:
        """Where the generator is: origin and words."""
        arguments = self._pipeline.calls[-1].arguments
        if state is None:
            return arguments["origin"], 0
        return located(arguments["seed"], arguments["origin"], state)


class Behind(Walk):
    """A stage behind one source. It begins where that does, or where it says."""

    def __init__(
        self, source: Any, stage: Stage[Any, Any], *, begin: Position | None = None
    ) -> None:
        super().__init__(piped(source) | stage, source, begin=begin)


def _restored(
    kind: type[Walk],
    pipeline: Pipeline[Any],
    sources: tuple[CheckpointableIterator, ...],
    state: dict[str, Any],
) -> Walk:
    found = kind.__new__(kind)
    Walk.__init__(found, pipeline, *sources)
    found.setstate(state)
    return found


def piped(source: Any, name: str = "source_iterator") -> Pipeline[Any]:
    """The pipeline of a source; `ValueError` for what is no CheckpointableIterator."""
    if isinstance(source, Walk):
        return source._pipeline
    if isinstance(source, CheckpointableIterator):
        return infinibatch_foreign(source)
    raise ArgumentError(
        f"{name} must be a CheckpointableIterator, got {brief(source)} ({type(source).__name__})"
    )


def kept(source: Any) -> Position:
    """Where a partly consumed source is."""
    if isinstance(source, Walk):
        return source._state().position
    piped(source)
    return 0, freeze(source.getstate(), type(source).__name__)


def apart(iterators: Sequence[Any]) -> None:
    """Refuse one iterator in two places."""
    if len(set(map(id, iterators))) < len(iterators):
        raise ArgumentError("the same iterator stands twice; give two of them")


def as_many(states: Sequence[Any], count: int) -> None:
    """Refuse a state with more sources, or fewer, than there are."""
    if len(states) != count:
        raise InvalidState(f"the state has {len(states)} sources, the iterator {count}")


def drawing(name: str, seed: Any) -> dict[str, Any]:
    """The arguments of a stage that draws."""

    def check(value: Any) -> Seed:
        value = bytes(value) if isinstance(value, bytearray) else value
        if hasattr(value, "dtype"):
            value = value.item()
        if value is not None and not isinstance(value, (int, float, str, bytes)):
            raise Unfit("an int, float, str, bytes or None")
        return value

    seed = checked(name, "seed", seed, check)
    return {"seed": seed, "origin": fresh(seed)}
