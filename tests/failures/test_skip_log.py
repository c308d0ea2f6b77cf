"""Skipped records as a part of the state: counted once, however many times they are met."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.failures import skipping
from lazyckpt.failures.marks import after_skips, marked
from lazyckpt.failures.skip_log import LOST_NAMES
from tests.failures.cases import NUMBERS, Data, Rejecting, networks, picky
from tests.state.cases import signed


def told_with_states(run: lz.Run[Any]) -> Iterator[Any]:
    for item in run:
        yield item, run.state.to_json(), run.skipped, run.skipped.first


def walk(pipeline: lz.Pipeline[Any], state: str | None = None) -> list[Any]:
    """Every item with the state and the skipped records after it, and the same at the end."""
    run = lz.run(pipeline, state, on_error="skip")
    found = [*told_with_states(run)]
    return [*found, (None, run.state.to_json(), run.skipped, run.skipped.first)]


@given(networks(), st.data())
def test_a_resume_goes_on_counting(pipeline: lz.Pipeline[int], data: st.DataObject) -> None:
    steps = walk(pipeline)
    at = data.draw(st.integers(0, len(steps) - 1))
    for cut in {at, len(steps) - 1, *range(0, len(steps), 5)}:
        rest = walk(pipeline, steps[cut][1])
        assert rest == steps[cut + 1 :] or (cut >= len(steps) - 2 and rest == steps[-1:])
    again = walk(pipeline, steps[at][1])
    if again[:-1]:
        twice = data.draw(st.integers(0, len(again) - 2))
        assert walk(pipeline, again[twice][1]) == again[twice + 1 :]


def fine(x: int) -> bool:
    return picky(x) >= 0


def windowed(batch_size: int, predicate: Any = fine) -> lz.Pipeline[Any]:
    """With a window after the stage that skips some."""
    line = lz.source(range(40)) | lz.filter(predicate) | lz.block_shuffle(9, seed=1) | lz.repeat(2)
    return line | lz.batch(batch_size)


WINDOWED = windowed(2)


def test_without_marks_a_resume_would_miss_some(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = walk(WINDOWED)
    assert walk(WINDOWED, steps[5][1]) == steps[6:]
    with monkeypatch.context() as patch:
        patch.setattr(skipping, "marks_of", lambda position: {})
        assert walk(WINDOWED) == steps
        assert walk(WINDOWED, steps[5][1]) != steps[6:]
    with monkeypatch.context() as patch:
        patch.setattr(
            import_module("lazyckpt.delivery"), "with_marks", lambda position, marks: position
        )
        assert walk(WINDOWED, steps[5][1]) != steps[6:]


def test_marks_count_for_equality() -> None:
    plain = ((0, 3), 1)
    one, other = (marked(plain, {0: number}) for number in (1, 2))
    assert len({plain, one, other}) == 3
    assert (one, 5) != (plain, 5)
    assert repr(one) != repr(other)
    assert pickle.loads(pickle.dumps(one)) == one == after_skips(plain, {0: 1})
    assert marked(one, {}) == plain


def test_a_state_is_small_and_plain_where_nothing_was_left_out() -> None:
    for (_, state), (_, other) in zip(
        lz.run(NUMBERS | lz.map(str) | lz.batch(4)).with_state(),
        lz.run(NUMBERS | lz.map(str) | lz.batch(4), on_error="skip").with_state(),
        strict=True,
    ):
        assert state.to_json() == other.to_json()
        assert state == other
        assert "skipped" not in state.to_json()
    long = lz.source(Data())
    for number in range(8):
        long = long | lz.map(Rejecting(frozenset(range(number * 7))))
    long = long | lz.shuffle(20, seed=10**15)
    lost = tuple(range(LOST_NAMES - 8, LOST_NAMES))
    for _, state in lz.run(long, on_error="skip").with_state():
        skipped = state.skipped.at(state.skipped.marks, lost)
        text = state.at(state.position, skipped=skipped).to_json()
        assert len(text) <= 1024
        assert lz.State.from_json(text).skipped.lost == lost


def test_it_is_part_of_the_state() -> None:
    run = lz.run(WINDOWED, on_error="skip")
    states = [state for _, state in run.with_state()]
    state = states[-1]
    assert (state.skipped, state.skipped.first) == (run.skipped, run.skipped.first)
    assert state.skipped == 12
    assert state.skipped.first[0] == "filter(fine) before (0, 4): ValueError: 3"
    for copy in (pickle.loads(pickle.dumps(state)), lz.State.from_json(state.to_json())):
        assert copy == state
        assert hash(copy) == hash(state)
    assert lz.State.from_dict(run.state_dict()) == state
    assert state.at(state.position, skipped=states[0].skipped) != state
    assert lz.rebase(state, windowed(3)).skipped == state.skipped
    mended = windowed(2, lambda x: True)
    assert lz.step(mended, states[5])[0].skipped == states[5].skipped
    with lz.run(WINDOWED, states[5]) as plain:
        assert plain.state == states[5]
        assert plain.skipped == states[5].skipped


def test_stages_that_others_came_before_number_anew() -> None:
    state = [state for _, state in lz.run(WINDOWED, on_error="skip").with_state()][11]
    longer = lz.source(range(40)) | lz.map(abs) | lz.filter(fine)
    longer = longer | lz.block_shuffle(9, seed=1) | lz.repeat(2) | lz.batch(2)
    found = lz.rebase(state, longer)
    assert (found.skipped, found.skipped.first) == (int(state.skipped), state.skipped.first)
    run = lz.run(longer, lz.State.from_json(found.to_json()), on_error="skip")
    assert list(run)
    assert 12 <= run.skipped <= 14  # the records of the block that is read again count twice


def test_a_flat_state_has_the_same_shape_from_the_beginning() -> None:
    run = lz.run(WINDOWED, on_error="skip")
    before = run.state_dict()
    assert lz.State.from_dict(before) == lz.init(WINDOWED)
    assert len(list(run))
    assert run.state_dict().keys() == before.keys()


def test_after_an_error_it_is_that_of_the_last_item() -> None:
    fails: list[bool] = []

    def halting(x: int) -> int:
        if x == 20 and fails:
            fails.pop()
            raise KeyboardInterrupt
        return x

    pipeline = NUMBERS | lz.filter(fine) | lz.shuffle(4, seed=1) | lz.map(halting) | lz.batch(5)
    steps = walk(pipeline)
    for executor in (None, lz.threads(), lz.threads(3)):
        fails.append(True)
        with lz.run(pipeline, executor=executor, on_error="skip") as run:
            found: list[Any] = []
            with pytest.raises(KeyboardInterrupt):
                found.extend(told_with_states(run))
            assert (run.state.to_json(), run.skipped) == steps[len(found) - 1][1:3]
            found.extend(told_with_states(run))
            assert found == steps[:-1]


def test_epochs_go_on_counting() -> None:
    pipeline = NUMBERS | lz.filter(fine) | lz.shuffle(9, seed=1)
    run = lz.run(pipeline, on_error="skip")
    counts = []
    for _ in range(3):
        middle = [run.state for _ in islice(run.epoch(), 20)][-1]
        assert list(lz.run(pipeline, middle, on_error="skip").epoch())
        list(run)
        counts.append(int(run.skipped))
        again = lz.run(pipeline, middle.to_json(), on_error="skip")
        list(again)
        assert again.state == run.state
    assert counts == [7, 14, 21]


HOSTILE: list[Any] = [
    7, [], {}, {"count": 1},
    {"count": 0, "first": [], "next": [[0, 0, 0]]},
    {"count": 1, "first": ["a", "b"], "next": [[0, 0, 1]]},
    {"count": 1, "first": ["a" * 89], "next": [[0, 0, 1]]},
    {"count": 1, "first": ["\x1b[2J"], "next": [[0, 0, 1]]},
    {"count": 1, "first": [7], "next": [[0, 0, 1]]},
    {"count": 1, "first": [], "next": [[0, 0, 2]]},
    {"count": 1, "first": [], "next": [[0, 0, -1]]},
    {"count": 1, "first": [], "next": [[0, 0, True]]},
    {"count": 1, "first": [], "next": [[0, 0]]},
    {"count": 2, "first": [], "next": [[1, 0, 1], [0, 0, 1]]},
    {"count": 1, "first": [], "next": [[0, 0, 1]], "marks": []},
    {"count": 1, "first": [], "next": [[0, 0, 1]], "marks": [[0, 0, 0]]},
    {"count": 1, "first": [], "next": [[0, 0, 1]], "marks": [[0, 0, 1], [0, 0, 1]]},
    {"count": 1, "first": [], "next": [[0, 0, 1]], "more": 1},
    {"count": 0, "first": [], "next": [], "lost": []},
    {"count": 0, "first": [], "next": [], "lost": [-1]},
    {"count": 0, "first": [], "next": [], "lost": [1 << 40]},
    {"count": 0, "first": [], "next": [], "lost": [True]},
    {"count": 0, "first": [], "next": [], "lost": 7},
    {"count": 0, "first": [], "next": [], "lost": [*range(9)]},
    {"count": 1e9, "first": [], "next": [[0, 0, 1]]},
    {"count": {"own": 1}, "first": [], "next": [[0, 0, 1]]},
    {"count": 10**9, "first": [], "next": [[n, 0, 1] for n in range(2000)]},
]  # fmt: skip


def test_hostile_accounts() -> None:
    state = lz.init(WINDOWED).to_dict()
    good = {"count": 1, "first": [], "next": [[0, 0, 1]]}
    assert lz.State.from_json(signed(state, skipped=good)).skipped == 1
    for hostile in HOSTILE:
        with pytest.raises(lz.InvalidState, match="not a record of skipped items"):
            lz.State.from_json(signed(state, skipped=hostile))


@given(st.lists(st.tuples(*[st.integers(0, 5) | st.just(2**70)] * 3), max_size=5))
def test_marks_that_fit_no_position_do_no_harm(marks: list[tuple[int, int, int]]) -> None:
    marks = sorted({each[:2]: each for each in marks if each[2]}.values())
    steps = walk(WINDOWED)
    state = lz.State.from_json(steps[5][1])
    forged = lz.State(state.stages, state.items, state.position, state.skipped.at(tuple(marks)))
    rest = walk(WINDOWED, forged.to_json())
    assert [step[0] for step in rest] == [step[0] for step in steps[6:]]
