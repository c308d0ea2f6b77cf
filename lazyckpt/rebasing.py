"""Whether a state belongs to a pipeline, and how it follows a change of it: `rebase`."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from lazyckpt.call import Call, Chain, runnable
from lazyckpt.catalogue import registry
from lazyckpt.checks import Unfit, checked
from lazyckpt.errors import ArgumentError, StateMismatch
from lazyckpt.layers import follows
from lazyckpt.machine import Machine, Position, entered, fitting
from lazyckpt.state import AnyState, State, as_state

_MOST = 500  # stages of two pipelines that are compared


def matching(state: State, chain: Chain) -> State:
    """The state, if it belongs to the chain; a `StateMismatch` that shows the difference if not."""
    if state.pipeline == chain.identity:
        return state
    try:
        carried(state, chain)
        remedy = "lz.rebase(state, pipeline) carries it over; "
    except StateMismatch:
        remedy = ""
    raise StateMismatch(
        "the state belongs to another pipeline:\n"
        f"{difference(state.pipeline, chain.identity)}"
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
    skipped = found.skipped if is_like else found.skipped.anew()
    return replace(found, pipeline=pipeline.identity, position=position, skipped=skipped)


class _Pair(NamedTuple):
    """A stage as it was and as it is: its numbers from 1, or 0 for none, and what differs."""

    old: int
    new: int
    name: str
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def met(self) -> bool:
        return bool(self.old and self.new)

    @property
    def differs(self) -> bool:
        return not self.met or self.before != self.after

    def __str__(self) -> str:
        old, new = (
            _cut(f"{self.name}({', '.join(f'{k}={json.dumps(v)}' for k, v in values.items())})")
            for values in (self.before, self.after)
        )
        if self.met:
            return f"stage {self.new}: {old} -> {new}"
        return f"stage {self.new}: {new} is new" if self.new else f"stage {self.old}: {old} is gone"


def difference(old: str, new: str) -> str:
    """A line for each stage in which two descriptions of pipelines differ."""
    stages = [[name for name, _ in json.loads(each)] for each in (old, new)]
    if stages[0] != stages[1]:
        return f"    {_cut(' | '.join(stages[0]))}\n -> {_cut(' | '.join(stages[1]))}\n"
    return "".join(f"    {pair}\n" for pair in _pairs(old, new) if pair.differs)


def _pairs(old: str, new: str) -> list[_Pair]:
    """The stages of two descriptions, those that belong together as one."""
    stages = json.loads(old), json.loads(new)
    (first, *before), (source, *after) = (each or [["nothing", {}]] for each in stages)
    if first[0] != source[0]:
        raise StateMismatch(f"a state cannot follow this change: {_cut(first[0])} -> {source[0]}")
    if len(before) * len(after) > _MOST**2:
        raise StateMismatch(f"a pipeline of {len(before) + 1:,} stages -> {len(after) + 1:,}")
    found, i, j = [_pair(1, 1, first, source)], 1, 1
    for one, other in _aligned(before, after):
        i, j = i + (one is not None), j + (other is not None)
        found.append(_pair(i if one else 0, j if other else 0, one, other))
    return found


def _pair(old: int, new: int, before: list[Any] | None, after: list[Any] | None) -> _Pair:
    one, other = (stage[1] if stage else {} for stage in (before, after))
    names = [k for k in {**one, **other} if one.get(k, ...) != other.get(k, ...)]
    kept = ({k: args[k] for k in names if k in args} for args in (one, other))
    return _Pair(old, new, (before or after or [""])[0], *kept)


def _aligned(
    old: list[list[Any]], new: list[list[Any]]
) -> list[tuple[list[Any] | None, list[Any] | None]]:
    """The stages that belong together, so that as little as can be differs; None for a lack."""
    best: dict[tuple[int, int], tuple[int, int, int]] = {}  # the price, and the step that led here
    for i in range(len(old) + 1):
        for j in range(len(new) + 1):
            ways = [(0, 0, 0)] * (i == j == 0)
            if i and j and old[i - 1][0] == new[j - 1][0]:
                ways.append((best[i - 1, j - 1][0] + (old[i - 1] != new[j - 1]), 1, 1))
            if i:
                ways.append((best[i - 1, j][0] + 2, 1, 0))
            if j:
                ways.append((best[i, j - 1][0] + 2, 0, 1))
            best[i, j] = min(ways, key=lambda way: way[0])
    pairs: list[tuple[list[Any] | None, list[Any] | None]] = []
    i, j = len(old), len(new)
    while i or j:
        _, one, other = best[i, j]
        i, j = i - one, j - other
        pairs.append((old[i] if one else None, new[j] if other else None))
    return pairs[::-1]


def carried(state: State, chain: Chain) -> Position:
    """The position in the chain of a state of another one; `StateMismatch` if it has none."""
    pairs = _pairs(state.pipeline, chain.identity)
    for number, pair in enumerate(pairs):
        if pair.differs:
            _check(pair, chain, [chain.calls[p.new - 1] for p in pairs[number + 1 :] if p.met])
    with fitting(state.position):
        position = _rebuilt(state, pairs, chain)
    entered(chain.machine, position)
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
    if Chain(tuple(calls)).machine.epoch(position) != chain.machine.epoch(position):
        changed = "; ".join(str(pair) for pair in pairs if pair.differs)
        raise StateMismatch(f"the state stands beyond the end after {changed}")
    return position


def _check(pair: _Pair, chain: Chain, later: list[Call]) -> None:
    """Refuse a change that a state cannot follow; `later` are the stages behind that stay."""
    names = {**pair.before, **pair.after} if pair.met else {}
    wanted = set()
    if pair.met:
        call = chain.calls[pair.new - 1]
        for name in names:
            if name not in call.elastic:
                raise _refused(pair, f"{name} decides about the order")
            wanted.add(call.elastic[name])
    elif not _is_pointwise(pair.name):
        if pair.old and not follows((pair.name, pair.before), "transparent"):
            raise _refused(pair, "what it holds or counts would be lost")
        wanted.add("transparent")
    for call in later:
        if not all(map(call.follows, wanted)):
            raise _refused(pair, f"{call!r} behind it counts what it gives")


def _refused(pair: _Pair, reason: str) -> StateMismatch:
    return StateMismatch(f"a state cannot follow this change: {pair}; {reason}")


def _is_pointwise(name: str) -> bool:
    return name in registry and registry[name].pointwise


def _rebuilt(state: State, pairs: list[_Pair], chain: Chain) -> Position:
    """The position, taken apart as the old stages have it and put together as the new ones do."""
    machines: list[Machine[Any]] = []
    for call in chain.calls:
        machines.append(call.build(machines[-1] if machines else None))
    ways = ["all"] + [
        way(call, upstream, machine)
        for call, (upstream, machine) in zip(chain.calls[1:], pairwise(machines), strict=True)
    ]
    position, owned = state.position, dict[int, Position]()
    for pair in [pair for pair in pairs if pair.old][::-1]:
        is_through = follows((pair.name, pair.before), "transparent")
        each = ways[pair.new - 1] if pair.new else "none" if is_through else "some"
        if each == "all":
            owned[pair.old] = position
            break
        if each == "some":
            position, *own = position
            owned[pair.old] = tuple(own)
    here: Position = None
    for pair in [pair for pair in pairs if pair.new]:
        call, each = chain.calls[pair.new - 1], ways[pair.new - 1]
        if not pair.old:
            here = None if here is None else _begun(pair, call, machines[pair.new - 2], here)
        elif each == "all":
            here = owned.get(pair.old)
            if pair.differs and call.combinator.carry is not None:
                before = json.loads(state.pipeline)[pair.old - 1][1]
                try:
                    here = call.combinator.carry(here, before, **call.arguments)
                except Unfit as unfit:
                    raise _refused(pair, str(unfit)) from None
        elif each == "some" and pair.old in owned:
            here = (here, *owned[pair.old])
    return here


def _begun(pair: _Pair, call: Call, upstream: Machine[Any], here: Position) -> Position:
    """The position of a stage that begins where upstream is."""
    epoch = upstream.epoch(here)
    if call.is_rigid and here != upstream.init(epoch):
        raise _refused(pair, "it orders whole epochs, of which a part is gone")
    machine = call.build(upstream._replace(init=lambda epoch: here))
    return machine.init(epoch)


def way(call: Call, upstream: Machine[Any], machine: Machine[Any]) -> str:
    """How much of a position is the stage's own: "none", "some" (behind upstream's), "all"."""
    before, after = shape(upstream.init(0)), shape(machine.init(0))
    if before == after:
        return "all" if call.is_rigid else "none"
    return "some" if after and after[0] == before else "all"


def shape(position: Position) -> Any:
    """A position without its numbers."""
    return tuple(map(shape, position)) if type(position) is tuple else ()


def _as_it_is(value: Any) -> Any:
    return value


def _cut(text: str) -> str:
    """What a state says, as an error may show it: in one line, and no control codes."""
    return "".join(c if c.isprintable() else "?" for c in text[:1000])
