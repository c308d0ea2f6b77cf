"""Random changes of pipelines: what is carried over runs, and all else is refused with a reason."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing import strategies
from lazyckpt.testing.laws import Stream

DATA = lz.source(range(9))
STREAM = lz.source(Stream(range(9)))


# --- random changes ---

# What makes any number of items of an item tells itself where it makes another number.
COUNTING = {
    "flat_map", "interleave_map", "transition", "bucket_batch", "bucket_by_boundaries",
    "bucket_by_boundaries(max_wait)", "concat_then_split", "pack_first_fit", "group_by",
    "repeat for ever", "gather",
}  # fmt: skip
PLAIN = {name: made for name, made in strategies.STAGES.items() if name not in COUNTING}
EVEN = [
    lz.flat_map(strategies.numbered),
    lz.interleave_map(strategies.numbered, cycle_length=2),
    lz.map(lambda x: [1, 2]) | lz.concat_then_split(3),
    lz.transition(lambda n, x: (n + 1, [x] * 3), 0, lambda n: [n]),
    lz.bucket_batch(2, key=lambda x: 1, window_size=3, seed=0),
    lz.bucket_by_boundaries([1], 2, length=lambda x: 1),
    lz.repeat(1),
    lz.repeat(2),
]
stages = st.sampled_from(sorted(PLAIN)).flatmap(PLAIN.__getitem__) | st.sampled_from(EVEN)


def piped(source: lz.Pipeline[Any], row: list[Any]) -> lz.Pipeline[Any]:
    for stage in row:
        source = source | stage
    return source


@st.composite
def changes(draw: st.DrawFn) -> tuple[lz.Pipeline[Any], lz.Pipeline[Any]]:
    """A pipeline, and one with stages inserted, removed or replaced."""
    source = draw(strategies.sources())
    old = draw(st.lists(stages, max_size=4))
    new = [*old]
    for _ in range(draw(st.integers(1, 2))):
        place, gone = draw(st.integers(0, len(new))), draw(st.integers(0, 1))
        new[place : place + gone] = draw(st.lists(stages, max_size=1))
    try:
        return piped(source, old), piped(source, new)
    except lz.ArgumentError:  # random access is wanted where there is none
        assume(False)
        raise


@given(changes(), st.integers(0, 12))
def test_what_is_carried_over_runs_and_all_else_is_refused(
    change: tuple[lz.Pipeline[Any], lz.Pipeline[Any]], cut: int
) -> None:
    old, new = change
    run = lz.run(old)
    list(islice(run, cut))
    if run.state.pipeline != new.identity:
        with pytest.raises(lz.StateMismatch, match=r"the state belongs to another pipeline:\n +\w"):
            lz.run(new, run.state)
    try:
        state = lz.rebase(run.state, new)
    except lz.StateMismatch:
        return
    again = lz.run(new, state)
    first = list(islice(again, 5))
    assert repr(list(islice(lz.run(new, state.to_json()), 5))) == repr(first)
    list(islice(lz.run(new, again.state), 60))


LAYERS = [
    lz.enumerate(),
    lz.random_map(strategies.noisy, seed=1),
    lz.map(strategies.tagged),
    lz.repeat(2),
    lz.batch(2),
]
TAILS = [
    lz.interleave_map(lambda x: [x, x], cycle_length=2),
    lz.block_shuffle(4, seed=1) | lz.skip(1),
    lz.shuffle(4, seed=1) | lz.take(7),
    lz.skip(1) | lz.skip(2),
    lz.flat_map(lambda x: [x, x]) | lz.enumerate(),
    lz.shuffle(3, seed=0) | lz.interleave_map(lambda x: [x, x], cycle_length=3) | lz.batch(2),
]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("tail", TAILS, ids=str)
@pytest.mark.parametrize("data", [DATA, STREAM], ids=["indices", "stream"])
def test_a_layer_that_comes_or_goes_before_what_keeps_places(
    data: lz.Pipeline[Any], tail: Any, layer: Any
) -> None:
    plain, layered = data | tail, data | layer | tail
    for old, new in ((plain, layered), (layered, plain)):
        for cut in range(4):
            state = lz.state_at(old, min(cut, len(list(old))))
            with pytest.raises(lz.StateMismatch, match=r"to another pipeline:\n +source.*\n -> "):
                lz.run(new, state)
            try:
                carried = lz.rebase(state, new)
            except lz.StateMismatch:
                continue
            found = list(lz.run(new, carried))
            if layer not in (lz.repeat(2), lz.batch(2)):
                assert len(found) == len(list(old)) - state.items


def test_why_a_layer_may_not_come_or_go() -> None:
    several = lz.interleave_map(lambda x: [x, x], cycle_length=2)
    layer = lz.random_map(strategies.noisy, seed=1)
    for old, new in ((DATA | layer, DATA), (DATA, DATA | layer)):
        with pytest.raises(lz.StateMismatch, match=r"random_map.*keeps several places"):
            lz.rebase(lz.state_at(old | several, 3), new | several)
        tail = lz.block_shuffle(4, seed=1) | lz.skip(1)
        with pytest.raises(lz.StateMismatch, match=r"skip\(1\) keeps its place in another way"):
            lz.rebase(lz.state_at(old | tail, 3), new | tail)


# --- ends ---

WINDOWS = [
    lz.shuffle(4, seed=1), lz.block_shuffle(4, seed=1), lz.block_shuffle(4, seed=1) | lz.batch(2),
    lz.flat_map(lambda x: [x, x]), lz.batch(4), lz.sliding_window(3), lz.take(20),
    lz.interleave_map(lambda x: [x] * 2, cycle_length=2), lz.shuffle(4, seed=1) | lz.enumerate(),
    lz.bucket_batch(2, key=lambda x: x, window_size=4, seed=0), lz.skip(2) | lz.shuffle(2, seed=0),
]  # fmt: skip


@given(
    st.sampled_from([DATA, STREAM, DATA | lz.shuffle(seed=0), DATA | lz.map(lambda x: x)]),
    st.sampled_from(WINDOWS),
    st.lists(st.sampled_from([1, 2, 3, None]), min_size=2, max_size=2, unique=True),
    st.data(),
)
def test_a_repeat_follows_its_count_where_no_window_is_at_an_end(
    source: lz.Pipeline[Any], window: Any, counts: list[int | None], data: st.DataObject
) -> None:
    old, new = (source | lz.repeat(count) | window for count in counts)
    whole = [list(islice(each, 70)) for each in (old, new)]
    cut = data.draw(st.integers(0, len(whole[0])))
    try:
        state = lz.rebase(lz.state_at(old, cut), new)
    except lz.StateMismatch as refusal:
        assert "beyond the end after" in str(refusal)  # noqa: PT017
        return
    rest = list(islice(lz.run(new, state), 70 - cut))
    assert rest == whole[1][cut:] or window in (lz.batch(4), lz.sliding_window(3))
    assert whole[0][:cut] == whole[1][:cut] or window in (lz.batch(4), lz.sliding_window(3))


@pytest.mark.parametrize("window", [lz.shuffle(4, seed=1), lz.block_shuffle(4, seed=1)], ids=str)
@pytest.mark.parametrize("data", [DATA, STREAM], ids=["indices", "stream"])
def test_fewer_epochs_than_a_window_has_read(data: Any, window: Any) -> None:
    one, two, many = (data | lz.repeat(n) | window for n in (1, 2, None))
    for new in (one, two):
        with pytest.raises(lz.StateMismatch, match=r"stands? beyond the end"):
            lz.rebase(lz.state_at(many, 20), new)
    for old in (one, two, many):
        for new in (one, two, many):
            assert list(islice(lz.run(new, lz.rebase(lz.init(old), new)), 9)) == list(
                islice(new, 9)
            )
