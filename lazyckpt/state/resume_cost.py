"""What a resume reads again, told before it is done: `resume_cost`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lazyckpt.core.call import Call, Chain, runnable
from lazyckpt.core.machine import Machine, Position, entered, fitting
from lazyckpt.core.registry import Taken
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import AnyState, as_state
from lazyckpt.state.windows import begun_again, built


@dataclass(frozen=True, slots=True)
class Reread:
    """What one stage takes again, where a run is resumed.

    - `stage`: its number in the pipeline, from 1; `1[0].2` is stage 2 of pipeline
      0 within stage 1
    - `name`: its combinator's
    - `items`: how many items of the stage before it, at most; of a source, how
      many of its own. Infinity where only reading tells
    """

    stage: str
    name: str
    items: float

    def __str__(self) -> str:
        return f"stage {self.stage}, {self.name}: {_shown(self.items)} again"


@dataclass(frozen=True, slots=True)
class ResumeCost:
    """What a resume reads again.

    - `items`: how many items of the sources, at most, that were read before;
      infinity where only reading tells
    - `stages`: the stages that take items again, from the source on
    """

    items: float
    stages: tuple[Reread, ...]

    def __str__(self) -> str:
        """A line for all, and one for each stage."""
        return "\n".join([f"{_shown(self.items)} of the sources again", *map(str, self.stages)])


def resume_cost(pipeline: Chain, state: AnyState) -> ResumeCost:
    """What a resume from a state will read again, before it is done. Reads no data.

    Nothing with random access and no buffer. A stage that holds a window begins
    it anew, and an iterable is gone through from its beginning. The stages'
    counts are exact but at the end of the data, where they may be more. Those of
    source items are so where as many are taken for each item, as by `map` and
    `batch`; behind `filter` and `flat_map` only reading tells. What a function
    of `flat_map` reads is not counted.

    >>> import lazyckpt as lz
    >>> pairs = lz.source(range(10**6)) | lz.batch(2)
    >>> print(lz.resume_cost(pairs, lz.state_at(pairs, 1000)))
    0 items of the sources again
    >>> windows = pairs | lz.flat_map(iter) | lz.block_shuffle(100, seed=0)
    >>> print(lz.resume_cost(windows, lz.state_at(windows, 1050)))
    an unknown number of items of the sources again
    stage 3, flat_map: 1 item again
    stage 4, block_shuffle: 100 items again
    """
    found = matching(as_state(state), runnable("resume_cost", pipeline))
    entered(pipeline.machine, found.position)
    rereads: dict[str, Reread] = {}
    with fitting(found.position):
        items = sum(_cost(pipeline, found.position, "", rereads))
    order = sorted(rereads.values(), key=lambda each: [int(n) for n in _numbers(each.stage)])
    return ResumeCost(items, tuple(order))


def _numbers(stage: str) -> list[str]:
    return stage.replace("[", ".").replace("]", "").split(".")


def _shown(items: float) -> str:
    if items == math.inf:
        return "an unknown number of items"
    return f"{items:,} item{'s' * (items != 1)}"


def _cost(
    chain: Chain, position: Position, prefix: str, rereads: dict[str, Reread]
) -> Iterator[float]:
    """Items of the sources, in portions, that are read again from a position on."""
    machines = built(chain)
    rates = list(_rates(chain, machines))
    places = [(len(machines) - 1, position)]  # where a stage begins again
    while places:
        number, here = places.pop()
        call = chain.calls[number]
        begun = begun_again(call, machines, number, here)
        for again in begun:
            if number:
                places.append((number - 1, again.position))
            if again.items:
                each, more = rates[number]
                yield again.items * (each + more) if again.alone else again.items * each + more
        stage = f"{prefix}{number + 1}"
        if taken := sum(again.items for again in begun):
            before = rereads[stage].items if stage in rereads else 0
            rereads[stage] = Reread(stage, call.name, before + taken)
        if not number and call.combinator.parts is not None:
            for part, place in call.combinator.parts(here, call.arguments)[0].items():
                yield from _cost(call.chains[part], place, f"{stage}[{part}].", rereads)


def _rates(chain: Chain, machines: list[Machine[Any]]) -> Iterator[tuple[float, float]]:
    """For each stage how many source items an item that it takes stands for, and how many more.

    That many more, at most, are taken with any number of items of one epoch.
    """
    each: float = 1
    more: float = 0
    yield each, more  # a source's items are its own
    for number, call in enumerate(chain.calls):
        taken = call.combinator.takes
        if callable(taken):
            upstream = {"upstream": machines[number - 1]} if number else {}
            taken = taken(**upstream, **call.arguments)
        if not number:
            each, more = _joined(call, taken)
        else:
            known = taken or Taken(1 if call.combinator.pointwise else math.inf)
            more = _times(known.more, each) + _times(known.epochs, more)
            each = each * known.each
        yield each, more


def _joined(call: Call, taken: Taken | None) -> tuple[float, float]:
    """The same of one item that a source gives."""
    if call.combinator.parts is None:
        return 1, 0
    parts = [list(_rates(part, built(part)))[-1] for part in call.chains]
    eaches, mores = [each for each, _ in parts], [more for _, more in parts]
    if taken is None:
        return sum(eaches), sum(mores)
    return max(eaches), _times(taken.epochs, sum(mores))


def _times(a: float, b: float) -> float:
    return a * b if a and b else 0  # also of infinity
