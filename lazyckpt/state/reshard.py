"""`reshard`: states of all ranks, converted to a different number of ranks."""

from __future__ import annotations

from collections.abc import Sequence

from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import Unfit, brief, cut
from lazyckpt.core.machine import Rank, fitting
from lazyckpt.errors import ArgumentError, StateMismatch
from lazyckpt.state.algebra import diff
from lazyckpt.state.codec import Rebased, items_before
from lazyckpt.state.mismatch import Pair, difference, paired
from lazyckpt.state.obstacles import NUM_SHARDS, in_lockstep
from lazyckpt.state.state import AnyState, State, as_state, of_all


def reshard(states: Sequence[AnyState], pipeline: Chain) -> list[State]:
    """Convert the states of all ranks to a different number of ranks, losing and repeating nothing.

    A global state, as after `shard`, applies to all ranks: it is returned unchanged, for a pipeline
    with a different number of shards. The lanes of `lanes` are dealt to the new ranks, and each
    continues from its position. The number of items delivered by all ranks is then divided evenly
    among them, so that the sum stays the same. With a `repeat` after the lanes, all ranks must
    be in the same epoch; put `repeat` into each lane instead.

    Reads no data.

    Args:
        states: The states of all ranks, in order; one is enough if it is global.
        pipeline: The pipeline of any of the new ranks. Its `num_shards` is the new number.

    Returns:
        One state per new rank.

    Raises:
        StateMismatch: If the states belong to different pipelines, are too few or too many, or are
            in the wrong order; if ranks disagree; or if a stage after the lanes or shards counts or
            holds items of its rank. The message says which.

    >>> import lazyckpt as lz
    >>> def rank(num_shards, index):
    ...     lines = [lz.source([f"{name}{n}" for n in range(3)]) for name in "abcd"]
    ...     return lz.lanes(lines, num_shards=num_shards, index=index)
    >>> states = [lz.state_at(rank(2, index), 1 + index) for index in (0, 1)]
    >>> [list(lz.run(rank(1, 0), state)) for state in lz.reshard(states, rank(1, 0))]
    [['a1', 'b1', 'c0', 'd1', 'a2', 'b2', 'c1', 'd2', 'c2']]
    """
    chain: Chain = runnable("reshard", pipeline)
    if isinstance(states, (State, str, bytes)) or not isinstance(states, Sequence) or not states:
        raise ArgumentError(f"reshard: states must be a list of states, got {brief(states)}")
    found = [as_state(state) for state in states]
    for rank, state in enumerate(found):
        if state.stages != found[0].stages:
            changed = difference(found[0].stages, state.stages)
            raise StateMismatch(f"ranks 0 and {rank} have different pipelines:\n{changed.rstrip()}")
    pairs = paired(found[0].stages, chain.entries)
    if any(pair.differs and pair.changed != [NUM_SHARDS] for pair in pairs):
        changed = difference(found[0].stages, chain.entries)
        raise StateMismatch(f"the states belong to a different pipeline:\n{changed.rstrip()}")
    divided = [number for number in range(len(pairs)) if _divides(chain, number)]
    if chain.calls[0].combinator.elastic.reshard is not None:
        if divided != [0]:
            again = chain.calls[divided[1]].name
            raise StateMismatch(f"reshard: the lanes are divided again, by {again}")
        return _dealt(found, chain, pairs[0])
    _check_inside(chain)
    if len(divided) > 1:
        raise StateMismatch("reshard: the pipeline is sharded more than once")
    if divided:
        return _shared(found, chain, pairs[divided[0]])
    _check_agreement(found)
    return found[:1]


def _divides(chain: Chain, number: int) -> bool:
    return NUM_SHARDS in chain.calls[number].combinator.elastic.changes


def _check_inside(chain: Chain) -> None:
    for inner in chain.calls[0].chains:
        if any(_divides(inner, number) for number in range(len(inner.calls))):
            raise StateMismatch(
                f"reshard: put shard after {chain.calls[0].name}, not into its pipelines"
            )
        _check_inside(inner)


