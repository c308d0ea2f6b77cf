"""Executors as values, and what a run holds of one."""

from __future__ import annotations

import inspect
import os
import weakref
from _thread import start_new_thread
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, Protocol

from lazyckpt.core.call import Call, Chain, runnable, same, show
from lazyckpt.core.checks import Check, brief, checked, is_integer
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.crew import Crew, Gate
from lazyckpt.executors.parts import Part
from lazyckpt.executors.plan import arranged, cut
from lazyckpt.executors.threads import Threads

P = ParamSpec("P")

_option = inspect.Parameter("option", inspect.Parameter.KEYWORD_ONLY)


class Walked(Protocol):
    """A way through a pipeline from some position on."""

    def flow(self) -> Flow[Any]: ...

    def fill(self) -> None:
        """Have items made ahead."""


class Session:
    """An executor at work on one pipeline, for one run.

    Workers start when the first item is asked for, and end with `stop`, at the
    interpreter's end, or when nobody holds the session any more.
    """

    def __init__(
        self, machine: Machine[Any], opened: Callable[[Position], Walked], gate: Gate
    ) -> None:
        self.gate = gate
        self._opened = opened
        self._walk: Walked | None = None
        self._machine = machine
        self._owner = os.getpid()
        self._finalizer = weakref.finalize(self, _dropped, gate.crews, self._owner)

    @property
    def machine(self) -> Machine[Any]:
        """The pipeline's, but that its items are made by workers."""
        return self._machine._replace(flow=self._flow)  # kept here it would be a cycle

    def _flow(self, position: Position) -> Flow[Any]:
        self._machine.flow(position)  # which checks it
        self._walk = self._opened(position)
        return self._walk.flow()

    def buffering(self, by: int, *, fill: bool = False) -> None:
        """Count a reason to make items ahead, or with -1 take one back."""
        self.gate.open(by)
        if fill and self.gate.is_open:
            self.fill()

    def fill(self) -> None:
        """Have items made ahead, where that has begun."""
        if self._walk is not None:
            self._walk.fill()

    def start(self) -> None:
        """Let workers come when they are needed, as at first."""
        self.gate.is_shut = False

    def stop(self) -> None:
        """End all workers. What is ready stays, and after `start` they come again."""
        self.gate.is_shut = True
        _stop(self.gate.crews, self._owner)


def _stop(crews: list[Crew], owner: int) -> None:
    is_theirs = os.getpid() != owner  # that of the process which this one was forked from
    for crew in crews:
        if not (crew.is_foreign and is_theirs):
            crew.stop()


def _dropped(crews: list[Crew], owner: int) -> None:
    """Stop them beside whatever the garbage collector has interrupted, if that may wait for it."""
    if any(crew.is_foreign for crew in crews):
        with suppress(RuntimeError):  # the interpreter ends
            start_new_thread(_stop, (crews, owner))
    else:
        _stop(crews, owner)


class Executor:
    """How a run's items are made: a value, as pipelines are. It changes no item, order or state."""

    __slots__ = ("arguments", "public")

    arguments: Mapping[str, Any]
    public: Callable[..., Any]

    def __init__(self, public: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        object.__setattr__(self, "public", public)
        object.__setattr__(self, "arguments", arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self!r} is a value: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self!r} is a value: {name} cannot be deleted")

    def open(self, chain: Chain) -> Session | None:
        """Begin to work on a pipeline; None where there is nothing but to walk through it."""
        return None

    def explain(self, chain: Chain) -> list[tuple[str, str]]:
        """Stages that run together, and where."""
        return [(_shown(chain.calls), "in the consumer's thread, when asked for")]

    def __repr__(self) -> str:
        parameters = inspect.signature(self.public).parameters
        shown = []
        for name, value in self.arguments.items():
            parameter = parameters.get(name, _option)
            if not same(value, parameter.default):
                is_positional = parameter.kind is not parameter.KEYWORD_ONLY
                is_bare = is_positional and parameter.default is parameter.empty
                text = repr(value) if isinstance(value, Executor) else show(value)
                shown.append(text if is_bare else f"{name}={text}")
        return f"{self.public.__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Executor):
            return NotImplemented
        return self.public is other.public and same(dict(self.arguments), dict(other.arguments))

    def __hash__(self) -> int:
        return hash((self.public.__name__, tuple(map(show, self.arguments.values()))))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.public, dict(self.arguments))


def _restored(
    kind: type[Executor], public: Callable[..., Executor], arguments: dict[str, Any]
) -> Executor:
    return kind(public, arguments)


