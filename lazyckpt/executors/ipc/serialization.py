"""Handlers, tasks and outcomes as pickles, with the memory of arrays next to them."""

from __future__ import annotations

import copyreg
import importlib.util
import os
import pickle
import platform
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from io import BytesIO, TextIOWrapper
from mmap import ACCESS_COPY, mmap
from multiprocessing.heap import Arena
from traceback import format_exception, format_exception_only
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.call import Call
from lazyckpt.core.secrets import masked
from lazyckpt.errors import PipelineError, SourceChanged, WorkerDied, WorkerTimeout
from lazyckpt.executors.ipc.items import apart
from lazyckpt.executors.ipc.pickler import LargeBuffers, Pickler
from lazyckpt.executors.ipc.shared_items import shared_call
from lazyckpt.executors.ipc.shared_memory import fill, starts
from lazyckpt.executors.plan.handlers import Handler, Outcome
from lazyckpt.failures.notes import Failure, RebuiltError, add_note

T = TypeVar("T")
Buffers = list[NDArray[np.uint8]]


class SharedPickle:
    """Something pickled once for many processes, in memory that they share.

    So are the large arrays in there: who writes into one has pages of its own.
    """

    def __init__(self, content: Any, *, by_value: bool) -> None:
        large = LargeBuffers()
        parts = [_dumps(content, large, by_value=by_value), *large]
        *places, end = starts(map(len, parts))
        self._places = [slice(at, at + len(part)) for at, part in zip(places, parts, strict=True)]
        self._memory = Arena(end)
        fill(self._memory.buffer, parts)

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
        return send_outcome(self._content, this_process(), serialize)


class SerializedMessage(NamedTuple):
    """A message that has arrived. Opening it may raise what unpickling does."""

    frame: bytes
    buffers: Buffers

    def open(self) -> Any:
        """The content, its arrays in memory that can be written to."""
        return pickle.loads(self.frame, buffers=map(_writable, self.buffers))


