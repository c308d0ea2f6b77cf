"""The registered combinators: how each is built, and what of it a state depends on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from lazyckpt.core.checks import Check, checked
from lazyckpt.core.machine import Machine, Position
from lazyckpt.errors import ArgumentError

# Of a position and the arguments: the places of pipelines among these, by number, and the rest.
Parts: TypeAlias = Callable[[Position, Mapping[str, Any]], tuple[dict[int, Position], Position]]
# Of a position, the arguments before as a state has them, and those after: the position after.
Carry: TypeAlias = Callable[..., Position]
# Of a position, upstream's machine and the arguments: what a resume takes of upstream again.
Rereads: TypeAlias = Callable[..., "Iterable[Again]"]
# Of upstream's machine and the arguments: how many items are taken for those given.
Takes: TypeAlias = "Taken | Callable[..., Taken]"
# Of the positions of all ranks, those of another number of ranks.
Deal: TypeAlias = Callable[[Sequence[Position], int], list[Position]]

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
    "reshuffle_each_iteration": "seed (the order is new in each epoch as it is)",
    "num_workers": "run(..., executor=...)",
    "num_parallel_calls": "run(..., executor=...)",
}


class Again(NamedTuple):
    """That upstream begins at a position again, and how many of its items are taken once more.

    Either one after another from there, or each alone, by random access.
    """

    position: Position
    items: float = 0
    alone: bool = False


class Taken(NamedTuple):
    """How many items a stage takes, at most: for each it gives, and more in each epoch of it.

    `epochs` of upstream may pass within one of its own.
    """

    each: float = 1
    more: float = 0
    epochs: float = 1


class Combinator(NamedTuple):
    """A registered combinator: how to build its machine, and what of it a state depends on.

    `free` arguments change no order. `elastic` ones may change by `rebase`, if
    the stages behind are what they map to: "transparent", "lockstep" or "any".
    The position of a `transparent` combinator is its upstream's. A `lockstep`
    one is that, and takes as many items for each it gives, whatever they are.
    With `rigid` arguments it is none of these. A `pointwise` one makes each item
    of one item and its place alone; `finish` names the argument that does what is
    left to do for each item: both may be done elsewhere. `parts` tells the places
    of a source's pipelines from its position, `carry` takes that over a change of its arguments,
    and `deal` those of all ranks to another number of them. `again` and `takes`
    tell what a resume reads.
    """

    name: str
    build: Callable[..., Machine[Any]]
    public: Callable[..., Any]
    signature: inspect.Signature
    is_source: bool
    checks: Mapping[str, Check]
    free: frozenset[str]
    elastic: Mapping[str, str]
    transparent: bool
    lockstep: bool
    rigid: Callable[..., bool] | None
    describe: Callable[..., dict[str, Any]] | None
    validate: Callable[..., None] | None
    pointwise: bool
    finish: str | None
    parts: Parts | None
    carry: Carry | None
    deal: Deal | None
    again: Rereads | None
    takes: Takes | None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The checked arguments by name, defaults filled in."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{self.name}: {error}{self._hint(args, kwargs)}") from None
        bound.apply_defaults()
        arguments = {
            name: checked(self.name, name, value, self.checks[name])
            if name in self.checks
            else value
            for name, value in bound.arguments.items()
        }
        if self.validate is not None:
            self.validate(**arguments)
        return arguments

    def _hint(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        known = self.signature.parameters
        for name in kwargs:
            if name not in known and name in _FOREIGN:
                return f"; {name!r} is here called {_FOREIGN[name]}"
        return f"; the signature is {self.name}{self.signature}"


registry: dict[str, Combinator] = {}
