"""Packing plans: every token once, rows as full as they can be, the same anywhere."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.combinators.plan_packing import Piece
from tests.helpers import printed

LENGTHS = st.lists(st.integers(0, 30), max_size=60)
OVERFLOWS = st.sampled_from(["split", "truncate", "drop"])
ROWS = st.integers(1, 20)
WINDOWS = st.none() | st.integers(1, 25)
SEEDS = st.integers(0, 2**70)


@given(lengths=LENGTHS, length=ROWS, overflow=OVERFLOWS, window=WINDOWS, seed=SEEDS)
def test_every_token_comes_once(
    lengths: list[int], length: int, overflow: Any, window: int | None, seed: int
) -> None:
    plan = lz.plan_packing(lengths, length, seed=seed, overflow=overflow, window_size=window)
    kept = {
        "split": lengths,
        "truncate": [min(size, length) for size in lengths],
        "drop": [size * (size <= length) for size in lengths],
    }[overflow]
    found = [(n, i) for row in plan for n, start, stop in row for i in range(start, stop)]
    assert sorted(found) == [(n, i) for n, size in enumerate(kept) for i in range(size)]
    sizes = [sum(stop - start for _, start, stop in row) for row in plan]
    assert all(0 < size <= length for size in sizes)
    assert plan.num_tokens == sum(sizes) == sum(kept)
    assert plan.padding == sum(length - size for size in sizes)
    assert plan.num_left_out == sum(lengths) - sum(kept)
    assert plan.most_pieces == max(map(len, plan), default=1)


@given(lengths=LENGTHS, length=ROWS, window=WINDOWS)
def test_no_two_rows_of_a_window_would_fit_into_one(
    lengths: list[int], length: int, window: int | None
) -> None:
    plan = lz.plan_packing(lengths, length, seed=0, overflow="split", window_size=window)
    rows: dict[int, list[int]] = {}
    for row in plan:
        windows = {document // (window or 100) for document, _, _ in row}
        assert len(windows) == 1
        rows.setdefault(windows.pop(), []).append(sum(stop - start for _, start, stop in row))
    assert list(rows) == sorted(rows)
    for sizes in rows.values():
        least = sorted(sizes)[:2]
        assert len(least) < 2 or sum(least) > length


@given(LENGTHS | st.lists(st.integers(1, 4), max_size=99), ROWS)
@example([3] * 7 + [2] * 3, 10)
def test_rows_have_as_much_room_as_by_best_fit_one_by_one(lengths: list[int], length: int) -> None:
    plan = lz.plan_packing(lengths, length, seed=0, overflow="drop")
    rooms: list[int] = []
    for size in sorted((size for size in lengths if 0 < size <= length), reverse=True):
        room = min((room for room in rooms if room >= size), default=length)
        if room in rooms:
            rooms.remove(room)
        rooms.append(room - size)
    filled = (sum(stop - start for _, start, stop in row) for row in plan)
    assert sorted(length - each for each in filled) == sorted(rooms)


@given(lengths=LENGTHS, length=ROWS, num_shards=st.integers(1, 5))
def test_parts_are_equally_full_but_for_the_padding(
    lengths: list[int], length: int, num_shards: int
) -> None:
    plan = lz.plan_packing(lengths, length, seed=0, overflow="split")
    parts = [
        lz.source(plan) | lz.shuffle(seed=1) | lz.shard(num_shards=num_shards, index=index)
        for index in range(num_shards)
    ]
    rows = [list(part) for part in parts]
    assert sorted(piece for part in rows for row in part for piece in row) == sorted(
        piece for row in plan for piece in row
    )
    full = [sum(stop - start for row in part for _, start, stop in row) for part in rows]
    assert max(map(len, rows)) - min(map(len, rows)) <= 1
    assert max(full) - min(full) <= plan.padding + length * (len(plan) % num_shards > 0)


def test_a_row_is_known_by_its_number() -> None:
    plan = lz.plan_packing([3, 1, 4], 4, seed=0)
    assert plan[-1] == [Piece(0, 0, 3), Piece(1, 0, 1)]
    assert plan[0] == plan[np.int64(-2)] == [(2, 0, 4)]
    assert len(plan) == 2
    for number in (2, -3):
        with pytest.raises(IndexError, match=f"row {number} is out of range for 2 rows"):
            plan[number]
    assert repr(plan) == "<PackingPlan of 2 rows>"


def test_golden_plan() -> None:
    """The same on any machine and with any version of NumPy; states hold the digest."""
    lengths = [(number * 7919) % 97 for number in range(5000)]
    plan = lz.plan_packing(lengths, 64, seed=3, overflow="split", window_size=4500)
    assert plan.digest == "df5520c63eb8a92a"
    assert len(plan) == 3751


def test_kinds_of_lengths_and_processes_make_no_difference() -> None:
    lengths = [5, 1, 2, 8, 3]
    plans = [
        lz.plan_packing(kind, 8, seed=2)
        for kind in (lengths, np.array(lengths, np.uint8), np.array(lengths), tuple(lengths))
    ]
    assert len({plan.digest for plan in plans}) == 1
    assert plans[0] == plans[1]
    assert hash(plans[0]) == hash(pickle.loads(pickle.dumps(plans[0])))
    code = "import lazyckpt as lz; print(lz.plan_packing([5, 1, 2, 8, 3], 8, seed=2).digest)"
    assert printed(code).strip() == plans[0].digest


def test_whatever_decides_a_row_is_in_the_digest() -> None:
    base: dict[str, Any] = {"lengths": [5, 1, 2, 7, 3, 3, 3], "length": 8, "seed": 0}
    others: list[dict[str, Any]] = [
        {}, {"lengths": [5, 1, 2, 7, 3, 3, 4]}, {"length": 9}, {"seed": 1},
        {"overflow": "split"}, {"window_size": 3},
    ]  # fmt: skip
    plans = [lz.plan_packing(**{**base, **other}) for other in others]
    assert len({plan.digest for plan in plans}) == len(plans)
    assert plans[0] != plans[1]
    assert plans[0] != 3


def test_seeds_mix_documents_of_one_length() -> None:
    pairs = [
        {frozenset(piece.document for piece in row) for row in plan}
        for plan in (lz.plan_packing([4] * 100, 8, seed=seed) for seed in (0, 1))
    ]
    assert len(pairs[0]) == len(pairs[1]) == 50
    assert len(pairs[0] & pairs[1]) < 10


def test_no_documents_and_none_with_tokens() -> None:
    for lengths in ([], [0, 0], np.zeros(0, int)):
        plan = lz.plan_packing(lengths, 4, seed=0)
        assert len(plan) == plan.padding == plan.num_tokens == 0
        assert list(plan) == []


def test_a_plan_takes_few_bytes_a_document() -> None:
    lengths = np.full(100_000, 1000)
    plan = lz.plan_packing(lengths, 65_536, seed=0)
    assert len(pickle.dumps(plan)) < 12 * len(lengths)


@given(lengths=LENGTHS, length=ROWS, overflow=OVERFLOWS)
def test_saved_and_loaded_it_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], length: int, overflow: Any
) -> None:
    path = tmp_path_factory.mktemp("plan") / "plan.npz"
    plan = lz.plan_packing(lengths, length, seed=0, overflow=overflow)
    plan.save(path)
    found = lz.types.PackingPlan.load(path)
    assert found == plan
    assert list(found) == list(plan)
    assert (found.length, found.overflow) == (length, overflow)
    assert found.lengths.tolist() == lengths


def test_a_file_that_holds_no_plan_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plan.npz"
    plan = lz.plan_packing([5, 1, 2, 8, 3], 8, seed=2)
    plan.save(path)
    whole = path.read_bytes()
    for broken in (b"", b"plan", whole[:-30], whole[: len(whole) // 2]):
        path.write_bytes(broken)
        with pytest.raises(lz.ArgumentError, match=r"PackingPlan: .*plan\.npz holds no plan"):
            lz.types.PackingPlan.load(path)
    np.savez(path, x=np.arange(3))
    with pytest.raises(lz.ArgumentError, match="holds no plan"):
        lz.types.PackingPlan.load(path)
    np.save(tmp_path / "one.npy", np.arange(3))
    with pytest.raises(lz.ArgumentError, match="holds no plan"):
        lz.types.PackingPlan.load(tmp_path / "one.npy")
    with pytest.raises(FileNotFoundError):
        lz.types.PackingPlan.load(tmp_path / "none.npz")
    with np.load(_saved(plan, path)) as arrays:
        changed = {**arrays, "documents": arrays["documents"][::-1]}
    np.savez(path, **changed)
    with pytest.raises(lz.ArgumentError, match="has changed since it was written"):
        lz.types.PackingPlan.load(path)


def _saved(plan: lz.types.PackingPlan, path: Path) -> Path:
    plan.save(path)
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lengths": [3, -1]}, "lengths must be ints >= 0, but length 1 is -1"),
        ({"lengths": [3, 1.5]}, "lengths must be a sequence or one-dimensional array of ints"),
        ({"lengths": [[3]]}, "lengths must be a sequence or one-dimensional array of ints"),
        ({"lengths": [3, [1]]}, "lengths must be"),
        ({"lengths": [True]}, "lengths must be"),
        ({"lengths": None}, "lengths must be"),
        ({"length": 0}, "length must be an int >= 1, got length=0"),
        ({"length": 2**40}, "length must be an int <= 4294967295"),
        ({"seed": -1}, "seed must be an int >= 0"),
        ({"overflow": None}, "overflow must be 'error'"),
        ({"window_size": 0}, "window_size must be an int >= 1 or None"),
        ({"lengths": [1, 9, 12]}, "document 1 has 9 tokens, more than length=4; pass overflow"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    given_: dict[str, Any] = {"lengths": [1], "length": 4, "seed": 0, **arguments}
    with pytest.raises(lz.ArgumentError, match=f"^plan_packing: {message}"):
        lz.plan_packing(**given_)
