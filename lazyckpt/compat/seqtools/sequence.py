"""Lazy sequences, which all functions return, and the errors of their items."""

from __future__ import annotations

import math
import operator
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Generic, SupportsIndex, TypeVar, cast, overload

import numpy as np

import lazyckpt as lz
from lazyckpt.core.checks import length_of
from lazyckpt.failures.notes import add_note, as_failure

T = TypeVar("T")

WORKER_ERRORS = (lz.WorkerDied, lz.WorkerTimeout)  # not errors of an item


class EvaluationError(Exception):
    """An item could not be computed. The message has its index and where the stage was built.

    The error of the user's function is its `__cause__`, even if a worker raised it.
    """

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.__cause__ = cause

    @classmethod
    def of(cls, error: Exception, what: str, site: str) -> EvaluationError:
        """Wrap an error of an item, with the place that built its stage, unless it is wrapped."""
        if isinstance(error, cls):
            return error  # from an inner sequence
        return cls(f"{what}, built at {site}, failed: {type(error).__name__}: {error}", error)

    def __reduce__(self) -> tuple[Any, ...]:
        return EvaluationError, (str(self), self.__cause__), dict(self.__dict__)


class Past(IndexError):
    """An index past the end of a sequence that has no length."""


_setting = threading.local()


def seterr(evaluation: str | None = None) -> str:
    """Set whether errors of the user's functions are wrapped.

    With "wrap" they become an `EvaluationError`, with "passthrough" they don't. The setting applies
    to this thread. Without an argument, return the current setting.
    """
    if evaluation not in (None, "wrap", "passthrough"):
        raise ValueError(f"evaluation must be 'wrap' or 'passthrough', got {evaluation!r}")
    if evaluation is not None:
        _setting.evaluation = evaluation
    return getattr(_setting, "evaluation", "wrap")


def chosen(error: Exception) -> Exception:
    """Return the error to raise, according to `seterr`."""
    cause = error.__cause__
    is_wrapped = seterr() == "wrap" or not isinstance(error, EvaluationError)
    if is_wrapped or not isinstance(cause, Exception):
        return error
    for note in (str(error), *getattr(error, "__notes__", ())):
        add_note(cause, note)
    return cause


