"""`change`: from the next item on another pipeline, as `rebase` carries the state over."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.pipeline import Pipeline

EXECUTORS = [None, lz.threads(2), lz.processes(2)]
SIZE = 60


def tokens(item: Any) -> list[int]:
    """A sequence whose length depends on the mark."""
    return [item[0] + 1] * (1 + (item[0] + item[1]) % 3)


def packed(row: Any) -> list[Any]:
    return [(x - 1, -1) for x in dict.fromkeys(row["tokens"].tolist()) if x]


# Stages that pass each item on exactly once, some of which hold many.
KEEPING: dict[str, Any] = {
    "shuffle": lz.shuffle(5, seed=1),
    "block_shuffle": lz.block_shuffle(4, seed=2),
    "batch": lz.batch(3) | lz.unbatch(),
    "batch, shuffle": lz.batch(3) | lz.shuffle(4, seed=3) | lz.unbatch(),
    "pack": lz.map(tokens) | lz.pack_first_fit(9, num_bins=2) | lz.flat_map(packed),
    "bucket": lz.bucket_batch(2, key=lambda x: x[0], window_size=6, seed=4) | lz.unbatch(),
    "groups": lz.group_by(lambda x: x[0] // 7) | lz.flat_map(lambda pair: pair[1]),
    "enumerate": lz.enumerate() | lz.map(lambda pair: pair[1]),
    "take": lz.take(1000),
    "windows": lz.sliding_window(1) | lz.flat_map(list),
    "filter": lz.filter(bool),
    "flat_map": lz.flat_map(lambda x: [x]),
    "scan": lz.scan(lambda n, x: (n + 1, x), 0),
    "tap": lz.tap(len),
    "rows": lz.token_batch(7, key=len) | lz.unbatch(),
}


def marked(mark: int, item: Any) -> Any:
    return (item[0], mark)


def differs(least: int, item: Any) -> bool:
    return bool((item[0] * 7919) % 10 >= least)


CHANGING: dict[str, Any] = {
    "filter": partial(lz.filter, differs),
    "map": partial(lz.map, marked),
    "batch": lambda n: lz.batch(n + 1) | lz.unbatch(),
    "token_batch": lambda n: lz.token_batch(4 + n, key=len) | lz.unbatch(),
    "pack": lambda n: lz.map(tokens) | lz.pack_first_fit(4 + n, num_bins=2) | lz.flat_map(packed),
}


@st.composite
def changes(draw: st.DrawFn) -> tuple[lz.Pipeline[Any], lz.Pipeline[Any], int, int, int, bool]:
    """A pipeline before and after a change, its two values, when, and whether items go missing."""
    name = draw(st.sampled_from(sorted(CHANGING)))
    one, other = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    stages = st.lists(st.sampled_from(sorted(KEEPING)), max_size=2)
    before, behind = draw(stages), draw(stages)
    old, new = (lz.source([(x, -1) for x in range(SIZE)]) for _ in range(2))
    for each in before:
        old, new = old | KEEPING[each], new | KEEPING[each]
    old, new = old | CHANGING[name](one), new | CHANGING[name](other)
    for each in behind:
        old, new = old | KEEPING[each], new | KEEPING[each]
    return old, new, one, other, draw(st.integers(0, SIZE)), name == "filter"


@given(changes())
def test_nothing_is_lost_and_nothing_comes_twice(case: Any) -> None:
    old, new, one, other, cut, chooses = case
    run = lz.run(old)
    first = [item[0] for item in islice(run, cut)]
    state = run.state
    try:
        run.change(new)
    except lz.StateMismatch:
        assert (run.state, run.pipeline) == (state, old)
        assert [item[0] for item in run] == [item[0] for item in lz.run(old, state)]
        return
    rest = [item[0] for item in run]
    kept = [(x * 7919) % 10 if chooses else 10 for x in range(SIZE)]
    for x in range(SIZE):
        if kept[x] >= max(one, other):
            assert (first + rest).count(x) == 1, (x, first, rest)
        assert (first + rest).count(x) <= 1, (x, first, rest)
    assert all(kept[x] >= other for x in rest)


def mixed(*weights: int, size: int = 2) -> lz.Pipeline[Any]:
    return lz.mix([lz.count(), lz.count(100)], weights, seed=0) | lz.batch(size) | lz.take(6)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_loop_under_way_goes_on(executor: Any) -> None:
    found = []
    with lz.run(mixed(1, 0), executor=executor) as run:
        for item in run:
            found.append(item)
            if run.state.items == 2:
                run.change(mixed(0, 1))
                assert run.pipeline == mixed(0, 1)
            if run.state.items == 4:
                run.change(mixed(1, 0, size=3))
    assert found == [[0, 1], [2, 3], [100, 101], [102, 103], [4, 5, 6], [7, 8, 9]]
    assert run.state == lz.run(mixed(1, 0, size=3), run.state.to_json()).state


@pytest.mark.parametrize("executor", EXECUTORS)
def test_items_and_states_are_those_of_a_rebased_run(executor: Any) -> None:
    old, new = (
        lz.source(range(200)) | lz.shuffle(seed=0) | lz.map(marked_int, n) | lz.batch(4)
        for n in (0, 1000)
    )
    with lz.run(old, executor=executor) as run:
        list(islice(run, 7))
        expected = lz.run(new, lz.rebase(run.state, new)).with_state()
        run.change(new)
        assert list(run.with_state()) == list(expected)


def marked_int(mark: int, item: int) -> int:
    return item + mark


def test_epochs_go_on_and_numbers_count_through() -> None:
    run = lz.run(lz.source(range(3)) | lz.map(marked_int, 0))
    assert list(run.epoch()) == [0, 1, 2]
    run.change(lz.source(range(3)) | lz.map(marked_int, 10))
    assert list(run.epoch()) == list(run.epoch()) == [10, 11, 12]
    assert run.state.items == 9


def test_what_is_left_out_is_counted_through() -> None:
    old, new = (lz.source([*"1a2b3"]) | lz.map(int) | lz.filter(marked_int, n) for n in (0, 1))
    run = lz.run(old, on_error="skip")
    assert [next(run), next(run)] == [1, 2]
    run.change(new)
    assert (list(run), run.skipped) == ([3], 2)


def test_after_the_end_the_next_epoch_is_the_new_one() -> None:
    run = lz.run(numbers(0) | lz.take(2))
    assert list(run) == [0, 1]
    run.change(numbers(100) | lz.take(2))
    assert list(run) == []
    assert list(run.epoch()) == [100, 101]


def test_an_equal_pipeline_changes_nothing() -> None:
    run = lz.run(mixed(1, 1), executor=lz.threads(2))
    next(run)
    state, restarts = run.state, run.stats.restarts
    run.change(mixed(1, 1))
    assert (run.state, run.stats.restarts) == (state, restarts)
    run.close()


def test_bad_changes_change_nothing() -> None:
    run = lz.run(mixed(1, 1))
    next(run)
    state = run.state
    for bad, kind, message in [
        (lz.map(str), lz.ArgumentError, "Run.change"),
        (None, lz.ArgumentError, "Run.change"),
        (lz.source([1]), lz.StateMismatch, "a state cannot follow this change"),
        (
            Pipeline(mixed(1, 1).calls[:-1]) | lz.take(7),
            lz.StateMismatch,
            "n decides the order; keep it",
        ),
    ]:
        with pytest.raises(kind, match=message):
            run.change(bad)
        assert (run.state, run.pipeline) == (state, mixed(1, 1))
    run.close()
    with pytest.raises(lz.PipelineError, match="the run is closed"):
        run.change(mixed(1, 2))


def above(least: int) -> Any:
    return lambda x: x >= least


def plus(more: int) -> Any:
    return partial(lambda held, x: x + held[0], [more])


def doubled(more: int) -> Any:
    return lambda x: [x + more, x + more]


class Key:
    def __init__(self, sign: int) -> None:
        self.sign = sign

    def __call__(self, x: int) -> int:
        return self.sign * x


class Slotted(Key):
    __slots__ = ("least",)

    def __init__(self, least: int) -> None:
        super().__init__(1)
        self.least = least

    def __call__(self, x: int) -> bool:
        return x % 5 >= self.least


def held(least: int) -> Any:
    stage = lz.filter(above(least))
    return lambda x: lz.source([x]) | stage


def attributed(least: int) -> Any:
    def limit() -> None:
        pass

    vars(limit)["least"] = least
    return lambda x: x % 5 >= vars(limit)["least"]


def signed(key: Key, x: int) -> bool:
    return x % 5 >= key.sign


def some(least: int) -> lz.Pipeline[int]:
    return lz.source(range(90)) | lz.filter(above(least))


WINDOW = lz.shuffle(8, seed=0)
MORE = lz.source(range(100, 190))
FUNCTIONS: dict[str, Any] = {
    "in a mix": lambda n: lz.mix([some(n), MORE], [1, 1], seed=0) | WINDOW,
    "in a mix, and a map": lambda n: lz.mix(
        [some(n) | WINDOW, MORE if n == 1 else MORE | lz.map(int)], [1, 1], seed=0
    ),
    "in a mix, and another place": lambda n: lz.mix(
        [lz.source(range(99), name="more"), some(n) | WINDOW][:: 1 if n == 1 else -1],
        [1, 1],
        seed=0,
    ),
    "in a mix of mixes": lambda n: (
        lz.mix([lz.mix([some(n), MORE], [1, 1], seed=0), MORE], [1, 1], seed=0) | WINDOW
    ),
    "in an interleave": lambda n: lz.interleave(some(n), MORE) | WINDOW,
    "in a zip": lambda n: lz.zip(some(n), MORE) | lz.batch(8) | lz.unbatch(),
    "with slots": lambda n: lz.source(range(90)) | lz.filter(Slotted(n)) | WINDOW,
    "with stages": lambda n: lz.source(range(90)) | lz.flat_map(held(n)) | WINDOW,
    "with attributes": lambda n: lz.source(range(90)) | lz.filter(attributed(n)) | WINDOW,
    "called with an object": lambda n: lz.source(range(90)) | lz.filter(signed, Key(n)) | WINDOW,
    "where there was none": lambda n: (
        (lz.source(range(90)) | lz.batch(8, collate=None if n == 1 else sum)) | lz.unbatch()
    ),
    "filter | shuffle": lambda n: (
        lz.source(range(40)) | lz.filter(above(n)) | lz.shuffle(8, seed=0)
    ),
    "flat_map": lambda n: lz.source(range(40)) | lz.flat_map(doubled(n)),
    "flat_map | batch": lambda n: lz.source(range(40)) | lz.flat_map(doubled(n)) | lz.batch(3),
    "bucket_batch": lambda n: (
        lz.source(range(40)) | lz.bucket_batch(2, key=Key(n), window_size=6, seed=0)
    ),
    "mix of filter | shuffle": lambda n: lz.mix(
        [lz.count(), lz.count() | lz.filter(above(n)) | lz.shuffle(8, seed=0)], [1, 1], seed=0
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_another_function_is_refused_where_what_it_gave_is_held(name: str) -> None:
    build = FUNCTIONS[name]
    run = lz.run(build(1))
    given = [next(run) for _ in range(5)]
    with pytest.raises(lz.StateMismatch, match="a different function"):
        run.change(build(2))
    run.change(build(1))  # new functions, which do the same
    given += [next(run) for _ in range(5)]
    np.testing.assert_equal(given, list(islice(build(1), 10)))


CELL = """
def kept(x):
    return any(x % n == 0 for n in (2, 3))
