"""Rows seen: the origins of all items up to a state, in every mode."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.lineage.codes import Codes
from lazyckpt.lineage.tracing import followed
from tests.helpers import Unread
from tests.laws import rows, told
from tests.laws import seen as law


@pytest.mark.parametrize(
    "ask", [lz.types.Seen.times, lz.types.Seen.ranges], ids=["times", "ranges"]
)
def test_a_stage_that_is_no_source_is_named(ask: Callable[..., Any]) -> None:
    pipeline = lz.concat(lz.source(range(2)), lz.source(range(3)) | lz.map(str)) | lz.batch(2)
    seen = lz.seen(pipeline, 1)
    assert ask(seen, 0, stage="1[1].1") == []
    message = rf"Seen\.{ask.__name__}: stage '2' is not a source; sources: 1\[0\].1, 1\[1\].1"
    with pytest.raises(lz.ArgumentError, match=message):
        ask(seen, 0, stage="2")


def same(*args: Any) -> Any:
    return args[-1]


def never(*args: Any) -> Any:
    raise AssertionError("called")


Made = Callable[[lz.Pipeline[Any], Callable[..., Any]], lz.Pipeline[Any]]
LAZY: dict[str, Made] = {
    "table": lambda data, fn: data | lz.map(fn) | lz.shuffle(seed=0) | lz.repeat(),
    "rank": lambda data, fn: data | lz.shuffle(seed=0) | lz.shard(num_shards=3, index=1),
    "buffer": lambda data, fn: data | lz.shuffle(9, seed=0) | lz.map(fn) | lz.repeat(),
    "batch": lambda data, fn: data | lz.random_map(fn, seed=0) | lz.batch(3, collate=fn),
    "pad": lambda data, fn: data | lz.batch(20, pad=5) | lz.repeat(9),
    "shard pad": lambda data, fn: (
        data | lz.shuffle(seed=0) | lz.shard(num_shards=3, index=2, remainder="pad", pad=1)
    ),
    "windows": lambda data, fn: data | lz.tap(fn) | lz.sliding_window(3, stride=2) | lz.batch(2),
    "vectorized": lambda data, fn: data | lz.map(fn, vectorized=True) | lz.batch(3),
    "blocks": lambda data, fn: data | lz.block_shuffle(7, seed=0) | lz.lru_cache(3) | lz.repeat(),
    "twice": lambda data, fn: data | lz.gather([3, 3, 4]) | lz.batch(3, collate=fn) | lz.repeat(),
    "zip": lambda data, fn: lz.zip(data | lz.batch(2), data) | lz.starmap(fn),
    "mix": lambda data, fn: lz.mix([data | lz.map(fn), data | lz.repeat()], [1, 2], seed=0),
    "concat": lambda data, fn: lz.concat(data | lz.take(5), data | lz.batch(2)) | lz.map(fn),
    "interleave": lambda data, fn: lz.interleave(data | lz.shuffle(seed=1), data | lz.skip(4)),
    "lanes": lambda data, fn: lz.lanes([data, data | lz.map(fn)], num_shards=2, index=0),
}


@pytest.mark.parametrize("name", LAZY)
def test_nothing_is_read_or_called_where_no_stage_looks_at_items(name: str) -> None:
    read = LAZY[name](lz.source(range(50)), same)
    states = [state for _, state in islice(lz.run(read).with_state(), 70)]
    unread = LAZY[name](lz.source(Unread(50)), never)
    assert followed(unread).codes is not None
    assert rows(lz.seen(unread, states[-1])) == told(read, states[-1])
    amid = states[1]
    assert rows(lz.seen(unread, states[-1], amid)) == [
        row for row in told(read, states[-1]) if row[0] > 1
    ]


@pytest.mark.parametrize(
    "stage",
    [lz.filter(bool), lz.flat_map(str), lz.batch(2) | lz.unbatch()],
    ids=["filter", "flat_map", "unbatch"],
)
def test_what_looks_at_items_is_traced(stage: Any) -> None:
    assert followed(lz.source(range(9)) | stage).codes is None


def test_what_is_wrong_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = lz.source(range(20)) | lz.shuffle(4, seed=0) | lz.batch(2)
    law(pipeline, 40)

    def one_off(codes: Codes, source: str, epoch: int, index: int) -> int:
        return index + 1

    with monkeypatch.context() as patch:
        patch.setattr(Codes, "code", one_off)
        with pytest.raises(AssertionError):
            law(pipeline, 40)


def test_many_epochs_of_several_sources_are_told_apart() -> None:
    codes = Codes()
    for length in (10, 1 << 60, 0):
        codes.add("", None, length)
    epochs, ends = (0, 1, 4095, 4096, 1 << 40), (0, 9, (1 << 40) - 1, 1 << 40, (1 << 60) + 1)
    wanted = [(s, e, p) for s in (0, 1, 2) for e in epochs for p in ends]
    ints = np.array([codes.code(*each) for each in wanted])
    assert [*zip(*codes.decoded(ints), strict=True)] == wanted
    one = Codes()
    one.add("", None, 10)
    found = one.decoded(np.array([one.code(0, 5 << 32, 7)]))
    assert [*zip(*found, strict=True)] == [(0, 5 << 32, 7)]
    across = range((1 << 40) - 2, (1 << 40) + 2)
    found = codes.decoded(np.array(codes.ahead(1, 3, across)))
    assert [*zip(*found, strict=True)] == [(1, 3, place) for place in across]


def test_epochs_of_a_run_follow_each_other() -> None:
    for pipeline in (
        lz.source(range(10)) | lz.shuffle(seed=0) | lz.batch(3, drop_last=True),
        lz.source(range(10)) | lz.shuffle(4, seed=0) | lz.filter(lambda x: x % 2) | lz.batch(3),
    ):
        run = lz.run(pipeline)
        items = [x for _ in range(3) for batch in run.epoch() for x in batch]
        for state in (run.state, lz.init(pipeline, epoch=3)):
            found = rows(lz.seen(pipeline, state.at(state.position, run.state.items)))
            assert [place for *_, place in found] == items
        assert [epoch for _, _, epoch, _ in found] == sorted(epoch for _, _, epoch, _ in found)


@pytest.mark.parametrize("stage", [lz.shuffle(seed=0), lz.shuffle(3, seed=0), lz.filter(bool)])
def test_a_run_that_left_an_epoch_early_wants_to_know_since_when(stage: Any) -> None:
    pipeline = lz.source(range(1, 30)) | stage
    began = lz.init(pipeline, epoch=2)
    state = lz.advance(pipeline, began, 5)
    with pytest.raises(lz.InvalidState, match=r"5 items don't lead to .* pass since="):
        rows(lz.seen(pipeline, state))
    assert [row[:3] for row in rows(lz.seen(pipeline, state, began))] == [
        (n, "1", 2) for n in range(5)
    ]
    moved = state.at(state.position, 200)
    with pytest.raises(lz.InvalidState, match="195 items don't lead to the state's position"):
        rows(lz.seen(pipeline, moved, began.at(began.position, 5)))


def test_items_left_out_were_not_seen() -> None:
    class Torn:
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> str:
            if index % 7 == 3:
                raise ValueError("torn")
            return str(index) if index % 5 else "?"

    data = lz.source(Torn())
    for pipeline in (
        data | lz.map(int) | lz.batch(3),
        data | lz.filter(lambda x: int(x) > 4) | lz.batch(2) | lz.repeat(2),
        data | lz.filter(lambda least, x: int(x) > least, 4) | lz.map(int) | lz.batch(2),
        data | lz.flat_map(lambda x: [int(x)]) | lz.shuffle(5, seed=0) | lz.batch(2),
        data | lz.shuffle(seed=0) | lz.batch(2, collate=lambda texts: [*map(int, texts)]),
    ):
        run = lz.run(pipeline, on_error="skip")
        batches = [next(run) for _ in range(4)]
        amid = run.state
        batches += run
        assert run.skipped > amid.skipped > 0
        found = rows(lz.seen(pipeline, run.state))
        assert [row[3] for row in found] == [int(x) for batch in batches for x in batch]
        later = rows(lz.seen(pipeline, run.state, amid))
        assert rows(lz.seen(pipeline, amid)) + later == found


def test_what_came_before_a_rebase_is_asked_of_the_pipeline_then() -> None:
    small, large = (lz.source(range(60)) | lz.shuffle(seed=1) | lz.batch(n) for n in (2, 3))
    before = lz.state_at(small, 4)
    carried = lz.rebase(before, large)
    run = lz.run(large, carried)
    items = [next(run) for _ in range(5)]
    with pytest.raises(lz.InvalidState, match=r"after 4 items of a different .* since=lz.rebase\("):
        lz.seen(large, run.state)
    with pytest.raises(lz.InvalidState, match="since was carried over"):
        lz.seen(large, lz.state_at(large, 9), since=carried)
    found = rows(lz.seen(large, run.state, since=carried))
    assert [row[3] for row in found] == [x for batch in items for x in batch]
    assert [row[0] for row in found] == [n for n in range(4, 9) for _ in range(3)]
    both = lz.seen(small, before).counts() + lz.seen(large, run.state, since=carried).counts()
    assert both == {("1", None): 8 + 15}


def test_ranks_saw_what_all_did() -> None:
    def of(rank: int) -> lz.Pipeline[Any]:
        data = lz.source(range(50)) | lz.shuffle(seed=0)
        return data | lz.shard(num_shards=3, index=rank) | lz.batch(2)

    places = [row[3] for r in range(3) for row in rows(lz.seen(of(r), lz.state_at(of(r), 5)))]
    shuffled = lz.source(range(50)) | lz.shuffle(seed=0)
    assert sorted(places) == sorted(islice(shuffled, 30))


def test_states_that_do_not_fit_are_refused() -> None:
    pipeline = lz.source(range(9)) | lz.batch(2)
    state = lz.state_at(pipeline, 3)
    with pytest.raises(lz.InvalidState, match="since is after 3 items, the state after 1"):
        lz.seen(pipeline, lz.state_at(pipeline, 1), since=state)
    with pytest.raises(lz.StateMismatch, match="belongs to a different pipeline"):
        lz.seen(lz.source(range(8)) | lz.batch(2), state)
    with pytest.raises(lz.InvalidState, match="not a lazyckpt state"):
        lz.seen(pipeline, {})
    assert rows(lz.seen(pipeline, state.to_json(), since=state.to_dict())) == []
    assert repr(lz.seen(pipeline, state)) == f"Seen(items 0 to 3 of {pipeline!r})"
