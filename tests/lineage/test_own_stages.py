"""The user's own combinators: followed by their declaration, or named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.lineage import tracing
from lazyckpt.machines import (
    End,
    Flow,
    Machine,
    Position,
    Rate,
    joining,
    stateful,
    stateless,
    within,
)
from lazyckpt.testing.laws import Stream
from tests.helpers import Unread
from tests.laws import trace
from tests.lineage.test_trace import never, places


@lz.combinator(registered=False, pointwise=True)
def negated(upstream: Machine[Any]) -> Machine[Any]:
    return stateless(upstream, rate=Rate(), flow=lambda at: upstream.flow(at).map(lambda n: -n))


@lz.combinator(registered=False, pointwise=True)
def numbered(upstream: Machine[Any]) -> Machine[Any]:
    def step(position: Position) -> Any:
        before, number = position
        try:
            before, item = upstream.step(before)
        except End as end:
            raise End((end.position, number)) from None
        return (before, number + 1), item * 100 + number

    def skip(position: Position, n: int) -> Any:
        assert upstream.skip is not None
        before, passed = upstream.skip(position[0], n)
        return (before, position[1] + passed), passed

    check = lambda number: within("numbered", number)  # noqa: E731
    jump, length = upstream.skip and skip, upstream.length
    return stateful(
        "numbered", upstream, check=check, rate=Rate(), step=step, skip=jump, length=length
    )


@lz.combinator(registered=False, itemwise=True)
def repeated(upstream: Machine[Any]) -> Machine[Any]:
    """Each item n % 3 times, step by step."""

    def step(position: Position) -> Any:
        before, given = position
        while True:
            try:
                after, item = upstream.step(before)
            except End as end:
                raise End((end.position, 0)) from None
            if given + 1 < item % 3:
                return (before, given + 1), item
            if item % 3:
                return (after, 0), item
            before = after

    return stateful("repeated", upstream, check=lambda n: within("repeated", n), step=step)


@lz.combinator(registered=False, itemwise=True)
def odd(upstream: Machine[Any]) -> Machine[Any]:
    """A filter that looks ahead."""

    def flow(position: Position) -> Flow[Any]:
        def items() -> Iterator[Any]:
            nonlocal position
            more = True
            while more:
                block, place, more = [], position, False
                for _ in range(4):
                    try:
                        place, item = upstream.step(place)
                    except End as end:
                        place = end.position
                        break
                    block.append((place, item))
                    more = True
                for reached, item in block:
                    position = reached
                    if item % 2:
                        yield item
                position = place

        return Flow(items(), lambda: position)

    return stateless(upstream, flow=flow)


def summed(upstream: Machine[Any], plain: Any, traced: Any, origins: Any) -> Machine[Any]:
    """The sum of each item and the one before it."""

    def step(position: Position) -> Any:
        before, _ = position
        try:
            middle, first = upstream.step(before)
            second = upstream.step(middle)[1]
        except End as end:
            raise End((before, 0)) from end
        return (middle, 0), traced(plain(first) + plain(second), origins([first, second]))

    return stateful("summed", upstream, check=lambda n: within("summed", n), step=step)


def _traced_sums(call: Any, tracing: tracing.Tracing) -> Any:
    @lz.combinator(registered=False)
    def sums(upstream: Machine[Any]) -> Machine[Any]:
        return summed(upstream, tracing.plain, tracing.traced, tracing.origins)

    return sums()


def _sums(**options: Any) -> Any:
    @lz.combinator(registered=False, **options)
    def sums(upstream: Machine[Any]) -> Machine[Any]:
        return summed(upstream, lambda item: item, lambda value, _: value, lambda _: ())

    return sums()


@pytest.mark.parametrize(
    "numbers",
    [
        lz.source(range(30)),
        lz.source(range(30)) | lz.shuffle(seed=0),
        lz.source(Stream(range(30))) | lz.shuffle(5, seed=0),
        lz.source(range(30)) | lz.filter(lambda n: n % 7),
    ],
    ids=["indexed", "shuffled", "stream", "filtered"],
)
@pytest.mark.parametrize(
    "stage",
    [negated(), numbered(), repeated(), odd(), _sums(trace=_traced_sums)],
    ids=["pointwise", "numbered", "itemwise", "ahead", "traced"],
)
def test_stages_of_ones_own_are_followed(numbers: lz.Pipeline[int], stage: Any) -> None:
    trace(numbers | stage, 30)
    trace(numbers | stage | lz.batch(2) | lz.repeat(2), 30)
    trace(numbers | stage | lz.filter(lambda n: n % 5), 30)


def test_of_a_stage_of_ones_own_the_very_items_are_told() -> None:
    numbers = lz.source(range(1, 20))
    assert [places(numbers | negated() | lz.filter(bool), n) for n in (0, 5)] == [[0], [5]]
    assert [places(numbers | numbered() | lz.filter(bool), n) for n in (0, 5)] == [[0], [5]]
    assert [places(numbers | repeated(), n) for n in range(4)] == [[0], [1], [1], [3]]
    assert [places(numbers | odd(), n) for n in range(3)] == [[0], [2], [4]]
    assert [places(numbers | _sums(trace=_traced_sums), n) for n in (0, 5)] == [[0, 1], [5, 6]]


@pytest.mark.parametrize("stage", [negated(), numbered()])
def test_a_pointwise_stage_of_ones_own_is_not_called(stage: Any) -> None:
    pipeline = lz.source(Unread()) | lz.map(never) | stage | lz.batch(2)
    assert places(pipeline, 20) == [40, 41]


@pytest.mark.parametrize(
    ("claimed", "message"),
    [
        ({}, "trace and seen can't find .* or a trace= function"),
        ({"itemwise": True}, "declared pointwise or itemwise"),
    ],
    ids=["nothing", "wrongly"],
)
def test_a_stage_that_nothing_tells_of_is_named(claimed: Any, message: str) -> None:
    pipeline = lz.source(range(9)) | _sums(**claimed) | lz.batch(2)
    state = lz.state_at(pipeline, 1)
    for told in (
        lambda: lz.trace(pipeline, 1),
        lambda: lz.trace(pipeline, state),
        lambda: lz.trace(pipeline, lz.init(pipeline), state),
        lambda: lz.seen(pipeline, state).counts(),
    ):
        with pytest.raises(lz.PipelineError, match=f"^sums: {message}"):
            told()


def _added(pipelines: Any, keeps_items: bool) -> lz.Pipeline[Any]:
    """Items of two pipelines, added up or in pairs."""

    @lz.source_combinator(registered=False, keeps_items=keeps_items)
    def added(pipelines: tuple[lz.Pipeline[Any], ...]) -> Machine[Any]:
        children = [each.machine for each in pipelines]

        def step(position: Position) -> Any:
            found = [each.step(at) for each, at in zip(children, position[0], strict=True)]
            places, items = zip(*found, strict=True)
            return (places,), items if keeps_items else sum(items)

        return joining("added", children, rate=Rate(every=True), step=step)

    return added(pipelines)


def test_what_joins_pipelines_and_looks_at_their_items_is_named() -> None:
    two = lz.source(range(9)), lz.source(range(9)) | lz.map(str) | lz.map(int)
    trace(_added(two, keeps_items=True), 30)
    for pipeline in (_added(two, keeps_items=False), lz.concat(_added(two, keeps_items=False))):
        for told in (lz.trace, lz.seen):
            with pytest.raises(
                lz.PipelineError, match=r"^added: .* @source_combinator keeps_items"
            ):
                told(pipeline, 1)  # type: ignore[operator]


def test_seen_names_such_a_stage_at_once() -> None:
    with pytest.raises(lz.PipelineError, match=r"^sums: "):
        lz.seen(lz.source(range(9)) | _sums(), 3)


def test_what_is_drawn_behind_a_stage_is_drawn_when_it_is_traced() -> None:
    def drawn(rng: Any, item: Any) -> Any:
        return item, rng.random()

    data = lz.source(range(60)) | lz.shard(num_shards=3, index=1) | lz.enumerate()
    trace(data | lz.random_map(drawn, seed=0) | lz.filter(lambda pair: pair[1] > 0.5), 30)
