"""What crosses the border of a process: parts, tasks, outcomes, as pickles with arrays beside."""

from __future__ import annotations

import importlib.util
import os
import pickle
import platform
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from traceback import format_exception_only
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.call import Call
from lazyckpt.errors import PipelineError
from lazyckpt.executors.parts import Outcome, Part
from lazyckpt.executors.reducing import reducers
from lazyckpt.executors.transport import LARGE
from lazyckpt.failures.notes import Failure, Rebuilt, traced

Buffers = list[NDArray[np.uint8]]


class Parcel:
    """Something on its way to or from a worker, and how to get at it.

    It's taken apart where it's pickled, so that within a process it costs nothing.
    """

    def __init__(self, content: Any) -> None:
        self._content = content
        self.error: Exception | None = None  # of taking it apart

    def open(self) -> Any:
        return self._content

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            return Sealed, self._taken_apart()
        except Exception as error:
            self.error = error
            raise

    def _taken_apart(self) -> tuple[bytes, Buffers]:
        return taken_apart(self._content)


class Report(Parcel):
    """An outcome on its way from a worker: what of it can be pickled."""

    def _taken_apart(self) -> tuple[bytes, Buffers]:
        outcome: Outcome = self._content
        if outcome.failure is not None:
            outcome = outcome._replace(failure=portable(outcome.failure, whereabouts()))
        try:
            return taken_apart(outcome)
        except Exception:
            return taken_apart(sendable(outcome, whereabouts()))


class Sealed:
    """A parcel that has crossed. Opening it may raise what unpickling does."""

    def __init__(self, frame: bytes, buffers: Buffers) -> None:
        self._frame, self._buffers = frame, buffers

    def open(self) -> Any:
        """The content, its arrays in memory that can be written to."""
        return pickle.loads(self._frame, buffers=map(_writable, self._buffers))

    def __reduce__(self) -> tuple[Any, ...]:
        return Sealed, (self._frame, self._buffers)


def _writable(buffer: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return buffer if buffer.flags.writeable else buffer.copy()  # of an object store, say


def taken_apart(content: Any) -> tuple[bytes, Buffers]:
    """A pickle, and the memory of large arrays and tensors, which is not copied."""
    large: Buffers = []

    def small(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if len(view) < LARGE:
            return True
        large.append(np.frombuffer(view, np.uint8))
        return False

    file = BytesIO()
    pickler = pickle.Pickler(file, 5, buffer_callback=small)
    pickler.dispatch_table = reducers()
    pickler.dump(content)
    return file.getvalue(), large


def whereabouts() -> str:
    """This process, as an error of a worker names it."""
    return f"process {os.getpid()} on {platform.node()}"


def packed(parts: list[Part], beside: Any = None, *, has_main: bool = True) -> bytes:
    """Parts as bytes, functions with them; an error names the stage that has none.

    - `beside`: what goes along: then it's a pair
    - `has_main`: whether the worker's main module is this one's
    """
    error: Exception | None = None
    content = parts if beside is None else (parts, beside)
    for dumps in _ways(has_main):
        try:
            return bytes(dumps(content))
        except Exception as raised:
            error = raised
    remedy = (
        "" if _has_cloudpickle() else "; lambdas and closures want cloudpickle: lazyckpt[processes]"
    )
    raise PipelineError(
        f"{_culprit(parts, dumps)} can't be sent to a worker process: {error}{remedy}"
    ) from error


def _has_cloudpickle() -> bool:
    return importlib.util.find_spec("cloudpickle") is not None


def _ways(has_main: bool) -> list[Callable[[Any], bytes]]:
    """How to pickle functions: by name, where a worker can import what is defined here."""
    cloud = [import_module("cloudpickle").dumps] if _has_cloudpickle() else []
    by_name = has_main and hasattr(sys.modules["__main__"], "__file__")
    return [pickle.dumps, *cloud] if by_name or not cloud else cloud


class Clouded:
    """An item or error of a class or function that has no name where it goes to."""

    def __init__(self, item: Any) -> None:
        self._frame = import_module("cloudpickle").dumps(item)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._frame,)


def _culprit(parts: Iterable[Part], dumps: Callable[[Any], Any]) -> str:
    calls: list[Call] = [call for part in parts for call in getattr(part, "calls", ())]
    for call in calls:
        try:
            dumps(call)
        except Exception:
            return f"{call!r}, built at {call.site},"
    return "what is beside the pipeline, such as worker_init,"


def sendable(outcome: Outcome, worker: str) -> Outcome:
    """The outcome up to the first item that can't be pickled, and that as its failure."""
    items: list[Any] = []
    for item in outcome.items:
        try:
            items.append(_sendable(item))
        except Exception as error:
            error.add_note(f"lazyckpt: an item, a {type(item).__name__}, can't leave its process")
            failure = portable(Failure(error, ""), worker)
            reached = outcome.reached and outcome.reached[: len(items) + 1]
            return outcome._replace(items=items, failure=failure, reached=reached, end=None)
    return outcome._replace(items=items)


def _sendable(item: Any) -> Any:
    try:
        taken_apart(item)
    except Exception:
        if not _has_cloudpickle():
            raise
        return Clouded(item)
    return item


def portable(failure: Failure, worker: str) -> Failure:
    """A failure that can be pickled, with its traceback as text."""
    error = failure.error
    trace = failure.trace or traced(error, (), worker).trace
    _bare(error)
    for way in (_itself, Rebuilt, Clouded)[: 2 + _has_cloudpickle()]:
        with suppress(Exception):
            sent: Any = way(error)
            copy = pickle.loads(pickle.dumps(sent))
            if type(copy) is type(error) and str(copy) == str(error):
                return Failure(sent, failure.places, trace)
    text = "".join(format_exception_only(error)).strip()  # which no __str__ can fail
    error = PipelineError(f"an error that can't be pickled: {text}")
    return Failure(error, failure.places, trace)


def _bare(error: BaseException | None) -> None:
    """Take tracebacks off, which some packages teach to pickle: they would come as cycles."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        _bare(error.__cause__)
        error = error.__context__


def _itself(error: BaseException) -> Any:
    return error
