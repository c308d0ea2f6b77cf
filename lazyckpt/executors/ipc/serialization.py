"""Serialize handlers, tasks and outcomes: pickles, with the memory of arrays next to them."""

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
from functools import cache, cached_property, partial
from importlib import import_module
from io import TextIOWrapper
from itertools import product
from traceback import format_exception, format_exception_only
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from toolz import identity

from lazyckpt.core.call import Call
from lazyckpt.core.secrets import masked
from lazyckpt.core.show import show
from lazyckpt.errors import PipelineError, SourceChanged, WorkerDied, WorkerTimeout
from lazyckpt.executors.ipc.by_value import (
    MAIN,
    CachedFunction,
    answering,
    dumped,
    reduce_cached,
    reduce_property,
    with_slots,
)
from lazyckpt.executors.ipc.items import apart
from lazyckpt.executors.ipc.pickler import LargeBuffers, Pickler
from lazyckpt.executors.ipc.shared_items import shared_call
from lazyckpt.executors.ipc.shared_pickle import SharedPickle
from lazyckpt.executors.plan.handlers import Handler, MappedItems, Outcome
from lazyckpt.failures.notes import Failure, RebuiltError, add_note, rebuilding

_MAIN_PICKLED = [name.encode() for name in MAIN]

T = TypeVar("T")
Buffers = list[NDArray[np.uint8]]


class Message:
    """A message to or from a worker.

    Its content is serialized only when the message is pickled, so within a process it costs
    nothing. The part of an outcome that can be pickled is sent.

    Attributes:
        error: The error of serializing the content; None if there was none.
    """

    def __init__(self, content: Any) -> None:
        self._content = content
        self.error: Exception | None = None

    def open(self) -> Any:
        return self._content

    def __reduce__(self) -> tuple[Any, ...]:
        content = self._content
        try:
            if isinstance(content, Outcome):
                return SerializedMessage, send_outcome(content, this_process(), serialize)
            return SerializedMessage, serialize(with_inputs(content))
        except Exception as error:
            self.error = error
            raise


class SerializedMessage(NamedTuple):
    """A message that has arrived. `open` may raise any error of unpickling."""

    frame: bytes
    buffers: Buffers

    def open(self) -> Any:
        """Return the content, with its arrays in writable memory."""
        return pickle.loads(self.frame, buffers=map(_writable, self.buffers))


def _writable(buffer: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return buffer if buffer.flags.writeable else buffer.copy()  # such as one in an object store


def serialize(content: Any) -> tuple[bytes, Buffers]:
    """Return a pickle and the memory of large arrays and tensors, which isn't copied."""
    pickled, large = Pickler().dump(content)
    return pickled, [np.frombuffer(view, np.uint8) for view in large]


def this_process() -> str:
    """Return the name of this process, for errors."""
    return f"process {os.getpid()} on {platform.node()}"


def serialize_handlers(handlers: list[Handler]) -> bytes:
    """Pickle handlers and their functions."""
    return _made(handlers, partial(_dumps, handlers))


def share_handlers(handlers: list[Handler], *more: Any) -> SharedPickle:
    """Pickle handlers, their functions and more objects, for processes on this machine.

    Large arrays and the items of sources lie in memory that all the processes share.
    """
    large = LargeBuffers()
    return SharedPickle(_made(handlers, partial(_dumps, (handlers, *more), large)), large)


def _made(handlers: list[Handler], make: Callable[..., bytes]) -> bytes:
    """Return the result of `make`, given whether to pickle functions by name or `by_value`.

    Raises:
        PipelineError: If a function can't be pickled. The message names the stage.
        SourceChanged: If the data of a source have changed.
    """
    by_value = has_cloudpickle()
    try:
        return make(by_value=by_value)
    except SourceChanged:
        raise
    except Exception as error:
        remedy = (
            "make what can't be sent within the function, or define the function in a module that "
            "a worker can import"
            if by_value
            else "define the function in a module that a worker can import, or "
            'pip install "lazyckpt[processes]" to get cloudpickle, for lambdas and closures'
        )
        what = _unpicklable(handlers, by_value=by_value)
        raise PipelineError(
            f"{what} can't be sent to a worker process: {error}; {remedy}"
        ) from error


def has_cloudpickle() -> bool:
    return importlib.util.find_spec("cloudpickle") is not None


def _dumps(content: Any, large: LargeBuffers | None = None, *, by_value: bool) -> bytes:
    """Pickle an object, with classes and functions by name or by value.

    If `large` is set, it receives the large buffers, and the data of sources are pickled in the
    form that processes share.
    """
    return dumped(_pickler(by_value=by_value, shares=large is not None), content, large)


@cache
def _pickler(*, by_value: bool, shares: bool) -> Any:
    """Return a class of picklers. With cloudpickle, it refuses objects that would change type."""
    base: Any = _ByName
    table: ChainMap[Any, Any] = ChainMap(copyreg.dispatch_table)
    if by_value:
        cloudpickle = import_module("cloudpickle")
        base, main = with_slots(cloudpickle.Pickler), sys.modules["__main__"]
        if main.__name__ != "__main__":  # in a process that multiprocessing has spawned
            cloudpickle.register_pickle_by_value(main)
        kinds: dict[Any, Any] = {
            TextIOWrapper: _reduce_file,
            memoryview: _refuse_view,
            CachedFunction: reduce_cached,
            cached_property: reduce_property,
        }
        strict = {kind: way for kind, way in kinds.items() if kind not in table}
        table = base.dispatch_table.new_child(strict)
    if shares:
        make = _pickler(by_value=by_value, shares=False)
        table = table.new_child({Call: lambda call: shared_call(call, make).__reduce__()})
    return type("Pickler", (base,), {"dispatch_table": table})


class _ByName(pickle.Pickler):
    """A pickler that refuses functions and classes of the main module, which workers don't have."""

    def reducer_override(self, value: Any) -> Any:
        is_named = isinstance(value, (type, FunctionType, CachedFunction))
        if is_named and getattr(value, "__module__", None) in MAIN:
            raise pickle.PicklingError(f"workers don't import the main module, with {show(value)}")
        return NotImplemented


def _reduce_file(file: Any) -> Any:
    if file in (sys.stdout, sys.stderr):
        return import_module("cloudpickle").Pickler.dispatch_table[TextIOWrapper](file)
    raise TypeError("cannot pickle an open file, as only its text would be sent: pass its path")


def _refuse_view(view: memoryview) -> Any:
    raise TypeError("cannot pickle a memoryview, as it would become bytes: pass bytes or an array")


class _CloudPickled:
    """An item or error whose class or function can't be imported by the receiver."""

    def __init__(self, item: Any) -> None:
        self._frame = dumped(answering(_pickler(by_value=True, shares=False)), item)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._frame,)