some = lz.source(range(40)) | lz.filter(kept) | lz.filter(lambda x: x > 1)
pipeline = some | lz.shuffle(8, seed=0)
"""


@pytest.mark.parametrize("cell", [f"# a comment\n{CELL}", CELL.replace("(40)", "( 40 )")])
def test_a_function_may_move_in_its_cell(cell: str) -> None:
    before: dict[str, Any] = {"lz": lz}
    after, other = before.copy(), before.copy()
    exec(CELL, before)
    exec(cell, after)
    exec(cell.replace("(2, 3)", "(2, 5)"), other)
    run = lz.run(before["pipeline"])
    first = next(run)
    run.change(after["pipeline"])
    with pytest.raises(lz.StateMismatch, match="is a different function"):
        run.change(other["pipeline"])
    assert [first, *run] == list(before["pipeline"])


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError


@dataclass
class Chooses:
    by: Any


@pytest.mark.parametrize("held", [Incomparable, lambda: Chooses(Incomparable().__eq__)])
def test_what_cannot_be_compared_is_another_function(held: Any) -> None:
    def build() -> lz.Pipeline[int]:
        keep = partial(lambda it, x: it is not None, held())
        return lz.source(range(40)) | lz.filter(keep) | lz.shuffle(8, seed=0)

    run = lz.run(build())
    next(run)
    with pytest.raises(lz.StateMismatch, match="is a different function"):
        run.change(build())


JOINS: dict[str, Any] = {
    "concat": lambda parts: lz.concat(*parts),
    "lanes": lambda parts: lz.lanes(parts, num_shards=2, index=0),
}


@pytest.mark.parametrize("name", JOINS)
def test_what_is_joined_and_not_open_changes_too(name: str) -> None:
    joined = JOINS[name]([lz.source(range(8)), lz.source(range(8, 14))])
    run = lz.run(joined | lz.batch(2))
    found = next(run)
    run.change(joined | lz.batch(3))
    assert [*found, *(x for batch in run for x in batch)] == [*joined]


BEFORE_SHARD: dict[str, Any] = {
    "args": (lz.filter(differs, 2), lz.filter(differs, 3)),
    "one more": (lz.map(tuple), lz.filter(differs, 3)),
}


@pytest.mark.parametrize("name", BEFORE_SHARD)
def test_what_is_dealt_to_ranks_at_places_of_their_own_is_not_changed(name: str) -> None:
    before, after = (
        lz.source([(x, 0) for x in range(SIZE)]) | stage | lz.shard(num_shards=2, index=0)
        for stage in BEFORE_SHARD[name]
    )
    dealt = lz.run(before | lz.filter(differs, 1))
    next(dealt)
    for carry in (dealt.change, lambda new: lz.rebase(dealt.state, new)):
        with pytest.raises(lz.StateMismatch, match="ranks after shard"):
            carry(after | lz.filter(differs, 1))
    plain = lz.run(before | lz.map(tuple))
    next(plain)
    plain.change(after | lz.map(tuple))


def test_another_function_holds_from_here_on_where_nothing_is_held() -> None:
    run = lz.run(lz.source(range(9)) | lz.filter(above(1)) | lz.map(plus(0)) | lz.batch(2))
    assert next(run) == [1, 2]
    run.change(lz.source(range(9)) | lz.filter(above(4)) | lz.map(plus(10)) | lz.batch(2))
    assert list(run) == [[14, 15], [16, 17], [18]]
    held = lz.run(lz.source(range(9)) | lz.map(plus(0)) | lz.shuffle(4, seed=0))
    first = [next(held) for _ in range(3)]
    held.change(lz.source(range(9)) | lz.map(plus(10)) | lz.shuffle(4, seed=0))
    assert sorted(first + [x - 10 for x in held]) == list(range(9))


def test_between_two_items_alone() -> None:
    found: list[BaseException] = []

    def change(x: int) -> int:
        if x == 1:
            try:
                run.change(mixed(1, 2))
            except lz.PipelineError as error:
                found.append(error)
        return x

    run = lz.run(lz.source(range(3)) | lz.map(change))
    assert list(run) == [0, 1, 2]
    assert "change: an item is being computed" in str(found[0])


def test_from_another_thread_while_an_item_is_made() -> None:
    asked, answered = threading.Event(), threading.Event()

    def slow(x: int) -> int:
        asked.set()
        assert answered.wait(60)
        return x

    run = lz.run(lz.source([1]) | lz.map(slow))
    thread = threading.Thread(target=list, args=(run,))
    thread.start()
    assert asked.wait(60)
    with pytest.raises(lz.PipelineError, match="an item is being computed"):
        run.change(lz.source([1]) | lz.map(str))
    answered.set()
    thread.join()


def test_a_hundred_changes_leave_a_state_as_small_as_one() -> None:
    run = lz.run(mixed(1, 1))
    next(run)
    run.change(mixed(2, 1))
    size = len(run.state.to_json())
    for n in range(100):
        run.change(mixed(1 + n % 2, 1))
    assert len(run.state.to_json()) == size


def numbers(mark: int) -> lz.Pipeline[int]:
    return lz.source(range(40)) | lz.map(marked_int, mark)


def test_tracked_changes_once_all_that_was_given_is_finished() -> None:
    tracked = lz.tracked(lz.run(numbers(0)), max_in_flight=4, max_wait=0)
    given = [next(tracked) for _ in range(3)]
    with pytest.raises(lz.errors.TooManyInFlight, match="change waits for all of them"):
        tracked.change(numbers(100))
    tracked.nack(given[0][0])
    with pytest.raises(lz.errors.TooManyInFlight, match="item 0 was returned"):
        tracked.change(numbers(100))
    ticket, item = next(tracked)
    assert item == 0
    for each in (ticket, *(ticket for ticket, _ in given[1:])):
        tracked.ack(each)
    tracked.change(numbers(100))
    ticket, item = next(tracked)
    assert item == 103
    resumed = lz.tracked(lz.run(numbers(100)), tracked.state, max_in_flight=4)
    assert [item for _, item in islice(resumed, 2)] == [103, 104]


def test_tracked_passes_over_what_was_finished_before() -> None:
    tracked = lz.tracked(lz.run(numbers(0)), max_in_flight=4)
    (first, _), (second, _) = islice(tracked, 2)
    tracked.ack(second)
    resumed = lz.tracked(lz.run(numbers(0)), tracked.state, max_in_flight=4)
    ticket, _ = next(resumed)
    resumed.ack(ticket)
    resumed.change(numbers(100))
    assert next(resumed)[1] == 102
    assert ticket != first


def test_tracked_waits_for_what_another_thread_finishes() -> None:
    tracked = lz.tracked(lz.run(numbers(0)), max_in_flight=4)
    ticket, _ = next(tracked)
    thread = threading.Timer(0.05, tracked.ack, (ticket,))
    thread.start()
    tracked.change(numbers(100))
    assert next(tracked)[1] == 101
    thread.join()
