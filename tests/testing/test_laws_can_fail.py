"""For each law a combinator that breaks it, and is caught by it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.executors.lookahead import Lookahead
from lazyckpt.executors.prefetcher import Prefetcher
from lazyckpt.machines import (
    End,
    Flow,
    Machine,
    Position,
    Rate,
    Reread,
    Share,
    Table,
    stateful,
    stateless,
    within,
)
from lazyckpt.testing import laws, models


def forgets_the_first(up: Machine[Any]) -> Machine[Any]:
    """A shift of one, the same in every mode."""
    return stateless(up, step=lambda p: up.step(up.step(p)[0]))


def flows_otherwise(up: Machine[Any]) -> Machine[Any]:
    return stateless(
        up,
        step=up.step,
        flow=lambda p: up.flow(p).map(lambda item: (item,)),
    )


def tells_late(up: Machine[Any]) -> Machine[Any]:
    """Its snapshot is that before the last item."""

    def flow(position: Position) -> Flow[Any]:
        items = up.flow(position)
        told = position

        def slow() -> Iterator[Any]:
            nonlocal told
            for item in items:
                yield item
                told = items.snapshot()

        return Flow(slow(), lambda: told)

    return stateless(up, step=up.step, flow=flow)


def makes_another_alone(up: Machine[Any]) -> Machine[Any]:
    lane: Any = up.item
    item = lane and (lambda position, n: lane(position, max(0, n - 1)))
    return stateless(up, step=up.step, flow=up.flow, skip=up.skip, item=item, length=up.length)


def skips_short(up: Machine[Any]) -> Machine[Any]:
    def skip(position: Position, n: int) -> tuple[Position, int]:
        assert up.skip is not None
        return up.skip(position, max(0, n - 1))[0], n

    return stateless(up, step=up.step, flow=up.flow, skip=up.skip and skip)


def has_others_at_a_range(up: Machine[Any]) -> Machine[Any]:
    get = up.view and up.view.table.get
    table = get and Table(get, spaced=lambda some: [get(i) for i in reversed(some)])
    return stateless(
        up,
        step=up.step,
        flow=up.flow,
        skip=up.skip,
        item=up.item,
        view=up.view and up.view._replace(table=table),
    )


def misjudges_its_length(up: Machine[Any]) -> Machine[Any]:
    return stateless(up, step=up.step, flow=up.flow, length=3)


def misnames_its_epoch(up: Machine[Any]) -> Machine[Any]:
    return stateless(up, epoch=lambda p: 0, step=up.step, flow=up.flow)


def keeps_a_sum_elsewhere(up: Machine[Any]) -> Machine[Any]:
    """A running count in the flow, which no state has."""

    def flow(position: Position) -> Flow[Any]:
        numbers = count()
        return up.flow(position).map(lambda item: (next(numbers), item))

    return stateless(up, flow=flow)


def holds_its_items(up: Machine[Any]) -> Machine[Any]:
    def step(position: Position) -> tuple[Position, Any]:
        before, held = position
        after, item = up.step(before)
        return (after, (*held, *map(ord, repr(item) * 50))), item

    return stateful("holds", up, first=((),), check=lambda held: None, step=step)


def rolls_dice(up: Machine[Any]) -> Machine[Any]:
    def step(position: Position) -> tuple[Position, Any]:
        position, item = up.step(position)
        return position, (random.random(), item)

    return stateless(up, step=step)


def differs_each_time_it_is_built(up: Machine[Any]) -> Machine[Any]:
    number = next(_builds)
    return stateless(up, flow=lambda p: up.flow(p).map(lambda item: (number, item)))


_builds = count()


def ends_twice(up: Machine[Any]) -> Machine[Any]:
    """Gives a farewell at the end, and again when asked again."""

    def step(position: Position) -> tuple[Position, Any]:
        before, over = position
        try:
            after, item = up.step(before)
        except End:
            if over:
                raise End((before, 0)) from None
            return (before, 1), "farewell"
        return (after, 0), item

    return stateful("ends_twice", up, check=lambda over: within("ends_twice", over, 1), step=step)


def asks_again(up: Machine[Any]) -> Machine[Any]:
    """A flow that, at the end, opens upstream once more to make sure."""

    class Insistent(Iterator[Any]):
        def __init__(self, position: Position) -> None:
            self.flow, self.position = up.flow(position), position
            self.items = iter(self.flow)

        def __next__(self) -> Any:
            for item in self.items:
                return item
            for _ in up.flow(self.position):
                pass
            raise StopIteration

    def flow(position: Position) -> Flow[Any]:
        items = Insistent(position)
        return Flow(items, items.flow.snapshot)

    return stateless(up, step=up.step, flow=flow)


def looks_back_in_secret(up: Machine[Any]) -> Machine[Any]:
    """A window that does not say that a resume reads it again."""
    found: Machine[Any] = lz.registry["sliding_window"].build(up, 3, stride=1)
    return found._replace(rereads=lambda position: (Reread(position),))


def says_too_little(up: Machine[Any]) -> Machine[Any]:
    """A window that claims that a resume reads one item again, but reads two."""
    found: Machine[Any] = lz.registry["sliding_window"].build(up, 3, stride=1)
    return found._replace(rereads=lambda position: (Reread(position, 1),))


def takes_more_than_it_says(up: Machine[Any]) -> Machine[Any]:
    """Pairs, at a rate of one."""
    found: Machine[Any] = lz.registry["batch"].build(up, 2)
    return found._replace(rate=Rate(1))


def takes_less_than_it_says(up: Machine[Any]) -> Machine[Any]:
    """Items, at a rate of two."""
    return stateless(up, rate=Rate(2), step=up.step, flow=up.flow)


def takes_ahead_in_secret(up: Machine[Any]) -> Machine[Any]:
    """A window, at a rate that has no more than the items between two windows."""
    found: Machine[Any] = lz.registry["sliding_window"].build(up, 3, stride=1)
    return found._replace(rate=Rate(1))


def owns_nothing_of_what_it_says(up: Machine[Any]) -> Machine[Any]:
    """Upstream's positions, with the false claim of an own part after them."""
    return stateless(up, step=up.step, flow=up.flow)._replace(owns=True)


