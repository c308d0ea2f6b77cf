"""Notes on an error: the stage it came from, read from its traceback, and how to replay it."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import CodeType, FrameType
from typing import Any

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.secrets import masked
from lazyckpt.errors import PipelineError, SourceChanged

_MAX_NOTE = 4_096  # characters
_READ_ONLY = (
    "lazyckpt: the arrays of a source are read-only, so that every epoch has the same data; "
    "change a copy of the item: item.copy()"
)
_MAX_PLACES = 3
_LAZY = {"data", "expand", "steps"}  # roles of values that are iterated while items are yielded


class Failure(Exception):
    """An error on its way from a worker.

    Attributes:
        error: The error.
        places: The stages that it may come from.
        trace: Its traceback as a string, if it comes from a different process.
    """

    def __init__(self, error: Any, places: str, trace: str = "") -> None:
        super().__init__(error, places, trace)
        self.error: BaseException = error
        self.places, self.trace = places, trace


class Guard:
    """A wrapper of a user's function; `stage` shows the call that the function was written in."""

    stage: str


class RebuiltError:
    """An error that unpickles without its own `__init__`, which may need other arguments."""

    def __init__(
        self,
        error: BaseException,
        attributes: Callable[[BaseException], dict[str, Any]] = vars,
    ) -> None:
        """Wrap an error.

        Args:
            error: The error.
            attributes: Function that returns the attributes to keep.
        """
        self.error, self._attributes = error, attributes

    def __reduce__(self) -> tuple[Any, ...]:
        error, args = self.error, self.error.args
        if isinstance(error, OSError) and error.filename is not None:
            args = *args, error.filename, None, error.filename2
        inside = partial(rebuilding, attributes=self._attributes)
        attributes = {name: inside(value) for name, value in self._attributes(error).items()}
        return _rebuild, (type(error), inside(args), attributes)


def rebuilding(value: Any, attributes: Callable[[BaseException], dict[str, Any]]) -> Any:
    """Return a value of an error with the errors in it, such as those of a group, wrapped too."""
    if isinstance(value, BaseException):
        return RebuiltError(value, attributes)
    if type(value) in (list, tuple):
        return type(value)(rebuilding(each, attributes) for each in value)
    return value


def _rebuild(
    kind: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]
) -> BaseException:
    known = vars(builtins)
    builtin: Any = next(base for base in kind.__mro__ if known.get(base.__name__) is base)
    error: BaseException = builtin.__new__(kind, *args)
    builtin.__init__(error, *args)
    vars(error).update(attributes)
    return error


def annotated(
    error: BaseException,
    calls: tuple[Call, ...],
    delivered: int,
    state: Callable[[], str],
    behind: int = 0,
) -> BaseException:
    """Return the error to raise: the same one, with notes.

    The notes name the stage, where it was built, and how to replay the item. A StopIteration
    becomes a `PipelineError`, because it would end the consumer's loop.

    Args:
        error: The error raised, or a worker's `Failure`.
        calls: The stages of the pipeline.
        delivered: Number of items delivered before it.
        state: Function that returns the JSON of a state from which to replay it.
        behind: Number of items from that state to the failed item.
    """
    failure = error if isinstance(error, Failure) else as_failure(error, calls)
    error, places = failure.error, failure.places
    if not isinstance(error, Exception):
        if failure.trace:
            add_note(error, failure.trace)
        return error
    note = f"lazyckpt: {f'in {places}, ' if places else ''}after {delivered:,} delivered items"
    remedy = _READ_ONLY if isinstance(error, ValueError) and "read-only" in str(error) else ""
    for each in (note, remedy, _replay_note(state, behind), failure.trace):
        if each:
            add_note(error, each)
    return error


def add_note(error: BaseException, note: str) -> None:
    """Add a note that an error doesn't have yet; the same error may be raised repeatedly.

    The error's attributes may be read-only, as in a frozen dataclass.
    """
    try:
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
    except Exception:
        notes = vars(error).setdefault("__notes__", [])
        if isinstance(notes, list):
            notes.append(note)


def _replay_note(state: Callable[[], str], behind: int) -> str:
    """Return how to replay the item; empty if a user's own state is invalid, huge or secret."""
    try:
        text = state()
    except PipelineError:
        return ""
    known = f"lz.advance(pipeline, state, {behind})" if behind else "state"
    found = f"lazyckpt: lz.replay(pipeline, {known}) recomputes it; state = {text!r}"
    return found if len(found) <= _MAX_NOTE and masked(text) == text else ""


