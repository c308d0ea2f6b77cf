"""What all functions return: a lazy, immutable sequence, which is a view of a pipeline."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Generic, SupportsIndex, TypeVar, cast, overload

import numpy as np

from lazyckpt.compat.seqtools.errors import EvaluationError, Past, chosen
from lazyckpt.core.call import Call
from lazyckpt.core.registry import registry
from lazyckpt.errors import WorkerDied, WorkerTimeout
from lazyckpt.failures.notes import as_failure
from lazyckpt.pipeline import Pipeline, Stage
from lazyckpt.run import Run
from lazyckpt.state.state import State

T = TypeVar("T")

_HERE = __name__.rpartition(".")[0]


class LazySequence(Sequence[T], Generic[T]):
    """A sequence whose items are made when they are read: a view of `pipeline`, a value.

    It does what a list does, but is immutable. Without an end there is no `len`, nor
    an index that counts from it.

    An error in a user's function is an `EvaluationError` (see `seterr`), which
    names the index and where the stage was built; any other one keeps its type
    and gains a note that does. An iterator goes on behind the item that failed.

    `lazyckpt.run(sequence.pipeline, state)` iterates with a state.

    >>> squares = LazySequence(LazySequence.of(range(10)) | registry["map"].public(lambda x: x * x))
    >>> len(squares), squares[-1], list(squares[8:2:-2][:2])
    (10, 81, [64, 36])
    """

    __slots__ = ("_length", "_machine", "_start", "_takes_many", "pipeline")

    def __init__(self, pipeline: Pipeline[T]) -> None:
        self.pipeline = pipeline
        self._machine = machine = pipeline.machine
        self._start = machine.init(0)
        self._takes_many = any(call.name == "batch" for call in pipeline.calls)  # a flow is faster
        length = machine.length
        self._length = length if isinstance(length, int) else None

    @staticmethod
    def of(data: Any) -> Pipeline[Any]:
        """The pipeline of any sequence: one with no length has no end, an iterable no indices."""
        if type(data) is LazySequence:
            return data.pipeline
        if isinstance(data, Pipeline):
            return data
        if is_iterable(data):
            return produced("source", data)
        try:
            len(data)
        except TypeError:
            return places(None) | stage("map", partial(_item, data))
        if isinstance(data, (str, Mapping, np.ndarray)):  # mistakes to a source, or read-only
            return places(len(data)) | stage("map", data.__getitem__)
        return produced("source", data)

    def _like(self, pipeline: Pipeline[T]) -> LazySequence[T]:
        """Another one of the same kind."""
        return LazySequence(pipeline)

    def __len__(self) -> int:
        return len(self.pipeline) if self._length is None else self._length

    @overload
    def __getitem__(self, key: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> LazySequence[T]: ...
    def __getitem__(self, key: SupportsIndex | slice) -> T | LazySequence[T]:
        if type(key) is int and self._length and 0 <= key < self._length:
            return self._item(key)
        if isinstance(key, slice):
            return self._slice(key)
        try:
            wanted = operator.index(key)
        except TypeError:
            raise TypeError(
                f"sequence indices must be integers or slices, not {type(key).__name__}"
            ) from None
        length = self._length
        number = wanted + (length or 0) if wanted < 0 else wanted
        if number < 0 or (length is not None and number >= length):
            what = f" counts from the end, and {self!r} has none" if length is None else ""
            raise IndexError(f"sequence index {wanted} {what or 'out of range'}")
        return self._item(number)

    def _item(self, number: int) -> T:
        skip = self._machine.skip
        if skip is None:
            raise TypeError(f"{self!r} has no indices; uniter(...) gives an iterable some")
        try:
            position = skip(self._start, number)[0]
            if self._takes_many:
                return cast(T, next(iter(self._machine.flow(position))))
            return cast(T, self._machine.step(position)[1])
        except Past:
            raise
        except Exception as error:
            raise self._explained(error, number)  # noqa: B904  # the same error, or its cause

    def _explained(self, error: Exception, number: int) -> Exception:
        """The error to raise for an item, with a note of where it comes from."""
        if not isinstance(error, EvaluationError):
            failure = as_failure(error, self.pipeline.calls)
            assert isinstance(failure.error, Exception)
            error, places = failure.error, failure.places
            note = f"lazyckpt: item {number}{places and ', in '}{places}"
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
        return chosen(error)

    def _slice(self, key: slice) -> LazySequence[T]:
        if self._length is None:
            ends = [0 if end is None else operator.index(end) for end in (key.start, key.stop)]
            if min(ends) < 0:
                raise IndexError(f"a slice from the end, which {self!r} does not have")
            if key.stop is None or self._machine.length is None:
                return self._like(self.pipeline[key])
            window = range(*key.indices(sys.maxsize))
        else:
            window = range(self._length)[key]
        last = self.pipeline.calls[-1]
        if last.name == "gather":  # a slice of a slice is one
            indices = last.arguments["indices"][key]
            return self._like(Pipeline(self.pipeline.calls[:-1]) | stage("gather", indices))
        return self._like(self.pipeline | stage("gather", window))

    def __iter__(self) -> Iterator[T]:
        return ForgivingIterator(Run(self.pipeline), self.pipeline).items

    def __repr__(self) -> str:
        return f"<sequence {self.pipeline!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return LazySequence, (self.pipeline,)


def _item(data: Any, index: int) -> Any:
    """Of a sequence without a length, which may have an end nevertheless."""
    try:
        return data[index]
    except IndexError as error:
        raise Past(f"sequence index {index} out of range: {error}") from None


class ForgivingIterator(Generic[T]):
    """A run that goes on behind an item which could not be made, where there is random access."""

    def __init__(self, run: Run[T], pipeline: Pipeline[T]) -> None:
        self._run, self._skip = run, pipeline.machine.skip
        self._missed = self._over = False
        # Outlives an error, as a generator would not.
        self.items: Iterator[T] = chain.from_iterable(iter(self._block, None))

    def _block(self) -> Iterator[T] | None:
        return None if self._over else self._rest()

    def _rest(self) -> Iterator[T]:
        if self._missed and self._skip is not None:
            state = self._run.state
            after = self._skip(state.position, 1)[0]
            self._run.load_state_dict(State(state.stages, state.items + 1, after))
        self._missed = False
        try:
            yield from self._run
        except Past:
            pass
        except Exception as error:
            self._missed = not isinstance(error, (WorkerDied, WorkerTimeout))
            raise chosen(error)  # noqa: B904  # the same error, or its cause
        self._over = True


def is_iterable(data: Any) -> bool:
    """Whether data can be iterated over, not indexed."""
    kinds = {kind.__name__ for kind in type(data).__mro__}
    return "IterableDataset" in kinds or not hasattr(data, "__getitem__")  # torch's only raises


def built_at() -> str:
    """The line, outside of this package, that is being run."""
    frame = sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith(_HERE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def stage(name: str, *args: Any, **kwargs: Any) -> Stage[Any, Any]:
    """A stage, as built where the user called."""
    return Stage((_called(name, args, kwargs),))


def produced(name: str, *args: Any, **kwargs: Any) -> Pipeline[Any]:
    """A pipeline of one source, as built where the user called."""
    pipeline: Pipeline[Any] = Pipeline((_called(name, args, kwargs),))
    _ = pipeline.machine  # bad data is refused here
    return pipeline


def _called(name: str, args: Any, kwargs: Any) -> Call:
    combinator = registry[name]
    return Call(combinator, combinator.bind(args, kwargs), built_at())


def places(length: Any) -> Pipeline[int]:
    """The indices of so many items; for ever, if that is no int."""
    return produced("source", range(length)) if isinstance(length, int) else produced("count")


def nothing() -> Pipeline[Any]:
    return produced("source", ())
