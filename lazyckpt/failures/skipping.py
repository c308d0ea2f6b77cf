"""`on_error="skip"`: a pipeline whose failing items are skipped and counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.define import internal
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
from lazyckpt.failures.marks import marked, marks_of
from lazyckpt.failures.skip_log import LEFT_OUT, SkipLog, Skipped
from lazyckpt.failures.watching import guarded_in, leave_out


@partial(internal, unrecorded=("judge", "number", "skip_log", "most", "args"))
def sieve(
    upstream: Machine[Any],
    judge: Callable[..., Any],
    number: int,
    skip_log: SkipLog,
    most: float = math.inf,
    *args: Any,
) -> Machine[Any]:
    """Keep the items for which `judge(*args, item)` is true, and count its holes.

    In a stream one item comes after another, so the items skipped here have an order; everything
    before may be computed in any order, by any worker.

    - `number`: the number of this stage in its pipeline
    - `most`: how many items in a row may be skipped in a stream that is repeated forever
    """

    def flow(position: Position) -> Flow[Any]:
        return kept_of(anchored(upstream, position), position)

    def kept_of(items: Flow[Any], position: Position) -> Flow[Any]:
        epoch, left_out = upstream.epoch(position), marks_of(position).get(number, 0)

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

        def numbered(find: Callable[[], Position]) -> Callable[[], Position]:
            return lambda: marked(position := find(), {**marks_of(position), number: left_out})

        def noting() -> Flow[Any]:
            return kept_of(noted(items)[0], position)

        before = items.before
        return Flow(
            kept(),
            numbered(items.snapshot),
            before=before and numbered(before),
            noting=None if before else noting,
        )

    return stateless(upstream, flow=flow)


def skipping(chain: Chain, skip_log: SkipLog) -> Chain:
    """Return the pipeline without failing items; its states are those of the pipeline.

    An item is skipped if the function of a `map`, `starmap`, `random_map`, `tap`, `filter`,
    `flat_map` or `interleave_map` raises, or a `collate`, or the data at an index; also in the
    parts of a `concat`, `interleave`, `lanes` or `mix`; and if a stage drops it, such as one that
    packs sequences too long for a row. Stages that only order items keep its place, so random
    access is kept. Other errors are raised: skipping in one part of a `zip` would shift it against
    the others, and a `scan` or `flat_scan` would continue with an invalid state.
    """
    found, _ = _Rewriting(skip_log).chain(chain)
    skip_log.leave_out = partial(leave_out, guarded_in(found.calls))
    return found


def without_failures(chain: Chain, skipped: Skipped) -> Chain:
    """Return the pipeline without failing items, to recompute the output of such a run."""
    skip_log = SkipLog()
    skip_log.is_direct = True
    found = skipping(chain, skip_log)
    skip_log.lose(dict.fromkeys(skipped.lost, LEFT_OUT))
    skip_log.leave_out(skip_log.lost)
    return found


class _Rewriting:
    """The rewriting of a pipeline; stages that skip items are numbered in order."""

    def __init__(self, skip_log: SkipLog) -> None:
        self.skip_log = skip_log
        self.numbers, self.guards = count(), count()

    def chain(self, chain: Chain, *, keeps_holes: bool = False) -> tuple[Chain, bool]:
        """Return the pipeline, and whether it has holes, which a stage after it may keep."""
        calls: list[Call] = []
        holes = False  # whether items may be holes
        most = in_a_row = math.inf  # items of an endless repetition, all of which may be skipped
        for call, machine in zip(chain.calls, chain.machines, strict=True):
            is_endless = bool(calls) and machine.rate.epochs == machine.length == math.inf
            for each, is_blind, makes in self.guarded(call):
                if is_blind and is_endless:
                    length = Chain(tuple(calls)).machine.length
                    in_a_row = (length or math.inf) * epochs_tried(length)
                    if holes:
                        is_blind, most = length is not None, in_a_row  # no random access to keep
                if holes and not is_blind:
                    calls.append(self.sieve(call, most=min(most, in_a_row)))
                    holes, most = False, math.inf
                calls.append(each)
                holes = holes or makes
            if not (call.combinator.pointwise or call.combinator.keeps_items):
                in_a_row = math.inf  # it may yield more items than it takes
        if holes and (most < math.inf or not keeps_holes):
            calls.append(self.sieve(chain.calls[-1], most=min(most, in_a_row)))
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
        """Yield the calls in its place, each with whether it passes and makes holes."""
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
    """Return the skip log of a pipeline made by `skipping`."""
    for call in chain.calls:
        for value in call.arguments.values():
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, SkipLog):
                    return each
                if isinstance(each, Chain) and (found := skip_log_of(each)) is not None:
                    return found
    return None


def apart(calls: tuple[Call, ...]) -> tuple[tuple[Call, ...], SkipLog | None]:
    """Return stages with a log of their own, if they were made by `skipping`."""
    if skip_log_of(Chain(calls)) is None:  # also of joined pipelines
        return calls, None
    skip_log = SkipLog()
    return _with_log(Chain(calls), skip_log).calls, skip_log


def leaves_out(call: Call) -> bool:
    """Return whether a stage skips failing items."""
    return call.combinator is sieve.combinator


def stage_behind(call: Call) -> str:
    """Return the stage of the user's, as text, before which such a stage skips items."""
    found: str = call.arguments["judge"].stage
    return found


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
