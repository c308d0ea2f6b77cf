"""Mixtures that change: what carries over to other sources and weights."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest
import toolz
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import State
from tests.state.cases import rest

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


def test_a_schedule_knows_how_many_items_there_were_of_sources_that_are_gone() -> None:
    seen = []

    def schedule(n: int) -> list[float]:
        seen.append(n)
        return [1, 1]

    three = lz.mix([lz.count(), lz.count(100), lz.count(200)], [1, 1, 1], seed=0)
    two = lz.mix([lz.count(), lz.count(200)], lz.schedule(schedule, name="even"), seed=0)
    state = lz.rebase(lz.state_at(three, 50), two)
    assert len(rest(two, state, 10)) == 10
    assert seen == list(range(50, 60))
    later = lz.advance(two, state, 10)
    assert State.from_json(later.to_json()) == later
    assert len(lz.mix_counts(two, later)) == 2
    assert sum(lz.mix_counts(three, lz.rebase(later, three))) < 60
    assert rest(three, later, 1) != []


EXACT: Any = {"deterministic": True}


def test_exact_proportions_change_from_here_on() -> None:
    parts = [lz.count(), lz.count(100), lz.count(200)]
    old, new = (lz.mix(parts[:2], weights, **EXACT) for weights in ([1, 1], [3, 1]))
    assert rest(new, lz.init(old), 8) == list(islice(new, 8))
    state = lz.rebase(lz.state_at(old, 7), new)
    assert lz.mix_counts(new, state) == (4, 3)
    fresh = lz.mix([lz.count(4), lz.count(103)], [3, 1], **EXACT)
    assert rest(new, state, 20) == list(islice(fresh, 20))
    assert lz.mix_counts(new, lz.advance(new, state, 10**9)) == (4 + 75 * 10**7, 3 + 25 * 10**7)
    added = lz.mix(parts, lz.schedule({0: [1, 1, 2], 20: [0, 0, 1]}), **EXACT)
    later = lz.rebase(lz.advance(new, state, 4), added)
    assert lz.mix_counts(added, later) == (7, 4, 0)
    assert State.from_json(later.to_json()) == later
    found = rest(added, later, 12)
    assert [item // 100 for item in found[9:]] == [2, 2, 2]
    assert found == [
        item for n in range(12) for item in rest(added, lz.advance(added, later, n), 1)
    ]
    left = lz.mix([parts[2]], [1], **EXACT)
    assert rest(left, lz.rebase(lz.advance(added, later, 10), left), 2) == found[10:]
    batched = lz.mix(
        [parts[0] | lz.batch(2), *parts[1:]], lz.schedule({0: [1, 1, 2], 20: [0, 0, 1]}), **EXACT
    )
    assert len(rest(batched, lz.rebase(later, batched), 12)) == 12


def test_the_end_of_exact_proportions_that_changed_is_found_at_once() -> None:
    parts = [lz.source(range(20)), lz.source(range(100, 120))]
    for stop in ("first_exhausted", "all_exhausted"):
        old, new = (lz.mix(parts, weights, stop=stop, **EXACT) for weights in ([1, 1], [3, 1]))
        state = lz.rebase(lz.state_at(old, 9), new)
        left = rest(new, state)
        for n in range(len(left)):
            there = lz.advance(new, state, n)
            assert rest(new, there.to_json()) == left[n:]
        with pytest.raises(IndexError):
            lz.advance(new, state, len(left) + 1)
        ranked = new | lz.shard(num_shards=3, index=1)
        assert rest(ranked, lz.rebase(state, ranked)) == left[1::3]


def test_a_state_of_proportions_that_never_were_is_refused() -> None:
    mixed = lz.mix([lz.count(), lz.count(100)], [3, 1], **EXACT)
    good = lz.state_at(mixed, 8)
    places, counts, _ = good.position
    for ended, wrong in ((0, (4, 4)), (2 * 9, counts), (2 * 4, (1, 7)), (2 * 4 + 1, (1, 7))):
        with pytest.raises(lz.errors.InvalidState):
            mixed.machine.check((places, wrong, ended))
    mixed.machine.check((places, (5, 3), 2 * 4))


MIX = lz.mix(LETTERS, [1, 2, 3], seed=0)


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (lz.mix(LETTERS, [1, 2, 3], seed=0, stop="never"), "stop decides the order"),
        (lz.mix(LETTERS, [1, 2, 3], deterministic=True), "decides the order"),
        (lz.mix([lz.count()], [1], seed=0), "none of its pipelines remains"),
        (lz.interleave(*LETTERS), "mix -> interleave"),
    ],
    ids=str,
)
def test_what_a_mixture_cannot_follow(new: Any, reason: str) -> None:
    with pytest.raises(lz.StateMismatch) as caught:
        lz.rebase(lz.state_at(MIX, 5), new)
    assert reason in str(caught.value)


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
    with pytest.raises(lz.StateMismatch, match=r"from scratch, .* pipelines\[1\].*orders whole"):
        lz.rebase(moved, lz.mix([numbers, part], [1, 1], seed=0))
    alone = lz.rebase(moved, lz.mix([numbers], [1], seed=0))
    anew = lz.mix([numbers, part], [0, 1], seed=0)
    assert rest(anew, alone) == list(part)


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
        with pytest.raises(lz.StateMismatch, match="belongs to a different pipeline"):
            lz.run(new, state)
    if not {*before} & {*after}:
        with pytest.raises(lz.StateMismatch, match="none of its pipelines remains"):
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
    with pytest.raises(lz.StateMismatch, match=r'name="a".*-> .*name="b"'):
        lz.run(of_alike("ba", True), named)
    with pytest.raises(lz.StateMismatch, match="none of its pipelines remains"):
        lz.rebase(named, of_alike("ab", False))
