"""`on_error="skip"`: a pipeline in which items whose making fails are left out and counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.checks import signature_of
from lazyckpt.core.define import define
from lazyckpt.core.flow import Flow, Position, noted
from lazyckpt.core.frames import is_frame
from lazyckpt.core.machine import Machine, anchored, epochs_tried
from lazyckpt.core.registry import Combinator, registry
from lazyckpt.core.stages import stateless
from lazyckpt.errors import PipelineError
from lazyckpt.failures.guards import (
    WHOLE_ITEMS,
    Data,
    Dropping,
    Expansion,
    Guarded,
    Hole,
    Predicate,
    Whole,
)
from lazyckpt.failures.marks import next_number, with_next_number
from lazyckpt.failures.skip_log import LEFT_OUT, SkipLog, Skipped
from lazyckpt.failures.watching import guarded_in, leave_out


def _inner(build: Callable[..., Machine[Any]]) -> Any:
    """A stage that no state has, as it is that of the pipeline without it."""
    return define(
        build,
        lambda call: Chain((call,)),
        is_source=False,
        unrecorded=tuple(signature_of(build).parameters)[1:],
        registered=False,
    )


@_inner
def sieve(
    upstream: Machine[Any],
    judge: Callable[..., Any],
    number: int,
    skip_log: SkipLog,
    most: float = math.inf,
    *args: Any,
) -> Machine[Any]:
    """The items that `judge(*args, item)` finds true. Where it gives a hole, that is counted.

    In a stream one item comes after another, so that what is left out here has
    an order; all before may be done in any order, by any worker.

    - `number`: which stage of its pipeline this is
    - `most`: how many in a row may be left out of a stream that is repeated for ever
    """

    def flow(position: Position) -> Flow[Any]:
        return kept_of(anchored(upstream, position), position)

    def kept_of(items: Flow[Any], position: Position) -> Flow[Any]:
        epoch, left_out = upstream.epoch(position), next_number(position, number)

        def kept() -> Iterator[Any]:
            nonlocal left_out
            in_a_row = 0
            for item in items:
                found = judge(*args, item)
                if isinstance(found, Hole):
                    skip_log.add(number, epoch, left_out, found.told(items.snapshot))
                    left_out += 1
                    in_a_row += 1
                    if in_a_row >= most:
                        raise PipelineError(
                            f"repeat: in an endless repetition {in_a_row:,} items in a row were "
                            f"skipped, the last one by {found.stage}: {found.what}"
                        )
                elif found:
                    in_a_row = 0
                    yield item

        def marked(place: Callable[[], Position]) -> Callable[[], Position]:
            return lambda: with_next_number(place(), number, left_out)

        def noting() -> Flow[Any]:
            return kept_of(noted(items)[0], position)

        before = items.before
        return Flow(
            kept(),
            marked(items.snapshot),
            before=before and marked(before),
            noting=None if before else noting,
        )

    return stateless(upstream, flow=flow)


def skipping(chain: Chain, skip_log: SkipLog) -> Chain:
    """The pipeline without the items that fail, whose states are those of the pipeline.

    An item is left out where the function of a `map`, `starmap`, `random_map`,
    `tap`, `filter`, `flat_map` or `interleave_map` fails, or a `collate`, or data at
    an index; also in the parts of a `concat`, `interleave`, `lanes` or `mix`; and where
    a stage is to drop it, such as one that packs what is too long for a row. Its place
    stays in what only orders items, so that random access does. Other
    errors are raised: what is left out of one part of a `zip` would shift it against
    the others, and a `scan` or `flat_scan` would go on with a state that is none.
    """
    found, _ = _Rewriting(skip_log).chain(chain)
    skip_log.leave_out = partial(leave_out, guarded_in(found.calls))
    return found


def without_failures(chain: Chain, skipped: Skipped) -> Chain:
    """The pipeline without the items that fail, to make again what a run with these has given."""
    skip_log = SkipLog()
    skip_log.is_direct = True
    found = skipping(chain, skip_log)
    skip_log.lose(dict.fromkeys(skipped.lost, LEFT_OUT))
    skip_log.leave_out(skip_log.lost)
    return found


class _Rewriting:
    """One pipeline on its way to another; stages that leave items out are numbered as they come."""

    def __init__(self, skip_log: SkipLog) -> None:
        self.skip_log = skip_log
        self.numbers, self.guards = count(), count()

    def chain(self, chain: Chain, *, keeps_holes: bool = False) -> tuple[Chain, bool]:
        """The pipeline, and whether there are holes in it, as a stage behind it may keep them."""
        calls: list[Call] = []
        holes = False  # whether items may stand for such that are left out
        most = math.inf
        for call in chain.calls:
            for each, is_blind, makes in self.guarded(call):
                if holes and is_blind:
                    upstream = Chain(tuple(calls)).machine
                    if call.build(upstream).rate.epochs == call.build(upstream).length == math.inf:
                        is_blind = upstream.length is not None  # no random access to keep
                        most = (upstream.length or math.inf) * epochs_tried(upstream.length)
                if holes and not is_blind:
                    calls.append(self.sieve(call, most=most))
                    holes, most = False, math.inf
                calls.append(each)
                holes = holes or makes
        if holes and (most < math.inf or not keeps_holes):
            calls.append(self.sieve(chain.calls[-1], most=most))
            holes = False
        return type(chain)(tuple(calls)), holes

    def sieve(
        self,
        call: Call,
        judge: Callable[..., Any] | None = None,
        most: float = math.inf,
        args: tuple[Any, ...] = (),
    ) -> Call:
        judge, number = judge or Whole(repr(call)), next(self.numbers)
        return _call(sieve.combinator, call.site, judge, number, self.skip_log, most, *args)

    def guarded(self, call: Call) -> Iterator[tuple[Call, bool, bool]]:
        """The calls in its place, each with whether holes pass it, and whether it makes some."""
        arguments, stage, number = call.arguments, repr(call), next(self.guards)
        names = {role: name for name, role in call.functions.items()}
        for role, name in names.items():
            fn = arguments[name]
            if role == "item":
                yield call.replaced(**{name: Guarded(fn, stage, number)}), True, True
            elif role in WHOLE_ITEMS:
                yield _mapping(call, WHOLE_ITEMS[role](fn, stage, number)), True, True
            elif role == "expand":
                yield call.replaced(**{name: Expansion(fn, stage, number)}), False, False
                yield self.sieve(call), False, False
            elif role == "predicate":
                args = arguments.get("args", ())
                yield self.sieve(call, Predicate(fn, stage, number), args=args), False, False
            elif role == "collate":
                yield call.replaced(**{name: None}), False, False
                yield _mapping(call, Guarded(fn, stage, number)), True, True
            elif role == "data" and call.build(None).skip is not None:
                is_plain = isinstance(fn, (list, tuple, range, np.ndarray)) or is_frame(fn)
                data = fn if is_plain else Data(fn, stage, number)
                yield call.replaced(**{name: data}), False, not is_plain
            else:
                continue
            return
        if call.chains and call.combinator.is_source and not call.build(None).rate.every:
            keeps = call.build(None).skip is not None and not call.functions  # random access
            made = [self.chain(each, keeps_holes=keeps) for each in call.chains]
            chains = iter([each for each, _ in made])
            yield call.with_chains(lambda _: next(chains)), False, any(holes for _, holes in made)
        elif (why := _dropped(call)) is None:
            yield call, call.combinator.keeps_items and not call.functions, False
        else:
            yield self.sieve(call, Dropping(why, stage)), False, False
            yield call, False, False


def _dropped(call: Call) -> Callable[[Any], str | None] | None:
    if call.combinator.dropped is None:
        return None
    return call.combinator.dropped(**call.arguments)


def skip_log_of(chain: Chain) -> SkipLog | None:
    """The skip log of a pipeline made by `skipping`."""
    for call in chain.calls:
        for value in call.arguments.values():
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, SkipLog):
                    return each
                if isinstance(each, Chain) and (found := skip_log_of(each)) is not None:
                    return found
    return None


def apart(calls: tuple[Call, ...]) -> tuple[tuple[Call, ...], SkipLog | None]:
    """Stages with a log of their own, if they are made by `skipping`."""
    if not any(map(leaves_out, calls)):
        return calls, None
    skip_log = SkipLog()
    return _with_log(Chain(calls), skip_log).calls, skip_log


def leaves_out(call: Call) -> bool:
    """Whether a stage leaves out items that fail."""
    return call.combinator is sieve.combinator


def _with_log(chain: Chain, skip_log: SkipLog) -> Chain:
    calls = []
    for call in chain.calls:
        found = call
        if call.chains:
            found = call.with_chains(lambda each: _with_log(each, skip_log))
        logs = {name: skip_log for name, v in call.arguments.items() if isinstance(v, SkipLog)}
        calls.append(found.replaced(**logs) if logs else found)
    return type(chain)(tuple(calls))


def _mapping(call: Call, fn: Callable[..., Any]) -> Call:
    return _call(registry["map"], call.site, fn)


def _call(combinator: Combinator, site: str, *args: Any) -> Call:
    return Call(combinator, combinator.bind(args, {}), site)
