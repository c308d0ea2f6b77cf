"""Stored calls: a combinator's name with its bound arguments, and chains of calls."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from textwrap import indent
from typing import TYPE_CHECKING, Any

from lazyckpt.core.checks import Shown, brief, is_starred
from lazyckpt.core.content import Entries, Entry, digest, dumps, has_room
from lazyckpt.core.machine import Machine, Rank, machines, rank_of
from lazyckpt.core.pictured import Legend, Pictured
from lazyckpt.core.registry import Combinator, Role, registry
from lazyckpt.core.secrets import MASK, is_secret
from lazyckpt.core.show import WIDTH, bracketed, show
from lazyckpt.core.stages import closing
from lazyckpt.core.values import Frozen, cached_property, hashable, is_function, same
from lazyckpt.errors import ArgumentError, PipelineError


class Call(Frozen):
    """One combinator with its arguments: frozen, compared by value, picklable.

    The line that wrote it (`site`) is kept for error messages only. The call of a composite
    `covers` the stages before it, of which the composite consists.
    """

    __slots__ = ("_arguments", "combinator", "covers", "depth", "site")

    _arguments: dict[str, Any]
    combinator: Combinator
    site: str
    covers: int
    depth: int  # how deep pipelines are nested in the arguments

    def __init__(
        self, combinator: Combinator, arguments: dict[str, Any], site: str, covers: int = 0
    ) -> None:
        object.__setattr__(self, "combinator", combinator)
        object.__setattr__(self, "_arguments", arguments)
        object.__setattr__(self, "site", site)
        object.__setattr__(self, "covers", covers)
        chains = self.chains
        depth = max([each.depth + 1 for each in chains], default=0)
        if depth > sys.getrecursionlimit() // _FRAMES_WITHIN:
            raise ArgumentError(
                f"{combinator.name}: pipelines nested {depth:,} deep are too many for "
                f"Python's recursion limit; join all pipelines in one {combinator.name}, or raise "
                "the limit with sys.setrecursionlimit"
            )
        object.__setattr__(self, "depth", depth)

    @property
    def name(self) -> str:
        return self.combinator.name

    @property
    def arguments(self) -> dict[str, Any]:
        """Return a copy of the bound arguments by name."""
        return dict(self._arguments)

    def replaced(self, **arguments: Any) -> Call:
        """Return the same call with other arguments."""
        return Call(self.combinator, {**self.arguments, **arguments}, self.site, self.covers)

    @property
    def chains(self) -> list[Chain]:
        """The pipelines among the arguments, in order."""
        values = self._arguments.values()
        each = chain.from_iterable(v if isinstance(v, tuple) else (v,) for v in values)
        return [value for value in each if isinstance(value, Chain)]

    def with_chains(self, made: Callable[[Any], Chain]) -> Call:
        """Return the same call with each of its pipelines replaced by the result of a function."""
        arguments = {
            name: tuple(map(made, value)) if isinstance(value, tuple) else made(value)
            for name, value in self._arguments.items()
            if is_pipelines(value)
        }
        return self.replaced(**arguments)

    @property
    def functions(self) -> Mapping[str, Role]:
        """The functions among the arguments, by name, with their roles."""
        found = self.combinator.functions
        roles = found(**self._arguments) if callable(found) else found
        return {name: role for name, role in roles.items() if self._arguments[name] is not None}

    @property
    def unnamed(self) -> Iterator[tuple[str, Any]]:
        """Yield functions in place of arguments that decide the order, which no state records.

        They belong to this stage and the pipelines that it joins. Each has its name for errors.
        """
        for name in self.combinator.elastic.changes:
            value = self._arguments.get(name)
            is_role = name in self.functions or self.combinator.changes_items(name)
            if is_function(value) and not is_role:
                yield f"{self.name}: {name}={show(value)}", value
        for call in chain.from_iterable([each.calls for each in self.chains]):
            yield from call.unnamed

    def check_recorded(self, later: Call) -> None:
        """Refuse a function that a state should record, if a later stage may re-read items."""
        for what, function in self.unnamed:
            raise ArgumentError(
                f"{what} is a function, which a state doesn't "
                f"record, and {later!r} re-reads items on a resume: a changed function "
                f"would make them different. {naming(function)}"
            )

    def build(self, upstream: Machine[Any] | None) -> Machine[Any]:
        """Build the machine of this call on top of `upstream`."""
        args, kwargs = self._spread()
        first = () if upstream is None else (upstream,)
        built = self.combinator.build(*first, *args, **kwargs)
        if not isinstance(built, Machine):
            raise PipelineError(
                f"{self.name}: its function must return a machine, from stateless, stateful, "
                f"sourced or joining, got {brief(built)}"
            )
        if built.upstream is not upstream:
            raise PipelineError(
                f"{self.name}: its machine must be built on its upstream machine; "
                "use @composite to make one stage of several"
            )
        return self._measured(built)

    def _measured(self, machine: Machine[Any], *, gives_items: bool = True) -> Machine[Any]:
        """Return the machine, with timers around its modes if it is measured."""
        return machine

    def _spread(self) -> tuple[list[Any], dict[str, Any]]:
        """The positional and the keyword arguments. Cached: workers build a machine per chunk."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in self.combinator.signature.parameters.items():
            value, kind = self._arguments[name], parameter.kind
            if kind is parameter.VAR_POSITIONAL:
                args += value
            elif kind is parameter.VAR_KEYWORD:
                kwargs |= value
            elif kind is parameter.KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        return args, kwargs

    def entries(self, machine: Machine[Any]) -> list[Entry]:
        """The forms of this stage's entry in a state: see `Chain.forms`."""
        is_sized = self.combinator.sized and machine.length is not None
        size = {"length": machine.length} if is_sized else {}
        return [
            Entry(
                self.name,
                arguments,
                machine.owns,
                tuple([each.forms[number] for each in self.chains if machine.children]),
            )
            for number, arguments in enumerate(self._recorded({**size, **self._decisive()}))
        ]

    def _recorded(self, arguments: dict[str, Any]) -> list[str]:
        if not arguments:
            return ["{}", "{}"]
        found = {name: self.combinator.recorded(name, each) for name, each in arguments.items()}
        return [dumps({name: pair[n] for name, pair in found.items()}) for n in range(2)]

    def identity(self) -> list[Any]:
        """Return the facts that distinguish a stage, without building its machine."""
        arguments, _ = self._recorded(self._decisive())
        return [self.name, arguments, [each.digest for each in self.chains]]

    def _decisive(self) -> dict[str, Any]:
        """The arguments that decide the order, without defaults and pipelines.

        An argument added by a later version has its default, so old states stay valid.
        """
        combinator, parameters = self.combinator, self.combinator.signature.parameters
        if combinator.describe is not None:
            return combinator.describe(**self._arguments)
        return {
            name: value
            for name, value in self._arguments.items()
            if name not in combinator.unrecorded
            and not is_function(value)
            and not is_pipelines(value)
            and not same(value, () if is_starred(parameters[name]) else parameters[name].default)
        }

    @property
    def given(self) -> Iterator[tuple[str, Any]]:
        """The arguments that differ from their defaults, without secrets: by name, or ""."""
        for name, parameter in self.combinator.signature.parameters.items():
            value = self._arguments[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                yield from (("", each) for each in value)
            elif parameter.kind is parameter.VAR_KEYWORD:
                yield from ((key, _open(key, each)) for key, each in value.items())
            elif (
                parameter.default is parameter.empty
                and parameter.kind is not parameter.KEYWORD_ONLY
            ):
                yield "", _open(name, value)
            elif value is not parameter.default and not same(value, parameter.default):
                yield name, _open(name, value)

    def __repr__(self) -> str:
        shown = [f"{name}={show(value)}" if name else show(value) for name, value in self.given]
        return bracketed(self.name, shown) if self.chains else f"{self.name}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Call):
            return NotImplemented
        return self.combinator is other.combinator and same(self._arguments, other._arguments)

    def __hash__(self) -> int:
        try:
            return hash((self.name, hashable(self._arguments)))
        except ArgumentError:  # from a pipeline among them
            raise
        except TypeError as error:
            text = f"{self!r} is hashable only if its arguments are: {error}"
            raise ArgumentError(text) from None

    def __reduce__(self) -> tuple[Any, ...]:
        # The public function pickles by reference, which imports its module.
        return _restore, (self.combinator.public, self.arguments, self.site, self.covers)


def _restore(
    public: Callable[..., Any], arguments: dict[str, Any], site: str, covers: int = 0
) -> Call:
    combinator: Combinator = public.combinator  # type: ignore[attr-defined]  # by define
    return Call(combinator, arguments, site, covers)


def naming(function: Any) -> str:
    """Return advice about a function that no state records."""
    named = f'lz.schedule({show(function)}, name="v1")'
    return f"Use lz.schedule({{0: ..., 1000: ...}}), or {named}"


def _open(name: str, value: Any) -> Any:
    return MASK if is_secret(name, value) else value


def is_pipelines(value: Any) -> bool:
    """Return whether an argument is a pipeline, or several."""
    several = value if isinstance(value, tuple) and value else (value,)
    return all(isinstance(each, Chain) for each in several)


_FRAMES = 3  # of Python's recursion limit per stage: two, and some for the caller
_FRAMES_WITHIN = 15  # per nested pipeline: up to ten, and some for the caller


class Chain(Frozen, Shown, Pictured):
    """A sequence of calls. Equal by value, however it was composed."""

    def __init__(self, calls: tuple[Call, ...]) -> None:
        most = sys.getrecursionlimit() // _FRAMES
        if len(calls) > most:
            raise ArgumentError(
                f"{len(calls):,} stages in a row are too many: Python's recursion limit allows "
                f"{most:,}; make one of several, such as one map of composed functions, "
                "or raise the limit with sys.setrecursionlimit"
            )
        self.__dict__["calls"] = calls

    calls: tuple[Call, ...]
    reached: Any = None  # a reference to the state after the last step, which needs no check

    @cached_property
    def machine(self) -> Machine[Any]:
        """The composed machine; built once, reading no data."""
        built: Machine[Any] | None = None
        for call in self.calls:
            built = call.build(built)
        assert built is not None
        return built

    @cached_property
    def close_steps(self) -> Callable[..., None]:
        """Return a function that closes everything that steps keep open for the next ones."""
        return closing(self.machine)

    @cached_property
    def depth(self) -> int:
        """How deep pipelines are nested here."""
        return max([call.depth for call in self.calls])

    @cached_property
    def partings(self) -> list[tuple[Call, Rank | None]]:
        """The stages after which ranks' positions differ, each with the rank of this chain there.

        A stage that divides a rank's items again, after the last of these, keeps its parts at one
        position, so it is not listed.
        """
        stages = [*zip(self.calls, self.machines, strict=True)]
        inner = [each.partings[0][0] for each in self.calls[0].chains if each.partings]
        found = [(call, rank_of(stages[0][1])) for call in inner]
        for call, machine in stages:
            if not call.combinator.is_in_step(machine):
                found.append((call, rank_of(machine)))
        return found

    @property
    def own_rank(self) -> Rank | None:
        """The rank that positions belong to; None if they are equal on all ranks."""
        return self.partings[-1][1] if self.partings else None

    def _legend(self) -> Legend:
        return Legend(self)

    @property
    def machines(self) -> list[Machine[Any]]:
        """The machine of each stage, from the source on."""
        return machines(self.machine)

    @property
    def written(self) -> list[Call]:
        """The calls as written: a composite counts as one."""
        found: list[Call] = []
        for call in self.calls:
            found[len(found) - self._covered(found, call.covers) :] = [call]
        return found

    @staticmethod
    def _covered(before: list[Call], covers: int) -> int:
        """Return how many of the written calls the first stages correspond to."""
        count = 0
        while covers > 0 and count < len(before):
            count += 1
            covers -= 1 + before[-count].covers
        return count

    @cached_property
    def entries(self) -> Entries:
        """The entries that a state of this chain is checked against, of bounded length.

        Long arguments are digests, and shorter ones too if there is no room for all. Arguments that
        `rebase` reads, and those that positions depend on, are never digests.
        """
        whole, short = self.forms
        return whole if has_room(whole) else short

    @cached_property
    def forms(self) -> tuple[Entries, Entries]:
        """The entries with all arguments that aren't long, and with digests for most."""
        pairs = zip(self.calls, self.machines, strict=True)
        whole, short = zip(*[call.entries(machine) for call, machine in pairs], strict=True)
        return whole, short

    @property
    def digest(self) -> str:
        """A digest that represents the chain as an argument of other stages."""
        if self.calls[0].combinator.is_source:
            return digest(dumps(self.forms[0]))
        return digest(dumps([call.identity() for call in self.calls]))

    def __repr__(self) -> str:
        parts = [repr(call) for call in self.written]
        line = " | ".join(parts)
        if len(parts) == 1 or (len(line) <= WIDTH and "\n" not in line):
            return line
        return "(\n" + indent("\n| ".join(parts), "    ") + "\n)"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.calls is other.calls or self.written == other.written

    def __hash__(self) -> int:
        return hash(tuple(self.written))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.calls,)

    def __bool__(self) -> bool:
        return True

    if not TYPE_CHECKING:  # for type checkers there are no other attributes

        def __getattr__(self, name: str) -> Any:
            if name in registry:
                raise AttributeError(f"stages are composed with |: pipeline | {name}(...)")
            found = inspect.getattr_static(type(self), name, None)
            if isinstance(found, (property, cached_property)):  # an error inside it: raise that
                return found.__get__(self, type(self))
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def runnable(stage: str, value: Any) -> Any:
    """Return the value, if it is a chain with a source; otherwise raise an `ArgumentError`."""
    if isinstance(value, Chain) and value.calls[0].combinator.is_source:
        return value
    remedy = "; write source(data) | ..." if isinstance(value, Chain) else ""
    if hasattr(type(value), "__getitem__") and not isinstance(value, (Chain, str)):
        remedy = "; wrap data in source(...)"
    raise ArgumentError(f"{stage}: pipeline must be a Pipeline, got {brief(value)}{remedy}")
