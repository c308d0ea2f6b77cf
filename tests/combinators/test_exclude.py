"""`exclude`, beyond the laws."""

from __future__ import annotations

from itertools import chain, islice, pairwise, starmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing import sources
from lazyckpt.testing.laws import Stream
from tests.helpers import Costly

FEW = settings(max_examples=max(8, settings.default.max_examples // 4))


def test_ranges_are_taken_in_many_forms() -> None:
    data = lz.source(range(12))
    ranges: list[Any] = [range(9, 10), [np.int64(1), 3], (3, 4)]
    assert list(data | lz.exclude(ranges)) == [0, 4, 5, 6, 7, 8, 10, 11]
    assert lz.exclude(ranges) == lz.exclude([(1, 3), (3, 4), (9, 10)])
    assert repr(lz.exclude(ranges)) == "exclude(((1, 3), (3, 4), (9, 10)))"
    assert list(data | lz.exclude([])) == list(range(12))
    assert list(data | lz.exclude([(0, 12)])) == []
    assert len(data | lz.exclude(ranges)) == 8


def test_what_is_left_out_is_not_read_where_it_need_not_be() -> None:
    data = Costly(50)
    pipeline = lz.source(data) | lz.exclude([(3, 40)]) | lz.batch(2)
    assert list(islice(pipeline, 3)) == [[0, 10], [20, 400], [410, 420]]
    assert not {*range(3, 40)} & {*data.read}
    data.read.clear()
    assert pipeline[2] == [410, 420]
    assert data.read == [41, 42]
    assert list(lz.source(Stream(range(10))) | lz.exclude([(2, 8)])) == [0, 1, 8, 9]


def test_numbers_count_the_whole_stream_behind_repeat() -> None:
    steps = lz.source(range(5)) | lz.shuffle(seed=0) | lz.repeat() | lz.batch(2)
    whole = list(islice(steps, 40))
    kept = steps | lz.exclude([(10, 12), (30, 33)])
    assert list(islice(kept, 35)) == whole[:10] + whole[12:30] + whole[33:]
    assert kept[10**9] == steps[10**9 + 5]
    twice = lz.source(range(4)) | lz.exclude([(1, 3)]) | lz.repeat(2)
    assert list(twice) == [0, 3, 0, 3]


def test_two_states_are_a_range() -> None:
    for data in (lz.source(range(30)), lz.source(Stream(range(30)))):
        steps = data | lz.shuffle(4, seed=0) | lz.batch(2)
        states = [state for _, state in lz.run(steps).with_state()]
        kept = steps | lz.exclude([(states[2], states[5])])
        assert list(kept) == [batch for n, batch in enumerate(steps) if not 3 <= n < 6]
        assert lz.init(kept) == lz.init(steps | lz.exclude([(3, 6)]))


def test_states_that_are_none_of_the_pipeline_are_refused() -> None:
    steps = lz.source(range(30)) | lz.shuffle(seed=0) | lz.batch(2)
    other = lz.source(range(30)) | lz.shuffle(seed=0) | lz.batch(3)
    longer = steps | lz.repeat() | lz.take(40)
    for pipeline in (other, longer):
        pair = lz.state_at(pipeline, 2), lz.state_at(pipeline, 4)
        with pytest.raises(lz.ArgumentError, match="the state after 2 items doesn't belong"):
            steps | lz.exclude([pair])
    late = lz.advance(steps, lz.init(steps, epoch=1), 3)
    with pytest.raises(lz.ArgumentError, match=r"is in epoch 1, .* put repeat\(\) before it"):
        steps | lz.exclude([(lz.init(steps), late)])
    with pytest.raises(lz.ArgumentError, match="0 <= start < stop"):
        lz.exclude([(lz.state_at(steps, 4), lz.state_at(steps, 2))])


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([(3, 9), (7, 12)], r"don't overlap, such as \(3, 12\) for \(3, 9\) and \(7, 12\)"),
        ([(9, 3)], r"0 <= start < stop, not \(9, 3\)"),
        ([(1200, None)], r"ranges that end; take\(1200\) drops everything from there on"),
        ([5], r"a list of \(start, stop\): item numbers, or states"),
    ],
)
def test_what_is_no_range_is_refused(ranges: Any, message: str) -> None:
    with pytest.raises(lz.ArgumentError, match=message):
        lz.exclude(ranges)


def test_ranges_beyond_the_end_are_refused_where_it_is_known() -> None:
    with pytest.raises(lz.ArgumentError, match=r"\(8, 11\) is beyond the end, of 10 items"):
        lz.source(range(10)) | lz.exclude([(8, 11)])
    assert len(lz.source(range(10)) | lz.exclude([(8, 10)])) == 8
    assert list(lz.source(Stream(range(10))) | lz.exclude([(8, 11)])) == list(range(8))


# --- added to a run ---


def drawn(data: st.DataObject) -> tuple[Any, Any]:
    ranges = st.lists(st.integers(0, 30), max_size=6).map(sources.apart)
    return data.draw(ranges), data.draw(ranges)


@FEW
@given(st.data(), st.booleans(), st.integers(0, 12))
def test_what_was_given_stays_given(data: st.DataObject, is_stream: bool, n: int) -> None:
    one, other = drawn(data)
    source = lz.source(Stream(range(60))) if is_stream else lz.source(range(60))
    steps = source | lz.shuffle(5, seed=0) | lz.batch(2)
    whole = [[*batch] for batch in steps]
    old, new = steps | lz.exclude(one), steps | lz.exclude(other)
    run, n = lz.run(old), min(n, len(list(old)))
    given = [next(run) for _ in range(n)]
    number = whole.index(given[-1]) + 1 if given else 0
    state = lz.rebase(run.state, new)
    assert state.items == n
    rest = lz.run(new, lz.State.from_json(state.to_json()))
    left_out = {k for start, stop in other for k in range(start, stop)}
    assert list(rest) == [b for k, b in enumerate(whole) if k >= number and k not in left_out]


