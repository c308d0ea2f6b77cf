"""Whether a state belongs to a pipeline, and how it follows a change of it: `rebase`."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

from lazyckpt.core.call import Call, Chain, runnable
from lazyckpt.core.checks import Unfit, checked
from lazyckpt.core.machine import Machine, Position, entered, fitting
from lazyckpt.core.registry import registry
from lazyckpt.errors import ArgumentError, InvalidState, StateMismatch
from lazyckpt.state.mismatch import Pair, difference, paired
from lazyckpt.state.positions import SEVERAL, SOMETIMES, Described, follows, is_begun
from lazyckpt.state.state import AnyState, State, as_state
from lazyckpt.state.windows import built, held_apart, way


def matching(state: State, chain: Chain) -> State:
    """The state, if it belongs to the chain; a `StateMismatch` that shows the difference if not."""
    differences = difference(state.pipeline, chain.identity)
    if not differences:
        return state
    try:
        carried(state, chain)
        remedy = "lz.rebase(state, pipeline) carries it over; "
    except InvalidState:
        remedy = ""
    raise StateMismatch(
        "the state belongs to another pipeline:\n"
        f"{differences}"
        f"{remedy}strict=False takes it as it is"
    )


def rebase(state: AnyState, pipeline: Chain) -> State:
    """The state, carried over to a changed pipeline, where that has a meaning. Reads no data.

    Items delivered so far stay delivered, and the rest comes in the new
    pipeline's shape. What may change:

    - the size of batches, the number of shards, the count of a `repeat`
    - functions, with nothing to carry over, and stages of functions: those that
      are inserted or removed are so from here on
    - other stages inserted: they begin here, as at the beginning of an epoch
    - the weights of a `mix`, which hold from here on, and its pipelines: changed
      as here, added or removed

    What `on_error="skip"` has left out is carried over. Where stages or the
    position change, that of a window which is read again counts once more.

    `StateMismatch`, with the reason, for everything else, and where a stage
    behind counts or holds what the changed one gives.

    >>> import lazyckpt as lz
    >>> small, large = (lz.source(range(6)) | lz.batch(n) for n in (2, 4))
    >>> state, first = lz.step(small, lz.init(small))
    >>> list(lz.run(large, rebase(state, large)))
    [[2, 3, 4, 5]]
    """
    found, pipeline = as_state(state), runnable("rebase", pipeline)
    position = carried(found, pipeline)
    names = [name for name, _ in json.loads(found.pipeline)]
    is_like = position == found.position and names == [call.name for call in pipeline.calls]
    skipped = found.skipped if is_like else found.skipped.renumbered()
    return replace(found, pipeline=pipeline.identity, position=position, skipped=skipped)


def carried(state: State, chain: Chain) -> Position:
    """The position in the chain of a state of another one; `StateMismatch` if it has none."""
    pairs = paired(state.pipeline, chain.identity)
    try:
        return _carried(state, pairs, chain)
    except (InvalidState, ArgumentError) as error:
        if isinstance(error, StateMismatch) or not any(pair.differs for pair in pairs):
            raise
        raise StateMismatch(f"the state does not fit after {_changes(pairs)}: {error}") from None


def _carried(state: State, pairs: list[Pair], chain: Chain) -> Position:
    for number, pair in enumerate(pairs):
        if pair.differs:
            _check(pair, chain, [chain.calls[p.new - 1] for p in pairs[number + 1 :] if p.met])
    with fitting(state.position):
        position = _rebuilt(state, pairs, chain)
    entered(chain.machine, position)
    before = _before(pairs, chain)
    if before.machine.epoch(position) != chain.machine.epoch(position):
        raise StateMismatch(f"the state stands beyond the end after {_changes(pairs)}")
    if any("any" in _wanted(pair, chain) for pair in pairs if pair.met):
        with fitting(position):
            apart = held_apart(before, chain, position)
        if apart is not None:
            call, is_known = apart
            raise StateMismatch(
                f"the state {'stands' if is_known else 'may stand'} beyond the end after "
                f"{_changes(pairs)}: {call!r} holds items up to there"
            )
    return position


def _before(pairs: list[Pair], chain: Chain) -> Chain:
    """The chain with the arguments that its stages had."""
    calls = list(chain.calls)
    for pair in pairs[1:]:
        if pair.met:
            call = calls[pair.new - 1]
            known = call.combinator.signature.parameters
            before = {name: known[name].default for name in pair.after} | pair.before
            try:
                fit = {
                    k: checked(call.name, k, v, call.combinator.checks.get(k, _as_it_is))
                    for k, v in before.items()
                }
            except ArgumentError as error:
                raise _refused(pair, str(error)) from None
            calls[pair.new - 1] = call.replaced(**fit)
    return Chain(tuple(calls))


def _changes(pairs: list[Pair]) -> str:
    return "; ".join(str(pair) for pair in pairs if pair.differs)


def _check(pair: Pair, chain: Chain, later: list[Call]) -> None:
    """Refuse a change that a state cannot follow; `later` are the stages behind that stay."""
    names = {**pair.before, **pair.after} if pair.met else {}
    wanted: set[str] = set()
    if pair.met:
        call = chain.calls[pair.new - 1]
        for name in names:
            if name not in call.elastic:
                raise _refused(pair, f"{name} decides about the order")
        wanted |= _wanted(pair, chain)
    elif not _is_pointwise(pair.name):
        if pair.old and not follows((pair.name, pair.before), "transparent"):
            raise _refused(pair, "what it holds or counts would be lost")
        wanted.add("transparent")
    for call in later:
        if not all(map(call.follows, wanted)):
            raise _refused(pair, f"{call!r} behind it counts what it gives")


def _wanted(pair: Pair, chain: Chain) -> set[str]:
    """What the stages behind one whose arguments change have to be."""
    elastic = chain.calls[pair.new - 1].elastic
    return {elastic[name] for name in {**pair.before, **pair.after}}


def _refused(pair: Pair, reason: str) -> StateMismatch:
    return StateMismatch(f"a state cannot follow this change: {pair}; {reason}")


def _is_pointwise(name: str) -> bool:
    return name in registry and registry[name].pointwise


def _rebuilt(state: State, pairs: list[Pair], chain: Chain) -> Position:
    """The position, taken apart as the old stages have it and put together as the new ones do."""
    machines = built(chain)
    ways = ["all"] + [
        way(call, upstream, machine)
        for call, (upstream, machine) in zip(chain.calls[1:], pairwise(machines), strict=True)
    ]
    stages = json.loads(state.pipeline)
    owned = _apart(state.position, [pair for pair in pairs if pair.old], stages, ways, set())
    if owned is None:
        raise StateMismatch("the state's position is none of the pipeline that it names")
    here: Position = None
    moved: Pair | None = None  # since which change places are made up of other parts
    for pair in pairs:
        own = owned.get(pair.old)  # None before an order of whole epochs, which alone is there
        if not pair.new:
            moved = moved or (pair if own else None)
            continue
        call, each = chain.calls[pair.new - 1], ways[pair.new - 1]
        if moved is not None and call.name in SEVERAL:
            raise _refused(moved, f"{call!r} behind it keeps several places of what it gives")
        if pair.old and each == "all":
            here = own
            if pair.differs and call.combinator.carry is not None:
                try:
                    here = call.combinator.carry(here, stages[pair.old - 1][1], **call.arguments)
                except Unfit as unfit:
                    raise _refused(pair, str(unfit)) from None
        elif here is None:
            continue
        elif not pair.old:
            here = _begun(pair, call, machines[pair.new - 2], here)
            moved = moved or (None if each == "none" else pair)
        elif bool(own) != (each == "some"):
            raise StateMismatch(
                f"a state cannot follow this change: {call!r} keeps its place in another way after "
                f"{_changes(pairs)}"
            )
        elif own:
            here = (here, *own)
    return here


def _apart(
    position: Position,
    pairs: list[Pair],
    stages: list[Described],
    ways: list[str],
    failed: set[tuple[int, Position]],
) -> dict[int, Position] | None:
    """What each old stage has of the position, () for nothing; None if they don't fit."""
    *before, pair = pairs
    if not before:
        is_known = pair.name in registry
        return None if is_known and not is_begun(position, stages[0]) else {1: position}
    if (len(before), position) in failed:
        return None
    is_through = follows((pair.name, pair.before), "transparent")
    each = ways[pair.new - 1] if pair.new else "none" if is_through else "some"
    if each == "all":
        return {pair.old: position}
    for one in ("some", "none") if pair.name in SOMETIMES else (each,):
        if one == "none":
            inner, own = position, []
        elif type(position) is tuple and position and type(position[0]) is tuple:
            inner, *own = position
        else:
            continue
        found = _apart(inner, before, stages, ways, failed)
        if found is not None:
            return {**found, pair.old: tuple(own)}
    failed.add((len(before), position))
    return None


def _begun(pair: Pair, call: Call, upstream: Machine[Any], here: Position) -> Position:
    """The position of a stage that begins where upstream is."""
    epoch = upstream.epoch(here)
    if call.is_rigid and here != upstream.init(epoch):
        raise _refused(pair, "it orders whole epochs, of which a part is gone")
    machine = call.build(upstream._replace(init=lambda epoch: here))
    return machine.init(epoch)


def _as_it_is(value: Any) -> Any:
    return value
