"""The laws of a pipeline, each a function that raises `AssertionError` with the difference."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any

from lazyckpt.combinators.batch import batch
from lazyckpt.combinators.lanes import lanes
from lazyckpt.combinators.map import map as mapped
from lazyckpt.combinators.shard import shard
from lazyckpt.combinators.take import take
from lazyckpt.core.call import Chain
from lazyckpt.core.checks import brief
from lazyckpt.core.content import INNER, ROOM
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import End
from lazyckpt.core.user_state import Own
from lazyckpt.executors.local import inline, threads
from lazyckpt.pipeline import Pipeline, Stage, run
from lazyckpt.run import Run
from lazyckpt.state.algebra import advance, diff, init, replay, state_at, step
from lazyckpt.state.rebase import rebase
from lazyckpt.state.reshard import reshard
from lazyckpt.state.state import State
from lazyckpt.testing.claims import itemwise, local, positions, rates, rereading, sharing
from lazyckpt.testing.models import model
from lazyckpt.testing.traces import Trace, modes, raises, same

Law = Callable[[Pipeline[Any], int], None]


def meaning(pipeline: Pipeline[Any], limit: int) -> None:
    """The items of two epochs equal those of the naive list model."""
    expected = model(pipeline)
    for epoch in (0, 1):
        found = Trace(pipeline.machine, epoch, limit).items
        same(f"items of epoch {epoch}", found, list(islice(expected(epoch), limit)))


def resume(pipeline: Pipeline[Any], limit: int) -> None:
    """Resuming at any point, even twice, yields exactly the rest; states have no side effects."""
    trace = Trace(pipeline.machine, 0, limit)
    disturbed: Run[Any] = Run(pipeline)
    states = [disturbed.state]
    for _, state in islice(disturbed.with_state(), len(trace.items)):
        states.append(state)
    same("states of a run", [s.position for s in states], trace.positions)
    same("items counted", [s.items for s in states], list(range(len(trace.items) + 1)))
    for cut in trace.cuts():
        again: Run[Any] = Run(pipeline, states[cut])
        middle = (len(trace.items) - cut) // 2
        same(f"resumed at {cut}", list(islice(again, middle)), trace.items[cut : cut + middle])
        same(f"the state after resuming at {cut}", again.state, states[cut + middle])
        twice: Run[Any] = Run(pipeline, again.state)
        rest = list(islice(twice, len(trace.items) - cut - middle))
        same(f"resumed at {cut}, then {cut + middle}", rest, trace.items[cut + middle :])
        disturbed.load_state_dict(states[cut].to_dict())
        few = trace.items[cut : cut + 3]
        same(f"loaded at {cut}", list(islice(disturbed, len(few))), few)
    if trace.ended:
        whole: Run[Any] = Run(pipeline)
        same("the whole run", list(whole), trace.items)
        same("the state at the end", whole.state.position, trace.end)
        same("after the end", list(Run(pipeline, whole.state)), [])


def codec(pipeline: Pipeline[Any], limit: int) -> None:
    """States survive JSON after any item, in one line of ASCII of at most 1 KB.

    Each stage of a joined pipeline may add 40 bytes.
    """
    room = room_of_states(pipeline)
    trace = Trace(pipeline.machine, 0, limit)
    for number, position in enumerate([*trace.positions, trace.end or trace.positions[0]]):
        state = State(pipeline.entries, number, position)
        text = state.to_json()
        same("a state through JSON", State.from_json(text), state)
        same("a state through a dict", State.from_dict(json.loads(text)), state)
        assert text.isascii(), f"not ASCII: {text}"
        assert "\n" not in text, f"more than a line: {text}"
        assert len(text) <= room or _carries_user_state(position), f"{len(text)} bytes: {text}"
        hash(state)


def room_of_states(pipeline: Chain) -> int:
    """Return the most bytes that a state may have, without a state of the user's own."""
    return ROOM + INNER * _inner_stages(pipeline)


def _inner_stages(pipeline: Chain) -> int:
    return sum(len(each.calls) + _inner_stages(each) for each in pipeline.calls[0].chains)


def _carries_user_state(position: Position) -> bool:
    if isinstance(position, Own):
        return True
    return isinstance(position, tuple) and any(map(_carries_user_state, position))