class _Inputs:
    """The items of a task, pickled by value if the main module defines a class of theirs."""

    def __init__(self, items: list[Any], *, has_main: bool) -> None:
        self._items, self._has_main = items, has_main

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            pickled, large = Pickler().dump(self._items)
            is_known = self._has_main or not any(each in pickled for each in _MAIN_PICKLED)
        except Exception:
            if not has_cloudpickle():
                raise
            is_known = False
        if not is_known and has_cloudpickle():
            large = LargeBuffers()
            pickled = _dumps(self._items, large, by_value=True)
        return partial(pickle.loads, buffers=[*map(pickle.PickleBuffer, large)]), (pickled,)


def with_inputs(payload: Any, *, has_main: bool = False) -> Any:
    """Return a task's payload to pickle, for workers that may have the same main module."""
    if not isinstance(payload, MappedItems):
        return payload
    items: Any = _Inputs(payload.items, has_main=has_main)
    return payload._replace(items=items)


def _unpicklable(handlers: Iterable[Handler], *, by_value: bool) -> str:
    calls: list[Call] = [call for handler in handlers for call in getattr(handler, "calls", ())]
    for call in calls:
        try:
            _dumps(call, by_value=by_value)
        except Exception:
            return f"{call!r}, built at {call.site},"
    return "an option of the executor, such as worker_init,"


def transfer_failure(error: Exception, what: str) -> Outcome:
    """Return the outcome of a task with an item that can't be transferred; `what` says why."""
    add_note(error, f"lazyckpt: an item {what}")
    return Outcome([], Failure(error, ""), is_transfer_error=True)


def opened(message: Any) -> Any:
    """Return a message's content, or an outcome with the error if it can't be unpickled here."""
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
    """Send the part of an outcome that can be pickled; `send` raises `unwritable` if some can't."""
    if outcome.failure is not None:
        outcome = outcome._replace(failure=picklable_failure(outcome.failure, worker))
    try:
        return send(Outcome(apart(outcome.items), *outcome[1:]))
    except unwritable:
        outcome = picklable_outcome(outcome, worker)
        return send(Outcome(apart(outcome.items), *outcome[1:]))


def picklable_outcome(outcome: Outcome, worker: str) -> Outcome:
    """Cut an outcome before the first item that can't be pickled; its error is the failure."""
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
    """Return a failure that can be pickled, with its traceback as text."""
    error = failure.error
    trace = failure.trace or _trace(error, worker)
    if isinstance(error, (WorkerDied, WorkerTimeout)):  # of a worker that this one drives
        trace = ""
    _strip_tracebacks(error)
    cloud: list[Callable[[Any], Any]] = [_CloudPickled] if has_cloudpickle() else []
    text = "".join(format_exception_only(error)).strip()  # works even if __str__ fails
    forms = (identity, RebuiltError, partial(RebuiltError, attributes=_sendable))
    for form, way in product(forms, (identity, *cloud)):
        with suppress(Exception):
            sent: Any = way(form(error))
            copy = pickle.loads(pickle.dumps(sent))
            if type(copy) is type(error) and "".join(format_exception_only(copy)).strip() == text:
                return Failure(sent, failure.places, trace)
    error = PipelineError(f"an error that can't be pickled: {text}")
    return Failure(error, failure.places, trace)


def _trace(error: BaseException, worker: str) -> str:
    return f"lazyckpt: in {worker}\n{masked(''.join(format_exception(error)))}"


def _strip_tracebacks(error: BaseException | None) -> None:
    """Remove tracebacks: some packages make them picklable, as reference cycles."""
    while error is not None and error.__traceback__ is not None:
        BaseException.with_traceback(error, None)  # also for a frozen dataclass
        _strip_tracebacks(error.__cause__)
        error = error.__context__


def _sendable(error: BaseException) -> dict[str, Any]:
    """Return the attributes of an error without those that can't be pickled, such as locks."""
    kept = dict[str, Any]()
    for name, value in vars(error).items():
        with suppress(Exception):
            pickle.loads(pickle.dumps(_picklable_item(rebuilding(value, _sendable))))
            kept[name] = value
    return kept
