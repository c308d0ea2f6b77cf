"""The stored call: a combinator's name with its bound arguments, and chains of them."""

from __future__ import annotations

import inspect
import json
import math
import reprlib
import sys
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import chain
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyckpt.core.checks import Check, brief
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import Carry, Combinator, Deal, Parts, Rereads, Takes, registry
from lazyckpt.core.user_state import storable
from lazyckpt.errors import ArgumentError


class Call:
    """One combinator with its arguments: frozen, compared by value, picklable.

    Where it was written (`site`) is remembered for error messages alone.
    """

    __slots__ = ("_arguments", "combinator", "site")

    _arguments: dict[str, Any]
    combinator: Combinator
    site: str

    def __init__(self, combinator: Combinator, arguments: dict[str, Any], site: str) -> None:
        object.__setattr__(self, "combinator", combinator)
        object.__setattr__(self, "_arguments", arguments)
        object.__setattr__(self, "site", site)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self!r} is a value: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self!r} is a value: {name} cannot be deleted")

    @property
    def name(self) -> str:
        return self.combinator.name

    @property
    def arguments(self) -> dict[str, Any]:
        """A copy of the bound arguments by name."""
        return dict(self._arguments)

    def replaced(self, **arguments: Any) -> Call:
        """The same call with other arguments."""
        return Call(self.combinator, {**self.arguments, **arguments}, self.site)

    @property
    def chains(self) -> list[Chain]:
        """The pipelines among the arguments, one after another."""
        values = self._arguments.values()
        each = chain.from_iterable(v if isinstance(v, tuple) else (v,) for v in values)
        return [value for value in each if isinstance(value, Chain)]

    @property
    def elastic(self) -> Mapping[str, str]:
        """The arguments that `rebase` may change, with what the stages behind have to be."""
        return {} if self.is_rigid else self.combinator.elastic

    def follows(self, what: str) -> bool:
        """Whether a state can pass this stage when one before it that wants `what` changes."""
        return not self.is_rigid and getattr(self.combinator, what, True)

    @property
    def is_rigid(self) -> bool:
        """Whether with these arguments no state can follow a change before it."""
        rigid = self.combinator.rigid
        return rigid is not None and rigid(**self.arguments)

    def build(self, upstream: Machine[Any] | None) -> Machine[Any]:
        """The machine of this call on top of `upstream`."""
        bound = inspect.BoundArguments(self.combinator.signature, self.arguments)
        first = () if upstream is None else (upstream,)
        return self.combinator.build(*first, *bound.args, **bound.kwargs)

    def identity(self) -> list[Any]:
        """Name and arguments that decide the order, as JSON; what a state is checked against."""
        arguments = self.arguments
        if self.combinator.describe is not None:
            return [self.name, self.combinator.describe(**arguments)]
        parameters = self.combinator.signature.parameters
        kept = {
            name: own(value) if self.combinator.checks.get(name) is storable else described(value)
            for name, value in arguments.items()
            if name not in self.combinator.free
            and not _is_function(value)
            and not same(value, parameters[name].default)  # so that a new one leaves states good
        }
        return [self.name, kept]

    def __repr__(self) -> str:
        shown = []
        for name, parameter in self.combinator.signature.parameters.items():
            value = self._arguments[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                shown += [show(v) for v in value]
            elif parameter.kind is parameter.VAR_KEYWORD:
                shown += [f"{k}={show(v)}" for k, v in value.items()]
            elif (
                parameter.default is parameter.empty
                and parameter.kind is not parameter.KEYWORD_ONLY
            ):
                shown.append(show(value))
            elif value is not parameter.default and not same(value, parameter.default):
                shown.append(f"{name}={show(value)}")
        return f"{self.name}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Call):
            return NotImplemented
        return self.combinator is other.combinator and same(self.arguments, other.arguments)

    def __hash__(self) -> int:
        try:
            return hash((self.name, _hashable(self.arguments)))
        except TypeError as error:
            raise TypeError(f"{self!r} hashes only where its arguments do: {error}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        # The public function pickles by reference, which imports its module.
        return _restore, (self.combinator.public, self.arguments, self.site)


def _restore(public: Callable[..., Any], arguments: dict[str, Any], site: str) -> Call:
    return Call(public.combinator, arguments, site)  # type: ignore[attr-defined]  # by define


_FRAMES = 3  # of Python's recursion limit for each stage: two, and some for the caller


class Chain:
    """Calls in a row. Equal by value whatever way they were composed."""

    def __init__(self, calls: tuple[Call, ...]) -> None:
        most = sys.getrecursionlimit() // _FRAMES
        if len(calls) > most:
            raise ArgumentError(
                f"{len(calls):,} stages in a row are too many: {most:,} fit within Python's "
                "recursion limit; make one of several, such as one map of composed functions, "
                "or raise the limit with sys.setrecursionlimit"
            )
        self.__dict__["calls"] = calls

    calls: tuple[Call, ...]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} is a value: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is a value: {name} cannot be deleted")

    @cached_property
    def machine(self) -> Machine[Any]:
        """The composed transition functions; built once, reading no data."""
        built: Machine[Any] | None = None
        for call in self.calls:
            built = call.build(built)
        assert built is not None
        return built

    @cached_property
    def identity(self) -> str:
        """What a state of this chain is checked against: one line of JSON of bounded length."""
        return compact([call.identity() for call in self.calls])

    def __repr__(self) -> str:
        parts = [repr(call) for call in self.calls]
        line = " | ".join(parts)
        if len(line) <= 88:
            return line
        return "(\n    " + "\n    | ".join(parts) + "\n)"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.calls == other.calls

    def __hash__(self) -> int:
        return hash(self.calls)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.calls,)

    def __bool__(self) -> bool:
        return True

    if not TYPE_CHECKING:  # to a type checker there are no other attributes

        def __getattr__(self, name: str) -> Any:
            if name in registry:
                raise AttributeError(f"stages are composed with |: pipeline | {name}(...)")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def runnable(stage: str, value: Any) -> Any:
    """The value, if it is a chain with a source; an `ArgumentError` if not."""
    if isinstance(value, Chain) and value.calls[0].combinator.is_source:
        return value
    remedy = "; write source(data) | ..." if isinstance(value, Chain) else ""
    raise ArgumentError(f"{stage}: pipeline must be a Pipeline, got {brief(value)}{remedy}")