@FEW
@given(st.data(), st.booleans(), st.integers(0, 12))
def test_it_is_inserted_behind_what_was_given(data: st.DataObject, is_stream: bool, n: int) -> None:
    _, ranges = drawn(data)
    source = lz.source(Stream(range(60))) if is_stream else lz.source(range(60))
    steps = source | lz.repeat() | lz.map(str) | lz.batch(2)
    whole = list(islice(steps, 50))
    new = steps | lz.exclude(ranges)
    run = lz.run(steps)
    assert [next(run) for _ in range(n)] == whole[:n]
    state = lz.rebase(run.state, new)
    left_out = {k for start, stop in ranges for k in range(start, stop)}
    expected = [batch for k, batch in enumerate(whole) if k >= n and k not in left_out]
    assert list(islice(lz.run(new, state), len(expected))) == expected
    assert state.items == n


def test_it_is_inserted_amid_where_random_access_tells_the_number() -> None:
    source = lz.source(range(60)) | lz.shuffle(seed=0)
    old, new = source | lz.batch(2), source | lz.exclude([(0, 3), (9, 13)]) | lz.batch(2)
    run = lz.run(old)
    given = [next(run) for _ in range(5)]
    rest = list(lz.run(new, lz.rebase(run.state, new)))
    whole = list(source)
    assert [x for batch in given + rest for x in batch] == whole[:10] + whole[13:]
    stream = lz.source(Stream(range(60)))
    old, new = stream | lz.batch(2), stream | lz.exclude([(0, 3)]) | lz.batch(2)
    with pytest.raises(lz.StateMismatch, match="can't be counted without reading the data"):
        lz.rebase(lz.state_at(old, 5), new)


def test_states_know_their_numbers_behind_a_rebase() -> None:
    source = lz.source(range(200)) | lz.shuffle(seed=0)
    old, new = source | lz.batch(2), source | lz.batch(4)
    run = lz.run(new, lz.rebase(lz.state_at(old, 10), new))
    states = [state for _, state in islice(run.with_state(), 9)]
    assert (states[2].items, states[2].own_items) == (13, 8)
    kept = new | lz.exclude([(states[2], states[5])])
    assert lz.init(kept) == lz.init(new | lz.exclude([(8, 11)]))
    rest = list(lz.run(kept, lz.rebase(states[1], kept)))
    assert rest == [new[7], *(new[n] for n in range(11, 50))]


def test_it_is_seen_through() -> None:
    steps = lz.source(range(100)) | lz.shuffle(seed=0) | lz.batch(4)
    kept = steps | lz.exclude([(5, 20)])
    state = lz.state_at(kept, 7)
    assert [origin.index for origin in lz.trace(kept, 6)] == kept[6] == steps[21]
    assert lz.seen(kept, state).counts().total() == 28
    assert lz.resume_cost(kept, state).items == lz.resume_cost(steps, lz.state_at(steps, 7)).items
    assert lz.seen(kept, state).times(steps[5][0]) == []


def test_a_file_is_left_out_by_where_it_was_seen(tmp_path: Path) -> None:
    for name, content in {"a": "a\nb\n" * 20, "b": "bad\n" * 5, "c": "c\n" * 15}.items():
        (tmp_path / f"{name}.txt").write_text(content)
    rows = lz.io.read_text(f"{tmp_path}/*.txt", index_dir=tmp_path)
    steps = lz.source(rows) | lz.shuffle(seed=0) | lz.repeat() | lz.batch(2)
    seen = lz.seen(steps, 60)
    bad = seen.ranges(file=lambda path: path.endswith("b.txt"))
    assert bad == seen.ranges(file=tmp_path / "b.txt")
    kept = steps | lz.exclude(bad)
    expected = [batch for batch in islice(steps, 60) if "bad" not in batch]
    assert 0 < len(expected) < 60
    assert list(islice(kept, len(expected))) == expected
    assert seen.ranges(file=lambda path: False) == []


@FEW
@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 40), st.integers(0, 40))
def test_an_item_is_left_out_of_a_running_experiment(
    size: int, width: int, place: int, given_before: int
) -> None:
    steps = lz.source(range(size)) | lz.shuffle(seed=0) | lz.repeat() | lz.batch(width)
    ranges = lz.seen(steps, 60).ranges(place)
    kept = steps | lz.exclude(ranges)
    assert [*chain.from_iterable(starmap(range, ranges))] == lz.seen(steps, 60).times(place)
    assert all(stop < start for (_, stop), (start, _) in pairwise(ranges))
    state = lz.rebase(lz.state_at(steps, given_before), kept)
    first = [steps[n] for n in range(given_before, 60) if place not in steps[n]]
    with lz.run(kept, state.to_json()) as run:
        assert [*islice(run, len(first))] == first


@pytest.mark.parametrize("n", [0, 3, 10, 16])
def test_a_run_whose_batches_grew_may_be_resumed_to_its_end(n: int) -> None:
    """It has then had more items than an epoch of the new pipeline has."""

    def steps(size: int) -> lz.Pipeline[Any]:
        return lz.source(range(20)) | lz.batch(size) | lz.exclude([(2, 4)])

    run = lz.run(steps(1))
    for _ in range(n):
        next(run)
    run.change(steps(2))
    states = [run.state, *(state for _, state in run.with_state())]
    rest = lz.replay(steps(2), states[0], states[-1])
    for number, state in enumerate(states):
        assert list(lz.run(steps(2), state.to_json())) == rest[number:]
