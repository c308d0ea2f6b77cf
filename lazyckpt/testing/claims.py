"""Laws about the facts that machines state: re-reads, rates, parts of positions, shares."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

from lazyckpt.combinators.enumerate import random_map
from lazyckpt.combinators.shard import shard
from lazyckpt.combinators.source import source
from lazyckpt.core.call import Call, Chain
from lazyckpt.core.checks import brief
from lazyckpt.core.content import is_reader
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.frames import is_frame
from lazyckpt.core.machine import Machine, apart, fitting
from lazyckpt.core.stages import stateless
from lazyckpt.errors import ArgumentError, InvalidState, PipelineError
from lazyckpt.pipeline import Pipeline, Stage
from lazyckpt.run import Run
from lazyckpt.state.algebra import init
from lazyckpt.state.codec import own_parts, position_of
from lazyckpt.state.resume_cost import resume_cost
from lazyckpt.testing.traces import Trace, same


def rereading(pipeline: Pipeline[Any], limit: int) -> None:
    """A resume re-reads no more source items than `resume_cost` says."""
    reads = [0]
    counting = _counting(pipeline, reads)
    states, before = [init(pipeline)], [0]
    straight: Run[Any] = Run(counting)
    for _ in islice(straight, limit):
        states.append(straight.state)
        before.append(reads[0])
    cuts = Trace(pipeline.machine, 0, limit).cuts()
    for cut in cuts[:: max(1, len(cuts) // 8)]:
        said = resume_cost(pipeline, states[cut])
        reads[0] = 0
        first: Run[Any] = Run(counting, states[cut], strict=False)
        for number, _ in enumerate(islice(first, len(states) - 1 - cut), cut + 1):
            again = reads[0] - (before[number] - before[cut])
            assert again <= said.items, f"from {cut} to {number} {again} are read again, not {said}"


def rates(pipeline: Pipeline[Any], limit: int) -> None:
    """Over a stream, a stage reads the number of upstream items that its rate promises."""
    upstream: Machine[Any] | None = None
    for call in pipeline.calls:
        if upstream is not None:
            _keeps_rate(call, upstream, limit)
        upstream = call.build(upstream)


def _keeps_rate(call: Call, upstream: Machine[Any], limit: int) -> None:
    taken, ended = 0, False

    def flow(position: Position) -> Flow[Any]:
        items = upstream.flow(position)

        def counted() -> Iterator[Any]:
            nonlocal taken, ended
            for item in items:
                taken += 1
                yield item
            ended = True

        return Flow(counted(), items.snapshot)

    stream = stateless(upstream, flow=flow, length=upstream.length)
    try:
        machine = call.build(stream)
    except ArgumentError:  # it needs random access
        return
    rate, epoch = machine.rate, machine.init(0)
    if rate.each == math.inf or rate.epochs > 1:
        return
    taken = 0
    for number, _ in enumerate(islice(machine.flow(epoch), limit), 1):
        most = number * rate.each + rate.more
        assert taken <= most, f"{call!r} took {taken} items for {number}, its rate says {most}"
        if not machine.owns and rate.is_fixed:
            least = number * rate.each
            assert taken >= least or ended, (
                f"{call!r} took {taken} items for {number}, its rate says {least}"
            )


def positions(pipeline: Pipeline[Any], limit: int) -> None:
    """A machine owns its declared part of a position, and its check accepts its own positions."""
    trace = Trace(pipeline.machine, 0, limit)
    for machine, call in zip(pipeline.machines, pipeline.calls, strict=True):
        assert machine.children or not call.chains or machine.upstream, f"{call!r} joins nothing"
    for position in [*trace.positions, *[trace.end] * trace.ended]:
        parts = own_parts(pipeline.entries, position)
        same("a position from its parts", position_of(pipeline.entries, parts), position)
        here = position
        rows = [*zip(pipeline.machines, pipeline.calls, parts, strict=True)]
        for machine, call, part in rows[::-1]:
            try:
                with fitting(here):
                    machine.check(here)
            except InvalidState as error:
                raise AssertionError(f"{call!r} rejects its part of {position}: {error}") from None
            if machine.upstream is not None:
                here, own = apart(machine, here)
                same(f"{call!r}, its own part", own, part.own or ())


def sharing(pipeline: Pipeline[Any], limit: int) -> None:
    """Ranks draw different random numbers; an item draws the same before and after `shard`."""
    for number, call in enumerate(pipeline.calls):
        if call.combinator.pointwise and "seed" in call.arguments:
            _draws_by_position(Pipeline(pipeline.calls[:number]), Stage((call,)), limit)
    first: Pipeline[Any] = Pipeline(pipeline.calls[:1])
    rest: Stage[Any, Any] = Stage(pipeline.calls[1:])
    draws: Stage[Any, int] = random_map(
        lambda rng, item: int(rng.bit_generator.random_raw()), seed=0
    )
    ranks = [shard(num_shards=2, index=rank) for rank in range(2)]
    try:
        found = [list(islice(first | rank | rest | draws, limit)) for rank in ranks]
    except PipelineError:  # a shard has too few items for the pipeline
        return
    assert not {*found[0]} & {*found[1]}, "two ranks draw the same numbers"


def itemwise(pipeline: Pipeline[Any], limit: int) -> None:
    """A stage declared `itemwise` processes each item independently and carries nothing over."""
    for number, call in enumerate(pipeline.calls):
        if not call.combinator.itemwise:
            continue
        items: list[Any] = list(islice(Pipeline(pipeline.calls[:number]), min(limit, 16)))
        stage: Stage[Any, Any] = Stage((call,))
        alone = [made for item in items for made in source([item]) | stage]
        whole: Pipeline[Any] = source(items) | stage
        together: Run[Any] = Run(whole)
        same(f"{call!r}, item by item", list(together), alone)
        machine, end = whole.machine, together.state.position
        same(f"{call!r}, its own part", apart(machine, end)[1], apart(machine, machine.init(0))[1])


def local(pipeline: Pipeline[Any], limit: int) -> None:
    """Positions after stages that process items one by one don't depend on where reading began."""
    pairs = list(zip(pipeline.machines, pipeline.calls, strict=True))
    size = next((n for n, (each, _) in enumerate(pairs) if each.skip is None), 0)
    table, skip = pairs[size - 1][0], pairs[size - 1][0].skip
    if not size or skip is None:
        return
    begin, machine = table.init(0), table
    own = list[tuple[Any, ...]]()
    for each, call in pairs[size:]:
        is_itemwise = call.combinator.itemwise or (call.combinator.pointwise and not each.owns)
        if not is_itemwise:
            break
        machine = each
        own += [each.init(0)[1:]] if each.owns else []
    whole = _walked(machine, machine.init(0), limit)
    is_cut = len(whole) == limit  # there may be more positions
    last = skip(begin, limit)[1]
    for cut in {0, 1, 2, last // 2, last - 1, last} & {*range(last + 1)}:
        start: Position = skip(begin, cut)[0]
        for part in own:
            start = start, *part
        found = _walked(machine, start, limit)
        if not found or (is_cut and found[0] > whole[-1]):
            continue
        assert found[0] in whole, (
            f"begun at item {cut}, the first position is {found[0]}, not one of {brief(whole)}"
        )
        expected = whole[whole.index(found[0]) :]
        same(f"positions, begun at item {cut}", found[: len(expected)], expected)


def _walked(machine: Machine[Any], start: Position, limit: int) -> list[Position]:
    flow = machine.flow(start)
    return [flow.snapshot() for _ in islice(flow, limit)]


def _draws_by_position(before: Pipeline[Any], drawing: Stage[Any, Any], limit: int) -> None:
    has_access = before.machine.skip is not None and isinstance(before.machine.length, int)
    for contiguous in (False, True)[: 1 + has_access]:
        for rank in range(3):
            mine = shard(num_shards=3, index=rank, contiguous=contiguous)
            found = list(islice(before | mine | drawing, limit))
            expected = list(islice(before | drawing | mine, limit))
            same(f"{drawing!r} after and before {mine!r}", found, expected)


def _counting(pipeline: Chain, reads: list[int]) -> Any:
    """Return the pipeline over sources that count the items read."""

    def counted(value: Any) -> Any:
        if isinstance(value, Chain):
            return _counting(value, reads)
        return tuple(map(counted, value)) if isinstance(value, tuple) else value

    first, *rest = pipeline.calls
    if first.name == "source":
        data = first.arguments["data"]
        data = list(Pipeline((first,))) if is_frame(data) else data
        first = first.replaced(data=_counter(data)(data, reads))
    else:
        first = first.replaced(**{name: counted(each) for name, each in first.arguments.items()})
    # Without caches: a resume starts with an empty one, and reads more than the run would.
    rest = [call.replaced(size=0) if call.name == "lru_cache" else call for call in rest]
    return type(pipeline)((first, *rest))


class _CountedStream:
    def __init__(self, data: Any, reads: list[int]) -> None:
        self.data, self.reads = data, reads

    def __iter__(self) -> Iterator[Any]:
        for item in self.data:
            self.reads[0] += 1
            yield item


class _CountedTable(_CountedStream):
    @property
    def block_starts(self) -> Any:
        return getattr(self.data, "block_starts", None)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        self.reads[0] += 1
        return self.data[index]


class _CountedReader(_CountedTable):
    """A reader of files, one row at a time."""

    @property
    def source_identity(self) -> Any:
        return self.data.source_identity

    def iter_blocks(self, start: int) -> Iterator[list[Any]]:
        return ([self[index]] for index in range(start, len(self)))


def _counter(data: Any) -> type[_CountedStream]:
    if is_reader(data):
        return _CountedReader
    return _CountedTable if hasattr(data, "__getitem__") else _CountedStream
