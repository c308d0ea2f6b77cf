"""Handlers, tasks and outcomes as pickles, with the memory of arrays next to them."""

from __future__ import annotations

import copyreg
import importlib.util
import os
import pickle
import platform
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module
from io import BytesIO, TextIOWrapper
from mmap import ACCESS_COPY, mmap
from multiprocessing.heap import Arena
from traceback import format_exception, format_exception_only
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.call import Call
from lazyckpt.core.secrets import masked
from lazyckpt.errors import PipelineError, SourceChanged, WorkerDied, WorkerTimeout
from lazyckpt.executors.ipc.items import apart
from lazyckpt.executors.ipc.pickler import LargeBuffers, Pickler
from lazyckpt.executors.ipc.shared_items import shared_call
from lazyckpt.executors.ipc.shared_memory import starts
from lazyckpt.executors.plan.handlers import Handler, Outcome
from lazyckpt.failures.notes import Failure, RebuiltError, add_note

T = TypeVar("T")
Buffers = list[NDArray[np.uint8]]
Dumps: TypeAlias = Callable[[Any, LargeBuffers | None], bytes]


class SharedPickle:
    """Something pickled once for many processes, in memory that they share.

    So are the large arrays in there: who writes into one has pages of its own.
    """

    def __init__(self, content: Any, dumps: Dumps) -> None:
        large = LargeBuffers()
        parts = [memoryview(dumps(content, large)), *large]
        *begins, end = starts([len(part) for part in parts])
        self._places = [
            slice(start, start + len(part)) for start, part in zip(begins, parts, strict=True)
        ]
        self._memory = Arena(end)
        for place, part in zip(self._places, parts, strict=True):
            self._memory.buffer[place] = part

    def open(self) -> Any:
        """The content, in one of those processes."""
        view = memoryview(mmap(self._memory.fd, 0, access=ACCESS_COPY))
        frame, *buffers = [view[place] for place in self._places]
        return pickle.loads(frame, buffers=buffers)


class Message:
    """Something on its way to or from a worker.

    It is serialized where it is pickled, so that within a process it costs nothing.

    Attributes:
        error: Why it could not be serialized.
    """

    def __init__(self, content: Any) -> None:
        self._content = content
        self.error: Exception | None = None

    def open(self) -> Any:
        return self._content

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            return SerializedMessage, self._serialized()
        except Exception as error:
            self.error = error
            raise

    def _serialized(self) -> tuple[bytes, Buffers]:
        return serialize(self._content)


class OutcomeMessage(Message):
    """An outcome on its way from a worker: what of it can be pickled."""

    def _serialized(self) -> tuple[bytes, Buffers]:
        outcome: Outcome = self._content
        if outcome.failure is not None:
            outcome = outcome._replace(failure=picklable_failure(outcome.failure, this_process()))
        try:
            return serialize(outcome._replace(items=apart(outcome.items)))
        except Exception:
            outcome = picklable_outcome(outcome, this_process())
            return serialize(outcome._replace(items=apart(outcome.items)))


class SerializedMessage:
    """A message that has arrived. Opening it may raise what unpickling does."""

    def __init__(self, frame: bytes, buffers: Buffers) -> None:
        self._frame, self._buffers = frame, buffers

    def open(self) -> Any:
        """The content, its arrays in memory that can be written to."""
        return pickle.loads(self._frame, buffers=map(_writable, self._buffers))

    def __reduce__(self) -> tuple[Any, ...]:
        return SerializedMessage, (self._frame, self._buffers)


