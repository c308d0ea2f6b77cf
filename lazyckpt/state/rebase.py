"""Checking a state against a pipeline, and carrying it over to a changed one: `rebase`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from lazyckpt.core.call import Call, Chain, naming, runnable
from lazyckpt.core.checks import Unfit, checked
from lazyckpt.core.content import Entries, alike_functions, decode
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import MISFITS, MOST, Machine, begun, entered, finest, fitting, rank_of
from lazyckpt.core.values import is_function
from lazyckpt.errors import ArgumentError, InvalidState, SourceChanged, StateMismatch
from lazyckpt.state.codec import OwnPart, Rebased, items_before, items_before_in_epoch, own_parts
from lazyckpt.state.mismatch import Pair, difference, paired
from lazyckpt.state.obstacles import (
    changes_of,
    check_anchors,
    check_change,
    check_later_stages,
    data_before,
    held_apart,
    refused,
    requirements_of,
)
from lazyckpt.state.state import AnyState, State, as_state


def matching(state: State, chain: Chain) -> State:
    """Return the state, if it belongs to the chain; otherwise raise `StateMismatch`."""
    differences = difference(state.stages, chain.entries)
    if not differences:
        check_rank(state, chain)
        return state
    reasons = "".join(f"    {reason}\n" for reason in _reasons(state.stages, chain))
    remedy = _remedy(state, chain)
    raise StateMismatch(
        "the state belongs to a different pipeline:\n"
        f"{differences}{reasons}"
        f"{remedy}strict=False accepts it as it is"
    )


def _reasons(old: Entries, chain: Chain) -> Iterator[str]:
    """Yield the data's own descriptions of how they differ from those recorded in a state."""
    (was, *_), call = old, chain.calls[0]
    before = call.combinator.elastic.before
    if before is not None and was.name == call.name and "digest" in was.known:
        try:
            before(was.known, **call.arguments)
        except Unfit as unfit:
            yield str(unfit)
    for entries, inner in zip(was.pipelines, call.chains, strict=False):
        yield from _reasons(entries, inner)


def check_rank(state: State, chain: Chain) -> None:
    """Raise a `StateMismatch` if the state of one rank doesn't belong to the chain's rank."""
    rank = rank_of(chain.machine)
    if state.rank is not None and state.rank not in map(rank_of, chain.machines):
        raise StateMismatch(
            f"the state is that of {state.rank} alone, but the pipeline is "
            f"{f'that of {rank}' if rank else 'not divided among ranks'}. Other ranks are "
            "elsewhere after as many items: a stage after shard isn't rank-invariant, or may fail "
            'under on_error="skip", as a collate may. Save and load one state per rank '
            "(a loader with group= has one for all), or use lz.reshard to convert all states to a "
            "different number of ranks"
        )


def _remedy(state: State, chain: Chain) -> str:
    try:
        followed(state, chain)
    except (InvalidState, SourceChanged):
        return ""
    return "use lz.rebase(state, pipeline) to carry it over; "


def rebase(state: AnyState, pipeline: Chain) -> State:
    """Carry a state over to a changed pipeline, if that is well defined. Reads no data.

    Items already delivered stay delivered; the rest come as the new pipeline yields them. These
    may change:

    - the batch size, the length of packed rows, the number of shards, the count of a `repeat`
    - functions and their arguments, and the padding of packed rows, from the next item on
    - stages that only call functions (`map`, `filter`, ...), which may be inserted or removed,
      from the next item on
    - `exclude`, which may be inserted, and its ranges, from the next item on
    - other stages may be inserted: they start here, as at the beginning of an epoch
    - the weights of a `mix` and the budget of `token_batch`, from the next item on; a function of
      weights needs a name, from `schedule`
    - the pipelines of a `mix`, which may be changed (as listed here), added or removed, and those
      of `lanes`, which may be changed
    - the data, to which items may be appended: a longer sequence, table or array, or more files
      of a listing or of a reader. The epoch continues to the new end. If a stage orders whole
      epochs, such as `shuffle`, change between two epochs
    - seeds: of stages that draw for each item independently at any time, of stages that shuffle
      between two epochs

    The new state records the change in `rebased`. Item numbers still count everything delivered;
    the new pipeline's own item number may differ.

    The count of skipped items is carried over. If stages or the position change, items skipped in
    a window that is re-read are counted twice.

    Args:
        state: A state of the old pipeline.
        pipeline: The new pipeline.

    Raises:
        StateMismatch: For any other change, with the reason. Also if a stage after the changed one
            holds its items, so that a resume would re-read them; or if ranks are at different
            positions, as after `shard(...) | filter(...)`.

    >>> import lazyckpt as lz
    >>> small, large = (lz.source(range(6)) | lz.batch(n) for n in (2, 4))
    >>> state, first = lz.step(small, lz.init(small))
    >>> list(lz.run(large, rebase(state, large)))
    [[2, 3, 4, 5]]
    """
    return followed(as_state(state), runnable("rebase", pipeline))


