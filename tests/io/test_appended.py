"""Files with rows appended: a state follows them by `rebase`, if the change is well defined."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from tests.io.cases import folder, written


def lines(first: int, count: int) -> bytes:
    return b"".join(b"%d\n" % n for n in range(first, first + count))


def grown(sizes: list[int], more: list[int]) -> tuple[Any, Any]:
    """A reader of files of so many rows, and a reader with more files after them."""
    starts = [sum((sizes + more)[:n]) for n in range(len(sizes + more))]
    files = written([lines(*each) for each in zip(starts, sizes + more, strict=True)], ".jsonl")
    place = folder()
    before = lz.io.read_jsonl(files[: len(sizes)], index_dir=place)
    return before, lz.io.read_jsonl(files, index_dir=place)


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
        lz.StateMismatch, match=f"{path} isn't the file recorded in the state: its na"
    ):
        lz.rebase(state, cut)


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
    known = "the files recorded in the state aren't the first ones of these"
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
