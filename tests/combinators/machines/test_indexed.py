"""Indexable data: what happens if they change while they are read, and who may write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.compat.seqtools import DataLoader
from lazyckpt.executors.executor import Executor
from lazyckpt.testing import equal
from lazyckpt.testing.laws import Stream

# Pools of `concurrent.futures` leave threads for a while.


class Rows:
    """A map-style data set that can grow and shrink."""

    def __init__(self, items: list[int]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> int:
        return self.items[index]


def same(item: Any) -> Any:
    return item


EXECUTORS: dict[str, Callable[[], Executor | None]] = {
    "inline": lambda: None,
    "threads": lambda: lz.threads(2),
    "processes": lambda: lz.processes(2),
    "spawn": lambda: lz.processes(1, start_method="spawn"),
    "futures": lambda: lz.futures(ProcessPoolExecutor(1), buffer_size=2),
}
TAILS = {
    "plain": lz.map(same),
    "stream": lz.filter(bool) | lz.map(same),
    "shuffle": lz.shuffle(seed=0) | lz.map(same),
    "batches": lz.shuffle(seed=0) | lz.batch(2) | lz.unbatch() | lz.map(same),
    "epochs": lz.repeat(2) | lz.map(same),
}
CHANGES: dict[str, Callable[[list[int]], Any]] = {
    "grown": lambda items: items.append(99),
    "shrunk": lambda items: items.pop(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [same, Rows])
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize(
    ("executor", "given"),
    [*((name, given) for name in ("inline", "threads") for given in (0, 1, 5)), ("processes", 1)],
)
def test_data_that_change_while_they_are_read(
    executor: str, tail: str, kind: Any, change: str, given: int
) -> None:
    """Yield the items that existed, or an error; the state is after the last item delivered."""
    items = list(range(1, 13))
    pipeline = lz.source(kind(items)) | TAILS[tail]
    whole = list(pipeline)
    with lz.run(pipeline, executor=EXECUTORS[executor]()) as run:
        found = [next(run) for _ in range(given)]
        before = run.state
        CHANGES[change](items)
        assert run.state == before
        try:
            found.extend(run)
        except lz.SourceChanged:
            assert found[:12] == whole[: len(found)][:12]
        else:
            assert found == whole
            assert executor != "inline" or tail in ("shuffle", "batches")
        try:
            assert run.state.items == len(found)
        except lz.SourceChanged:  # a batch that has to be read again, and can't be
            assert (tail, change) == ("batches", "shrunk")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_data_that_changed_before_they_are_read(executor: str, change: str, on_error: Any) -> None:
    """Also if workers would rebuild the pipeline."""
    items = list(range(1, 13))
    pipeline = lz.source(items) | lz.shuffle(seed=0) | lz.map(same)
    opened = lz.run(pipeline, executor=EXECUTORS[executor](), on_error=on_error)
    CHANGES[change](items)
    with pytest.raises(lz.SourceChanged, match=r"had 12 items .* and have 1[13] now"), opened:
        next(opened)
    with pytest.raises(lz.SourceChanged):
        lz.run(pipeline, executor=EXECUTORS[executor](), on_error=on_error)
    assert opened.state.items == 0


def test_the_state_remembers_the_length_that_there_was() -> None:
    items = [1, 2, 3]
    run = lz.run(lz.source(items))
    assert next(run) == 1
    items.append(4)
    assert '"length":3' in run.state.to_json()
    with pytest.raises(lz.StateMismatch, match=r"length=3.*length=4"):
        lz.run(lz.source(items), run.state)
    assert list(lz.run(lz.source(items), run.state, strict=False)) == [2, 3, 4]


@pytest.mark.parametrize("cut", [0, 2, 9])
def test_a_list_cut_before_the_place_of_its_reader(cut: int) -> None:
    items = list(range(10))
    run = lz.run(lz.source(items))
    found = [next(run) for _ in range(5)]
    del items[cut:]
    assert run.state.items == 5
    with pytest.raises(lz.SourceChanged, match=f"10 items .* have {cut} now"):
        found.extend(run)
    assert run.state.items == len(found) == max(5, cut)


def test_an_epoch_in_which_data_changed_is_the_last() -> None:
    items = [1, 2]
    run = lz.run(lz.concat(lz.source(items) | lz.repeat(), lz.source([0])))
    assert [next(run) for _ in range(3)] == [1, 2, 1]
    items.append(3)
    assert next(run) == 2
    with pytest.raises(lz.SourceChanged):
        next(run)
    assert run.state.items == 4
    assert list(lz.source(Stream(items))) == [1, 2, 3]


ROWS = np.arange(12.0).reshape(6, 2)


def doubled(row: Any) -> Any:
    row *= 2
    return row


@pytest.mark.parametrize("executor", ["inline", "threads", "processes", "futures"])
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_function_that_works_in_place_is_told_to_copy(
    executor: str, on_disk: bool, tmp_path: Path
) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r+" if on_disk else None)
    last = lz.map(lambda row: doubled(row["x"]))
    for pipeline in (
        lz.source(rows) | lz.map(doubled),
        lz.source(rows) | lz.shuffle(seed=0) | lz.map(doubled),
        lz.source(rows) | lz.batch(2) | lz.map(lambda batch: doubled(batch[0])),
        lz.columns(x=rows) | last,
        lz.columns(x=rows) | lz.filter(bool) | last,
    ):
        with (
            lz.run(pipeline, executor=EXECUTORS[executor]()) as run,
            pytest.raises(ValueError, match="read-only") as caught,
        ):
            next(run)
        assert any("item.copy()" in note for note in caught.value.__notes__)
    assert np.array_equal(rows, ROWS)
    assert rows.flags.writeable, "the array itself stays the user's"


def test_what_is_the_users_own_can_be_written_to() -> None:
    rows = ROWS.copy()
    copied = lz.source(rows) | lz.map(np.copy) | lz.map(doubled) | lz.repeat(2)
    assert equal(list(copied), [row * 2 for row in ROWS] * 2)
    stacked = lz.source(rows) | lz.shuffle(seed=0) | lz.batch(2, collate=lz.stack)
    vectorized = lz.columns(x=rows) | lz.map(lambda b: {"x": doubled(b["x"])}, vectorized=True)
    for _ in (stacked | lz.map(doubled)), vectorized | lz.batch(3, collate=lz.stack), vectorized:
        list(_)
    assert np.array_equal(rows, ROWS)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loader_whose_data_grow_gives_them_in_its_next_epoch(num_workers: int) -> None:
    data = [1, 2, 3]
    loader = DataLoader(data, shuffle=True, num_workers=num_workers, collate_fn=list)
    first = sorted(item for batch in loader for item in batch)
    assert first == data
    data.append(4)
    assert sorted(item for batch in loader for item in batch) == data


@pytest.mark.parametrize("data", ["[0, 1, 2]", "range(9)", "np.arange(9)"])
def test_what_is_left_open_ends_in_silence_with_the_interpreter(data: str) -> None:
    code = (
        "import numpy as np, lazyckpt as lz\n"
        f"items = iter(lz.run(lz.source({data}) | lz.filter(bool)))\n"
        "print(next(items))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("1\n", "")
