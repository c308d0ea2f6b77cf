"""Random changes of pipelines: a carried state runs, and others are refused with a reason."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.core.content import size
from lazyckpt.testing import functions, sources, strategies
from lazyckpt.testing.laws import Stream

DATA = lz.source(range(9))
STREAM = lz.source(Stream(range(9)))


# --- random changes ---

# A stage with any number of outputs per item reports itself if that number changes.
COUNTING = {
    "flat_map", "interleave_map", "flat_scan", "bucket_batch", "bucket_by_boundaries",
    "bucket_by_boundaries(max_wait)", "concat_then_split", "pack_first_fit",
    "pack_best_fit", "group_by", "repeat for ever", "gather",
}  # fmt: skip
PLAIN = {name: made for name, made in strategies.STAGES.items() if name not in COUNTING}
EVEN = [
    lz.flat_map(functions.numbered),
    lz.interleave_map(functions.numbered, cycle_length=2),
    lz.map(lambda x: [1, 2]) | lz.concat_then_split(3),
    lz.flat_scan(lambda n, x: (n + 1, [x] * 3), 0, lambda n: [n]),
    lz.bucket_batch(2, key=lambda x: 1, window_size=3, seed=0),
    lz.bucket_by_boundaries([1], 2, key=lambda x: 1),
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
    source = draw(sources.sources())
    old = draw(st.lists(stages, max_size=4))
    new = [*old]
    for _ in range(draw(st.integers(1, 2))):
        place, gone = draw(st.integers(0, len(new))), draw(st.integers(0, 1))
        new[place : place + gone] = draw(st.lists(stages, max_size=1))
    try:
        return piped(source, old), piped(source, new)
    except lz.ArgumentError:  # a stage that needs random access, without any
        assume(False)
        raise


@given(changes(), st.integers(0, 12))
def test_what_is_carried_over_runs_and_all_else_is_refused(
    change: tuple[lz.Pipeline[Any], lz.Pipeline[Any]], cut: int
) -> None:
    old, new = change
    run = lz.run(old)
    list(islice(run, cut))
    if run.state.stages != new.entries:
        with pytest.raises(lz.StateMismatch, match=r"state belongs to a different pipeline:\n +\w"):
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
    lz.random_map(functions.noisy, seed=1),
    lz.map(functions.tagged),
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
            with pytest.raises(lz.StateMismatch, match=r"a different pipeline:\n +source.*\n -> "):
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
    layer = lz.random_map(functions.noisy, seed=1)
    for old, new in ((DATA | layer, DATA), (DATA, DATA | layer)):
        with pytest.raises(lz.StateMismatch, match=r"random_map.*keeps several positions"):
            lz.rebase(lz.state_at(old | several, 3), new | several)
        tail = lz.block_shuffle(4, seed=1) | lz.skip(1)
        state = lz.rebase(lz.state_at(old | tail, 3), new | tail)
        found = [x if isinstance(x, int) else x[0] for x in lz.run(new | tail, state)]
        assert found == list(DATA | tail)[3:]


# --- ends ---

WINDOWS = [
    lz.shuffle(4, seed=1), lz.block_shuffle(4, seed=1), lz.block_shuffle(4, seed=1) | lz.batch(2),
    lz.flat_map(lambda x: [x, x]), lz.batch(4), lz.sliding_window(3), lz.take(20),
    lz.interleave_map(lambda x: [x] * 2, cycle_length=2), lz.shuffle(4, seed=1) | lz.enumerate(),
    lz.bucket_batch(2, key=lambda x: x, window_size=4, seed=0), lz.skip(2) | lz.shuffle(2, seed=0),
    lz.take_while(lambda x: True), lz.drop_while(lambda x: x == 0), lz.flat_map(lambda x: [x]),
    lz.flat_scan(lambda n, x: (n + 1, [x] * 3), 0), lz.flat_scan(lambda n, x: (n + 1, [x]), 0),
    lz.flat_scan(lambda n, x: (n + 1, [x]), 0, lambda n: [n, n]),
    lz.bucket_by_boundaries([4], 2, key=lambda x: x), lz.scan(lambda s, x: (s + x, s), 0),
    lz.group_by(lambda x: x // 2) | lz.map(lambda pair: pair[0]),
]  # fmt: skip
SHAPING = [
    lz.batch(4),
    *[window for window in WINDOWS if window.calls[0].name.startswith("bucket")],
]


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
        state = lz.state_at(old, cut)
        if cut == len(whole[0]) < 70 and data.draw(st.booleans()):  # and has seen the end
            run = lz.run(old, state)
            assert list(run) == []
            state = run.state
        state = lz.rebase(state, new)
    except lz.StateMismatch as refusal:
        assert "beyond the end after" in str(refusal)  # noqa: PT017  # or it goes on
        return
    rest = list(islice(lz.run(new, state), 70 - cut))
    head = whole[0][:cut]
    if window in SHAPING:  # a short last batch has been yielded
        found = sorted(x for batch in head + rest for x in batch)
        assert found == sorted(x for batch in whole[1] for x in batch) or None in counts
    elif cut == len(whole[0]) < 70 and "shuffle" in [call.name for call in window.calls]:
        found, expected = ([_item(x) for x in each] for each in (head + rest, whole[1]))
        assert sorted(found) == sorted(expected) or None in counts  # what follows is a new order
    elif window != lz.sliding_window(3):
        assert head + rest == whole[1]


def _item(given: Any) -> Any:
    return given[1] if isinstance(given, tuple) else given


@pytest.mark.parametrize("window", [lz.shuffle(4, seed=1), lz.block_shuffle(4, seed=1)], ids=str)
@pytest.mark.parametrize("data", [DATA, STREAM], ids=["indices", "stream"])
def test_fewer_epochs_than_a_window_has_read(data: Any, window: Any) -> None:
    one, two, many = (data | lz.repeat(n) | window for n in (1, 2, None))
    for new in (one, two):
        with pytest.raises(lz.StateMismatch, match=r"(is|may be) beyond the end"):
            lz.rebase(lz.state_at(many, 20), new)
    for old in (one, two, many):
        for new in (one, two, many):
            assert list(islice(lz.run(new, lz.rebase(lz.init(old), new)), 9)) == list(
                islice(new, 9)
            )


# --- what differs ---

values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, -0.5, "", "a"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(values, values, st.sampled_from(["unfold", "scan", "flat_scan", "zip"]))
def test_a_first_state_is_told_from_every_other(one: Any, other: Any, stage: str) -> None:
    def made(first: Any) -> lz.Pipeline[Any]:
        if stage == "scan":
            return DATA | lz.scan(lambda s, x: (s, x), first)
        if stage == "flat_scan":
            return DATA | lz.flat_scan(lambda s, x: (s, [x]), first)
        source = lz.unfold(lambda s: (s, 1), first)
        return lz.zip(DATA, source) if stage == "zip" else source

    a, b = made(one), made(other)
    state = lz.state_at(a, 2)
    assert len(list(islice(lz.run(made(one), state), 3))) == 3
    if repr(one) == repr(other):
        assert a.entries == b.entries
        return
    with pytest.raises(
        lz.StateMismatch, match=r"different pipeline:\n    stage \d.* -> .*\nstrict"
    ):
        lz.run(b, state)
    assert size(a.entries) < 999


def test_long_first_states_are_told_apart_in_few_words() -> None:
    def made(**more: Any) -> lz.Pipeline[int]:
        return lz.unfold(lambda s: (s, 1), {**{f"key {n}": [n] * n for n in range(99)}, **more})

    assert size(made().entries) < 100
    assert made().entries == made().entries != made(more=1).entries
    with pytest.raises(lz.StateMismatch, match=r"unfold\(init=\"#\w{16}\"\) -> .*\"#"):
        lz.run(made(more=1), lz.init(made()))


@pytest.mark.parametrize(
    "made",
    [
        lambda weights: lz.random_indices(weights, seed=0),
        lambda weights: lz.mix([DATA, STREAM], weights, seed=0),
        lambda weights: lz.zip(lz.mix([DATA, STREAM], weights, seed=0)),
        lambda weights: lz.mix([DATA, STREAM], weights, deterministic=True) | lz.batch(2),
    ],
)
def test_weights_are_numbers_whatever_their_types(made: Any) -> None:
    state = lz.state_at(made([1, 3]), 2)
    for weights in ([1.0, 3.0], (1, 3.0), np.array([1, 3]), np.array([1, 3], np.float32)):
        assert made(weights).entries == state.stages
        assert list(islice(lz.run(made(weights), state), 9)) == list(islice(made([1, 3]), 2, 11))
    with pytest.raises(lz.StateMismatch, match=r"\[1,3\].* -> .*\[1,3.5\]"):
        lz.run(made([1, 3.5]), state)


def test_ints_beyond_what_json_readers_keep_are_read_again() -> None:
    counts, seeds = (2**60, 2**61), (2**70, 2**71)
    old, new = (lz.source(range(5)) | lz.repeat(count) for count in counts)
    assert [*islice(lz.run(new, lz.rebase(lz.state_at(old, 7), new)), 4)] == [2, 3, 4, 0]
    old, new = (lz.random_floats(seed=seed) | lz.batch(2) for seed in seeds)
    assert lz.rebase(lz.state_at(old, 7), new).items == 7


@pytest.mark.parametrize(
    "count", [{}, {"int": 5}, {"int": "x"}, {"a": 1, "b": 2}, {"list": 3}, "#"]
)
def test_an_argument_that_nobody_wrote_is_refused(count: Any) -> None:
    old, new = (lz.source(range(5)) | lz.repeat(count) for count in (2, 3))
    stages = [lz.init(old).stages[0], lz.init(old).stages[1].with_arguments({"count": count})]
    state = lz.State(tuple(stages), 1, lz.state_at(old, 1).position)
    with pytest.raises(lz.StateMismatch, match="cannot follow this change: stage 2: repeat"):
        lz.rebase(state, new)


def test_a_place_too_far_to_count_is_rebased_without_a_number_of_its_own() -> None:
    old, new = (lz.count() | lz.batch(size) for size in (2, 3))
    far = lz.State(old.entries, 5, (0, 2**60 - 1))
    assert lz.rebase(far, new).rebased == (5, None)
    assert lz.rebase(lz.state_at(old, 6), new).rebased == (6, 4)


@pytest.mark.parametrize("stage", [lz.batch(2), lz.shard(num_shards=2, index=0), lz.take(3)])
def test_an_argument_that_is_not_there_is_refused(stage: Any) -> None:
    pipeline = lz.source(range(9)) | stage
    stages = lz.init(pipeline).stages
    state = lz.State((stages[0], stages[1].with_arguments({})), 0, lz.init(pipeline).position)
    for taken in (lz.run, lz.step, lambda *pair: lz.rebase(*pair[::-1])):
        with pytest.raises(lz.StateMismatch):
            taken(pipeline, state)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (lz.batch(1), lz.batch(2)),
        (lz.tap(abs), lz.shuffle(4, seed=0)),
        (lz.tap(abs), lz.take(30)),
        (lz.tap(abs), lz.enumerate()),
    ],
)
def test_a_place_that_no_run_has_from_the_beginning_has_no_number(old: Any, new: Any) -> None:
    """Or `exclude` would leave out others than those that it names."""
    before, after = (lz.source(range(40)) | stage for stage in (old, new))
    found = lz.rebase(lz.state_at(before, 5), after)
    assert found.rebased == (5, None)
    with pytest.raises(lz.StateMismatch, match="without reading the data"):
        lz.rebase(found, after | lz.exclude([(7, 9)]))


def test_a_rank_whose_place_is_its_own_gives_it_to_no_other() -> None:
    dealt = lz.source(range(40)) | lz.shard(num_shards=2, index=0) | lz.filter(bool)
    with pytest.raises(lz.StateMismatch, match="filter after it had ranks at"):
        lz.rebase(lz.state_at(dealt, 3), lz.source(range(40)) | lz.shard(num_shards=3, index=0))


def test_what_has_become_too_short_is_a_mismatch() -> None:
    old = lz.source(range(20)) | lz.shard(num_shards=2, index=0) | lz.shuffle(1, seed=1)
    new = lz.source(range(4)) | lz.enumerate() | lz.shuffle(1, seed=1)
    for taken in (lz.run, lambda *pair: lz.rebase(*pair[::-1])):
        with pytest.raises(lz.StateMismatch):
            taken(new, lz.state_at(old, 6))
