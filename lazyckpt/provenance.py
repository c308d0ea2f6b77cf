"""Which items of the sources went into an output: `trace`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from numbers import Number
from typing import Any, cast, overload

from lazyckpt.combinators.map import map as mapped
from lazyckpt.combinators.source import source
from lazyckpt.core.call import Call, Chain, runnable
from lazyckpt.core.checks import brief, checked, natural
from lazyckpt.core.frames import is_reader
from lazyckpt.core.machine import entered
from lazyckpt.failures.skip_log import Skipped
from lazyckpt.failures.skipping import leaves_out, without_failures
from lazyckpt.origins import (
    Origin,
    Traced,
    between_places,
    origins,
    plain,
    traced_source,
    with_choice,
)
from lazyckpt.pipeline import Pipeline, Stage
from lazyckpt.state.algebra import between, made_between
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import AnyState, State, as_state


@overload
def trace(pipeline: Chain, at: int | AnyState) -> list[Origin]: ...
@overload
def trace(pipeline: Chain, at: AnyState, until: AnyState) -> list[list[Origin]]: ...
def trace(pipeline: Chain, at: int | AnyState, until: AnyState | None = None) -> list[Any]:
    """Which items of the sources went into an output, in the order in which they stand there.

    Where the pipeline has random access, nothing is read and no function called.
    Elsewhere, and where `case` or `switch` have to see what they choose by, it
    is run: from a state on, or from its beginning to an output that is given by
    its number. What a stage only looked at, as `filter` does at items that it
    leaves out, doesn't count; nor what the state of `scan` and `flat_scan`
    remembers of items before, nor the control of a `multiplex`. A row of a
    collated batch that is taken apart again is told as the batch is.

    Of a combinator of your own it tells what its rate and rereads say: the items
    that upstream gives between its place before and after the output, and those
    that a resume behind it takes again. Where its functions have roles, or it has
    a `trace` of its own, it is as exact as ours.

    Args:
        pipeline: One of which the items are.
        at: A state, for the output that comes next; or the number of an output, from 0, as
            the pipeline counts from its beginning. Behind `rebase` the two differ. What fails
            isn't left out here, as one state doesn't tell of what comes.
        until: A later state of the same run; the origins of each output between the two are
            told, across the ends of epochs, and without what `on_error="skip"` has left out.

    Raises:
        IndexError: There are fewer outputs.
        InvalidState: The outputs after the first state lead to another place than `until`.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(10**9)) | lz.shuffle(seed=0) | lz.batch(3)
    >>> [origin.place for origin in lz.trace(pipeline, 10**8)]
    [810775110, 507087939, 945658273]
    """
    chain: Chain = runnable("trace", pipeline)
    if at is None or isinstance(at, Number):
        following = _after(chain, checked("trace", "at", at, natural))
        if not following:
            raise IndexError(f"trace: at={brief(at)}, but the pipeline has fewer items")
        return _told(following[0])
    state = matching(as_state(cast(AnyState, at)), chain)
    if until is None:
        following = list(_from(chain, state, 1))
        if not following:
            raise IndexError(f"trace: no item comes after the state of {state.items:,} items")
        return _told(following[0])
    first, last = between(chain, state, until)
    if last.skipped > first.skipped:
        found = traced_without_failures(chain, last.skipped)
    else:
        found = traced(chain)
    return [_told(item) for item in made_between(found.machine, first, last)]


def _after(chain: Chain, n: int) -> list[Any]:
    machine = traced(chain).machine
    position = machine.init(0)
    if machine.skip is not None:
        position, passed = machine.skip(position, n)
        return [] if passed < n else list(islice(machine.flow(position), 1))
    return list(islice(machine.flow(position), n, n + 1))


def _from(chain: Chain, state: State, count: int) -> Iterator[Any]:
    entered(chain.machine, state.position)
    return islice(traced(chain).machine.flow(state.position), count)


def _told(item: Any) -> list[Origin]:
    return list(dict.fromkeys(origins(item)))


def traced(chain: Chain) -> Pipeline[Any]:
    """The pipeline, whose items come with their origins. Its positions are the same."""
    return Tracing(chain.machine.skip is None or _chooses(chain)).pipeline(chain, "")


def _chooses(chain: Chain) -> bool:
    first = chain.calls[0]
    return "selector" in first.functions.values() or any(map(_chooses, first.chains))


class Tracing:
    """One pipeline on its way to another, stage by stage; what a stage's `trace` is given.

    - `reads`: whether items are read and made; else each is None
    """

    plain = staticmethod(plain)
    origins = staticmethod(origins)
    traced = Traced

    def __init__(self, reads: bool) -> None:
        self.reads = reads

    def pipeline(self, chain: Chain, prefix: str) -> Pipeline[Any]:
        first, *rest = chain.calls
        found = self.source(first, f"{prefix}1")
        for call in rest:
            found = found | self.stage(call)
        return found

    def source(self, call: Call, stage: str) -> Pipeline[Any]:
        if not call.chains:
            return traced_source(call, stage, self.reads)
        numbers = iter(range(len(call.chains)))
        traced = call.with_chains(lambda each: self.pipeline(each, f"{stage}[{next(numbers)}]."))
        chooser = next((n for n, r in call.functions.items() if r in ("selector", "control")), "")
        if not chooser:
            return Pipeline((traced,))
        choosing = traced.arguments[chooser]
        chosen: Pipeline[Any] = Pipeline((traced.replaced(**{chooser: choosing | mapped(plain)}),))
        if call.functions[chooser] == "control":
            return chosen
        return chosen | with_choice(choosing.machine)

    def stage(self, call: Call) -> Stage[Any, Any]:
        if call.combinator.trace is not None:
            found: Stage[Any, Any] = call.combinator.trace(call, self)
            return found
        roles = call.functions
        if not roles:
            keeps = call.combinator.keeps_items or call.combinator.functions
            is_seen = keeps and not call.combinator.pointwise
            return Stage((call,)) if is_seen else between_places(call, self.reads)
        if "tap" in roles.values():
            return mapped(lambda item: item)
        if "star" in roles.values():
            return mapped(lambda item: self.made(partial(self.alone, call), item))
        return Stage(
            (call.replaced(**{k: self.role(v, call.arguments[k]) for k, v in roles.items()}),)
        )

    def alone(self, call: Call, item: Any) -> Any:
        """What a stage makes of one item alone."""
        upstream = source([plain(item)]).machine
        return next(iter(call.build(upstream).flow(upstream.init(0))))

    def made(self, fn: Callable[[Any], Any], item: Any) -> Traced:
        """What a function makes of an item, if it is to be made, with the item's origins."""
        return Traced(fn(plain(item)) if self.reads else None, origins(item))

    def role(self, role: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function that is given what it expects, and gives items with their origins."""
        if role in ("item", "collate"):
            return lambda *args: self.made(lambda item: fn(*args[:-1], item), args[-1])
        if role == "expand":
            return lambda item: _all(fn(plain(item)), item)
        if role == "step":
            return lambda state, item: _stepped(fn(state, plain(item)), item)
        if role == "steps":
            return lambda state, item: _expanded(fn(state, plain(item)), item)
        return lambda *args: fn(*args[:-1], plain(args[-1]))


class _WithoutFailures(Tracing):
    """Tracing through what leaves items out, which is judged by the items alone."""

    def stage(self, call: Call) -> Stage[Any, Any]:
        if not leaves_out(call):
            return super().stage(call)
        judge = call.arguments["judge"]
        return Stage((call.replaced(judge=lambda item: judge(self.plain(item))),))


def traced_without_failures(chain: Chain, skipped: Skipped) -> Pipeline[Any]:
    """The pipeline, whose items come with their origins, without those that fail."""
    return _WithoutFailures(reads=True).pipeline(without_failures(chain, skipped), "")


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
    if is_reader(items):  # which knows more than the source did
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
    """The origin of what comes of a source's item under a number, if that is a file."""
    made = getattr(origin.row, "record_origin", None)
    return origin if made is None else replace(origin, row=made(number))