class Staff(NamedTuple):
    """The workers that an executor has.

    - `start`: makes a crew of so many, that can do the parts
    - `noun`: what one is called
    - `moves`: whether one can walk through a stream
    - `gated`: whether nothing is made that nobody waits for
    - `place`: where things are done, if a number of nouns doesn't say it
    - `timeout`: seconds to wait for an item
    """

    start: Callable[[list[Part], int], Crew]
    workers: int
    noun: str
    buffer_size: int
    moves: bool = True
    gated: bool = False
    place: str = ""
    timeout: float | None = None


class Staffed(Executor):
    """An executor with workers; its public function gives them."""

    __slots__ = ("staff",)

    staff: Callable[..., Staff]

    def __init__(self, public: Callable[..., Executor], arguments: Mapping[str, Any]) -> None:
        super().__init__(public, arguments)
        object.__setattr__(self, "staff", public.__wrapped__)  # type: ignore[attr-defined]

    def open(self, chain: Chain) -> Session:
        staff = self.staff(**self.arguments)

        def beside(part: Part, other: Crew) -> Crew:
            return Threads([part], 1, staff.buffer_size, staff.timeout, uses=(other,))

        gate = Gate(staff.gated)
        opened = arranged(
            chain, gate, staff.start, beside, workers=staff.workers, moves=staff.moves
        )
        return Session(chain.machine, opened, gate)

    def explain(self, chain: Chain) -> list[tuple[str, str]]:
        staff = self.staff(**self.arguments)
        pieces = cut(chain, workers=staff.workers, moves=staff.moves)
        one = f"in one {staff.noun} beside the consumer"
        many = one if staff.workers == 1 else f"in {staff.workers} {plural(staff.noun)}"
        many = staff.place or many
        if len(pieces) == 1 and pieces[0].kind == "walk" and chain.machine.skip is None:
            return [(_shown(chain.calls), f"{one}, as one stream")]
        places = {
            "walk": f"{many}, each item from its own state",
            "each": f"{many}, item by item",
            "here": "in one thread beside the consumer",
        }
        return [(_shown(piece.calls), places[piece.kind]) for piece in pieces]


def plural(noun: str) -> str:
    return noun + ("es" if noun.endswith("s") else "s")


def _shown(calls: tuple[Call, ...]) -> str:
    return " | ".join(map(repr, calls))


def staffed(
    checks: Mapping[str, Check],
) -> Callable[[Callable[P, Staff]], Callable[P, Executor]]:
    """Make an executor of a function from arguments to its staff. Its `**options` go unchecked."""

    def wrap(staff: Callable[P, Staff]) -> Callable[P, Executor]:
        signature = inspect.signature(staff)
        kinds = {p.kind: p.name for p in signature.parameters.values()}
        more = kinds.get(inspect.Parameter.VAR_KEYWORD)

        @wraps(staff)
        def public(*args: P.args, **kwargs: P.kwargs) -> Executor:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise ArgumentError(f"{staff.__name__}: {error}") from None
            bound.apply_defaults()
            given = dict(bound.arguments)
            options = given.pop(more, {}) if more else {}
            arguments = {
                name: checked(staff.__name__, name, value, checks[name])
                for name, value in given.items()
            }
            arguments.update(options)
            return Staffed(public, arguments)

        return public

    return wrap


def executing(value: Any) -> Executor | None:
    """An executor or None; an `ArgumentError` for anything else."""
    if value is None or isinstance(value, Executor):
        return value
    remedy = ""
    if callable(getattr(value, "submit", None)):
        remedy = f"; write futures({show(value)}, buffer_size=...)"
    elif callable(value):
        remedy = f"; write {show(value)}()"
    elif hasattr(value, "to_json"):
        remedy = "; write state=..."
    elif is_integer(value):
        remedy = f"; write threads({value}) or processes({value})"
    raise ArgumentError(f"run: executor must be an executor, got {brief(value)}{remedy}")


def explain(pipeline: Chain, executor: Executor | None = None) -> str:
    """What will run where, in a line for each piece of the pipeline. Starts nothing.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(9)) | lz.map(str) | lz.filter(str.isdigit) | lz.batch(2)
    >>> print(lz.explain(pipeline, lz.threads(4)))
    source(range(0, 9)) | map(str)  in 4 threads, each item from its own state
    filter(str.isdigit) | batch(2)  in one thread beside the consumer
    """
    chain: Chain = runnable("explain", pipeline)
    lines = (executing(executor) or Executor(explain, {})).explain(chain)
    width = max(len(what) for what, _ in lines)
    return "\n".join(f"{what:{width}}  {where}" for what, where in lines)