def define(
    build: Callable[..., Machine[Any]],
    wrap: Callable[[Call], Chain],
    *,
    is_source: bool,
    checks: Mapping[str, Check] | None = None,
    free: tuple[str, ...] = (),
    elastic: Mapping[str, str] | None = None,
    transparent: bool = False,
    lockstep: bool = False,
    rigid: Callable[..., bool] | None = None,
    describe: Callable[..., dict[str, Any]] | None = None,
    validate: Callable[..., None] | None = None,
    pointwise: bool = False,
    finish: str | None = None,
    listed: bool = True,
    parts: Parts | None = None,
    carry: Carry | None = None,
    deal: Deal | None = None,
    again: Rereads | None = None,
    takes: Takes | None = None,
) -> Callable[..., Any]:
    """Register a combinator and return its public function, which stores the call."""
    signature = inspect.signature(build)
    if not is_source:
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])

    def public(*args: Any, **kwargs: Any) -> Chain:
        frame = sys._getframe(1)
        site = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return wrap(Call(combinator, combinator.bind(args, kwargs), site))

    public.__name__ = public.__qualname__ = build.__name__
    public.__module__ = build.__module__
    public.__doc__ = build.__doc__
    public.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    combinator = Combinator(
        name=build.__name__,
        build=build,
        public=public,
        signature=inspect.Signature(bare),
        is_source=is_source,
        checks=checks or {},
        free=frozenset(free),
        elastic=elastic or {},
        transparent=transparent or lockstep,
        lockstep=lockstep,
        rigid=rigid,
        describe=describe,
        validate=validate,
        pointwise=pointwise,
        finish=finish,
        parts=parts,
        carry=carry,
        deal=deal,
        again=again,
        takes=takes,
    )
    public.combinator = combinator  # type: ignore[attr-defined]  # where unpickled calls find it
    if not listed:
        return public
    known = registry.get(combinator.name)
    if known is not None and known.build.__module__ != build.__module__:
        raise ArgumentError(
            f"a combinator named {combinator.name} is there already, from "
            f"{known.build.__module__}; states and pickles tell them by name: take another one"
        )
    registry[combinator.name] = combinator
    return public


