"""Describe a run stage by stage, with warnings, before it starts: `explain`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import groupby
from operator import attrgetter
from textwrap import wrap
from typing import Any, NamedTuple

from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import checked, plural, positive
from lazyckpt.core.content import Entries
from lazyckpt.core.flow import Position
from lazyckpt.core.lines import columns
from lazyckpt.core.machine import Machine
from lazyckpt.core.show import WIDTH, show
from lazyckpt.core.stages import stepping
from lazyckpt.executors.executor import Executor, Part, as_executor
from lazyckpt.executors.ipc.serialization import has_cloudpickle
from lazyckpt.executors.sharing.executor import SharedExecutor, is_dealt
from lazyckpt.explanation.layout import LINE, laid_out
from lazyckpt.explanation.repeats import WORDS, Kind, costs, kinds, of_ranks, sentence, warning
from lazyckpt.explanation.warnings import pipelines, warnings
from lazyckpt.pictures.html import caption, framed, remark
from lazyckpt.pictures.tables import Table
from lazyckpt.state.algebra import init
from lazyckpt.state.codec import encode_stage, own_parts

_NAMES = ("stage", "modes", "state")
_ROWS = 60  # stages to show
_TITLE = "what a run would do"


@dataclass(frozen=True, slots=True)
class ExplainedStage:
    """A stage, as a run would execute it.

    Attributes:
        stage: Its number in the pipeline, from 1. `1[0].2` is stage 2 of pipeline 0 within
            stage 1.
        name: Name of its combinator.
        text: Source code of the stage.
        modes: Modes in which it can run, in addition to step by step: "flow" (iterators in C),
            "seek" (start at any item), "vectorized" (many items per call).
        where: Workers that run it, and the number of items that they prefetch.
        state_bytes: Size of its entry in the JSON of the initial state.
        ranks: Items that each rank computes with workers: "its part", "all, or shared" or "all".
            Empty if `explain` was called without `ranks`.
    """

    stage: str
    name: str
    text: str
    modes: tuple[str, ...]
    where: str
    state_bytes: int
    ranks: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The description of a run. Its text is for people and may change.

    Attributes:
        stages: The stages from the source on. The stages of joined pipelines follow the stage
            that joins them.
        parts: Groups of stages that run together, as shown, and where each group runs.
        memory: Memory used by prefetched items.
        sharing: Work of all ranks in sum. Empty if `explain` was called without `ranks`.
        ways: Costs of each way to run the ranks, as the rows of a table with its head. Empty if
            the ranks can't share work.
        warnings: Likely mistakes, one sentence each.
    """

    stages: tuple[ExplainedStage, ...]
    parts: tuple[Part, ...]
    memory: str
    warnings: tuple[str, ...]
    sharing: str = ""
    ways: tuple[tuple[str, ...], ...] = ()

    @property
    def layout(self) -> str:
        """The stages and where they run, as lines of text."""
        return laid_out(self.parts)

    @property
    def costs(self) -> str:
        """The costs of each way to run the ranks, as lines of text."""
        return self._costs.to_text() if self.ways else ""

    @property
    def _costs(self) -> Table:
        return Table(self.ways[0], self.ways[1:])

    def to_text(self, width: int = LINE) -> str:
        """Return the text for a terminal of `width` columns."""
        few, rest = _shown(self.stages)
        lines = laid_out(self.parts, width)
        if width < LINE and max(map(len, lines.split("\n"))) > width:
            found = [_where(few).to_text(width), *rest]
        else:
            table = Table(_names(few), [*map(_cells, few)])
            found = [lines, "", table.to_text(width), *rest]
        warned = [f"warning: {each}" for each in self.warnings]
        costs = ["", self._costs.to_text(width)] if self.ways else []
        said = [_wrapped(each, width) for each in ([self.memory, self.sharing], warned)]
        return "\n".join([*found, *said[0], *costs, *said[1]])

    def __str__(self) -> str:
        return self.to_text(min(LINE, columns(LINE)))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        few, rest = _shown(self.stages)
        warned = "".join(remark(each, is_warning=True) for each in self.warnings)
        said = "".join(map(remark, filter(None, [*rest, self.memory, self.sharing])))
        said += self._costs.to_html(code="cost") if self.ways else ""
        body = f"{_where(few).to_html(code='stage')}{said}{warned}"
        return framed(caption(_TITLE, [plural(len(self.warnings), "warning")]) + body, _TITLE)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        yield import_module("rich.text").Text(self.to_text(options.max_width))


