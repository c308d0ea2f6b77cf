"""The registered combinators: how each is built, and the arguments that a state depends on."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from lazyckpt.core.checks import Check, checked, is_starred
from lazyckpt.core.content import check_content, content, forms
from lazyckpt.core.cut import Cut
from lazyckpt.core.machine import Machine, apart
from lazyckpt.core.user_state import storable
from lazyckpt.core.values import is_function
from lazyckpt.errors import ArgumentError

# The role of an argument. For a function, its input -> its output:
# "item": an item, as the last argument -> an item. "star": an item's parts -> an item.
# "tap": an item -> nothing. "predicate": an item -> True to keep it. "look": an item -> any value.
# "expand": an item -> several items. "collate": a list of items -> an item.
# "step": a state and an item -> a state and an item. "steps": the same, with several items.
# For other arguments: "data" is indexable or iterable; "selector" is a pipeline whose item i
# chooses among the items i; "control" is a pipeline of the numbers of the next pipelines.
Role: TypeAlias = Literal[
    "item", "star", "tap", "predicate", "look", "expand", "collate", "step", "steps",
    "data", "selector", "control",
]  # fmt: skip

_F = TypeVar("_F", bound=Callable[..., Any])

_FOREIGN = {
    "drop_remainder": "drop_last",
    "collate_fn": "collate",
    "batchify_fn": "collate",
    "world_size": "num_shards",
    "num_replicas": "num_shards",
    "num_instances": "num_shards",
    "rank": "index",
    "shard_index": "index",
    "instance_rank": "index",
    "reshuffle_each_iteration": "seed (each epoch has a new order anyway)",
    "num_workers": "run(..., executor=...)",
    "num_parallel_calls": "run(..., executor=...)",
}


class Elastic(NamedTuple):
    """The changes to a stage that `rebase` and `reshard` can carry a state across.

    Attributes:
        changes: The arguments that may change, each with its requirement for later stages: "any",
            "grown", "blind", "here" or "lockstep", as defined in `lazyckpt.state.obstacles`.
        inserted: For a stage that counts its input: a function from the number of upstream items
            so far in the epoch to the own part of the stage, if it is inserted there.
        rebase: Function from a source's position, or a stage's own part, to the new one. It also
            receives the stage's entry in the state, and all arguments by keyword. If the change is
            impossible, it raises `lazyckpt.core.checks.Unfit` with the reason.
        before: For data to which items may be appended: a function from the recorded arguments,
            and the new ones by keyword, to the old values of those that differ. It may raise
            `Unfit` too.
        reshard: Function from a source's positions on all ranks, and a different number of ranks,
            to the positions of those.
        counts_all: Whether the own part of a stage after `shard` counts the items of all ranks, so
            that it is right for a different number of ranks too.
    """

    changes: Mapping[str, str] = {}
    inserted: Callable[[int], Any] | None = None
    rebase: Callable[..., Any] | None = None
    before: Callable[..., dict[str, Any]] | None = None
    reshard: Callable[..., Any] | None = None
    counts_all: bool = False


class Combinator(NamedTuple):
    """A registered combinator: how to build its machine, and what a state depends on.

    The fields are described at `combinator` and `source_combinator`.
    """

    name: str
    build: Callable[..., Machine[Any]]
    public: Callable[..., Any]
    signature: inspect.Signature
    is_source: bool
    keeps_items: bool
    pointwise: bool
    itemwise: bool
    checks: Mapping[str, Check]
    validate: Callable[..., None] | None
    describe: Callable[..., dict[str, Any]] | None
    sized: bool
    unrecorded: frozenset[str]
    functions: Mapping[str, Role] | Callable[..., Mapping[str, Role]]
    elastic: Elastic
    trace: Callable[..., Any] | None
    dropped: Callable[..., Callable[[Any], str | None] | None] | None
    by_length: Callable[[Any], Cut] | None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return all arguments by name, checked and with defaults."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{self.name}: {error}{self._hint(args, kwargs)}") from None
        bound.apply_defaults()
        return self.checked(bound.arguments)

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, as returned by their checks."""
        found = {
            name: checked(self.name, name, value, self.checks[name])
            if name in self.checks
            else value
            for name, value in arguments.items()
        }
        if self.validate is not None:
            self.validate(**found)
        self._check_contents(found)
        return found

    def recorded(self, name: str, value: Any) -> tuple[Any, Any]:
        """Return the two JSON forms of an argument: see `Chain.forms`."""
        if self.is_called_with(name):
            found = [forms(content(each, None, is_strict=False))[1] for each in value]
            return found, found
        is_strict = not self.changes_items(name)
        found = checked(
            self.name, name, value, lambda each: content(each, name, is_strict=is_strict)
        )
        # If the stage has no `rebase` of its own, ours reads the arguments that may change.
        carries = self.is_source or self.elastic.rebase is not None
        is_read = name in self.elastic.changes and is_strict and not carries
        return (found, found) if is_read or self.describe is not None else forms(found)

    def is_called_with(self, name: str) -> bool:
        """Return whether this argument is passed on to a function among the arguments."""
        parameter = self.signature.parameters.get(name)
        return bool(self.functions) and parameter is not None and is_starred(parameter)

    def changes_items(self, name: str) -> bool:
        """Return whether an argument affects items but not their order; then it may be anything."""
        return self.elastic.changes.get(name) == "blind"

    def is_rank_invariant(self, machine: Machine[Any]) -> bool:
        """Return whether equal positions on all ranks stay equal after this stage.

        A position must not depend on the items, which differ between ranks. A stage with a part
        of its own is not rank-invariant if the number of items is unknown, unless it is pointwise:
        then it counts its items.
        """
        upstream = machine.upstream
        if self.elastic.reshard is not None or machine.rate.each == math.inf:
            return False
        if upstream is None or not machine.owns or self.pointwise:
            return True
        lengths = machine.length, upstream.length
        return None not in lengths and storable not in self.checks.values()

    def is_in_step(self, machine: Machine[Any]) -> bool:
        """Return whether ranks at equal positions before this stage are at equal ones after it."""
        share = machine.share
        if share.ranks == 1:
            return True
        return self.is_rank_invariant(machine) and (share.is_even or not _sees_end(machine))

    def _check_contents(self, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments without comparable contents, if they decide the order."""
        for name, value in arguments.items() if self.describe is None else ():
            is_default = value is self.signature.parameters[name].default
            if is_default or isinstance(value, (int, str)) or name in self.unrecorded:
                continue
            if not (is_function(value) or self.is_called_with(name) or self.changes_items(name)):
                checked(self.name, name, value, check_content)

    def _hint(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        known = self.signature.parameters
        for name in kwargs:
            if name not in known and name in _FOREIGN:
                return f"; {name!r} is called {_FOREIGN[name]} here"
        return f"; the signature is {self.name}{self.signature}"


def _sees_end(machine: Machine[Any]) -> bool:
    """Return whether a stage may see upstream's end before its own: perhaps on one rank only."""
    rate, upstream = machine.rate, machine.upstream
    passes_over = upstream and apart(machine, machine.init(0))[0] != upstream.init(0)
    return bool(rate.more or rate.epochs != 1 or len(machine.children) > 1 or passes_over)


class Registry(MutableMapping[str, Combinator]):
    """Combinators by name. A combinator is imported when it is first used."""

    def __init__(self) -> None:
        self._known: dict[str, Combinator] = {}
        self._modules: dict[str, str] = {}

    def locate(self, modules: Mapping[str, str]) -> None:
        """Register the modules to import for names, some of which name combinators."""
        self._modules.update(modules)

    def __getitem__(self, name: str) -> Combinator:
        if name not in self._known and name in self._modules:
            import_module(self._modules[name])
        return self._known[name]

    def __setitem__(self, name: str, combinator: Combinator) -> None:
        self._known[name] = combinator

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in an order that doesn't depend on import order."""
        for module in self._modules.values():
            import_module(module)
        return iter([name for name in {**self._modules, **self._known} if name in self._known])

    def __len__(self) -> int:
        return len(list(iter(self)))


registry = Registry()

_copying: list[Any] = []


def copying(function: _F) -> _F:
    """Mark a function as only copying its input, so that it is not sent to a worker."""
    _copying.append(function)
    return function


def is_copying(function: Any) -> bool:
    """Return whether a function is marked as only copying its input."""
    return any(function is each for each in _copying)