class LazySequence(Sequence[T], Generic[T]):
    """A sequence whose items are computed when they are read: a view of `pipeline`, a value.

    It behaves like an immutable list. An error in a user's function is an `EvaluationError` (see
    `seterr`); any other error keeps its type and gains a note. An iterator continues after the item
    that failed. `lazyckpt.run(sequence.pipeline, state)` iterates with a state.
    """

    def __init__(self, pipeline: lz.Pipeline[T]) -> None:
        self.pipeline = pipeline
        self._start = pipeline.machine.init(0)

    @staticmethod
    def of(data: Any) -> lz.Pipeline[Any]:
        """Return a pipeline of any sequence; it is endless if the sequence has no length.

        An iterable has no indices.
        """
        if isinstance(data, LazySequence):
            return data.pipeline
        if isinstance(data, lz.Pipeline):
            return data
        if is_iterable(data):
            return lz.source(data)
        length = length_of(data)
        if length is None:
            return places(None) | lz.map(partial(_item, data))
        if isinstance(data, (str, Mapping, np.ndarray)):  # source rejects them, or yields read-only
            return places(length) | lz.map(data.__getitem__)
        return lz.source(data)

    def __len__(self) -> int:
        return len(self.pipeline)

    @overload
    def __getitem__(self, key: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> LazySequence[T]: ...
    def __getitem__(self, key: SupportsIndex | slice) -> T | LazySequence[T]:
        if isinstance(key, slice):
            return self._slice(key)
        return self._item(_chosen(self.pipeline, key))

    def _slice(self, key: slice) -> LazySequence[T]:
        return LazySequence(sliced(self.pipeline, key))

    def _item(self, number: int) -> T:
        """Return an item of a sequence that has no length but may have an end."""
        alone: Any = random_access(self.pipeline).machine.item
        try:
            return cast(T, alone(self._start, number))
        except (Past, EvaluationError) as error:
            raise chosen(error)  # noqa: B904  # the same error, or its cause
        except Exception as error:
            failure = as_failure(error, self.pipeline.calls)
            where = f", in {failure.places}" if failure.places else ""
            add_note(failure.error, f"lazyckpt: item {number}{where}")
            raise failure.error  # noqa: B904  # the same error, or one with its cause

    def __iter__(self) -> Iterator[T]:
        return forgiving(lz.Run(self.pipeline))

    def __repr__(self) -> str:
        return f"<sequence {self.pipeline!r}>"


def random_access(pipeline: lz.Pipeline[T]) -> lz.Pipeline[T]:
    """Return the pipeline if it has indices; raise an `ArgumentError` if not."""
    if pipeline.machine.item is None:
        raise lz.ArgumentError(f"{pipeline!r} has no indices; uniter(...) adds them to an iterable")
    return pipeline


def _chosen(pipeline: lz.Pipeline[Any], key: Any) -> Any:
    """Return the index that a key stands for, or the indices of a slice."""
    length = pipeline.machine.length
    if not isinstance(length, int):
        ends = [key.start, key.stop] if isinstance(key, slice) else [key]
        if any(end is not None and operator.index(end) < 0 for end in ends):
            raise IndexError(f"{key} counts from the end, but {pipeline!r} has no end")
        length = sys.maxsize
    try:
        return range(length)[key]
    except IndexError:
        raise IndexError(f"sequence index {key} out of range: it has {length} items") from None


def sliced(pipeline: lz.Pipeline[T], key: slice) -> lz.Pipeline[T]:
    """Return a slice of a pipeline, like that of a list."""
    indices, length = _chosen(pipeline, key), pipeline.machine.length
    if length is None or (key.stop is None and length == math.inf):
        return pipeline[key]
    last = pipeline.calls[-1]
    if last.name == "gather":  # a slice of a slice is one
        pipeline, indices = lz.Pipeline(pipeline.calls[:-1]), last.arguments["indices"][key]
    return pipeline | lz.gather(indices)


def _item(data: Any, index: int) -> Any:
    """Of a sequence without a length, which may have an end nevertheless."""
    try:
        return data[index]
    except IndexError as error:
        raise Past(f"sequence index {index} out of range: {error}") from None


def forgiving(run: lz.Run[T], at_end: Callable[[], None] = lambda: None) -> Iterator[T]:
    """Iterate over a run; if there are indices, continue after an item that failed.

    `at_end` is called once, when there are no more items.
    """
    is_missed = is_over = False

    def rest() -> Iterator[T]:
        nonlocal is_missed, is_over
        if is_missed and run.pipeline.machine.skip is not None:
            run.load_state_dict(lz.advance(run.pipeline, run.state, 1))
        is_missed = False
        try:
            yield from run
        except Past as end:
            end.with_traceback(None)  # its frames hold the run, and so the workers
        except Exception as error:
            is_missed = not isinstance(error, WORKER_ERRORS)
            raise chosen(error)  # noqa: B904  # the same error, or its cause
        is_over = True
        at_end()

    # Outlives an error, as a generator would not.
    return chain.from_iterable(iter(lambda: None if is_over else rest(), None))


def is_iterable(data: Any) -> bool:
    """Return whether data can be iterated over, but not indexed."""
    kinds = {kind.__name__ for kind in type(data).__mro__}
    return "IterableDataset" in kinds or not hasattr(data, "__getitem__")  # torch's always raises


def places(length: Any) -> lz.Pipeline[int]:
    """Return the indices of `length` items; endless if that isn't an int."""
    return lz.source(range(length)) if isinstance(length, int) else lz.count()