def as_failure(error: BaseException, calls: tuple[Call, ...]) -> Failure:
    """Return an error with the stages it may come from, while its traceback exists."""
    if isinstance(error, Failure):
        return error
    signal = _generator_signal(error)
    if not isinstance(error, Exception) and signal is None:
        return Failure(error, "")
    places = ""
    with suppress(Exception):  # attributes that a class computes
        places = " or ".join(_place(call) for call in _likely_calls(error, calls))
    if signal is not None:
        what = type(signal).__name__
        error = PipelineError(f"a function raised {what}, which doesn't end the stream")
        error.__cause__ = signal
    return Failure(error, places)


def _generator_signal(error: BaseException) -> StopIteration | GeneratorExit | None:
    """Return the StopIteration or GeneratorExit that an error is, or was within a generator.

    Either would end one of our generators without an error.
    """
    if isinstance(error, RuntimeError) and str(error) == "generator raised StopIteration":
        return error.__cause__ if isinstance(error.__cause__, StopIteration) else None
    return error if isinstance(error, StopIteration | GeneratorExit) else None


def places_of_functions(calls: tuple[Call, ...]) -> str:
    """Return the stages that run user code, if they are few: the error comes from one of them."""
    found = [
        call
        for call in _flatten(calls)
        if any(not _is_plain(call.arguments[name]) for name in call.functions)
    ]
    return " or ".join(map(_place, found)) if len(found) <= _MAX_PLACES else ""


def _place(call: Call) -> str:
    guards = [value for value in _values(call) if isinstance(value, Guard)]
    return f"{guards[0].stage if guards else repr(call)}, built at {call.site}"


def _likely_calls(error: BaseException, calls: tuple[Call, ...]) -> list[Call]:
    """Return the calls an error may come from, at most three: tracebacks don't tell equal ones."""
    frames = list(_frames(error))
    ours = [i for i, frame in enumerate(frames) if _is_ours(frame)]
    every = list(_flatten(calls))
    found: list[Call] = []
    if ours and ours[-1] + 1 < len(frames):
        code = frames[ours[-1] + 1].f_code
        found = [call for call in every if any(code in _codes(v) for v in _values(call))]
    while ours and not found:
        frame = frames[ours.pop()]
        held = {id(value) for value in frame.f_locals.values()}
        held |= {id(v.func) for v in frame.f_locals.values() if isinstance(v, partial)}
        found = [c for c in every if any(id(v) in held and _is_distinctive(v) for v in _values(c))]
        if not found:
            # Code shared by several stages counts for the stage that calls it.
            names = frame.f_code.co_qualname.partition(".")[0], frame.f_locals.get("stage")
            found = [call for call in every if call.name in names]
    if not found and (not isinstance(error, PipelineError) or isinstance(error, SourceChanged)):
        # Raised inside an iterable, which the traceback doesn't show.
        found = [
            call
            for call in every
            if _LAZY & {*call.functions.values()} and not any(map(_is_plain, _values(call)))
        ]
    return found[:_MAX_PLACES]


def _frames(error: BaseException) -> Iterator[FrameType]:
    signal = _generator_signal(error)
    for each in (error, signal) if signal is not error else (error,):
        trace = each.__traceback__ if each is not None else None
        while trace is not None:
            yield trace.tb_frame
            trace = trace.tb_next


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("lazyckpt.")


def _flatten(calls: tuple[Call, ...]) -> Iterator[Call]:
    for call in calls:
        yield call
        for value in _values(call):
            if isinstance(value, Chain):
                yield from _flatten(value.calls)


def _values(call: Call) -> Iterator[Any]:
    for value in call.arguments.values():
        yield value
        if isinstance(value, tuple):
            yield from value


def _is_plain(value: Any) -> bool:
    return isinstance(value, (list, tuple, range))


def _is_distinctive(value: Any) -> bool:
    return callable(value) or hasattr(value, "__iter__")


def _codes(value: Any) -> Iterator[CodeType]:
    """Yield the code that runs when a value is called, read or iterated, and all code in it."""
    value = getattr(value, "func", value)  # functools.partial
    sources = [value]
    if not isinstance(value, type):
        names = ("__call__", "__getitem__", "__getitems__", "__iter__", "__next__", "__len__")
        sources += [getattr(type(value), name, None) for name in names]
    for source in sources:
        yield from _nested(getattr(source, "__code__", None))


def _nested(code: Any) -> Iterator[CodeType]:
    if isinstance(code, CodeType):
        yield code
        for constant in code.co_consts:
            yield from _nested(constant)
