"""What a resume re-reads, told beforehand: `resume_cost`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import plural
from lazyckpt.core.content import Entries
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Rate, entered, fitting
from lazyckpt.core.pictured import Legend, Pictured
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import AnyState, as_state


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one stage takes again, where a run is resumed.

    Attributes:
        stage: Its number in the pipeline, from 1; `1[0].2` is stage 2 of pipeline 0
            within stage 1.
        name: Its combinator's.
        items: How many items of the stage before it, at most; of a source, how many of
            its own. Infinity where only reading tells.
    """

    stage: str
    name: str
    items: float

    def __str__(self) -> str:
        return f"stage {self.stage}, {self.name}: {_shown(self.items)} again"


@dataclass(frozen=True, slots=True)
class ResumeCost(Pictured):
    """What a resume re-reads.

    Attributes:
        items: How many items of the sources, at most, that were read before; infinity
            where only reading tells.
        stages: The stages that take items again, from the source on.
        entries: All stages, for pictures.
    """

    items: float
    stages: tuple[StageCost, ...]
    entries: Entries = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        """A line for all, and one for each stage."""
        return "\n".join([self._summary(), *map(str, self.stages)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _legend(self) -> Legend:
        told = {each.stage: f"{_shown(each.items)} again" for each in self.stages}
        return Legend(self.entries, told, (self._summary(),))

    def _summary(self) -> str:
        return f"{_shown(self.items)} of the sources again"


def resume_cost(pipeline: Chain, state: AnyState) -> ResumeCost:
    """What a resume from a state will re-read, told beforehand. It reads no data.

    Nothing with random access and no buffer. A stage that holds a window begins
    it again, and an iterable is read from its beginning. The stages'
    counts are exact but at the end of the data, where they may be more. Those of
    source items are so where as many are taken for each item, as by `map` and
    `batch`; behind `filter` and `flat_map` only reading tells. What a function
    of `flat_map` reads is not counted.

    Args:
        pipeline: That of the state.
        state: Where to resume.

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
    costs: dict[str, StageCost] = {}
    with fitting(found.position):
        items = sum(_cost(pipeline, found.position, "", costs))
    return ResumeCost(items, tuple(sorted(costs.values(), key=_number)), found.stages)


def _number(cost: StageCost) -> list[int]:
    return [int(each) for each in cost.stage.replace("[", ".").replace("]", "").split(".")]


def _shown(items: float) -> str:
    if items == math.inf:
        return "an unknown number of items"
    return plural(int(items), "item")


def _cost(
    chain: Chain, position: Position, prefix: str, costs: dict[str, StageCost]
) -> Iterator[float]:
    """Items of the sources, in portions, that are re-read from a position on."""
    machines, rates = chain.machines, _rates(chain)
    places = [(len(machines) - 1, position)]  # where a stage begins again
    while places:
        number, here = places.pop()
        rereads = list(machines[number].rereads(here))
        for reread in rereads:
            if number:
                places.append((number - 1, reread.position))
            if reread.items:
                each, more = rates[number]
                yield reread.items * (each + more) if reread.alone else reread.items * each + more
        stage = f"{prefix}{number + 1}"
        if taken := sum(reread.items for reread in rereads):
            before = costs[stage].items if stage in costs else 0
            costs[stage] = StageCost(stage, chain.calls[number].name, before + taken)
        if machines[number].children:
            for part, (inner, place) in enumerate(zip(chain.calls[0].chains, here[0], strict=True)):
                if place != ():
                    yield from _cost(inner, place, f"{stage}[{part}].", costs)


def _rates(chain: Chain) -> list[tuple[float, float]]:
    """For each stage how many source items an item that it takes stands for, and how many more.

    That many more, at most, are taken with any number of items of one epoch.
    """
    first, *rest = chain.machines
    each, more = _joined(first.rate, [_made(inner) for inner in chain.calls[0].chains])
    found = [(each, more)]
    for machine in rest:
        found.append((each, more))
        each, more = _behind(machine.rate, each, more)
    return found


def _made(chain: Chain) -> tuple[float, float]:
    """The same of an item that a pipeline gives."""
    each, more = _rates(chain)[-1]
    last = chain.machines[-1]
    return (each, more) if last.upstream is None else _behind(last.rate, each, more)


def _behind(rate: Rate, each: float, more: float) -> tuple[float, float]:
    return each * rate.each, _times(rate.more, each) + _times(rate.epochs, more)


def _joined(rate: Rate, parts: list[tuple[float, float]]) -> tuple[float, float]:
    if not parts:
        return 1, 0  # a source's items are its own
    eaches, mores = [each for each, _ in parts], [more for _, more in parts]
    if rate.every:
        return sum(eaches), sum(mores)
    return max(eaches), _times(rate.epochs, sum(mores))


def _times(a: float, b: float) -> float:
    return a * b if a and b else 0  # also of infinity
