"""Runs that are steered: `Run.set`."""

from __future__ import annotations

import json
import threading
from itertools import islice
from typing import Any

import pytest

import lazyckpt as lz
from tests.core.test_control import at_least, mixed, plus
from tests.helpers import wants

LEAST = lz.control(0, name="least")
MORE = lz.control(0, name="more")
FILTERED = lz.source(range(100)) | lz.filter(at_least, LEAST)
EXECUTORS = [None, lz.threads(2), lz.processes(2)]


def test_a_value_holds_from_the_next_item_on() -> None:
    run = lz.run(FILTERED)
    assert list(islice(run, 3)) == [0, 1, 2]
    run.set("least", 98)
    assert run.controls == {"least": 98}
    assert run.state.items == 3
    assert [(each.items, each.name, each.value) for each in run.state.changes] == [(3, "least", 98)]
    assert list(run) == [98, 99]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_loop_under_way_goes_on(executor: Any) -> None:
    pipeline = mixed(lz.control([1, 0], name="weights"), seed=0) | lz.batch(2) | lz.take(6)
    found = []
    with lz.run(pipeline, executor=executor) as run:
        for item in run:
            found.append(item)
            if run.state.items == 2:
                run.set("weights", [0, 1])
            if run.state.items == 4:
                run.set("weights", [1, 0])
    assert found == [[0, 1], [2, 3], [100, 101], [102, 103], [4, 5], [6, 7]]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_a_stage_behind_holds_stays(executor: Any) -> None:
    pipeline = lz.count() | lz.map(plus, MORE) | lz.shuffle(8, seed=0) | lz.batch(4) | lz.take(8)
    with lz.run(pipeline, executor=executor) as run:
        first = list(islice(run, 2))
        run.set("more", 1000)
        state = run.state.to_json()
        rest = list(run)
    items = [item for batch in first + rest for item in batch]
    (change,) = lz.State.from_json(state).changes
    ((stage, epoch, item),) = change.places
    assert (stage, epoch) == ("2", 0)
    assert 8 <= item <= 8 + 8
    whole = [number + 1000 * (number >= item) for number in range(200)]
    assert sorted(items)[: item - 8] == whole[: item - 8]
    assert {*items} <= {*whole}
    assert list(lz.run(pipeline, state)) == rest


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_fails_is_left_out(executor: Any) -> None:
    pipeline = (
        lz.source(range(1, 30))
        | lz.filter(lambda least, item: 7 // (item - 5) > -9 and item >= least, LEAST)
        | lz.map(plus, MORE)
        | lz.shuffle(4, seed=0)
    )
    with lz.run(pipeline, on_error="skip", executor=executor) as run:
        first = list(islice(run, 3))
        run.set("least", 25)
        run.set("more", 100)
        state = run.state.to_json()
        rest = list(run)
        assert run.skipped == 1
    assert (
        first + [each for each in rest if each < 100]
        == [each % 100 for each in first + rest][: 3 + sum(each < 100 for each in rest)]
    )
    assert [each for each in sorted(rest) if each >= 100] == [125, 126, 127, 128, 129]
    assert list(lz.run(pipeline, state, on_error="skip")) == rest


def test_values_outlive_epochs() -> None:
    run = lz.run(lz.source(range(3)) | lz.map(plus, MORE))
    assert list(run.epoch()) == [0, 1, 2]
    run.set("more", 10)
    assert list(run.epoch()) == list(run.epoch()) == [10, 11, 12]
    again = lz.run(lz.source(range(3)) | lz.map(plus, MORE) | lz.repeat())
    assert list(islice(again, 4)) == [0, 1, 2, 0]
    again.set("more", 10)
    assert list(islice(again, 4)) == [11, 12, 10, 11]


def test_pipelines_that_have_not_begun_have_the_new_value() -> None:
    parts = [lz.source(range(3)) | lz.map(plus, MORE) for _ in range(3)]
    pipeline = lz.concat(*parts) | lz.repeat()
    run = lz.run(pipeline)
    assert list(islice(run, 4)) == [0, 1, 2, 0]
    run.set("more", 10)
    assert list(islice(run, 8)) == [11, 12, 10, 11, 12, 10, 11, 12]
    windows = lz.run(pipeline | lz.block_shuffle(8, seed=0))
    first = next(windows)
    windows.set("more", 10)
    assert sorted([first, *islice(windows, 7)]) == [0, 0, 0, 1, 1, 1, 2, 2]
    assert sorted(islice(windows, 8)) == [10, 10, 10, 11, 11, 12, 12, 12]


def test_a_state_has_the_same_shape_before_and_after() -> None:
    run = lz.run(FILTERED)
    before = run.state_dict()
    run.set("least", 5)
    assert before.keys() == run.state_dict().keys()
    later = lz.run(FILTERED)
    later.load_state_dict(json.loads(json.dumps(run.state_dict())))
    assert (later.state, next(later)) == (run.state, 5)
    later.load_state_dict(before)
    assert (later.controls, next(later)) == ({"least": 0}, 0)


def test_no_change_is_none() -> None:
    run = lz.run(FILTERED)
    run.set("least", 0)
    assert not run.state.changes
    run.set("least", False)  # of another type, which a function may tell
    assert run.controls["least"] is False


def test_bad_changes_change_nothing() -> None:
    run = lz.run(mixed(lz.control([1, 1], name="weights"), seed=0))
    next(run)
    state = run.state
    for name, value, message in [
        ("wieghts", [1, 1], "no control 'wieghts'; its controls are 'weights'"),
        ("weights", [0, 0], "mix: weights must be finite numbers >= 0, not all of them 0"),
        ("weights", [float("nan"), 1], "mix: weights must be finite"),
        ("weights", [1, 2, 3], "mix: as many weights as pipelines are needed"),
        ("weights", {1, 2}, "set: weights must be made of None, bool, int"),
        (["weights"], [1, 1], "no control"),
    ]:
        with pytest.raises(lz.ArgumentError, match=message):
            run.set(name, value)  # type: ignore[arg-type]
        assert run.state == state
    wants("it has none", lambda: lz.run(lz.count()).set("weights", 1))  # type: ignore[func-returns-value]


def test_an_error_while_it_reads_again_changes_nothing() -> None:
    is_broken = []

    def fragile(more: int, item: int) -> int:
        if is_broken:
            raise OSError("gone")
        return item + more

    pipeline = lz.count() | lz.map(fragile, MORE) | lz.flat_map(lambda x: [x] * 3)
    run = lz.run(pipeline | lz.shuffle(4, seed=0))
    first, state = list(islice(run, 3)), run.state
    is_broken.append(True)
    with pytest.raises(OSError, match="gone"):
        run.set("more", 1000)
    is_broken.clear()
    assert run.state == state
    assert [*first, *islice(run, 5)] == list(islice(pipeline | lz.shuffle(4, seed=0), 8))


def test_a_change_belongs_between_two_items() -> None:
    def sets(item: int) -> int:
        run.set("more", 1)
        return item

    run = lz.run(lz.count() | lz.map(plus, MORE) | lz.map(sets))
    with pytest.raises(lz.PipelineError, match="an item is being made"):
        next(run)
    run.close()
    with pytest.raises(lz.PipelineError, match="the run is closed"):
        run.set("more", 1)


def test_two_threads_do_not_set_at_once() -> None:
    refused = []

    def sets(item: int) -> int:
        if run.state.items == 1 and not refused:
            thread = threading.Thread(target=tries)
            thread.start()
            thread.join()
        return item

    def tries() -> None:
        with pytest.raises(lz.PipelineError, match="another thread is setting") as raised:
            run.set("more", 2)
        refused.append(raised.value)

    pipeline = lz.count() | lz.map(sets) | lz.map(plus, MORE) | lz.flat_map(lambda x: [x, x])
    run = lz.run(pipeline | lz.block_shuffle(4, seed=0))
    next(run)
    run.set("more", 1)
    assert refused
    assert run.controls == {"more": 1}


def test_ranks_that_set_the_same_have_one_state() -> None:
    ranks = [
        lz.count() | lz.map(plus, MORE) | lz.shard(num_shards=2, index=index) | lz.batch(2)
        for index in range(2)
    ]
    runs = [lz.run(each) for each in ranks]
    for run in runs:
        next(run)
        run.set("more", 100)
    assert runs[0].state.changes.digest == runs[1].state.changes.digest != ""
    assert [next(run) for run in runs] == [[104, 106], [105, 107]]
    one = lz.count() | lz.map(plus, MORE) | lz.shard(num_shards=1, index=0) | lz.batch(2)
    (state,) = lz.reshard([run.state for run in runs], one)
    assert next(lz.run(one, state)) == [108, 109]
    runs[1].set("more", 0)
    assert runs[0].state.changes.digest != runs[1].state.changes.digest
    with pytest.raises(lz.StateMismatch, match="have changed controls otherwise"):
        lz.reshard([run.state for run in runs], one)


def test_what_comes_later_is_known_to_replay_and_trace() -> None:
    pipeline = FILTERED | lz.shuffle(4, seed=0) | lz.batch(2)
    run = lz.run(pipeline)
    items = list(islice(run, 2))
    run.set("least", 50)
    items += islice(run, 4)
    begin = lz.init(pipeline)
    assert lz.replay(pipeline, begin, until=run.state) == items
    told = lz.trace(pipeline, begin, until=run.state)
    assert [[origin.place for origin in each] for each in told] == items
    assert lz.step(pipeline, run.state)[1] == next(run)
    assert lz.resume_cost(pipeline, run.state).stages[0].name == "shuffle"