def _writable(buffer: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return buffer if buffer.flags.writeable else buffer.copy()  # of an object store, say


def serialize(content: Any) -> tuple[bytes, Buffers]:
    """A pickle, and the memory of large arrays and tensors, which is not copied."""
    parts, large = Pickler().dump(content)
    return b"".join(parts), [np.frombuffer(view, np.uint8) for view in large]


def this_process() -> str:
    """This process, as an error of a worker names it."""
    return f"process {os.getpid()} on {platform.node()}"


def serialize_handlers(handlers: list[Handler]) -> bytes:
    """Handlers as bytes, with their functions, for workers that have another main module."""
    return _serialized(handlers, (), lambda content, dumps: dumps(content, None), has_main=False)


def share_handlers(handlers: list[Handler], *more: Any) -> SharedPickle:
    """Handlers with their functions, and what goes along, for processes on this machine.

    Large arrays in there, and the items of a source, are in memory that all of them share.
    """
    return _serialized(handlers, more, SharedPickle, has_main=True)


def _serialized(
    handlers: list[Handler],
    more: tuple[Any, ...],
    make: Callable[[Any, Dumps], T],
    *,
    has_main: bool,
) -> T:
    """What is made of handlers, and of what goes along, by the first way to pickle them that can.

    Raises:
        PipelineError: A function can't be pickled; it names the stage.
        SourceChanged: Their data aren't what they were.
    """
    error: Exception | None = None
    content = (handlers, *more) if more else handlers
    for dumps in _dumps_functions(has_main):
        try:
            return make(content, dumps)
        except SourceChanged:
            raise
        except Exception as raised:
            error = raised
    remedy = (
        ""
        if has_cloudpickle()
        else '; lambdas and closures need cloudpickle: pip install "lazyckpt[processes]"'
    )
    raise PipelineError(
        f"{_unpicklable(handlers, dumps)} can't be sent to a worker process: {error}{remedy}"
    ) from error


def has_cloudpickle() -> bool:
    return importlib.util.find_spec("cloudpickle") is not None


def _dumps_functions(has_main: bool) -> list[Dumps]:
    """How to pickle functions: by name, where a worker can import what is defined here."""
    cloud: list[Dumps] = [_dumps_by_value] if has_cloudpickle() else []
    by_name = has_main and hasattr(sys.modules["__main__"], "__file__")
    return [_dumps_by_name, *cloud] if by_name or not cloud else cloud


def _dumps_by_name(content: Any, large: LargeBuffers | None = None) -> bytes:
    file = BytesIO()
    pickler = pickle.Pickler(file, 5, buffer_callback=large)
    if large is not None:
        pickler.dispatch_table = copyreg.dispatch_table | {Call: _sharing(_dumps_by_name)}
    pickler.dump(content)
    return file.getvalue()


def _dumps_by_value(content: Any, large: LargeBuffers | None = None) -> bytes:
    """A pickle that has classes and functions by value, from cloudpickle."""
    file = BytesIO()
    pickler = _strict_pickler(shares=large is not None)
    pickler(file, 5, buffer_callback=large).dump(content)
    return file.getvalue()


def _sharing(dumps: Callable[[Any], bytes]) -> Callable[[Call], Any]:
    """How to reduce a call whose data processes share, as their memory does."""
    return lambda call: shared_call(call, dumps).__reduce__()


@cache
def _strict_pickler(*, shares: bool) -> Any:
    """Cloudpickle's pickler, which takes nothing for something else; see `_sharing`."""
    base = import_module("cloudpickle").Pickler

    def reduce_file(file: Any) -> Any:
        if file in (sys.stdout, sys.stderr):
            return base.dispatch_table[TextIOWrapper](file)
        raise TypeError("cannot pickle an open file, as its text would come: give its path")

    def refuse_view(view: memoryview) -> Any:
        raise TypeError("cannot pickle a memoryview, as bytes would come: give bytes or an array")

    kinds: dict[type, Any] = {TextIOWrapper: reduce_file, memoryview: refuse_view}
    table = {kind: way for kind, way in kinds.items() if kind not in copyreg.dispatch_table}
    if shares:
        table[Call] = _sharing(_dumps_by_value)
    strict = {"dispatch_table": base.dispatch_table.new_child(table)}
    return type("StrictPickler", (base,), strict)


class _CloudPickled:
    """An item or error of a class or function that has no name where it goes to."""

    def __init__(self, item: Any) -> None:
        self._frame = _dumps_by_value(item)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._frame,)


def _unpicklable(handlers: Iterable[Handler], dumps: Dumps) -> str:
    calls: list[Call] = [call for handler in handlers for call in getattr(handler, "calls", ())]
    for call in calls:
        try:
            dumps(call, None)
        except Exception:
            return f"{call!r}, built at {call.site},"
    return "an option of the executor, such as worker_init,"


def picklable_outcome(outcome: Outcome, worker: str) -> Outcome:
    """The outcome up to the first item that can't be pickled, and that as its failure."""
    items: list[Any] = []
    for item in outcome.items:
        try:
            items.append(_picklable_item(item))
        except Exception as error:
            add_note(error, f"lazyckpt: an item, a {type(item).__name__}, can't leave its process")
            failure = picklable_failure(Failure(error, ""), worker)
            positions = outcome.positions and outcome.positions[: len(items) + 1]
            return outcome._replace(items=items, failure=failure, positions=positions, end=None)
    return outcome._replace(items=items)


def _picklable_item(item: Any) -> Any:
    try:
        serialize(item)
    except Exception:
        if not has_cloudpickle():
            raise
        return _CloudPickled(item)
    return item


def picklable_failure(failure: Failure, worker: str) -> Failure:
    """A failure that can be pickled, with its traceback as text."""
    error = failure.error
    trace = failure.trace or _trace(error, worker)
    if isinstance(error, (WorkerDied, WorkerTimeout)):  # of a worker of this one, which says it all
        trace = ""
    _strip_tracebacks(error)
    cloud: list[Callable[[Any], Any]] = [_CloudPickled] if has_cloudpickle() else []
    text = "".join(format_exception_only(error)).strip()  # which no __str__ can fail
    for way in (_itself, RebuiltError, *cloud, _without_attributes):
        with suppress(Exception):
            sent: Any = way(error)
            copy = pickle.loads(pickle.dumps(sent))
            if type(copy) is type(error) and "".join(format_exception_only(copy)).strip() == text:
                return Failure(sent, failure.places, trace)
    error = PipelineError(f"an error that can't be pickled: {text}")
    return Failure(error, failure.places, trace)


def _trace(error: BaseException, worker: str) -> str:
    if not isinstance(error, Exception):
        return ""
    return f"lazyckpt: in {worker}\n{masked(''.join(format_exception(error)))}"


def _strip_tracebacks(error: BaseException | None) -> None:
    """Remove tracebacks: some packages make them picklable, and they would come as cycles."""
    while error is not None and error.__traceback__ is not None:
        BaseException.with_traceback(error, None)  # also of one that is frozen
        _strip_tracebacks(error.__cause__)
        error = error.__context__


def _itself(error: BaseException) -> Any:
    return error


def _without_attributes(error: BaseException) -> Any:
    """The error with those of its attributes that can be pickled, as a lock can't."""
    kept = dict[str, Any]()
    for name, value in vars(error).items():
        with suppress(Exception):
            pickle.dumps(value)
            kept[name] = value
    return RebuiltError(error, kept)