def explain(
    pipeline: Chain, executor: Executor | None = None, *, ranks: int | None = None
) -> Explanation:
    """Describe a run before it starts, with warnings. Reads no data and starts no workers.

    Args:
        pipeline: The pipeline to run.
        executor: The executor to run it with. None is `inline()`.
        ranks: Number of ranks of the job; a `shard` for one rank is described as a `shard` for
            all of them. If set, the text also shows which stages every rank runs for all items,
            and the costs of sharing them, and it warns if ranks repeat work. This holds for
            runs with workers; without, a rank leaves out more of the last `map` stages before
            `shard` for the items of others.

    Returns:
        An `Explanation`. Printed, it shows:

        1. One line per segment of the pipeline: its stages, where they run, and the maximum
           number of items that are prefetched there. Segments of joined pipelines come first,
           indented.
        2. A table of stages: the modes in which each can run, and its size in a state
           (`resume_cost` reports how much a state re-reads).
        3. The memory used by prefetched items, and with `ranks` a table of what each way to run
           them costs.
        4. Warnings: a shuffle of batches instead of items, a seed used twice, a shard that
           makes every rank read everything, a stage that never starts again, a function that
           can't be sent to a worker.

    >>> import lazyckpt as lz
    >>> words = lz.source(["a b", "c 1"]) | lz.flat_map(str.split) | lz.filter(str.isalpha)
    >>> found = lz.explain(words | lz.batch(2) | lz.shuffle(8, seed=0))
    >>> found.stages[1].modes
    ('flow',)
    >>> print(*found.warnings)
    shuffle(buffer_size=8, seed=0) shuffles batches, not items: batch(2) is before it; \
to mix items, put shuffle before batch
    """
    chain: Chain = runnable("explain", pipeline)
    if ranks is not None:
        checked("explain", "ranks", ranks, positive)
        chain = of_ranks(chain, ranks)
    chosen = as_executor(executor) or Executor(explain, {})
    parts = chosen.explain(chain)
    begin = init(chain)
    stages = [*_stages(chain, _placed(chain, deque(parts), 0), "", chain.entries, begin.position)]
    warned = [*warnings(chain, late_shards=ranks is None), *_unsent(chain, chosen)]
    memory, shared = "\n".join(chosen.memory(chain)), isinstance(chosen, SharedExecutor)
    found = Explanation(tuple(stages), tuple(parts), memory, tuple(warned))
    return found if ranks is None else _of_ranks(found, chain, ranks, shared=shared)


def _of_ranks(found: Explanation, chain: Chain, ranks: int, *, shared: bool) -> Explanation:
    """Add the items that each rank computes, a summary, the costs, and warnings."""
    if not is_dealt(chain):
        more = "the pipeline has no shard: each rank gets all items"
        return replace(found, warnings=(*found.warnings, more))
    kind = kinds(chain)
    names: dict[Kind, list[str]] = {each: [] for each in WORDS}
    for each in found.stages:
        names[kind[each.stage]].append(each.name)
    stages = [replace(each, ranks=WORDS[kind[each.stage]]) for each in found.stages]
    said = sentence(ranks, names, None if chain.calls[0].chains else chain.machines[0].length)
    found = replace(found, stages=tuple(stages), sharing=said)
    if ranks == 1 or not names["shareable"]:
        return found
    warned = () if shared else (warning(ranks, names),)
    return replace(found, ways=costs(chain, ranks), warnings=(*found.warnings, *warned))


class _Placed(NamedTuple):
    """Words for where the stages of a chain run, and those of the pipelines that it joins."""

    wheres: list[str]
    inner: list[_Placed]