def _dealt(states: list[State], chain: Chain, pair: Pair) -> list[State]:
    """Deal pipelines that each belong to one rank at a time."""
    _check_count(states, pair)
    for call, machine in zip(chain.calls[1:], chain.machines[1:], strict=True):
        if machine.owns:
            raise StateMismatch(
                f"lanes cannot change ranks: {call!r} after them counts or holds a rank's items; "
                "put it into each lane"
            )
    positions = [state.position for state in states]
    num_shards, is_same = chain.calls[0].arguments[NUM_SHARDS], not pair.changed
    deal = chain.calls[0].combinator.elastic.reshard
    assert deal is not None
    try:
        with fitting(positions):
            if not is_same:
                _check_epochs(states, chain)
            dealt = deal(positions, 1 if is_same else num_shards)  # it checks them
    except Unfit as unfit:
        raise StateMismatch(f"reshard: {unfit}") from None
    if is_same:
        return states
    whole, more = divmod(sum(state.items for state in states), num_shards)
    ranks = [Rank(rank, num_shards) if num_shards > 1 else None for rank in range(num_shards)]
    return [
        State(chain.entries, whole + (number < more), place, rank=rank)
        for number, (place, rank) in enumerate(zip(dealt, ranks, strict=True))
    ]


def _check_epochs(states: list[State], chain: Chain) -> None:
    """Refuse ranks in different epochs: all lanes of a rank are in the same one."""
    lanes = chain.machines[0].children
    epochs = [
        next(
            lane.epoch(position)
            for lane, position in zip(lanes, state.position[0], strict=True)
            if position != ()
        )
        for state in states
    ]
    for rank, epoch in enumerate(epochs):
        if epoch != epochs[0]:
            raise StateMismatch(
                f"reshard: ranks 0 and {rank} are in epochs {epochs[0]} and {epoch}, but a rank's "
                "lanes start an epoch together; put repeat() into each lane, not after "
                "them, or save while all ranks are in the same epoch"
            )


def _shared(states: list[State], chain: Chain, pair: Pair) -> list[State]:
    """Return the states of a global stream, of which each rank reads its part."""
    machines, num_shards = chain.machines, chain.calls[pair.new - 1].arguments[NUM_SHARDS]
    apart = [
        call
        for call, machine in zip(chain.calls[pair.new :], machines[pair.new :], strict=True)
        if not in_lockstep(call, machine)
    ]
    if len(states) > 1 or apart or states[0].rank is not None:
        _check_count(states, pair)
    if apart and not pair.changed:
        return states
    if apart:
        raise StateMismatch(
            f"reshard: {apart[0]!r} after {pair.name} counts or holds items of one rank; "
            f"put it before {pair.name}, or use lanes"
        )
    _check_agreement(states)
    if not pair.changed:
        return states if len(states) > 1 else states * num_shards
    if machines[pair.new - 1].rate.whole_epoch:
        raise StateMismatch(f"reshard: the parts of {pair.name} are contiguous")
    state = states[0]
    rebased = Rebased(state.items, items_before(chain.machine, state.position))
    return [State(chain.entries, state.items, state.position, state.skipped, rebased)] * num_shards


def _check_count(states: list[State], pair: Pair) -> None:
    wanted = pair.value(NUM_SHARDS)
    if len(states) != wanted:
        raise StateMismatch(
            f"reshard: {cut(pair.name)}(num_shards={brief(wanted)}) needs the states of "
            f"{brief(wanted)} ranks, got {len(states)}"
        )
    for rank, state in enumerate(states):
        if state.rank is not None and state.rank != (rank, wanted):
            raise StateMismatch(
                f"reshard: expected the state of rank {rank}, got that of {state.rank}"
            )


def _check_agreement(states: list[State]) -> None:
    for rank, state in enumerate(states):
        if of_all(state) != of_all(states[0]):
            raise StateMismatch(f"ranks 0 and {rank} disagree: {diff(states[0], state)}")
