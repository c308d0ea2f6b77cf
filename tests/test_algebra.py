"""States as values: order, differences, what carries over to other pipelines and ranks."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import pytest
import toolz
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import State
from lazyckpt.testing import strategies
from lazyckpt.testing.laws import Stream

DATA = lz.source(range(40))
PIPELINE = DATA | lz.shuffle(seed=0) | lz.repeat() | lz.shuffle(5, seed=1) | lz.batch(4)


# --- order ---


def test_states_are_ordered_by_items() -> None:
    states = [lz.state_at(PIPELINE, n) for n in range(5)]
    assert sorted([states[n] for n in (3, 0, 4, 2, 1)]) == states
    assert max(states) is states[4]
    assert states[1] < states[2] <= states[2] >= states[1]
    assert not states[2] < states[2]
    assert states[3] > states[2] != states[3]


@given(st.integers(0, 30), st.integers(0, 30))
def test_the_order_is_that_of_the_items(n: int, m: int) -> None:
    a, b = lz.state_at(PIPELINE, n), lz.state_at(PIPELINE, m)
    assert [a < b, a <= b, a > b, a >= b, a == b] == [n < m, n <= m, n > m, n >= m, n == m]


@pytest.mark.parametrize("operator", ["__lt__", "__le__", "__gt__", "__ge__"])
def test_states_of_two_pipelines_have_no_order(operator: str) -> None:
    a, b = lz.init(PIPELINE), lz.init(DATA)
    with pytest.raises(lz.StateMismatch, match="states of two pipelines have no order"):
        sorted([a, b])
    assert a != b
    with pytest.raises(TypeError, match="not supported"):
        a < 3  # noqa: B015
    assert getattr(State, operator)(a, 3) is NotImplemented


# --- going on ---


def test_advance_reads_nothing_with_random_access() -> None:
    class Unread:
        __len__ = lambda self: 100  # noqa: E731

        def __getitem__(self, index: int) -> int:
            raise AssertionError("read")

    unread: Any = Unread()
    pipeline = lz.source(unread) | lz.shuffle(seed=0) | lz.repeat() | lz.batch(3)
    state = lz.advance(pipeline, lz.init(pipeline), 10**9 + 1)
    assert (state.items, state.epoch) == (10**9 + 1, 3 * 10**7)


@pytest.mark.parametrize("n", [4, sys.maxsize, sys.maxsize + 1, 10**30])
@pytest.mark.parametrize("data", [[1, 2, 3], Stream([1, 2, 3])], ids=["list", "stream"])
def test_what_is_past_the_end_is_so_however_far(n: int, data: Any) -> None:
    pipeline = lz.source(data)
    with pytest.raises(IndexError, match=f"state_at: n={n}, but the pipeline has 3 items"):
        lz.state_at(pipeline, n)
    with pytest.raises(IndexError, match=f"advance: n={n}, but the pipeline has 2 items after"):
        lz.advance(pipeline, lz.state_at(pipeline, 1), n)


def test_advance_takes_a_state_in_any_form_and_says_what_is_wrong() -> None:
    state = lz.state_at(PIPELINE, 3)
    after = lz.state_at(PIPELINE, 5)
    for form in (state, state.to_json(), state.to_json().encode(), state.to_dict()):
        assert lz.advance(PIPELINE, form, 2) == after
    for n in (-1, 1.5, True, "2", None):
        with pytest.raises(lz.ArgumentError, match="advance: n must be an int >= 0"):
            lz.advance(PIPELINE, state, n)  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="n=41, but the pipeline has 38 items after item 2"):
        lz.advance(DATA, lz.state_at(DATA, 2), 41)
    with pytest.raises(IndexError, match="state_at: n=41, but the pipeline has 40 items"):
        lz.state_at(DATA, 41)
    for use in (lambda it: lz.advance(PIPELINE, it, 1), lambda it: lz.replay(PIPELINE, it)):
        with pytest.raises(lz.StateMismatch, match="belongs to another pipeline"):
            use(lz.init(DATA))
        with pytest.raises(lz.InvalidState, match="got None"):
            use(None)
        with pytest.raises(lz.InvalidState, match=r"(?s)got <run of .*; pass its \.state"):
            use(lz.run(PIPELINE))
        with pytest.raises(lz.InvalidState, match="format 2"):
            use({**state.to_dict(), "lazyckpt": 2})
    for function in (lz.advance, lz.replay, lz.step):
        with pytest.raises(lz.ArgumentError, match=r"pipeline must be a Pipeline, got 3"):
            function(3, state, *[1] * (function is lz.advance))  # type: ignore[operator]


def test_a_run_that_was_never_started_has_the_state_of_the_beginning() -> None:
    run = lz.run(PIPELINE)
    assert run.state == lz.init(PIPELINE)
    assert not lz.diff(run.state, lz.init(PIPELINE))
    assert lz.replay(PIPELINE, run.state) == next(run)


def test_replay_is_exhausted_at_the_end() -> None:
    with pytest.raises(lz.Exhausted):
        lz.replay(DATA, lz.state_at(DATA, 40))


# --- differences ---


def moved(pipeline: lz.Pipeline[Any], n: int, m: int) -> dict[str, Any]:
    difference = lz.diff(lz.state_at(pipeline, n), lz.state_at(pipeline, m).to_json())
    assert difference.items == m - n
    return {f"{each.stage} {each.name}": each.by for each in difference.moves}


STREAM = lz.source(Stream(range(40)))
BOTH = lz.mix([DATA, STREAM], [1, 1], deterministic=True)


@pytest.mark.parametrize(
    ("pipeline", "found"),
    [
        (DATA, {"1 source": (0, 2)}),
        (DATA | lz.map(str) | lz.batch(3), {"1 source": (0, 6)}),
        (DATA | lz.skip(3) | lz.take(9), {"1 source": (0, 2), "3 take": (2,)}),
        (DATA | lz.take(9) | lz.skip(3), {"1 source": (0, 2), "2 take": (2,)}),
        (STREAM | lz.skip(3) | lz.take(9), {"1 source": (0, 2), "3 take": (2,)}),
        (STREAM | lz.take(9) | lz.skip(3), {"1 source": (0, 2), "2 take": (2,)}),
        (DATA | lz.map(str) | lz.shuffle(seed=0) | lz.repeat(), {"3 shuffle": (0, 2)}),
        (DATA | lz.repeat() | lz.shuffle(5, seed=0), {"3 shuffle": (0, 2)}),
        (lz.zip(DATA, DATA | lz.batch(3)), {"1[0].1 source": (0, 2), "1[1].1 source": (0, 6)}),
        (
            BOTH | lz.enumerate(),
            {
                "1[0].1 source": (0, 1), "1[1].1 source": (0, 1), "1 mix": ((1, 1), 0),
                "2 enumerate": (2,),
            },
        ),
        (lz.concat(DATA, DATA), {"1[0].1 source": (0, 2)}),
        (
            lz.multiplex(lz.count(0, 0), [STREAM | lz.take(9), STREAM]),
            {"1[0].1 count": (0, 2), "1[1].1 source": (0, 2), "1[1].2 take": (2,)},
        ),
        (
            lz.switch(lz.count(), BOTH, STREAM | lz.skip(3)),
            {
                "1[0].1 count": (0, 2), "1[1].1[0].1 source": (0, 1), "1[1].1[1].1 source": (0, 1),
                "1[1].1 mix": ((1, 1), 0), "1[2].1 source": (0, 2),
            },
        ),
    ],
    ids=str,
)  # fmt: skip
def test_which_stage_moved_and_how_far(pipeline: lz.Pipeline[Any], found: dict[str, Any]) -> None:
    assert moved(pipeline, 2, 4) == found


def test_a_difference_reads_well() -> None:
    pipeline = DATA | lz.repeat() | lz.take(99)
    back = lz.diff(lz.state_at(pipeline, 50), lz.state_at(pipeline, 2))
    assert str(back) == (
        "-48 items, -1 epochs\nstage 1, source: (1, 10) -> (0, 2)\nstage 3, take: (50,) -> (2,)"
    )
    assert (back.items, back.epochs, bool(back)) == (-48, -1, True)
    assert str(lz.diff(lz.init(DATA), lz.init(DATA))) == "+0 items"
    assert eval(repr(back), {"Difference": lz.Difference, "Move": lz.Move}) == back


def test_states_of_two_pipelines_have_no_difference() -> None:
    one, other = (lz.init(DATA | lz.shuffle(seed=n)) for n in (1, 2))
    with pytest.raises(lz.StateMismatch, match=r"shuffle\(seed=1\) -> shuffle\(seed=2\)"):
        lz.diff(one, other)


@given(strategies.pipelines())
def test_every_stage_is_told_from_the_state_alone(pipeline: lz.Pipeline[Any]) -> None:
    names = {call.name for call in pipeline.calls}
    for move in lz.diff(lz.init(pipeline), lz.init(pipeline, epoch=1)).moves:
        assert "." in move.stage or move.name in names
        assert "|" not in move.name


# --- other pipelines ---


def rest(pipeline: lz.Pipeline[Any], state: lz.State, limit: int = 99) -> list[Any]:
    return list(islice(lz.run(pipeline, lz.rebase(state, pipeline)), limit))


INSERTED: list[tuple[lz.Stage[Any, Any], Callable[[list[Any]], Iterable[Any]]]] = [
    (lz.map(str), lambda items: map(str, items)),
    (lz.filter(lambda x: x % 3), lambda items: [x for x in items if x % 3]),
    (lz.take(5), lambda items: items[:5]),
    (lz.skip(5), lambda items: items[5:]),
    (lz.enumerate(), enumerate),
    (lz.batch(4), lambda items: toolz.partition_all(4, items)),
    (lz.sliding_window(3), lambda items: toolz.sliding_window(3, items)),
    (lz.flat_map(lambda x: [x, x]), lambda items: [x for x in items for _ in range(2)]),
    (lz.scan(lambda s, x: (s + x, s), 0), lambda items: itertools.accumulate([0, *items[:-1]])),
    (lz.repeat(1), lambda items: items),
    (lz.shard(num_shards=2, index=1), lambda items: items[1::2]),
    (lz.take_while(lambda x: x < 35), lambda items: [x for x in items if x < 35]),
]


@pytest.mark.parametrize(("stage", "means"), INSERTED, ids=lambda each: str(each)[:30])
@pytest.mark.parametrize("data", [DATA, STREAM], ids=["indices", "stream"])
@pytest.mark.parametrize("cut", [0, 3, 7, 20])
def test_an_inserted_stage_begins_here(
    data: lz.Pipeline[int], stage: lz.Stage[Any, Any], means: Any, cut: int
) -> None:
    pairs = lz.map(lambda x: (x, x))
    expected = [x if isinstance(x, int | str) else tuple(x) for x in means([*range(cut, 40)])]
    state = lz.state_at(data, cut)
    found = rest(data | stage, state)
    assert [x if isinstance(x, int | str) else tuple(x) for x in found] == expected
    state = lz.state_at(data | lz.repeat(2) | pairs, cut)
    assert rest(data | stage | lz.repeat(2) | pairs, state)[: len(found)] == [(x, x) for x in found]
    assert lz.rebase(state, data | stage | lz.repeat(2) | pairs).items == cut


def test_stages_are_inserted_into_a_mixture_of_all_that_changes() -> None:
    old = DATA | lz.shuffle(seed=0) | lz.repeat() | lz.shard(num_shards=2, index=0) | lz.batch(2)
    new = (
        DATA | lz.map(lambda x: x) | lz.shuffle(seed=0) | lz.repeat() | lz.map(str)
        | lz.shard(num_shards=1, index=0) | lz.enumerate() | lz.batch(3)
    )  # fmt: skip
    order = list(map(str, islice(DATA | lz.shuffle(seed=0) | lz.repeat(), 300)))
    found = rest(new, lz.state_at(old, 5), 9)
    assert [x for batch in found for x in batch] == list(enumerate(order[20:47]))


def test_a_shuffle_inserted_over_a_stream_goes_on_with_what_is_left() -> None:
    state = lz.state_at(DATA, 13)
    for stage in (lz.shuffle(5, seed=0), lz.block_shuffle(4, seed=0)):
        assert sorted(rest(DATA | stage, state)) == list(range(13, 40))


def test_maps_are_inserted_and_removed_before_windows() -> None:
    plain, mapped = (
        data | lz.shuffle(5, seed=0) | lz.batch(3) | lz.take(9)
        for data in (DATA, DATA | lz.map(str))
    )
    for old, new in ((plain, mapped), (mapped, plain)):
        for cut in (0, 1, 5, 9):
            assert rest(new, lz.state_at(old, cut)) == list(new)[cut:]


def test_what_stands_before_a_whole_order_has_no_part_in_the_state() -> None:
    orders = [
        DATA | stage | lz.shuffle(seed=0) | lz.batch(size)
        for stage, size in ((lz.take(9), 2), (lz.take(9) | lz.map(lambda x: x), 3))
    ]
    items = [x for batch in orders[0] for x in batch]
    assert rest(orders[1], lz.state_at(orders[0], 2)) == [items[4:7], items[7:9]]


def test_stages_without_a_memory_are_removed_from_here_on() -> None:
    whole = DATA | lz.filter(lambda x: x % 2) | lz.enumerate() | lz.batch(3)
    state = lz.state_at(whole, 2)
    assert rest(DATA | lz.batch(3), state)[0] == [12, 13, 14]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (DATA | lz.take(9), DATA, "take(n=9) is gone; what it holds or counts would be lost"),
        (DATA | lz.shuffle(4, seed=0), DATA, "would be lost"),
        (
            DATA,
            DATA | lz.shuffle(seed=0),
            "it orders whole epochs, of which a part is gone",
        ),
        (DATA, DATA | lz.gather([1, 2]), "it orders whole epochs"),
        (DATA, DATA | lz.shard(num_shards=2, index=0, contiguous=True), "it orders whole"),
        (
            DATA | lz.take(9),
            DATA | lz.batch(2) | lz.take(9),
            "take(9) behind it counts what it gives",
        ),
        (
            DATA | lz.shuffle(4, seed=0),
            DATA | lz.filter(bool) | lz.shuffle(4, seed=0),
            "stage 2: filter() is new; shuffle(buffer_size=4, seed=0) behind it counts",
        ),
        (DATA | lz.map(str) | lz.take(9), DATA | lz.take(8), "take(n=9) -> take(n=8); n decides"),
        (DATA, lz.count() | lz.take(40), "source -> count"),
    ],
    ids=str,
)
def test_what_has_no_meaning_is_refused_with_the_reason(old: Any, new: Any, reason: str) -> None:
    with pytest.raises(lz.StateMismatch) as caught:
        lz.rebase(lz.state_at(old, 1), new)
    assert reason in str(caught.value)
    with pytest.raises(lz.StateMismatch) as caught:
        lz.run(new, lz.state_at(old, 1))
    assert "rebase" not in str(caught.value)


def test_a_whole_order_may_begin_where_an_epoch_does() -> None:
    shuffled = DATA | lz.shuffle(seed=0) | lz.repeat(2)
    assert rest(shuffled, lz.init(DATA | lz.repeat(2))) == list(shuffled)


# --- mixtures ---

LETTERS = [lz.source([f"{name}{n}" for n in range(200 + len(name))]) for name in ("a", "bb", "ccc")]


def per_source(items: Iterable[str]) -> dict[str, list[str]]:
    return toolz.groupby(lambda item: item[0], items)


@given(
    st.sampled_from([[0, 1], [1, 0], [0, 1, 2], [1], [2, 0, 1], [0, 2]]),
    st.lists(st.integers(1, 9), min_size=3, max_size=3),
    st.integers(0, 30),
    st.sampled_from(["first_exhausted", "never"]),
    st.sampled_from([None, lz.batch(2), lz.map(lambda x: x) | lz.batch(3)]),
)
def test_a_mixture_goes_on_with_others_and_loses_nothing(
    kept: list[int], weights: list[int], cut: int, stop: Any, behind: Any
) -> None:
    def mixed(numbers: list[int]) -> lz.Pipeline[Any]:
        found = lz.mix([LETTERS[n] for n in numbers], weights[: len(numbers)], seed=3, stop=stop)
        return found if behind is None else found | behind

    def flat(items: Iterable[Any]) -> list[str]:
        return list(items if behind is None else toolz.concat(items))

    old, new = mixed([0, 1]), mixed(kept)
    head = flat(islice(old, cut))
    state = lz.rebase(lz.state_at(old, cut), new)
    tail = flat(islice(lz.run(new, state), 20))
    before, after = per_source(head), per_source(tail)
    for n in kept:
        whole = [*before.get("abc"[n], []), *after.get("abc"[n], [])]
        assert whole == list(LETTERS[n])[: len(whole)]
    assert list(lz.mix_counts(new, state)) == [len(before.get("abc"[n], [])) for n in kept]


def test_new_weights_hold_from_here_on() -> None:
    old, new = (
        lz.mix([lz.count(), lz.count(100)], w, seed=0) | lz.batch(2) for w in ([1, 0], [0, 1])
    )
    state = lz.state_at(old, 3)
    assert rest(new, state, 2) == [[100, 101], [102, 103]]
    assert rest(old, lz.rebase(state, new), 1) == [[6, 7]]
    schedule = lz.mix([lz.count(), lz.count(100)], lambda n: [n < 8, n >= 8], seed=0) | lz.batch(2)
    assert rest(schedule, state, 2) == [[6, 7], [100, 101]]


def test_a_schedule_knows_how_many_items_there_were_of_sources_that_are_gone() -> None:
    seen = []

    def schedule(n: int) -> list[float]:
        seen.append(n)
        return [1, 1]

    three = lz.mix([lz.count(), lz.count(100), lz.count(200)], [1, 1, 1], seed=0)
    two = lz.mix([lz.count(), lz.count(200)], schedule, seed=0)
    state = lz.rebase(lz.state_at(three, 50), two)
    assert len(rest(two, state, 10)) == 10
    assert seen == list(range(50, 60))
    later = lz.advance(two, state, 10)
    assert State.from_json(later.to_json()) == later
    assert len(lz.mix_counts(two, later)) == 2
    assert sum(lz.mix_counts(three, lz.rebase(later, three))) < 60
    assert rest(three, later, 1) != []


def test_exact_proportions_change_where_the_counts_are_the_new_ones() -> None:
    old, new = (
        lz.mix([lz.count(), lz.count(100)], weights, deterministic=True)
        for weights in ([1, 1], [3, 1])
    )
    assert rest(new, lz.init(old), 8) == list(islice(new, 8))
    with pytest.raises(lz.StateMismatch, match=r"wanted counts \[6, 2\] .* they are \[4, 4"):
        lz.rebase(lz.state_at(old, 8), new)
    with pytest.raises(lz.StateMismatch, match="deterministic proportions would have"):
        lz.rebase(lz.state_at(old, 8), lz.mix([lz.count()], [1], deterministic=True))


MIX = lz.mix(LETTERS, [1, 2, 3], seed=0)


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (lz.mix(LETTERS, [1, 2, 3], seed=1), "mix(seed=0) -> mix(seed=1); seed decides"),
        (lz.mix(LETTERS, [1, 2, 3], seed=0, stop="never"), "stop decides about the order"),
        (lz.mix(LETTERS, [1, 2, 3], deterministic=True), "decides about the order"),
        (lz.mix([lz.count()], [1], seed=0), "none of its pipelines is left"),
        (lz.interleave(*LETTERS), "mix -> interleave"),
    ],
    ids=str,
)
def test_what_a_mixture_cannot_follow(new: Any, reason: str) -> None:
    with pytest.raises(lz.StateMismatch) as caught:
        lz.rebase(lz.state_at(MIX, 5), new)
    assert reason in str(caught.value)


def test_a_window_behind_holds_a_mixture_to_its_weights() -> None:
    old, new = (lz.mix(LETTERS, w, seed=0) | lz.shuffle(4, seed=0) for w in ([1, 2, 3], [3, 2, 1]))
    with pytest.raises(lz.StateMismatch, match=r"shuffle.* behind it counts"):
        lz.rebase(lz.state_at(old, 5), new)


def test_a_changed_pipeline_of_a_mixture_goes_on_where_it_was() -> None:
    numbers, others = lz.count(), lz.count(100)
    old = lz.mix([numbers, others], [1, 0], seed=0)
    state = lz.state_at(old, 7)
    new = lz.mix([lz.source(["abc"]), others, numbers | lz.map(str)], [0, 0, 1], seed=0)
    assert rest(new, state, 2) == ["7", "8"]
    batched = lz.mix([numbers | lz.batch(2), others], [1, 0], seed=0)
    assert rest(batched, state, 2) == [[7, 8], [9, 10]]
    threes = lz.mix([numbers | lz.batch(3), others], [1, 0], seed=0)
    assert rest(threes, lz.state_at(batched, 2), 1) == [[4, 5, 6]]
    moved = lz.state_at(lz.mix([numbers, others], [1, 1], seed=0), 7)
    part = others | lz.take(5) | lz.shuffle(seed=0)
    with pytest.raises(lz.StateMismatch, match=r"begin it anew, .* pipelines\[1\].*orders whole"):
        lz.rebase(moved, lz.mix([numbers, part], [1, 1], seed=0))
    alone = lz.rebase(moved, lz.mix([numbers], [1], seed=0))
    anew = lz.mix([numbers, part], [0, 1], seed=0)
    assert rest(anew, alone) == list(part)


def test_of_many_pipelines_a_state_has_a_digest() -> None:
    many = [lz.source(range(n + 1)) | lz.repeat() for n in range(30)]
    old, new = (lz.mix(many, [*range(1, 30), w], seed=0) for w in (1, 2))
    state = lz.state_at(old, 5)
    assert rest(new, state, 9) == list(islice(lz.run(new, state, strict=False), 9))
    with pytest.raises(lz.StateMismatch, match="has but a digest"):
        lz.rebase(state, lz.mix(many[1:], [1] * 29, seed=0))


ALIKE = ["a", "b", "c", "d"]  # sources of one length


def alike(name: str, is_named: bool) -> lz.Pipeline[str]:
    rows = [f"{name}{n}" for n in range(60)]
    return lz.source(rows, name=name) if is_named else lz.source(rows)


def of_alike(names: Iterable[str], is_named: bool, stage: Any = None) -> lz.Pipeline[str]:
    made = [alike(name, is_named) for name in names]
    chosen = [each if stage is None else each | stage for each in made]
    return lz.mix(chosen, [1] * len(chosen), seed=0, stop="never")


@given(
    st.permutations(ALIKE).flatmap(lambda row: st.integers(1, 3).map(lambda n: row[:n])),
    st.permutations(ALIKE).flatmap(lambda row: st.integers(1, 4).map(lambda n: row[:n])),
    st.integers(0, 20),
    st.sampled_from([None, lz.map(str.upper), lz.shuffle(3, seed=0)]),
)
def test_named_pipelines_of_a_mixture_go_on_each_where_it_was(
    before: list[str], after: list[str], cut: int, stage: Any
) -> None:
    old, new = of_alike(before, True, stage), of_alike(after, True, stage)
    head = list(islice(old, cut))
    state = lz.state_at(old, cut)
    if before != after:
        with pytest.raises(lz.StateMismatch, match="belongs to another pipeline"):
            lz.run(new, state)
    if not {*before} & {*after}:
        with pytest.raises(lz.StateMismatch, match="none of its pipelines is left"):
            lz.rebase(state, new)
        return
    tail = list(islice(lz.run(new, lz.rebase(state, new)), 25))
    for name in after:
        one = alike(name, True)
        whole = list(one if stage is None else one | stage)
        had = [x for x in head if x.lower()[0] == name]
        found = [x for x in tail if x.lower()[0] == name]
        assert found == whole[len(had) : len(had) + len(found)]


def test_pipelines_of_a_mixture_that_look_alike_want_names() -> None:
    for stage in (None, lz.map(str.upper)):
        state = lz.state_at(of_alike("ab", False, stage), 5)
        for names in ("a", "b", "abc", "cab"):
            with pytest.raises(lz.StateMismatch, match=r"2 of its pipelines look like .*name="):
                lz.rebase(state, of_alike(names, False, stage))
    named = lz.state_at(of_alike("ab", True), 5)
    with pytest.raises(lz.StateMismatch, match=r'"name": "a".*-> .*"name": "b"'):
        lz.run(of_alike("ba", True), named)
    with pytest.raises(lz.StateMismatch, match="none of its pipelines is left"):
        lz.rebase(named, of_alike("ab", False))


# --- other ranks ---


def global_rank(num_shards: int, index: int) -> lz.Pipeline[Any]:
    ranks = lz.shard(num_shards=num_shards, index=index)
    return DATA | lz.shuffle(seed=0) | lz.shuffle(5, seed=1) | ranks | lz.map(str) | lz.batch(2)


def test_a_global_state_is_that_of_any_number_of_ranks() -> None:
    states = [lz.state_at(global_rank(2, index), 3) for index in range(2)]
    for forms in (states, states[:1], [state.to_json() for state in states]):
        three = lz.reshard(forms, 3)
        assert len(three) == 3
        assert {(state.position, state.items) for state in three} == {(states[0].position, 3)}
        ranks = [global_rank(3, index) for index in range(3)]
        found = [list(lz.run(rank, state)) for rank, state in zip(ranks, three, strict=True)]
        done = [list(islice(global_rank(2, index), 3)) for index in range(2)]
        items = [x for rank in done + found for batch in rank for x in batch]
        assert sorted(items, key=int) == list(map(str, range(40)))
    assert lz.reshard(states, 2) == states
    assert lz.reshard(lz.reshard(states, 3), 2) == states
    assert lz.reshard([lz.init(PIPELINE)], 3) == [lz.init(PIPELINE)] * 3


STAGES = [
    lz.map(lambda x: x), lz.filter(lambda x: x[1] % 3), lz.shuffle(3, seed=1) | lz.repeat(2),
    lz.flat_map(lambda x: [(*x, n) for n in range(x[1] % 3)]), lz.block_shuffle(4, seed=0),
    lz.take(5), lz.skip(2), lz.batch(2) | lz.unbatch(), lz.batch(2) | lz.starmap(lambda *x: x[0]),
]  # fmt: skip


@st.composite
def laned(draw: st.DrawFn) -> list[lz.Pipeline[Any]]:
    """Lanes of unequal lengths, each with whatever stages."""
    found: list[lz.Pipeline[Any]] = []
    for lane in range(draw(st.integers(1, 6))):
        rows = [(lane, n) for n in range(draw(st.integers(0, 8)))]
        pipeline: Any = lz.source(draw(st.sampled_from([rows, Stream(rows)])))
        for stage in draw(st.lists(st.sampled_from(STAGES), max_size=2)):
            pipeline = pipeline | stage
        found.append(pipeline)
    return found


BEHIND = [None, lz.map(lambda x: x), lz.filter(lambda x: True), lz.batch(1)]


@given(laned(), st.data())
def test_lanes_are_dealt_again_and_again_and_nothing_is_lost(
    pipelines: list[lz.Pipeline[Any]], data: st.DataObject
) -> None:
    behind = data.draw(st.sampled_from(BEHIND))

    def ranks(num_shards: int) -> list[lz.Pipeline[Any]]:
        made = [lz.lanes(pipelines, num_shards=num_shards, index=n) for n in range(num_shards)]
        return [rank if behind is None else rank | behind for rank in made]

    sizes = st.integers(1, len(pipelines))
    size = data.draw(sizes)
    states = [lz.init(rank) for rank in ranks(size)]
    given: list[Any] = []
    for _ in range(3):
        after = []
        for rank, state in zip(ranks(size), states, strict=True):
            run = lz.run(rank, state)
            given += islice(run, data.draw(st.integers(0, 7)))
            after.append(run.state)
        total = sum(state.items for state in after)
        following = data.draw(sizes)
        states = lz.reshard([state.to_json() for state in after], following)
        assert sum(state.items for state in states) == total == len(given)
        assert following != size or states == after
        assert [s.position for s in lz.reshard(states, following)] == [s.position for s in states]
        size = following
    for rank, state in zip(ranks(size), states, strict=True):
        given += lz.run(rank, state)
    items = given if behind != lz.batch(1) else [x for batch in given for x in batch]
    wanted = [list(lane) for lane in pipelines]
    assert sorted(map(repr, items)) == sorted(map(repr, itertools.chain(*wanted)))
    for lane, expected in enumerate(wanted):
        mine = [x for x in items if (x[0] if isinstance(x[0], int) else x[0][0]) == lane]
        assert mine == expected


@given(laned(), st.lists(st.integers(1, 6), min_size=3, max_size=3))
def test_dealing_twice_is_dealing_once(pipelines: list[Any], sizes: list[int]) -> None:
    one, two, three = (min(size, len(pipelines)) for size in sizes)
    ranks = [lz.lanes(pipelines, num_shards=one, index=n) for n in range(one)]
    states = []
    for number, rank in enumerate(ranks):
        run = lz.run(rank)
        list(islice(run, number + 2))
        states.append(run.state)
    if three != one:
        assert lz.reshard(lz.reshard(states, two), three) == lz.reshard(states, three)


LANES = [lz.source(range(n, n + 9)) for n in range(0, 60, 10)]


def laned_states(num_shards: int = 3, behind: Any = None) -> list[lz.State]:
    ranks = [lz.lanes(LANES, num_shards=num_shards, index=n) for n in range(num_shards)]
    return [lz.state_at(r if behind is None else r | behind, n) for n, r in enumerate(ranks)]


def test_what_lanes_refuse() -> None:
    one, two, three = laned_states()
    for states, reason in (
        ([one, two], "lanes(num_shards=3) wants the states of 3 ranks, got 2"),
        ([one, two, three, one], "of 3 ranks, got 4"),
        ([one, three, two], "in place of rank 1's state there is that of rank 2"),
        ([one, one, three], "in place of rank 1's state there is that of rank 0"),
        ([one, two, lz.init(DATA)], "ranks 0 and 2 have two pipelines:\n    lanes\n -> source"),
        ([one, *laned_states(2)], "ranks 0 and 1 have two pipelines"),
        (laned_states(behind=lz.shuffle(3, seed=0)), "shuffle behind them counts or holds"),
        (laned_states(behind=lz.take(30)), "take behind them counts or holds"),
        (laned_states(behind=lz.shard(num_shards=2, index=0)), "divided once more, by shard"),
    ):
        with pytest.raises(lz.StateMismatch) as caught:
            lz.reshard(states, 2)
        assert reason in str(caught.value)
    with pytest.raises(lz.StateMismatch, match="6 lanes are too few for 7 ranks"):
        lz.reshard([one, two, three], 7)
    with pytest.raises(lz.InvalidState, match="the state is that of rank 1, and this is rank 0"):
        lz.run(lz.lanes(LANES, num_shards=3, index=0), two)
    with pytest.raises(lz.StateMismatch, match=r"num_shards=3\) -> lanes\(num_shards=2"):
        lz.run(lz.lanes(LANES, num_shards=2, index=0), one)
    with pytest.raises(lz.StateMismatch, match=r"lz\.reshard deals them, from all ranks' states"):
        lz.rebase(one, lz.lanes(LANES, num_shards=2, index=0))
    for position in ((0, 0), ((), 0, 0, 0), 3, None, (3, 0, 0, 0), (((0, 1),), 0, 0, 0, 0)):
        with pytest.raises(lz.InvalidState):
            lz.reshard([State(one.pipeline, 0, position), two, three], 2)
    for bad in (one, one.to_json(), [], None, 3, {}):
        with pytest.raises(lz.ArgumentError, match="states must be a list of states"):
            lz.reshard(bad, 2)  # type: ignore[arg-type]
    for number in (0, -1, True, 2.0, None):
        with pytest.raises(lz.ArgumentError, match="num_shards must be an int >= 1"):
            lz.reshard([one, two, three], number)  # type: ignore[arg-type]
    with pytest.raises(lz.InvalidState, match="format 2"):
        lz.reshard([{**one.to_dict(), "lazyckpt": 2}], 2)
    with pytest.raises(lz.ArgumentError, match="6 lanes leave some of num_shards=7"):
        lz.lanes(LANES, num_shards=7, index=0)
    with pytest.raises(lz.ArgumentError, match="index must be below num_shards=2, got index=2"):
        lz.lanes(LANES, num_shards=2, index=2)


@given(
    laned(),
    st.sampled_from([None, lz.repeat(2), lz.map(lambda x: x) | lz.repeat(3) | lz.batch(1)]),
    st.booleans(),
    st.data(),
)
def test_lanes_change_ranks_in_every_epoch_alike_or_say_so(
    pipelines: list[Any], behind: Any, is_within: bool, data: st.DataObject
) -> None:
    if behind is not None and is_within:
        pipelines, behind = [lane | behind for lane in pipelines], None

    def ranks(num_shards: int) -> list[Any]:
        made = [lz.lanes(pipelines, num_shards=num_shards, index=n) for n in range(num_shards)]
        return made if behind is None else [rank | behind for rank in made]

    sizes = st.integers(1, len(pipelines))
    old, new = data.draw(sizes), data.draw(sizes)
    given: list[Any] = []
    states = []
    for rank in ranks(old):
        run = lz.run(rank)
        given += islice(run, data.draw(st.integers(0, 30)))
        states.append(run.state)
    epochs = {rank.machine.epoch(s.position) for rank, s in zip(ranks(old), states, strict=True)}
    try:
        dealt = lz.reshard(states, new)
    except lz.StateMismatch as refusal:
        assert not is_within
        assert "put repeat() into each lane, not behind" in str(refusal)  # noqa: PT017  # or it is dealt
        assert len({s.epoch for s in states}) > 1 or len(epochs) > 1
        return
    for rank, state in zip(ranks(new), dealt, strict=True):
        given += lz.run(rank, state)
    wanted = [item for rank in ranks(1) for item in rank]
    assert sorted(map(repr, given)) == sorted(map(repr, wanted))


def test_ranks_in_two_epochs_are_not_dealt() -> None:
    def rank(num_shards: int, index: int, count: int = 2, within: int = 1) -> Any:
        lines = [lz.source([f"{name}{n}" for n in range(2)]) | lz.repeat(within) for name in "ab"]
        return lz.lanes(lines, num_shards=num_shards, index=index) | lz.repeat(count)

    for ahead in (0, 1):
        states = [lz.state_at(rank(2, n), 3 if n == ahead else 1) for n in range(2)]
        with pytest.raises(
            lz.StateMismatch, match=r"ranks 0 and 1 are in epochs .* repeat\(\) into"
        ):
            lz.reshard(states, 1)
        assert lz.reshard(states, 2) == states
    ends = [lz.state_at(rank(2, n), n + 1) for n in range(2)]  # one has ended the epoch, one not
    (state,) = lz.reshard(ends, 1)
    assert sorted(lz.run(rank(1, 0), state)) == ["a0", "a1", "a1", "b0", "b1"]
    later = [lz.state_at(rank(2, n), n + 3) for n in range(2)]
    (state,) = lz.reshard(later, 1)
    assert sorted(lz.run(rank(1, 0), state)) == ["a1"]
    inside = [lz.state_at(rank(2, n, count=1, within=2), 3 * n) for n in range(2)]
    (state,) = lz.reshard(inside, 1)
    assert sorted(lz.run(rank(1, 0, count=1, within=2), state)) == ["a0", "a0", "a1", "a1", "b1"]
    runs = [lz.run(rank(2, n, count=1)) for n in range(2)]
    list(runs[0].epoch(3))
    with pytest.raises(lz.StateMismatch, match="ranks 0 and 1 are in epochs 1 and 0"):
        lz.reshard([run.state for run in runs], 1)


def test_ranks_that_disagree_are_told_by_how_much() -> None:
    states = [lz.state_at(global_rank(3, 0), n) for n in (4, 4, 6)]
    with pytest.raises(
        lz.StateMismatch, match=r"(?s)ranks 0 and 2 disagree: \+2 items.stage 3, shu"
    ):
        lz.reshard(states, 2)
    with pytest.raises(lz.StateMismatch, match="wants the states of 3 ranks, got 2"):
        lz.reshard(states[:2], 2)
    pair = [lz.state_at(PIPELINE, n) for n in (4, 5)]
    with pytest.raises(lz.StateMismatch, match=r"ranks 0 and 1 disagree: \+1 items"):
        lz.reshard(pair, 2)


def test_ranks_that_go_at_their_own_pace_keep_to_their_number() -> None:
    ranks = [DATA | lz.shard(num_shards=2, index=n) | lz.filter(lambda x: x > 8) for n in range(2)]
    states = [lz.state_at(rank, n + 1) for n, rank in enumerate(ranks)]
    assert lz.reshard(states, 2) == states
    with pytest.raises(lz.StateMismatch, match="disagree, as they may behind filter"):
        lz.reshard(states, 3)
    with pytest.raises(lz.StateMismatch, match="wants the states of 2 ranks, got 1"):
        lz.reshard(states[:1], 2)
    even = [lz.init(rank) for rank in ranks]
    with pytest.raises(lz.StateMismatch, match="filter behind shard counts or holds"):
        lz.reshard(even, 3)


@pytest.mark.parametrize(
    ("pipeline", "reason"),
    [
        (DATA | lz.shard(num_shards=2, index=0, contiguous=True), "are contiguous"),
        (lz.zip(DATA, DATA | lz.shard(num_shards=2, index=0)), "put shard behind zip"),
        (
            DATA | lz.shard(num_shards=2, index=0) | lz.shard(num_shards=2, index=0),
            "sharded more than once",
        ),
    ],
    ids=str,
)
def test_which_pipelines_keep_to_their_ranks(pipeline: Any, reason: str) -> None:
    with pytest.raises(lz.StateMismatch, match=reason):
        lz.reshard([lz.init(pipeline)] * 2, 3)


def test_many_lanes_keep_their_number_of_ranks_in_a_state() -> None:
    many = [lz.source(range(n)) | lz.shuffle(3, seed=n) | lz.repeat(2) for n in range(1, 65)]
    ranks = [lz.lanes(many, num_shards=4, index=n) | lz.batch(2) for n in range(4)]
    states = [lz.state_at(rank, 50) for rank in ranks]
    two = [lz.lanes(many, num_shards=2, index=n) | lz.batch(2) for n in range(2)]
    found = lz.reshard(states, 2)
    left = sum(sum(map(len, lz.run(r, s))) for r, s in zip(two, found, strict=True))
    assert left == sum(map(len, many)) * 1 - 4 * 100