def show(value: Any) -> str:
    """A value as it would be written, long data abbreviated, no data read from elsewhere."""
    kind = type(value)
    if _is_function(value):
        name = getattr(value, "__qualname__", None)
        if name is None and hasattr(value, "func"):  # functools.partial
            return f"{kind.__name__}({show(value.func)}, ...)"
        return name.rsplit("<locals>.", 1)[-1] if name else f"<{kind.__name__}>"
    if isinstance(value, (Chain, PurePath)) or kind in (float, bool, type(None)):
        return repr(value)
    if kind in (range, int):
        try:
            return repr(value)
        except ValueError:  # Python writes no ints of more than 4,300 digits
            return f"<{kind.__name__}>"
    if kind is bytes:
        return brief(value)
    if kind in (list, tuple, dict, str):
        return _short.repr(value)
    if isinstance(value, np.ndarray):
        return f"<{value.dtype}{list(value.shape)}>"
    try:
        return f"<{kind.__name__} of {len(value)}>"
    except Exception:
        return f"<{kind.__name__}>"


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        text = show(x)
        return text if len(text) <= self.maxlong else f"{text[:18]}...{text[-19:]}"

    def repr_instance(self, x: Any, level: int) -> str:
        return show(x)


_short = _Short()
_short.maxlist = _short.maxtuple = _short.maxdict = 3
_short.maxstring = _short.maxother = 40


def same(a: Any, b: Any) -> bool:
    """Equality by value; by identity for what `==` gives no yes or no."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, np.memmap):
        return (a.filename, a.offset, a.shape, a.dtype) == (b.filename, b.offset, b.shape, b.dtype)
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    try:
        return bool(a == b)
    except Exception:  # a tensor or a frame: its == is no yes or no
        return False


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((k, _hashable(v)) for k, v in value.items())
    return value


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, Chain)


def described(value: Any) -> Any:
    """An argument as a state has it: JSON, of what is large a digest."""
    if isinstance(value, Chain):
        return [call.identity() for call in value.calls]
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) is int and abs(value) >= 1 << 53:
        return hex(value)  # JSON readers take it for a float
    if type(value) is float and not math.isfinite(value):
        return repr(value)  # JSON has none of these
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str) and len(value) <= 40:
        return value
    if isinstance(value, (tuple, list)) and len(value) <= 16:
        return [None if _is_function(v) else described(v) for v in value]
    if isinstance(value, range):
        return repr(value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}#{zlib.crc32(value.tobytes()):08x}"
    if isinstance(value, (str, tuple, list)):
        return f"{type(value).__name__}[{len(value)}]#{digest([described(v) for v in value])}"
    return type(value).__name__


_SHORT = 120  # characters of a user's own dict that a state has as they are


def own(value: Any) -> Any:
    """A user's own first state, as a state has it: what a list, a dict or a tuple is, it tells."""
    if isinstance(value, dict):
        pairs = [[own(k), own(v)] for k, v in value.items()]
        if len(repr(pairs)) <= _SHORT:
            return {"dict": pairs}
        return f"dict[{len(value)}]#{digest(pairs)}"
    if isinstance(value, (tuple, list)):
        items, kind = [own(v) for v in value], "list" if isinstance(value, list) else "tuple"
        return {kind: items} if len(items) <= 16 else f"{kind}[{len(items)}]#{digest(items)}"
    return described(value)


def former(found: Any) -> Any:
    """What states had in place of a user's own first state before they told so much of it."""
    if isinstance(found, dict) and [*found] in (["list"], ["tuple"]):
        return former(next(iter(found.values())))
    if (isinstance(found, dict) and [*found] == ["dict"]) or (
        isinstance(found, str) and found.startswith("dict[")
    ):
        return "dict"
    if isinstance(found, dict):
        return {name: former(value) for name, value in found.items()}
    return [former(value) for value in found] if isinstance(found, list) else found


def digest(value: Any) -> str:
    """Eight hexadecimal digits that stand for a value."""
    return f"{zlib.crc32(repr(value).encode()):08x}"


_ROOM = 640  # of the kilobyte that a state may fill


def compact(stages: list[Any]) -> str:
    """Stages as JSON; where that is long, the longest arguments give way to a digest."""
    texts = [json.dumps(stage, separators=(",", ":"), sort_keys=True) for stage in stages]
    while sum(map(len, texts)) + len(texts) > _ROOM:
        longest = max(range(len(texts)), key=lambda i: len(texts[i]))
        name = json.loads(texts[longest])[0]
        short = json.dumps([name, {"#": digest(texts[longest])}], separators=(",", ":"))
        if len(short) >= len(texts[longest]):
            break
        texts[longest] = short
    return "[" + ",".join(texts) + "]"