def _writable(buffer: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return buffer if buffer.flags.writeable else buffer.copy()  # of an object store, say


def serialize(content: Any) -> tuple[bytes, Buffers]:
    """A pickle, and the memory of large arrays and tensors, which is not copied."""
    pickled, large = Pickler().dump(content)
    return pickled, [np.frombuffer(view, np.uint8) for view in large]


def this_process() -> str:
    """This process, as an error of a worker names it."""
    return f"process {os.getpid()} on {platform.node()}"


def serialize_handlers(handlers: list[Handler]) -> bytes:
    """Handlers as bytes, with their functions, for workers that have another main module."""
    return _made(handlers, partial(_dumps, handlers), has_main=False)


def share_handlers(handlers: list[Handler], *more: Any) -> SharedPickle:
    """Handlers with their functions, and what goes along, for processes on this machine.

    Large arrays in there, and the items of a source, are in memory that all of them share.
    """
    return _made(handlers, partial(SharedPickle, (handlers, *more)), has_main=True)


def _made(handlers: list[Handler], make: Callable[..., T], *, has_main: bool) -> T:
    """What is made of handlers by the first way to pickle their functions that can.

    By name, if a worker can import what is defined here; else `by_value`, if cloudpickle is there.

    Raises:
        PipelineError: A function can't be pickled; it names the stage.
        SourceChanged: Their data aren't what they were.
    """
    error: Exception | None = None
    can_import = has_main and hasattr(sys.modules["__main__"], "__file__")
    ways = [False, True][not can_import :] if has_cloudpickle() else [False]
    for by_value in ways:
        try:
            return make(by_value=by_value)
        except SourceChanged:
            raise
        except Exception as raised:
            error = raised
    remedy = (
        ""
        if has_cloudpickle()
        else "; define the function in a module that a worker can import, or "
        'pip install "lazyckpt[processes]", which brings cloudpickle for lambdas and closures'
    )
    what = _unpicklable(handlers, by_value=ways[-1])
    raise PipelineError(f"{what} can't be sent to a worker process: {error}{remedy}") from error


def has_cloudpickle() -> bool:
    return importlib.util.find_spec("cloudpickle") is not None


def _dumps(content: Any, large: LargeBuffers | None = None, *, by_value: bool) -> bytes:
    """Pickle something, with classes and functions by name or by value.

    If its `large` buffers are wanted, they stay out of it, and processes share the data of
    sources as well.
    """
    file = BytesIO()
    pickler = _pickler(by_value=by_value, shares=large is not None)
    pickler(file, 5, buffer_callback=large).dump(content)
    return file.getvalue()


@cache
def _pickler(*, by_value: bool, shares: bool) -> Any:
    """The class of a pickler; that of cloudpickle takes nothing for something else."""
    base: Any = pickle.Pickler
    table: ChainMap[Any, Any] = ChainMap(copyreg.dispatch_table)
    if by_value:
        base = import_module("cloudpickle").Pickler
        kinds: dict[Any, Any] = {TextIOWrapper: _reduce_file, memoryview: _refuse_view}
        strict = {kind: way for kind, way in kinds.items() if kind not in table}
        table = base.dispatch_table.new_child(strict)
    if shares:
        dumps = partial(_dumps, by_value=by_value)
        table = table.new_child({Call: lambda call: shared_call(call, dumps).__reduce__()})
    return type("Pickler", (base,), {"dispatch_table": table})


def _reduce_file(file: Any) -> Any:
    if file in (sys.stdout, sys.stderr):
        return import_module("cloudpickle").Pickler.dispatch_table[TextIOWrapper](file)
    raise TypeError("cannot pickle an open file, as its text would come: give its path")


def _refuse_view(view: memoryview) -> Any:
    raise TypeError("cannot pickle a memoryview, as bytes would come: give bytes or an array")


class _CloudPickled:
    """An item or error of a class or function that has no name where it goes to."""

    def __init__(self, item: Any) -> None:
        self._frame = _dumps(item, by_value=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._frame,)


def _unpicklable(handlers: Iterable[Handler], *, by_value: bool) -> str:
    calls: list[Call] = [call for handler in handlers for call in getattr(handler, "calls", ())]
    for call in calls:
        try:
            _dumps(call, by_value=by_value)
        except Exception:
            return f"{call!r}, built at {call.site},"
    return "an option of the executor, such as worker_init,"


def transfer_failure(error: Exception, what: str) -> Outcome:
    """The outcome of a task of which an item can't be transferred, with what is said of that."""
    note = f"lazyckpt: an item {what}"
    if note not in getattr(error, "__notes__", ()):
        add_note(error, note)
    return Outcome([], Failure(error, ""), is_transfer_error=True)


def opened(message: Any) -> Any:
    """What a message holds; an outcome that says so if it can't be unpickled here."""
    try:
        return message.open()
    except Exception as error:
        return transfer_failure(error, "can't be unpickled")


def send_outcome(
    outcome: Outcome,
    worker: str,
    send: Callable[[Outcome], T],
    unwritable: type[Exception] = Exception,
) -> T:
    """Send what can be pickled of an outcome; `send` raises `unwritable` if some of it can't."""
    if outcome.failure is not None:
        outcome = outcome._replace(failure=picklable_failure(outcome.failure, worker))
    try:
        return send(outcome._replace(items=apart(outcome.items)))
    except unwritable:
        outcome = picklable_outcome(outcome, worker)
        return send(outcome._replace(items=apart(outcome.items)))


def picklable_outcome(outcome: Outcome, worker: str) -> Outcome:
    """The outcome up to the first item that can't be pickled, and that as its failure."""
    items: list[Any] = []
    for item in outcome.items:
        try:
            items.append(_picklable_item(item))
        except Exception as error:
            add_note(error, f"lazyckpt: an item, a {type(item).__name__}, can't leave its process")
            failure = picklable_failure(Failure(error, ""), worker)
            return outcome._replace(items=items, failure=failure, end=None)
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
