"""Which stage an exception came from, read off its traceback: free until one is raised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from traceback import format_exception
from types import CodeType, FrameType
from typing import Any

from lazyckpt.core.call import Call, Chain
from lazyckpt.errors import PipelineError, SourceChanged

_LONGEST = 4_096  # characters of a note
_LAZY = {"data", "expand", "steps"}  # roles of what is iterated over as items are given


class Failure(Exception):
    """An error on its way from a worker: the error, the stages it may be from, its traceback."""

    def __init__(self, error: Any, places: str, trace: str = "") -> None:
        super().__init__(error, places, trace)
        self.error: BaseException = error
        self.places, self.trace = places, trace


class Rebuilt:
    """An error that unpickles without its own `__init__`, which may want other arguments."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self.error), self.error.args, vars(self.error))


def _rebuilt(
    kind: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]
) -> BaseException:
    error = kind.__new__(kind, *args)
    builtin: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    builtin.__init__(error, *args)
    vars(error).update(attributes)
    return error


def blame(
    error: BaseException,
    calls: tuple[Call, ...],
    delivered: int,
    state: Callable[[], str],
    behind: int = 0,
) -> BaseException:
    """The error to raise: the same one, with notes of its stage, where that was built, and when.

    - `state`: gives the JSON of one that leads to it, `behind` items before it

    A StopIteration becomes a `PipelineError`, for it would end the consumer's loop.
    """
    failure = error if isinstance(error, Failure) else traced(error, calls)
    error, places = failure.error, failure.places
    if not isinstance(error, Exception):
        return error
    note = f"lazyckpt: {f'in {places}, ' if places else ''}after {delivered:,} delivered items"
    for each in (note, _again(state, behind), failure.trace):
        if each and each not in getattr(error, "__notes__", ()):  # raised again and again
            error.add_note(each)
    return error


def _again(state: Callable[[], str], behind: int) -> str:
    """How the item is made again; nothing with a state of a user's own that is none, or is huge."""
    try:
        text = state()
    except PipelineError:
        return ""
    known = f"lz.advance(pipeline, state, {behind})" if behind else "state"
    found = f"lazyckpt: lz.replay(pipeline, {known}) makes it again; state = {text!r}"
    return found if len(found) <= _LONGEST else ""


def traced(error: BaseException, calls: tuple[Call, ...], worker: str = "") -> Failure:
    """What `blame` needs of an error, read off its traceback where that is still at hand.

    - `worker`: the process it was raised in, if another; its traceback goes along as text
    """
    if isinstance(error, Failure):
        return error
    stolen = _stolen(error)
    if not isinstance(error, Exception) and stolen is None:
        return Failure(error, "")
    places = ""
    with suppress(Exception):  # of attributes that a class makes up
        places = " or ".join(_place(call) for call in _suspects(error, calls))
    trace = f"lazyckpt: in {worker}\n{''.join(format_exception(error))}" if worker else ""
    if stolen is not None:
        what = type(stolen).__name__
        error = PipelineError(f"a function raised {what}, which is no end of the stream")
        error.__cause__ = stolen
    return Failure(error, places, trace)


def _stolen(error: BaseException) -> StopIteration | GeneratorExit | None:
    """The StopIteration that this is, or that a generator made a RuntimeError of; a GeneratorExit.

    Either would end a generator of ours in silence.
    """
    if isinstance(error, RuntimeError) and str(error) == "generator raised StopIteration":
        return error.__cause__ if isinstance(error.__cause__, StopIteration) else None
    return error if isinstance(error, StopIteration | GeneratorExit) else None


def _place(call: Call) -> str:
    return f"{call!r}, built at {call.site}"


def _suspects(error: BaseException, calls: tuple[Call, ...]) -> list[Call]:
    """The calls it may have come from, at most three: of like ones no traceback tells which."""
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
        found = [c for c in every if any(id(v) in held and _telling(v) for v in _values(c))]
        if not found:
            name = frame.f_code.co_qualname.partition(".")[0]
            found = [call for call in every if call.name == name]
    if not found and (not isinstance(error, PipelineError) or isinstance(error, SourceChanged)):
        # From within an iterable, of which the traceback tells nothing.
        found = [
            call
            for call in every
            if _LAZY & {*call.functions.values()} and not any(map(_is_plain, _values(call)))
        ]
    return found[:3]


def _frames(error: BaseException) -> Iterator[FrameType]:
    for each in dict.fromkeys([error, _stolen(error)]):
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


def _telling(value: Any) -> bool:
    return callable(value) or hasattr(value, "__iter__")


def _codes(value: Any) -> Iterator[CodeType]:
    """Code that runs when the value is called, read or iterated, with the code within that."""
    value = getattr(value, "func", value)  # functools.partial
    sources = [value]
    if not isinstance(value, type):
        names = ("__call__", "__getitem__", "__getitems__", "__iter__", "__next__", "__len__")
        sources += [getattr(type(value), name, None) for name in names]
    for source in sources:
        yield from _within(getattr(source, "__code__", None))


def _within(code: Any) -> Iterator[CodeType]:
    if isinstance(code, CodeType):
        yield code
        for constant in code.co_consts:
            yield from _within(constant)
