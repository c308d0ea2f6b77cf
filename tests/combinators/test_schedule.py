"""Schedules: their weights, which pipelines they tell apart, and when a function won't do."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.errors import Exhausted
from tests.combinators.table import OTHERWISE, PLAIN

SLOW = lz.schedule({0: [1, 0], 10_000: [0, 1]}, interpolate="linear")
POINTS = {0: [1, 0], 8: [1, 1], 20: [0, 1]}
points = st.dictionaries(st.integers(1, 30), st.sampled_from([(1, 0), (0, 1), (2.5, 1), (1, 3)]))


def mixed(weights: Any) -> lz.Pipeline[int]:
    return lz.mix([lz.count(), lz.count(1000)], weights, seed=0)


def rest(pipeline: lz.Pipeline[Any], state: lz.State, n: int) -> list[Any]:
    return list(islice(lz.run(pipeline, state), n))


@given(points, st.integers(0, 40))
def test_weights_hold_until_the_next(more: dict[int, Any], items: int) -> None:
    found = lz.schedule({0: (1, 1), **more})(items)
    assert found == {0: (1, 1), **more}[max(n for n in (0, *more) if n <= items)]


def test_weights_between_two_lie_on_a_line() -> None:
    found = lz.schedule({10: [0, 4], 0: np.array([2.0, 0]), 30: [1, 1]}, interpolate="linear")
    wanted = {0: (2, 0), 1: (1.8, 0.4), 5: (1, 2), 10: (0, 4), 20: (0.5, 2.5), 30: (1, 1)}
    for items, weights in wanted.items():
        assert found(items) == pytest.approx(weights)
    assert found(10**9) == (1, 1)
    huge = lz.schedule({0: [1e300, 0], 3: [0, 10**300]}, interpolate="linear")
    assert huge(1) == pytest.approx((2e300 / 3, 1e300 / 3))


def test_a_mixture_follows_its_schedule() -> None:
    turning = mixed(lz.schedule({0: [1, 0], 4: [0, 1], 6: [3, 1]}))
    assert list(islice(turning, 6)) == [0, 1, 2, 3, 1000, 1001]
    drawn = lz.mix([lz.once(0) | lz.repeat(), lz.once(1) | lz.repeat()], SLOW, seed=0)
    late = list(islice(drawn, 10_000))
    for begin in range(0, 10_000, 2_000):
        assert abs(sum(late[begin : begin + 2_000]) - (begin / 5 + 200)) < 120
    assert list(islice(mixed(lz.schedule({0: [1, 3]})), 99)) == list(islice(mixed([1, 3]), 99))
    only_later = lz.mix(
        [lz.source([1, 2]), lz.source(["a"])],
        lz.schedule({0: [1, 0], 2: [0, 1]}),
        seed=0,
        stop="all_exhausted",
    )
    assert list(islice(only_later, 3)) == [1, 2, "a"]


def test_a_schedule_is_a_value() -> None:
    one = lz.schedule({0: [1, 0], 9: [0.5, 2]}, interpolate="linear")
    other = lz.schedule({9: np.array([0.5, 2]), 0: (1.0, 0)}, interpolate="linear")
    assert one == other
    assert hash(one) == hash(other)
    assert one != lz.schedule({0: [1, 0], 9: [0.5, 2]})
    assert repr(other) == "schedule({0: [1, 0], 9: [0.5, 2]}, interpolate='linear')"
    named = lz.schedule(max, name="v1")
    assert repr(named) == "schedule(max, name='v1')"
    assert named == lz.schedule(min, name="v1") != lz.schedule(max, name="v2")
    for each in (one, named):
        assert pickle.loads(pickle.dumps(each)) == each
        pipeline = mixed(each) | lz.shuffle(4, seed=0)
        assert pickle.loads(pickle.dumps(pipeline)) == pipeline
        assert hash(pipeline) == hash(mixed(each) | lz.shuffle(4, seed=0))
    assert "schedule({0: [1, 0], 9: [0.5, 2]}, interpolate='linear')" in repr(mixed(one))


CHANGED = [
    lz.schedule({0: [1, 0], 8: [1, 1], 20: [0, 2]}),
    lz.schedule({0: [1, 0], 9: [1, 1], 20: [0, 1]}),
    lz.schedule({0: [1, 0], 8: [1, 1]}),
    lz.schedule(POINTS, interpolate="linear"),
    lz.schedule(max, name="v1"),
    [1, 0],
]


@pytest.mark.parametrize("weights", CHANGED, ids=repr)
def test_a_changed_schedule_is_another_pipeline(weights: Any) -> None:
    for stage in (lz.batch(2), lz.shuffle(8, seed=1)):
        old, new = (mixed(each) | stage for each in (lz.schedule(POINTS), weights))
        state = lz.state_at(old, 5)
        assert rest(mixed(lz.schedule({**POINTS})) | stage, state, 9) == rest(old, state, 9)
        with pytest.raises(lz.StateMismatch, match=r"mix\(weights="):
            lz.run(new, state)
        if stage == lz.batch(2):
            given = lz.rebase(state, new).to_json()
            assert lz.mix_counts(new, given) == lz.mix_counts(old, state)
        else:
            with pytest.raises(lz.StateMismatch, match="holds items from mix; put mix after"):
                lz.rebase(state, new)


def test_a_long_schedule_makes_no_long_state() -> None:
    def pipeline(last: float) -> lz.Pipeline[int]:
        points = {1000 * n: [n + 1, 0.3] for n in range(50)} | {50_000: [1, last]}
        return mixed(lz.schedule(points)) | lz.batch(2)

    state = lz.state_at(pipeline(2), 5)
    assert len(state.to_json()) < 400
    assert rest(pipeline(2), state, 9) == rest(pipeline(2), lz.rebase(state, pipeline(2)), 9)
    with pytest.raises(lz.StateMismatch, match=r"mix\(weights="):
        lz.run(pipeline(3), state)
    assert rest(pipeline(3), lz.rebase(state, pipeline(3)), 9) == rest(pipeline(2), state, 9)


def test_a_function_with_a_name_is_told_by_it() -> None:
    def pipeline(weights: Callable[[int], Any], name: str) -> lz.Pipeline[int]:
        return mixed(lz.schedule(weights, name=name)) | lz.shuffle(8, seed=1)

    old = pipeline(lambda n: [1, 0], "first")
    state = lz.state_at(old, 5)
    assert rest(pipeline(lambda n: [1, 0], "first"), state, 9) == rest(old, state, 9)
    assert "first" in json.dumps(state.to_dict())
    changed = pipeline(lambda n: [0, 1], "second")
    with pytest.raises(lz.StateMismatch, match=r"first.*second"):
        lz.run(changed, state)
    with pytest.raises(lz.StateMismatch, match=r"first.*second.*holds items from mix"):
        lz.rebase(state, changed)


def test_without_a_window_weights_change_from_here_on() -> None:
    first = mixed(lz.schedule(lambda n: [1, 0], name="first"))
    for before in (first, mixed(lambda n: [1, 0])):
        run = lz.run(before)
        next(run)
        for number, weights in enumerate(
            [lz.schedule(lambda n: [0, 1], name="second"), [0, 1], lz.schedule({0: [0, 1]})]
        ):
            run.change(mixed(weights))
            assert next(run) == 1000 + number
            run.change(first)


def leaning(first: int) -> Any:
    return lambda n: [first, 1]


@pytest.mark.parametrize(
    "around",
    [
        lambda weights: mixed(weights),
        lambda weights: lz.concat(mixed(weights) | lz.take(90)),
        lambda weights: lz.mix([mixed(weights), lz.count()], [1, 0], seed=0),
    ],
)
def test_a_bare_function_is_not_rebased_unless_it_is_known_to_be_the_same(around: Any) -> None:
    named, bare = around(lz.schedule(leaning(0), name="v1")), around(leaning(0))
    batches = bare | lz.batch(2)
    assert lz.rebase(lz.state_at(bare, 3), bare) == lz.state_at(bare, 3)
    for state, new in (
        (lz.state_at(named, 3), bare),
        (lz.state_at(named | lz.batch(2), 3), batches),
        (lz.state_at(bare | lz.batch(3), 3), batches),
    ):
        with pytest.raises(lz.StateMismatch, match=r'weights=.*may be a different .*, name="v1"\)'):
            lz.rebase(state, new)
        with pytest.raises(lz.StateMismatch) as caught:
            lz.run(new, state)
        assert "lz.rebase" not in str(caught.value)
    run = lz.run(batches)
    next(run)
    run.change(around(leaning(0)) | lz.batch(3))
    assert next(run) == list(islice(bare, 2, 5))
    before = run.state
    with pytest.raises(lz.StateMismatch, match="a function, which a state doesn't record"):
        run.change(around(leaning(1)) | lz.batch(3))
    assert run.state == before


BEHIND = [
    (name, made)
    for name, made in [*PLAIN.items(), *((name, made) for name, made, _ in OTHERWISE)]
    if lz.registry[name].is_source is False
]


@pytest.mark.parametrize(("name", "made"), BEHIND)
def test_a_bare_function_is_refused_where_a_resume_would_ask_it_again(name: str, made: Any) -> None:
    def bare(items: int) -> list[int]:
        return [1, 1 + items % 2]

    data = [lz.source(range(40)), lz.source(range(40))]
    try:
        named = made(lz.mix(data, lz.schedule(bare, name="v1"), seed=0))
    except lz.ArgumentError:  # it wants random access
        return
    states = [lz.init(named)]
    with suppress(Exhausted):
        while len(states) < 9:
            states.append(lz.step(named, states[-1])[0])
    costs = {cost.stage for each in states for cost in lz.resume_cost(named, each).stages}
    unnamed = lz.mix(data, bare, seed=0)
    if not any("[" not in stage for stage in costs):
        assert repr(list(islice(made(unnamed), 8))) == repr(list(islice(named, 8)))
        return
    for pipeline in (unnamed, lz.concat(unnamed) | lz.map(int), lz.zip(unnamed) | lz.starmap(int)):
        with pytest.raises(lz.ArgumentError) as caught:
            made(pipeline)
        assert f"{name}(" in str(caught.value)
        assert "mix: weights=bare is a function" in str(caught.value)
        assert 'lz.schedule(bare, name="v1")' in str(caught.value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: lz.schedule({}), "including 0 items"),
        (lambda: lz.schedule({5: [1, 0]}), "including 0 items"),
        (
            lambda: lz.schedule({0: [1, 0], -1: [1, 1]}),
            r"key of points .* an int >= 0, got -1 .int.$",
        ),
        (lambda: lz.schedule({0: [1, 0], 1.5: [1, 1]}), r"an int >= 0, got 1.5 .float.$"),
        (lambda: lz.schedule({0: [1, -1]}), r"weight 1 is -1, got points\[0\]=\[1, -1\]"),
        (lambda: lz.schedule({0: [0, 0]}), "at least one of them above 0"),
        (lambda: lz.schedule({0: 0}), r"points\[0\] must be an int >= 1, got points\[0\]=0"),
        (lambda: lz.schedule({0: 3.5}), "a sequence of at least one number"),
        (lambda: lz.schedule({0: 3, 2: [1]}), "only weights, or only lengths"),
        (lambda: lz.schedule({0: 3}, interpolate="linear"), "a length holds until the next"),
        (lambda: mixed(lz.schedule({0: 3})), "this schedule is one of lengths"),
        (
            lambda: lz.concat_then_split(lz.schedule({0: [1, 2]})),
            r"an int >= 1, or lz.schedule\(...\) of such",
        ),
        (
            lambda: lz.pack_first_fit(lz.schedule({0: 3}), num_bins=2, overflow="drop"),
            r'pack_first_fit: overflow="drop" requires a fixed length, got schedule\(\{0: 3\}\)',
        ),
        (lambda: lz.schedule({0: [1], 5: [1, 1]}), r"the same number of weights .* not \[1, 2\]"),
        (lambda: lz.schedule({0: [1]}, interpolate="cubic"), "be 'linear' or None, got .*'cubic'"),
        (lambda: lz.schedule({0: [1]}, name="v1"), "name='v1' is for a function"),
        (lambda: lz.schedule(max), "a function needs a name"),
        (lambda: lz.schedule(max, name=""), "a str of 1 to 40 characters or None"),
        (lambda: lz.schedule(max, name="v1", interpolate="linear"), "no interpolation"),
        (lambda: lz.schedule([1, 0]), r"a dict of weights .*, or a function, got .*\[1, 0\]"),
        (lambda: lz.schedule(lz.schedule({0: [1]})), "or a function, got .*schedule"),
        (lambda: mixed(lz.schedule({0: [1]})), "got 1 weights for 2 pipelines"),
        (lambda: mixed({0: [1, 0]}), r"lz\.schedule"),
        (
            lambda: lz.mix(
                [lz.count()], lz.schedule({0: [1]}, interpolate="linear"), deterministic=True
            ),
            r"weights that hold until the next, got schedule\(\{0: \[1\]\}, interp",
        ),
    ],
)
def test_what_is_none_is_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(lz.ArgumentError, match=message):
        build()


@pytest.mark.parametrize(
    "pack", [lz.concat_then_split, partial(lz.pack_first_fit, num_bins=2)], ids=["concat", "pack"]
)
def test_lengths_of_a_named_function(pack: Any) -> None:
    def rows(length: Callable[[int], Any]) -> list[int]:
        stage = pack(lz.schedule(length, name="v1"))
        return [len(row["tokens"]) for row in lz.source([[1, 2]] * 6) | stage]

    assert rows(lambda n: 2 if n < 2 else np.int64(4)) == [2, 2, 4, 4]
    for bad in (0, 2.0, None, True, [2]):
        with pytest.raises(lz.PipelineError, match=r"length\(0\) must be an int >= 1, got"):
            rows(lambda n, bad=bad: bad)


def test_what_a_named_function_returns_is_checked() -> None:
    with pytest.raises(lz.PipelineError, match=r"weights\(0\) must be .*weight 1 is -1"):
        next(iter(mixed(lz.schedule(lambda n: [1, -1], name="v1"))))
