"""Files appended at the end: a state follows them by `rebase`, where that has a meaning."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from tests.io.cases import folder, written
from tests.state.cases import drawn_run

FEW = settings(max_examples=max(5, settings.default.max_examples // 4))


def lines(first: int, count: int) -> bytes:
    return b"".join(b"%d\n" % n for n in range(first, first + count))


def grown(sizes: list[int], more: list[int]) -> tuple[Any, Any]:
    """A reader of files of so many rows, and one with more files behind."""
    starts = [sum((sizes + more)[:n]) for n in range(len(sizes + more))]
    files = written([lines(*each) for each in zip(starts, sizes + more, strict=True)], ".jsonl")
    place = folder()
    before = lz.io.read_jsonl(files[: len(sizes)], index_dir=place)
    return before, lz.io.read_jsonl(files, index_dir=place)


def flat(items: Any) -> list[int]:
    return [
        n for item in items for n in (flat(item) if isinstance(item, (list, tuple)) else [item])
    ]


def tokens(row: Any) -> list[int]:
    return [int(token) - 1 for token in row["tokens"] if token]


FOLLOWING: list[Any] = [  # what gives each row once, alone or in lists
    lz.map(lambda n: n),
    lz.shard(num_shards=1, index=0),
    lz.repeat(1),
    lz.skip(0),
    lz.take(99),
    lz.batch(2),
    lz.batch(3),
]
IN_ORDER: list[Any] = [
    *FOLLOWING,
    lz.filter(lambda n: True),
    lz.flat_map(lambda n: [n]),
    lz.map(lambda n: [n + 1]) | lz.concat_then_split(2) | lz.map(tokens),
    lz.group_by(lambda n: n % 5 == 0) | lz.map(lambda pair: pair[1]),
]
REORDERED: list[Any] = [
    lz.shuffle(buffer_size=3, seed=0),
    lz.block_shuffle(3, seed=0),
    lz.bucket_batch(2, key=lambda n: n % 3, window_size=4, seed=0),
    lz.bucket_by_boundaries([2], 2, key=lambda n: n % 4),
    lz.map(lambda n: [n + 1]) | lz.pack_first_fit(2, num_bins=2) | lz.map(tokens),
    lz.interleave_map(lambda n: [n], cycle_length=2),
]
SIZES = st.lists(st.integers(0, 4), min_size=1, max_size=3)


@FEW
@given(SIZES, SIZES, st.lists(st.sampled_from(IN_ORDER + REORDERED), max_size=2), st.data())
def test_no_row_is_lost_and_none_comes_twice(
    sizes: list[int], more: list[int], stages: list[Any], data: st.DataObject
) -> None:
    before, after = grown(sizes, more)
    old, new = lz.source(before), lz.source(after)
    for stage in stages:
        if not any(isinstance(item, list) for item in list(new)[:1]):
            old, new = old | stage, new | stage
    had, run = drawn_run(old, len(list(old)), data)
    try:
        state = lz.rebase(run.state, new)
    except lz.StateMismatch:
        assert not all(stage in FOLLOWING for stage in stages)
        return
    rest = list(lz.run(new, state))
    assert Counter(flat(had) + flat(rest)) == Counter(flat(new))
    if all(stage in IN_ORDER for stage in stages):
        assert flat(had) + flat(rest) == flat(new)


def test_a_state_follows_files_that_are_appended() -> None:
    before, after = grown([3, 2], [4])
    old, new = (each | lz.batch(2) for each in (before, after))
    state = lz.state_at(old, 2)
    with pytest.raises(lz.StateMismatch, match=r"lz\.rebase\(state, pipeline\) carries it over"):
        lz.run(new, state)
    moved = lz.rebase(state, new)
    assert list(lz.run(new, moved)) == [[4, 5], [6, 7], [8]]
    assert (moved.items, moved.rebased) == (2, (2, 2))
    assert lz.rebase(moved, new) == moved


def test_epochs_go_on_with_all_files() -> None:
    before, after = grown([3], [2])
    old, new = (each | lz.repeat(3) for each in (before, after))
    assert list(lz.run(new, lz.rebase(lz.state_at(old, 4), new))) == [1, 2, 3, 4, 0, 1, 2, 3, 4]


def test_streams_of_files_go_on_with_those_behind() -> None:
    before, after = grown([3, 2], [4])
    old, new = (lz.source(each.files) | lz.flat_map(lz.io.iter_jsonl) for each in (before, after))
    for cut in range(6):
        state = lz.state_at(old, cut)
        assert list(lz.run(new, lz.rebase(state, new))) == [*range(cut, 9)]
    path, state = Path(after.files[0].path), lz.state_at(old, 1)
    os.utime(path, ns=(1, 1))
    touched = lz.source(lz.io.files(f"{path.parent}/*")) | lz.flat_map(lz.io.iter_jsonl)
    assert list(lz.run(touched, lz.rebase(state, touched))) == [*range(1, 9)]
    path.write_bytes(b"0\n")
    cut = lz.source(lz.io.files(f"{path.parent}/*")) | lz.flat_map(lz.io.iter_jsonl)
    with pytest.raises(
        lz.StateMismatch, match=f"{path} isn't the file that the state knows: its na"
    ):
        lz.rebase(state, cut)


def test_ranks_go_on_alike() -> None:
    before, after = grown([4], [3])
    state = lz.state_at(before | lz.shard(num_shards=2, index=0), 1)
    ranks = [after | lz.shard(num_shards=2, index=rank) for rank in (0, 1)]
    assert [list(lz.run(rank, lz.rebase(state, rank))) for rank in ranks] == [[2, 4, 6], [3, 5]]


def test_pipelines_of_a_mixture_follow_too() -> None:
    before, after = grown([3], [2])
    letters = lz.source([*"ab"])
    old, new = (
        lz.mix([lz.source(each, name="web"), letters], [1, 1], seed=0, stop="all_exhausted")
        for each in (before, after)
    )
    run = lz.run(old)
    had = [next(run), next(run)]
    assert had + list(lz.run(new, lz.rebase(run.state, new))) == list(new)


@pytest.mark.parametrize(
    "stage",
    [
        lz.shuffle(seed=0),
        lz.local_shuffle(2, seed=0),
        lz.shard(num_shards=2, index=0, contiguous=True),
    ],
    ids=str,
)
def test_what_orders_whole_epochs_can_not_follow(stage: Any) -> None:
    before, after = grown([3, 2], [4])
    with pytest.raises(lz.StateMismatch) as caught:
        lz.rebase(lz.state_at(before | stage, 1), after | stage)
    assert "length=5" in str(caught.value)
    assert "length=9" in str(caught.value)
    assert "behind it orders whole epochs" in str(caught.value)


def test_a_window_at_the_end_can_not_follow() -> None:
    before, after = grown([5], [4])
    old, new = (each | lz.block_shuffle(4, seed=0) for each in (before, after))
    had = list(old)[:2]
    assert sorted([*had, *lz.run(new, lz.rebase(lz.state_at(old, 2), new))]) == [*range(9)]
    shrunk = lz.source(before) | lz.batch(2) | lz.block_shuffle(4, seed=0)
    grew = lz.source(after) | lz.batch(2) | lz.block_shuffle(4, seed=0)
    with pytest.raises(lz.StateMismatch, match=r"beyond the end .*block_shuffle"):
        lz.rebase(lz.state_at(shrunk, 1), grew)


@pytest.mark.parametrize("change", ["before", "changed", "gone", "other"])
def test_other_changes_are_refused_with_the_reason(change: str) -> None:
    before, after = grown([3, 2], [4])
    state, files = lz.state_at(lz.source(before), 1), after.files
    if change == "changed":
        os.truncate(files[0].path, 2)
    patterns = {
        "before": [files[2].path, files[0].path, files[1].path],
        "changed": [file.path for file in files],
        "gone": [files[1].path, files[2].path],
        "other": [files[0].path, files[2].path],
    }
    rows = lz.io.read_jsonl(lz.io.files(patterns[change]), index_dir=folder())
    known = "the files that the state knows aren't the first ones of these"
    path = files[{"changed": 0, "other": 2}.get(change, 0)].path
    reason = f"{path} isn't the file" if change in ("changed", "other") else known
    with pytest.raises(lz.StateMismatch, match=reason):
        lz.rebase(state, lz.source(rows))
    with pytest.raises(lz.StateMismatch, match=reason) as caught:
        lz.run(lz.source(rows), state)
    assert "lz.rebase" not in str(caught.value)


def test_files_are_not_taken_for_other_data() -> None:
    before, after = grown([3], [2])
    for old, new in (([1, 2], after), (before, [0, 1, 2, 3, 4])):
        with pytest.raises(lz.StateMismatch, match="can't be compared with those"):
            lz.rebase(lz.state_at(lz.source(old), 1), lz.source(new))


@pytest.mark.parametrize("executor", [None, lz.threads(2)])
def test_shuffled_epochs_go_on_with_all_files(executor: Any) -> None:
    before, after = grown([3, 2], [4])
    old, new = (each | lz.shuffle(seed=0) | lz.repeat() for each in (before, after))
    with lz.run(old, executor=executor) as run:
        assert sorted(next(run) for _ in range(5)) == [*range(5)]
        run.change(new)
        assert [next(run) for _ in range(9)] == list(new[9:18])