def _placed(chain: Chain, parts: deque[Part], margin: int) -> _Placed:
    """Take the parts of a chain. The parts of the pipelines that it joins come first."""
    inner: list[_Placed] = []
    for each in _joined(chain):
        if not parts or _margin(parts[0]) <= margin:  # they run in the segment that joins them
            break
        if parts[0][2] is None:  # the line that sums up the other pipelines
            parts.popleft()
            break
        inner.append(_placed(each, parts, margin + 2))
    wheres: list[str] = []
    while parts and (len(wheres) < len(chain.calls) or parts[0][2] == ()):
        _, where, calls = parts.popleft()
        wheres += [where] * len(calls or ())
    return _Placed(wheres, inner)


def _joined(chain: Chain) -> list[Chain]:
    return chain.calls[0].chains if chain.machines[0].children else []


def _margin(part: Part) -> int:
    first = part[0][0]
    return len(first) - len(first.lstrip())


def _stages(
    chain: Chain, placed: _Placed, label: str, entries: Entries, position: Position
) -> Iterator[ExplainedStage]:
    owned = [*zip(entries, own_parts(entries, position), strict=True)]
    rows = zip(chain.calls, chain.machines, placed.wheres, owned, strict=True)
    for number, (call, machine, where, own) in enumerate(rows, 1):
        yield ExplainedStage(
            f"{label}{number}",
            call.name,
            f"{call.name}(...)" if call.chains else repr(call),
            _modes(machine),
            where,
            len(encode_stage(*own)),
        )
        if number > 1:
            continue
        for n, inner in enumerate(_joined(chain)):
            there = placed.inner[min(n, len(placed.inner) - 1)] if placed.inner else None
            if there is None or len(there.wheres) != len(inner.calls):
                there = _Placed([where] * len(inner.calls), [])
            entry, part = own
            prefix = f"{label}1[{n}]."
            yield from _stages(inner, there, prefix, entry.pipelines[n], part.children[n])


def _modes(machine: Machine[Any]) -> tuple[str, ...]:
    is_flowing = not getattr(machine.flow, "__qualname__", "").startswith(stepping.__name__)
    found = {
        "flow": is_flowing,
        "seek": machine.skip is not None,
        "vectorized": machine.view is not None,
    }
    return tuple(mode for mode, has_it in found.items() if has_it)


def _unsent(chain: Chain, executor: Executor) -> Iterator[str]:
    """Yield a warning for each function that can't be sent to workers."""
    inner = executor.arguments.get("executor")
    if isinstance(inner, Executor):
        executor = inner
    if "start_method" not in executor.arguments or has_cloudpickle():
        return
    if executor.arguments["start_method"] == "fork":
        return
    for _, each in pipelines(chain):
        for call in each.calls:
            for name in call.functions:
                function = getattr(call.arguments[name], "func", call.arguments[name])
                if "<l" in getattr(function, "__qualname__", ""):  # <lambda>, <locals>
                    yield (
                        f"{show(function)} in {call.name} has no name that a worker can import; "
                        'define it in a module, or pip install "lazyckpt[processes]" to get '
                        "cloudpickle"
                    )


def _cells(stage: ExplainedStage) -> tuple[str, ...]:
    size = f"{stage.state_bytes} B" if stage.state_bytes else ""
    name = f"{stage.stage} {stage.name}"
    more = (stage.ranks,) if stage.ranks else ()
    return name, " ".join(stage.modes) or "step", size, *more


def _names(stages: Sequence[ExplainedStage]) -> tuple[str, ...]:
    return (*_NAMES, "each rank computes") if any(each.ranks for each in stages) else _NAMES


def _where(stages: Sequence[ExplainedStage]) -> Table:
    """Return a table of stages, grouped by the place where they run."""
    rows: list[tuple[str, ...] | str] = []
    for where, together in groupby(stages, attrgetter("where")):
        rows += [where, *((f"{each.stage} {each.text}", *_cells(each)[1:]) for each in together)]
    return Table(_names(stages), rows)


def _wrapped(texts: Sequence[str], width: int) -> Iterator[str]:
    for text in filter(None, texts):
        words = " ".join(text.split())
        yield from ("", *wrap(words, min(width, WIDTH), subsequent_indent="  "))


def _shown(stages: Sequence[ExplainedStage]) -> tuple[Sequence[ExplainedStage], list[str]]:
    more = len(stages) - _ROWS
    return (stages[:_ROWS], [f"... and {more:,} more stages"]) if more > 0 else (stages, [])