def owns_more_than_it_says(up: Machine[Any]) -> Machine[Any]:
    """A count after upstream's positions, with the false claim that they are upstream's own."""
    found: Machine[Any] = lz.registry["take"].build(up, 5)
    return found._replace(owns=False)


def refuses_its_own(up: Machine[Any]) -> Machine[Any]:
    """A count whose check takes no more than the first."""
    found: Machine[Any] = lz.registry["take"].build(up, 5)

    def check(position: Position) -> None:
        up.check(position[0]), within("refuses_its_own", position[1], 1)

    return found._replace(check=check)


def hides_which_rank_it_is(up: Machine[Any]) -> Machine[Any]:
    return up._replace(upstream=up, owns=False, share=Share())


def same(items: models.Items) -> models.Items:
    return items


CASES: list[tuple[str, Callable[..., Machine[Any]]]] = [
    ("meaning", forgets_the_first),
    ("modes", flows_otherwise),
    ("modes", tells_late),
    ("modes", skips_short),
    ("modes", makes_another_alone),
    ("modes", has_others_at_a_range),
    ("modes", misjudges_its_length),
    ("modes", misnames_its_epoch),
    ("resume", keeps_a_sum_elsewhere),
    ("codec", holds_its_items),
    ("purity", rolls_dice),
    ("advancing", skips_short),
    ("advancing", rolls_dice),
    ("algebra", differs_each_time_it_is_built),
    ("exhaustion", ends_twice),
    ("elastic", skips_short),
    ("resharding", keeps_a_sum_elsewhere),
    ("sharing", hides_which_rank_it_is),
    ("rereading", looks_back_in_secret),
    ("rereading", says_too_little),
    ("rates", takes_more_than_it_says),
    ("rates", takes_less_than_it_says),
    ("rates", takes_ahead_in_secret),
    ("positions", owns_nothing_of_what_it_says),
    ("positions", owns_more_than_it_says),
    ("positions", refuses_its_own),
    ("executors", skips_short),
]