def followed(found: State, pipeline: Chain, was: Chain | None = None) -> State:
    """Rebase a state whose pipeline is known, with its functions, which a state doesn't record."""
    items = found.own_items
    _check_named(found, pipeline, was)
    rank = finest(found.rank, pipeline.own_rank)
    position = carried(found.stages, found.position, pipeline, items=items, was=was)
    check_rank(found, pipeline)
    # A record that killed a worker of the old pipeline may not kill one of the new pipeline.
    skipped = found.skipped.at(found.skipped.marks)
    if found.stages == pipeline.entries:
        known = found.stages, found.items, found.position
        return State(*known, skipped, found.rebased, rank) if found.skipped.lost else found
    names = [entry.name for entry in found.stages]
    is_like = position == found.position and names == [call.name for call in pipeline.calls]
    return State(
        pipeline.entries,
        found.items,
        position,
        skipped if is_like else skipped.renumbered(),
        Rebased(found.items, items_before(pipeline.machine, position)),
        rank,
    )


def _check_named(found: State, pipeline: Chain, was: Chain | None) -> None:
    """Refuse an unnamed function that decides the order, because it may be a different one."""
    unnamed = [each for call in pipeline.calls for each in call.unnamed]
    if not unnamed or (was is None and found.stages == pipeline.entries):
        return
    before = [each for call in was.calls for each in call.unnamed] if was is not None else []
    if not alike_functions([value for _, value in before], [value for _, value in unnamed]):
        what, function = unnamed[0]
        raise StateMismatch(
            f"a state cannot follow this change: {what} is a function, which a state doesn't "
            f"record, so it may be a different one. {naming(function)}"
        )


def carried(
    stages: Entries,
    position: Position,
    chain: Chain,
    *,
    items: int | None = None,
    was: Chain | None = None,
) -> Position:
    """Carry a position over from a different pipeline; raise `StateMismatch` if that is impossible.

    Args:
        stages: The stages of the old pipeline.
        position: The position.
        chain: The new pipeline.
        items: Number of items that the old pipeline had yielded from its beginning, if known.
        was: The old pipeline, if known.
    """
    pairs = paired(stages, chain.entries)
    if was is not None:
        pairs = _with_functions(pairs, was, chain)
        for number, one, other in _counterparts(was, chain):
            there = own_parts(stages, position)[0].children[number]
            if there != ():
                carried(one.entries, there, other, was=one)
    try:
        return _carried(stages, position, pairs, chain, items)
    except (InvalidState, ArgumentError, SourceChanged) as error:
        if isinstance(error, StateMismatch) or not any(pair.differs for pair in pairs):
            raise
        raise StateMismatch(f"the state does not fit after {changes_of(pairs)}: {error}") from None


def _carried(
    stages: Entries,
    position: Position,
    pairs: list[Pair],
    chain: Chain,
    items: int | None,
) -> Position:
    wanted = [check_change(pair, chain) if pair.differs else None for pair in pairs]
    before = _before(pairs, chain)
    with fitting(position):
        check_anchors(pairs, chain, own_parts(stages, position))
        new = _rebuilt(stages, position, pairs, chain, before, items)
    entered(chain.machine, new)
    with fitting(new):
        check_later_stages(pairs, wanted, chain, new)
    if before.machine.epoch(new) != chain.machine.epoch(new):
        raise StateMismatch(f"the state is beyond the end after {changes_of(pairs)}")
    if any({"any", "grown"} & requirements_of(pair, chain) for pair in pairs if pair.met):
        with fitting(new):
            apart = held_apart(before, chain, new)
        if apart is not None:
            call, is_known = apart
            raise StateMismatch(
                f"the state {'is' if is_known else 'may be'} beyond the end after "
                f"{changes_of(pairs)}: {call!r} holds items up to there"
            )
    return new


def _with_functions(pairs: list[Pair], was: Chain, now: Chain) -> list[Pair]:
    """Pair the stages of two pipelines; note differences of functions and joined pipelines."""
    inner = set[str]()
    for _, one, other in _counterparts(was, now):
        for pair in _with_functions(paired(one.entries, other.entries), one, other):
            inner |= check_change(pair, other) if pair.functions or pair.inner else set()
    found = [pair._replace(functions=_others(pair, was, now)) for pair in pairs]
    return [found[0]._replace(inner=frozenset(inner)), *found[1:]]


def _others(pair: Pair, was: Chain, now: Chain) -> tuple[str, ...]:
    """Return the arguments of a stage that are, or are passed to, different functions."""
    if not pair.met:
        return ()
    call = now.calls[pair.new - 1]
    old, new = was.calls[pair.old - 1].arguments, call.arguments
    names = [
        name
        for name in old
        if is_function(old[name]) or is_function(new[name]) or call.combinator.is_called_with(name)
    ]
    return tuple([name for name in names if not alike_functions(old[name], new[name])])


