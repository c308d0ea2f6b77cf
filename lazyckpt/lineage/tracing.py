"""Rewriting of a pipeline to one at the same positions whose items carry their origins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from lazyckpt.combinators.map import map as mapped
from lazyckpt.combinators.source import source
from lazyckpt.core.call import Call, Chain
from lazyckpt.core.content import is_reader
from lazyckpt.core.machine import Machine
from lazyckpt.failures.skip_log import Skipped
from lazyckpt.failures.skipping import leaves_out, without_failures
from lazyckpt.lineage.codes import Codes, coded_source, flat_codes, unchanged
from lazyckpt.lineage.origins import (
    Origin,
    Traced,
    one_by_one,
    origins,
    placed,
    plain,
    reader_of,
    traced_source,
    unknown,
    with_choice,
)
from lazyckpt.pipeline import Pipeline, Stage

_NONE = Skipped()


class Followed(NamedTuple):
    """A machine whose items carry their origins, and the decoder if they are codes."""

    machine: Machine[Any]
    codes: Codes | None

    def origins(self, item: Any) -> list[Origin]:
        """Return the origins of an item, each once."""
        if self.codes is not None:
            return self.codes.origins(item)
        return list(dict.fromkeys(origins(item)))


def followed(
    chain: Chain, before: Skipped = _NONE, after: Skipped = _NONE, *, skips: bool = False
) -> Followed:
    """Return the pipeline with origins, as codes if nothing needs to be read.

    Args:
        chain: The pipeline.
        before: The items that `on_error="skip"` had skipped before the first state.
        after: Those before the last state.
        skips: If True, the origins are those of a run that skips failing items.
    """
    if after == before:
        with suppress(LooksAtItems):
            coding = Coding()
            return Followed(coding.pipeline(chain, "").machine, coding.codes)
    read = without_failures(chain, after) if skips else chain
    return Followed(Tracing().pipeline(read, "").machine, None)


class Tracing:
    """The rewriting of a pipeline, stage by stage; passed to a stage's `trace`.

    - `reads`: whether items are read and computed; otherwise each is None
    - `plain(item)`: an item without its origins
    - `origins(item)`: the origins of an item and of its elements
    - `traced(value, origins)`: an item with its origins
    - `look()`: to be called if the stage's outputs depend on items, so that they are read
    """

    reads = True
    plain: Callable[[Any], Any] = staticmethod(plain)
    origins: Callable[[Any], Any] = staticmethod(origins)
    traced: Callable[[Any, Any], Any] = staticmethod(Traced)

    def look(self) -> None:
        """Do nothing, because items are read."""

    def pipeline(self, chain: Chain, prefix: str) -> Pipeline[Any]:
        first, *rest = zip(chain.calls, chain.machines, strict=True)
        found = self.source(*first, f"{prefix}1")
        for call, machine in rest:
            found = found | self.stage(call, machine)
        return found

    def source(self, call: Call, machine: Machine[Any], stage: str) -> Pipeline[Any]:
        if not call.chains:
            return traced_source(call, stage)
        joined = self.joined(call, stage)
        chooser = next((n for n, r in call.functions.items() if r in ("selector", "control")), "")
        if not chooser:
            return Pipeline((joined,))
        choosing = joined.arguments[chooser]
        chosen: Pipeline[Any] = Pipeline((joined.replaced(**{chooser: choosing | mapped(plain)}),))
        if call.functions[chooser] == "control":
            return chosen
        return chosen | with_choice(choosing.machine)

    def joined(self, call: Call, stage: str) -> Call:
        """Return a call that joins pipelines, with others in their place."""
        numbers = iter(range(len(call.chains)))
        return kept(call).with_chains(
            lambda each: self.pipeline(each, f"{stage}[{next(numbers)}].")
        )

    def stage(self, call: Call, machine: Machine[Any]) -> Stage[Any, Any]:
        known, roles = call.combinator, call.functions
        if known.trace is not None:
            found: Stage[Any, Any] = known.trace(call, self)
            return found
        if leaves_out(call):
            return Stage((call.replaced(judge=self.role("look", call.arguments["judge"])),))
        if "tap" in roles.values():
            return unchanged()
        is_looked_up = known.pointwise and machine.view is not None and not machine.owns
        if "star" in roles.values() or (is_looked_up and not roles):
            return mapped(lambda item: self.made(partial(_alone, call), item))
        if roles:
            return Stage(
                (call.replaced(**{k: self.role(v, call.arguments[k]) for k, v in roles.items()}),)
            )
        if known.pointwise or known.itemwise:
            return one_by_one(call)
        return Stage((kept(call),))

    def made(self, fn: Callable[[Any], Any], item: Any) -> Traced:
        """Return the result of a function for an item, with the item's origins."""
        return Traced(fn(plain(item)), origins(item))

    def role(self, role: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that gets plain arguments, and returns items with their origins."""
        if role in ("item", "collate"):
            return lambda *args: self.made(lambda item: fn(*args[:-1], item), args[-1])
        if role == "expand":
            return lambda item: _all(fn(plain(item)), item)
        if role == "step":
            return lambda state, item: _stepped(fn(state, plain(item)), item)
        if role == "steps":
            return lambda state, item: _expanded(fn(state, plain(item)), item)
        return lambda *args: fn(*args[:-1], plain(args[-1]))


def kept(call: Call) -> Call:
    """Return a call as it is, if only the functions that it declares look at items."""
    if not (call.combinator.keeps_items or call.combinator.functions):
        raise unknown(call)
    return call


class LooksAtItems(Exception):
    """Raised if origins depend on items that would have to be read."""


class Coding(Tracing):
    """Rewriting to a pipeline with codes in place of items: nothing is read.

    It raises `LooksAtItems` if a stage looks at items, or a source has no random access.
    """

    reads = False
    plain = staticmethod(lambda item: None)
    origins = staticmethod(flat_codes)
    traced = staticmethod(lambda value, origins: list(origins))

    def __init__(self) -> None:
        self.codes = Codes()

    def look(self) -> None:
        raise LooksAtItems

    def source(self, call: Call, machine: Machine[Any], stage: str) -> Pipeline[Any]:
        if call.chains:
            if {"selector", "control"} & {*call.functions.values()}:
                raise LooksAtItems
            return Pipeline((self.joined(call, stage),))
        if machine.skip is None:
            raise LooksAtItems
        return coded_source(
            call, self.codes, self.codes.add(stage, reader_of(call), machine.length)
        )

    def stage(self, call: Call, machine: Machine[Any]) -> Stage[Any, Any]:
        known, roles = call.combinator, call.functions
        if known.trace is not None:
            found = super().stage(call, machine)
            if machine.skip is None and found != Stage((call,)):
                raise LooksAtItems
            return found
        if known.pointwise and not machine.owns:
            return unchanged()
        if {*roles.values()} - {"item", "collate"} or known.itemwise:
            raise LooksAtItems
        if known.pointwise and not roles:
            if machine.skip is None:
                raise LooksAtItems
            return placed(call)
        plain: dict[str, Any] = {
            name: None if role == "collate" else _last for name, role in roles.items()
        }
        if call.arguments.get("pad") is not None:
            plain["pad"] = []  # without origins
        replaced = call.replaced(**plain)
        return Stage((replaced if roles else kept(replaced),))


def _last(*args: Any) -> Any:
    return args[-1]


def _alone(call: Call, item: Any) -> Any:
    """Return the outputs of a stage for one item alone."""
    upstream = source([item]).machine
    return next(iter(call.build(upstream).flow(upstream.init(0))))


def _stepped(found: tuple[Any, Any], item: Any) -> tuple[Any, Traced]:
    state, output = found
    return state, Traced(output, origins(item))


def _expanded(found: tuple[Any, Any], item: Any) -> tuple[Any, Any]:
    state, outputs = found
    return state, _all(outputs, item)


def _all(items: Any, item: Any) -> Any:
    mine = tuple(origins(item))
    if isinstance(items, Pipeline):
        return items | mapped(lambda each: Traced(each, mine))
    if is_reader(items):  # a reader provides more than the source
        return (
            Traced(row, [replace(origin, row=items.locate(number)) for origin in mine])
            for number, row in enumerate(items)
        )
    if hasattr(type(items), "located"):
        return (
            Traced(each, [replace(origin, row=row) for origin in mine])
            for each, row in items.located()
        )
    numbered = (
        Traced(each, [_record(origin, number) for origin in mine])
        for number, each in enumerate(items)
    )
    return list(numbered) if isinstance(items, list) else numbered


def _record(origin: Origin, number: int) -> Origin:
    """Return the origin of a numbered output of a source's item, if that item is a file."""
    made = getattr(origin.row, "record_origin", None)
    return origin if made is None else replace(origin, row=made(number))
