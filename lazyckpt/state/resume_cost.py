"""`resume_cost`: the items that a resume re-reads, computed beforehand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import plural
from lazyckpt.core.content import Entries
from lazyckpt.core.flow import Position
from lazyckpt.core.lines import fitted
from lazyckpt.core.machine import Rate, entered, fitting
from lazyckpt.core.pictured import Legend, Pictured
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import AnyState, as_state


@dataclass(frozen=True, slots=True)
class StageCost:
    """The number of items that one stage re-reads on a resume.

    Attributes:
        stage: Number of the stage in the pipeline, from 1; `1[0].2` is stage 2 of pipeline 0
            within stage 1.
        name: Name of the combinator.
        items: Largest number of items re-read from the stage before it; for a source, of its own
            items. Infinity if that can't be known without reading the data.
    """

    stage: str
    name: str
    items: float

    def __str__(self) -> str:
        return f"stage {self.stage}, {self.name}: re-reads {_shown(self.items)}"


@dataclass(frozen=True, slots=True)
class ResumeCost(Pictured):
    """The number of items that a resume re-reads.

    Attributes:
        items: Largest number of source items that are re-read; infinity if that can't be known
            without reading the data.
        stages: The stages that re-read items, from the source on.
        entries: All stages, for diagrams.
    """

    items: float
    stages: tuple[StageCost, ...]
    entries: Entries = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        """Format as one line in total, and one per stage, wrapped in a terminal."""
        return fitted([self._summary(), *map(str, self.stages)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _legend(self) -> Legend:
        told = {each.stage: f"re-reads {_shown(each.items)}" for each in self.stages}
        return Legend(self.entries, told, (self._summary(),))

    def _summary(self) -> str:
        return f"re-reads {_shown(self.items)} of the sources"


def resume_cost(pipeline: Chain, state: AnyState) -> ResumeCost:
    """Return how many items a resume from a state will re-read. Reads no data.

    Zero if everything has random access and there is no buffer. A stage that holds a window
    re-reads it, and an iterable is read from its beginning. The counts of stages are exact, except
    at the end of the data, where they may be too high. The count of source items is exact if each
    item needs the same number of source items, as with `map` and `batch`; after `filter` and
    `flat_map` it can't be known without reading the data. Data read inside a function of
    `flat_map` are not counted.

    Args:
        pipeline: The pipeline of the state.
        state: The state to resume from.

    >>> import lazyckpt as lz
    >>> pairs = lz.source(range(10**6)) | lz.batch(2)
    >>> print(lz.resume_cost(pairs, lz.state_at(pairs, 1000)))
    re-reads 0 items of the sources
    >>> windows = pairs | lz.flat_map(iter) | lz.block_shuffle(100, seed=0)
    >>> print(lz.resume_cost(windows, lz.state_at(windows, 1050)))
    re-reads an unknown number of items of the sources
    stage 3, flat_map: re-reads 1 item
    stage 4, block_shuffle: re-reads 100 items
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
    """Yield the numbers of source items that are re-read from a position on."""
    machines, rates = chain.machines, _rates(chain)
    restarts = [(len(machines) - 1, position)]  # the positions at which stages restart
    while restarts:
        number, here = restarts.pop()
        rereads = list(machines[number].rereads(here))
        for reread in rereads:
            if number:
                restarts.append((number - 1, reread.position))
            if reread.items:
                each, more = rates[number]
                yield reread.items * (each + more) if reread.alone else reread.items * each + more
        stage = f"{prefix}{number + 1}"
        if taken := sum(reread.items for reread in rereads):
            before = costs[stage].items if stage in costs else 0
            costs[stage] = StageCost(stage, chain.calls[number].name, before + taken)
        if machines[number].children:
            for part, (inner, child) in enumerate(zip(chain.calls[0].chains, here[0], strict=True)):
                if child != ():
                    yield from _cost(inner, child, f"{stage}[{part}].", costs)


def _rates(chain: Chain) -> list[tuple[float, float]]:
    """Return, per stage, how many source items one of its inputs needs: per input, and in addition.

    The second number is the most in addition, for any number of inputs from one epoch.
    """
    first, *rest = chain.machines
    each, more = _joined(first.rate, [_rate_of_output(inner) for inner in chain.calls[0].chains])
    found = [(each, more)]
    for machine in rest:
        found.append((each, more))
        each, more = _after(machine.rate, each, more)
    return found


def _rate_of_output(chain: Chain) -> tuple[float, float]:
    """Return the numbers of `_rates` for an output of a pipeline."""
    each, more = _rates(chain)[-1]
    last = chain.machines[-1]
    return (each, more) if last.upstream is None else _after(last.rate, each, more)


def _after(rate: Rate, each: float, more: float) -> tuple[float, float]:
    return each * rate.each, _times(rate.more, each) + _times(rate.epochs, more)


def _joined(rate: Rate, parts: list[tuple[float, float]]) -> tuple[float, float]:
    if not parts:
        return 1, 0  # a source reads its own items
    eaches, mores = [each for each, _ in parts], [more for _, more in parts]
    if rate.every:
        return sum(eaches), sum(mores)
    return max(eaches), _times(rate.epochs, sum(mores))


def _times(a: float, b: float) -> float:
    return a * b if a and b else 0  # also for infinity