@pytest.mark.parametrize(("law", "build"), CASES)
def test_the_law_catches_it(
    law: str, build: Callable[..., Machine[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(lz.registry, build.__name__, raising=False)
    stage = lz.combinator()(build)()
    monkeypatch.setitem(models.MODELS, build.__name__, same)
    good = lz.source(range(9)) | lz.map(str)
    testing.LAWS[law](good, 60)
    with pytest.raises(AssertionError):
        testing.LAWS[law](good | stage, 60)
    del lz.registry[build.__name__]


def remembering() -> lz.Stage[Any, Any]:
    seen: set[Any] = set()
    return lz.filter(lambda item: item not in seen and not seen.add(item))  # type: ignore[func-returns-value]


def numbering() -> lz.Stage[Any, Any]:
    numbers = count()
    return lz.map(lambda item: (next(numbers), item))


@pytest.mark.parametrize(
    ("stage", "told"),
    [
        (numbering, "item 0 of map.<lambda>. was .0, 0. in one walk, and .4, 0. in"),
        (remembering, "item 0 was 0 in one walk, and the end in"),
    ],
)
def test_what_is_not_pure_is_told_as_that(stage: Callable[[], Any], told: str) -> None:
    for check in (testing.check_resume, testing.check_pipeline):
        for data in ([0, 1, 2, 3], laws.Stream(range(4))):
            with pytest.raises(AssertionError, match=f"purity: your step isn't pure: {told}"):
                check(lz.source(data) | stage())
    with pytest.raises(AssertionError, match=f"purity: your step isn't pure: {told}"):
        testing.check_combinator(stage(), [0, 1, 2, 3], model=lambda items: items)


def flows_dry(up: Machine[Any]) -> Machine[Any]:
    return stateless(up, step=up.step, flow=lambda p: Flow(iter(()), lambda: p))


def test_a_lane_that_ends_early_is_told_in_words() -> None:
    stage = lz.combinator()(flows_dry)()
    with pytest.raises(AssertionError, match="item 0 of the flow from cut 0: the end, expected 0"):
        testing.LAWS["modes"](lz.source(range(3)) | stage, 60)
    del lz.registry["flows_dry"]


def test_every_law_has_a_case() -> None:
    assert {law for law, _ in CASES} | {"itemwise", "local"} == set(testing.LAWS)


def test_a_stage_that_pulls_after_the_end_is_caught() -> None:
    stage = lz.combinator()(asks_again)()
    with pytest.raises(AssertionError, match="pulled again"):
        testing.check_combinator(stage, [1, 2, 3])
    testing.check_combinator(lz.map(str), [1, 2, 3])
    del lz.registry["asks_again"]


def test_a_wrong_pipe_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = lz.source(range(9)) | lz.map(str) | lz.batch(2) | lz.take(3)
    testing.LAWS["algebra"](pipeline, 60)
    monkeypatch.setattr(lz.Stage, "__or__", lambda a, b: lz.Stage(b.calls + a.calls))
    with pytest.raises(AssertionError, match="not associative"):
        testing.LAWS["algebra"](pipeline, 60)


@pytest.mark.parametrize("broken", ["reached", "taken"])
def test_wrong_positions_of_prefetched_items_are_caught(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = lz.source(range(30)) | lz.map(str)
    testing.LAWS["executors"](pipeline, 60)
    right = getattr(Prefetcher, broken)

    def wrong(self: Prefetcher) -> Any:
        """The position is one item behind, or an item isn't counted."""
        if broken == "reached":
            position, items = right(self)
            return (self.before() if items else position), items
        return max(0, right(self) - 1)

    monkeypatch.setattr(Prefetcher, broken, wrong)
    with pytest.raises(AssertionError):
        testing.LAWS["executors"](pipeline, 60)


def test_tasks_that_change_places_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = lz.source(range(30)) | lz.map(str)
    testing.LAWS["executors"](pipeline, 60)
    right, held = Lookahead.next, list[Any]()

    def wrong(self: Lookahead, end: Callable[[], Position]) -> Any:
        """The first task comes after the second."""
        if not held:
            held.append(right(self, end))
            return right(self, end)
        return held.pop()

    monkeypatch.setattr(Lookahead, "next", wrong)
    with pytest.raises(AssertionError):
        testing.LAWS["executors"](pipeline, 60)


def keeps_the_last(up: Machine[Any]) -> Machine[Any]:
    """Drops an item that equals the one before it."""

    def step(position: Position) -> tuple[Position, Any]:
        before, last = position
        while True:
            before, item = up.step(before)
            if item != last:
                return (before, item), item

    return stateful("keeps_the_last", up, first=("",), check=lambda last: None, step=step)


def gives_the_length(up: Machine[Any]) -> Machine[Any]:
    def flow(position: Position) -> Flow[Any]:
        items = up.flow(position)
        return Flow(iter([*items, up.length]), items.snapshot)

    return stateless(up, flow=flow)


@pytest.mark.parametrize("build", [keeps_the_last, gives_the_length])
def test_what_is_not_itemwise_is_caught(build: Callable[..., Machine[Any]]) -> None:
    for is_itemwise in (False, True):
        stage = lz.combinator(itemwise=is_itemwise)(build)()
        pipeline = lz.source(list("aab")) | stage
        if is_itemwise:
            with pytest.raises(AssertionError, match="item by item"):
                testing.LAWS["itemwise"](pipeline, 60)
        else:
            testing.LAWS["itemwise"](pipeline, 60)
        del lz.registry[build.__name__]


def anchors_where_upstream_stands(up: Machine[Any]) -> Machine[Any]:
    """Expands each item into two, from upstream's position at the request for it."""

    def flow(position: Position) -> Flow[Any]:
        anchor, inside = position
        items = up.flow(anchor)

        def twice() -> Iterator[Any]:
            nonlocal anchor, inside
            for item in items:
                for number in range(inside + 1, 3):
                    inside = number
                    yield item
                anchor, inside = items.snapshot(), 0

        return Flow(twice(), lambda: (anchor, inside))

    return stateful("anchors", up, check=lambda inside: None, flow=flow)


def test_an_expansion_that_is_anchored_elsewhere_is_caught() -> None:
    stage = lz.combinator(itemwise=True)(anchors_where_upstream_stands)()
    numbers = lz.source(range(9))
    testing.LAWS["local"](numbers | lz.filter(bool) | lz.flat_map(lambda x: [x, x]), 60)
    with pytest.raises(AssertionError, match="begun at item"):
        testing.LAWS["local"](numbers | lz.filter(lambda x: x % 3) | stage, 60)
    del lz.registry["anchors_where_upstream_stands"]


def test_the_checks_for_users_catch_the_same() -> None:
    stage = lz.combinator()(keeps_a_sum_elsewhere)()
    with pytest.raises(AssertionError, match=r"resume: .* of source|resume"):
        testing.check_resume(lz.source(range(9)) | stage)
    with pytest.raises(AssertionError, match="of source"):
        testing.check_combinator(stage, [1, 2, 3, 4])
    with pytest.raises(AssertionError, match="meaning"):
        testing.check_combinator(lz.take(2), [1, 2, 3], model=lambda items: items)
    del lz.registry["keeps_a_sum_elsewhere"]


def test_checks_that_python_leaves_out_are_an_error() -> None:
    text = (
        "import lazyckpt as lz; from lazyckpt.testing import check_combinator; "
        "check_combinator(lz.take(2), [1, 2, 3], model=lambda x: x)"
    )
    done = subprocess.run([sys.executable, "-O", "-c", text], capture_output=True, text=True)
    assert "run without -O" in done.stderr