def purity(pipeline: Pipeline[Any], limit: int) -> None:
    """Stepping a state again, in any order, yields equal results; positions are nested tuples."""
    trace = Trace(pipeline.machine, 0, limit)
    for number in reversed(range(len(trace.items))):
        for _ in range(2):
            expected = trace.positions[number + 1], trace.items[number]
            same(f"step {number}, repeated", trace.step(number), expected)
    for position in trace.positions:
        assert _is_position(position), f"not nested tuples of ints: {brief(position)}"
    state = init(pipeline)
    if trace.items:
        after, item = step(pipeline, state)
        same("lz.step", (after.position, item), (trace.positions[1], trace.items[0]))
        same("lz.state_at", state_at(pipeline, 1), after)


def advancing(pipeline: Pipeline[Any], limit: int) -> None:
    """`advance` reaches the same state as n steps, and `replay` returns the item after a state."""
    trace = Trace(pipeline.machine, 0, limit)
    states = [State(pipeline.entries, *each) for each in enumerate(trace.positions)]
    cuts = trace.cuts()[:: max(1, len(trace.cuts()) // 6)]
    for cut in cuts:
        for target in (target for target in cuts if target >= cut):
            found = advance(pipeline, states[cut], target - cut)
            same(f"from {cut} to {target}", found, states[target])
        if cut < len(trace.items):
            same(f"replayed after {cut}", replay(pipeline, states[cut]), trace.items[cut])
        difference = diff(states[0], states[cut])
        assert difference.items == cut, f"{difference} from 0 to {cut}"
        assert bool(difference) == (cut > 0), f"{difference} from 0 to {cut}"
    assert all(a < b for a, b in pairwise(states)), "states are not in the order of their items"
    if trace.ended:
        raises(IndexError, lambda: advance(pipeline, states[0], len(states)))


def _is_position(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_position, value))
    return type(value) in (int, Own)


def algebra(pipeline: Pipeline[Any], limit: int) -> None:
    """`|` is associative; equal pipelines yield equal items; repr and pickle preserve the value."""
    trace = Trace(pipeline.machine, 0, limit)
    head, tail = pipeline.calls[:1], pipeline.calls[1:]
    for cut in range(1, len(tail)):
        left: Stage[Any, Any] = Stage(tail[:cut])
        right: Stage[Any, Any] = Stage(tail[cut:])
        start: Pipeline[Any] = Pipeline(head)
        for other in (start | left | right, start | (left | right)):
            assert other == pipeline, f"not associative at {cut}: {other!r}"
            assert repr(other) == repr(pipeline), f"a different repr: {other!r}"
    rebuilt: Pipeline[Any] = Pipeline(pipeline.calls)
    same("an equal pipeline", list(islice(rebuilt, limit)), trace.items)
    try:
        copy = pickle.loads(pickle.dumps(pipeline))
    except (pickle.PicklingError, AttributeError, TypeError):
        return  # its functions or data don't pickle
    assert repr(copy) == repr(pipeline), f"pickle made {copy!r}"
    same("a pickled pipeline", list(islice(copy, limit)), trace.items)
    same("a pickled pipeline's entries", copy.entries, pipeline.entries)
    assert copy.calls[0].site == pipeline.calls[0].site, "pickle forgets where it was built"


def exhaustion(pipeline: Pipeline[Any], limit: int) -> None:
    """A finished run stays finished; asking again ends again without touching the source."""
    machine = pipeline.machine
    trace = Trace(machine, 0, limit)
    if not trace.ended:
        return
    for position in (trace.positions[-1], trace.end, trace.end):
        try:
            machine.step(position)
        except End as end:
            same(f"the end from {position}", end.position, trace.end)
        else:
            raise AssertionError(f"an item after the end, from {position}")
    flow = machine.flow(machine.init(0))
    stream = iter(flow)
    for _ in stream:
        pass
    for _ in range(2):
        assert next(stream, End) is End, "an item after the end of a flow"
        same("the end of a flow, requested again", flow.snapshot(), trace.end)
    states = [machine.init(0), machine.init(1), trace.end]
    assert len(set(states)) == 3 or not trace.items, f"beginning, end, next epoch: {states}"


def elastic(pipeline: Pipeline[Any], limit: int) -> None:
    """Changing the number of shards or the batch size loses nothing and repeats nothing."""
    trace = Trace(pipeline.machine, 0, limit)
    items = trace.items
    for old, new, steps in ((1, 3, 2), (3, 2, 1), (2, 5, 3)):
        small, large = (pipeline | batch(size) for size in (old, new))
        before: Run[Any] = Run(small)
        head = list(chain.from_iterable(islice(before, steps)))
        after: Run[Any] = Run(large, rebase(before.state, large))
        found = list(islice(chain(head, chain.from_iterable(after)), limit))
        same(f"batches of {old}, then {new}", found, items)
    for old, new, steps in ((1, 3, 2), (3, 2, 1), (2, 5, 2)):
        runs = [run(pipeline | shard(num_shards=old, index=rank)) for rank in range(old)]
        heads = [list(islice(rank, steps)) for rank in runs]
        full = len(items) >= old * steps
        assert not full or len({rank.state.position for rank in runs}) == 1, "ranks disagree"
        if not full:
            continue
        others = [pipeline | shard(num_shards=new, index=rank) for rank in range(new)]
        tails = [list(islice(run(o, rebase(runs[-1].state, o)), limit)) for o in others]
        found = [*_dealt(heads), *_dealt(tails)][:limit]
        same(f"{old} shards, then {new}", found, items)
    if trace.ended:
        pairs = [pipeline | shard(num_shards=3, index=rank) | batch(2) for rank in range(3)]
        ends = {Trace(rank.machine, 0, limit).end for rank in pairs}
        assert len(ends) == 1, f"ranks end at different positions: {ends}"


def resharding(pipeline: Pipeline[Any], limit: int) -> None:
    """Dealing lanes and shards to other numbers of ranks, twice, loses and repeats nothing."""
    items = Trace(pipeline.machine, 0, min(limit, 30)).items
    parts = [pipeline | take(len(items)) | mapped(partial(_tagged, lane)) for lane in range(4)]
    found: list[list[Any]] = [[] for _ in parts]
    states: list[State] = []
    for size, steps in ((3, len(items) // 2), (1, len(items)), (2, limit)):
        ranks = [lanes(parts, num_shards=size, index=rank) for rank in range(size)]
        states = reshard(states, ranks[0]) if states else [init(rank) for rank in ranks]
        runs = [run(rank, state) for rank, state in zip(ranks, states, strict=True)]
        for number, each in enumerate(runs):
            for lane, item in islice(each, steps + number):
                found[lane].append(item)
        states = [each.state for each in runs]
    for lane, mine in enumerate(found):
        same(f"lane {lane} of 3, then 1, then 2 ranks", mine, items)
    if len(items) >= 2 and not _is_divided(pipeline):
        state = state_at(pipeline | shard(num_shards=2, index=0), 1)
        for size in (1, 2, 3):
            part = pipeline | shard(num_shards=size, index=0)
            states = reshard([state], part)
            assert [s.position for s in states] == [state.position] * size, f"moved: {states}"
            run(part, states[0])


def _is_divided(pipeline: Chain) -> bool:
    inner = pipeline.calls[0].chains
    return any("num_shards" in call.combinator.elastic.changes for call in pipeline.calls) or any(
        map(_is_divided, inner)
    )


def _tagged(lane: int, item: Any) -> tuple[int, Any]:
    return lane, item


def executors(pipeline: Pipeline[Any], limit: int) -> None:
    """Workers yield the same items and states, and a state can be resumed under other workers."""
    trace = Trace(pipeline.machine, 0, limit)
    count, last = len(trace.items), len(trace.items) // 2
    for executor, other in ((threads(), threads(2, buffer_size=3)), (threads(3), inline())):
        with run(pipeline, executor=executor) as made:
            found = list(islice(made.with_state(), count))
            same(f"items of {executor}", [item for item, _ in found], trace.items)
            positions = [(state.items, state.position) for _, state in found]
            same(f"states of {executor}", positions, [*enumerate(trace.positions)][1:])
            if trace.ended:
                same(f"after the end of {executor}", list(made), [])
                same(f"the end of {executor}", made.state.position, trace.end)
        if count:
            with run(pipeline, found[last][1], executor=other) as rest:
                resumed = list(islice(rest, count - last - 1))
            same(f"from {executor} on in {other}", resumed, trace.items[last + 1 :])


def _dealt(hands: Sequence[Sequence[Any]]) -> Iterator[Any]:
    for turn in range(max(map(len, hands), default=0)):
        for hand in hands:
            if turn < len(hand):
                yield hand[turn]


LAWS: dict[str, Law] = {
    "meaning": meaning,
    "modes": modes,
    "resume": resume,
    "codec": codec,
    "purity": purity,
    "advancing": advancing,
    "algebra": algebra,
    "exhaustion": exhaustion,
    "elastic": elastic,
    "resharding": resharding,
    "rereading": rereading,
    "rates": rates,
    "positions": positions,
    "sharing": sharing,
    "itemwise": itemwise,
    "local": local,
    "executors": executors,
}


class Stream:
    """A repeatable iterable without indices that counts the items taken."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = list(items)
        self.pulled = 0

    def __iter__(self) -> Iterator[Any]:
        for item in self.items:
            self.pulled += 1
            yield item
        self.pulled += 1

    def __len__(self) -> int:
        return len(self.items)