def _counterparts(was: Chain, now: Chain) -> Iterator[tuple[int, Chain, Chain]]:
    """Pair the pipelines that two stages join, by number.

    Pipelines at the same number are paired if they begin in the same way; otherwise any that do.
    If none does, pipelines of the same origin are paired.
    """
    old = was.calls[0].chains
    for number, other in enumerate(now.calls[0].chains):
        likely = [n for n, one in enumerate(old) if one.entries[0] == other.entries[0]] or [
            n for n, one in enumerate(old) if origin(one.entries) == origin(other.entries)
        ]
        for n in [number] if number in likely else likely:
            yield n, old[n], other


def origin(entries: Entries) -> Any:
    """Return the part of a state's entries that identifies a pipeline among those joined.

    It is the source, by name if it has one. A joined pipeline is the one of its first part.
    """
    entry = entries[0]
    name = entry.known.get("name")
    if name:
        return str(name)
    return (entry.name, origin(entry.pipelines[0])) if entry.pipelines else entry


def _before(pairs: list[Pair], chain: Chain) -> Chain:
    """Return the chain with the old arguments of its stages, except those that carry them over."""
    calls = list(chain.calls)
    for pair in pairs:
        if pair.met:
            call = calls[pair.new - 1]
            old = data_before(pair, call)
            if pair.new > 1 and call.combinator.elastic.rebase is None:
                old |= _told(pair, call, but=old)
            calls[pair.new - 1] = call.replaced(**old)
    return Chain(tuple(calls))


def _told(pair: Pair, call: Call, but: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that differ, as recorded in the state."""
    known, checks = call.combinator.signature.parameters, call.combinator.checks
    was = pair.was.known if pair.was is not None else {}
    try:
        old = {
            name: checked(call.name, name, decode(was[name]), checks[name])
            if name in was
            else known[name].default
            for name in pair.changed
            if name in checks and name not in but and not call.combinator.changes_items(name)
        }
        if any(each is inspect.Parameter.empty for each in old.values()):
            raise InvalidState("the state lacks an argument")
    except MISFITS as error:
        raise refused(pair, str(error)) from None
    return old


def _rebuilt(
    stages: Entries,
    position: Position,
    pairs: list[Pair],
    chain: Chain,
    before: Chain,
    items: int | None,
) -> Position:
    """Divide a position among the old stages, and join the parts for the new ones."""
    parts = own_parts(stages, position)
    here: Position = ()
    moved: Pair | None = None  # the first change of the parts of the position
    for pair in pairs:
        if not pair.new:
            moved = moved or (pair if parts[pair.old - 1].own is not None else None)
            continue
        call, machine = chain.calls[pair.new - 1], chain.machines[pair.new - 1]
        if not pair.old:
            is_last = pair is pairs[-1] and not any(each.differs for each in pairs[:-1])
            here = _begun(
                pair, call, chain.machines[pair.new - 2], here, items if is_last else None
            )
            moved = moved or (pair if machine.owns else None)
            continue
        part = parts[pair.old - 1]
        if (part.own is not None) != machine.owns:
            raise refused(pair, "its position has a different form")
        if pair.new == 1:
            here = _source(pair, part, call)
        elif machine.owns:
            here = (here, *_rebased(pair, part.own or (), call))
            if moved and sum(not each.alone for each in machine.rereads(here)) > 1:
                raise refused(moved, f"{call!r} after it keeps several positions of its items")
            if pairs[0].changed and machine.rate.whole_epoch:
                here = _still_ended(before.machines[pair.new - 1], machine, here)
    return here


def _still_ended(before: Machine[Any], machine: Machine[Any], here: Position) -> Position:
    """Return the end of an epoch, if the stage orders whole epochs and was at the end before."""
    is_amid = before.skip is not None and before.skip(here, 1)[1]
    if is_amid or machine.skip is None or not begun(before, here):
        return here
    return machine.skip(machine.init(machine.epoch(here)), MOST)[0]


def _source(pair: Pair, part: OwnPart, call: Call) -> Position:
    assert pair.was is not None
    if not pair.was.pipelines:
        return part.own
    return _rebased(pair, (part.children, *(part.own or ())), call)


def _rebased(pair: Pair, own: Position, call: Call) -> Position:
    """Return a source's position, or a stage's own part, after a change of its arguments."""
    elastic = call.combinator.elastic
    names = [name for name in pair.changed if elastic.changes.get(name) != "blind"]
    if elastic.rebase is None or not (names or pair.functions):
        return own
    try:
        return elastic.rebase(own, pair.was, **call.arguments)
    except Unfit as unfit:
        raise refused(pair, str(unfit)) from None


def _begun(
    pair: Pair, call: Call, upstream: Machine[Any], here: Position, items: int | None
) -> Position:
    """Return the position of a stage that starts at upstream's position, after `items` if known."""
    epoch = upstream.epoch(here)
    if call.combinator.elastic.inserted is not None:
        before = items_before_in_epoch(upstream, here)
        if before is None and not epoch:
            before = items
        if before is None:
            raise refused(pair, "the items before it can't be counted without reading the data")
        return (here, *call.combinator.elastic.inserted(before))
    machine = call.build(upstream._replace(init=lambda epoch: here))
    if machine.rate.whole_epoch and here != upstream.init(epoch):
        raise refused(pair, "it orders whole epochs, and the current one is partly delivered")
    return machine.init(epoch)
