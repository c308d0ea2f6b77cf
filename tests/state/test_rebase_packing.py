"""Rows of another length in the middle of a run: nothing lost, nothing twice, the rest the rest."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from tests.state.cases import signed

PACKS = {"pack_first_fit": lz.pack_first_fit, "pack_best_fit": lz.pack_best_fit}
EXECUTORS = [None, lz.threads(2), lz.processes(2)]
LONGEST = 6


def tokens(item: tuple[int, int]) -> list[int]:
    """A sequence that tells which it is."""
    number, size = item
    return [number] * size


sequences = st.lists(st.integers(0, LONGEST), max_size=40)
fixed = st.integers(LONGEST, 20)
changing = st.dictionaries(st.integers(1, 12), fixed, max_size=3).map(
    lambda points: lz.schedule({0: LONGEST, **points})
)


def parts(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """The sequences in rows, with how long they are."""
    found = []
    for row in rows:
        ids = row["segment_ids"]
        for number in range(1, int(ids.max(initial=0)) + 1):
            segment = row["tokens"][ids == number]
            assert len({*segment.tolist()}) == 1
            found.append((int(segment[0]), len(segment)))
    return found


def built(sizes: list[int], name: str, length: Any, num_bins: int) -> lz.Pipeline[Any]:
    data = lz.source([*enumerate(sizes, 1)]) | lz.map(tokens)
    return data | PACKS[name](length, num_bins=num_bins)


@given(
    sequences,
    st.sampled_from([*PACKS]),
    st.lists(st.tuples(fixed, st.integers(1, 4), st.integers(0, 5)), min_size=1, max_size=4),
)
def test_each_sequence_comes_once_whatever_changes(
    sizes: list[int], name: str, stretches: list[tuple[int, int, int]]
) -> None:
    rows: list[dict[str, Any]] = []
    state: Any = None
    for length, num_bins, count in [*stretches, (20, 3, 10**6)]:
        pipeline = built(sizes, name, length, num_bins)
        state = state and lz.rebase(state, pipeline).to_json()
        run = lz.run(pipeline, state)
        found = [(row, state) for row, state in islice(run.with_state(), count)]
        assert all(len(row["tokens"]) == length for row, _ in found)
        for number, (_, place) in enumerate(found):
            rest = lz.run(pipeline, place.to_json())
            again = [row["tokens"].tolist() for row in islice(rest, len(found) - number - 1)]
            assert again == [row["tokens"].tolist() for row, _ in found[number + 1 :]]
        rows += [row for row, _ in found]
        state = run.state
    assert sorted(parts(rows)) == [each for each in enumerate(sizes, 1) if each[1]]


@given(sequences, st.sampled_from([*PACKS]), changing, st.integers(1, 4))
def test_rows_have_the_length_that_the_schedule_says(
    sizes: list[int], name: str, lengths: Any, num_bins: int
) -> None:
    rows = list(built(sizes, name, lengths, num_bins))
    assert [len(row["tokens"]) for row in rows] == [lengths(n) for n in range(len(rows))]
    assert sorted(parts(rows)) == [each for each in enumerate(sizes, 1) if each[1]]


@given(sequences, st.sampled_from([*PACKS]), changing, changing | fixed, st.integers(0, 6))
def test_a_schedule_may_become_another_or_a_number(
    sizes: list[int], name: str, one: Any, other: Any, cut: int
) -> None:
    old, new = built(sizes, name, one, 3), built(sizes, name, other, 3)
    run = lz.run(old)
    rows = list(islice(run, cut))
    run.change(new)
    rest = list(run)
    wanted = [other(n) if callable(other) else other for n in range(len(rows), 10**3)]
    assert [len(row["tokens"]) for row in rest] == wanted[: len(rest)]
    assert sorted(parts(rows + rest)) == [each for each in enumerate(sizes, 1) if each[1]]


def test_a_schedule_that_is_extended_changes_nothing_before() -> None:
    sizes = [1 + n % 5 for n in range(60)]
    old, new = (
        built(sizes, "pack_first_fit", lz.schedule(points), 3)
        for points in ({0: 6, 4: 9}, {0: 6, 4: 9, 12: 20})
    )
    for cut in range(8):
        state = lz.rebase(lz.state_at(old, cut), new)
        rest, wanted = lz.run(new, state), lz.run(new, lz.state_at(new, cut))
        assert [row["tokens"].tolist() for row in rest] == [
            row["tokens"].tolist() for row in wanted
        ]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_loop_grows_its_rows(executor: Any) -> None:
    sizes = [1 + n * 7 % 6 for n in range(200)]
    small, large = (built(sizes, "pack_first_fit", n, 4) | lz.batch(1) for n in (8, 64))
    with lz.run(small, executor=executor) as run:
        rows = [row for (row,) in islice(run, 5)]
        run.change(large)
        rows += [row for (row,) in run]
    assert [len(row["tokens"]) for row in rows] == [8] * 5 + [64] * (len(rows) - 5)
    assert sorted(parts(rows)) == [*enumerate(sizes, 1)]


def test_more_padding_alone_packs_nothing_anew() -> None:
    sizes = [1 + n * 7 % 6 for n in range(50)]
    data = lz.source([*enumerate(sizes, 1)]) | lz.map(tokens)
    old, new = (data | lz.pack_first_fit(8, num_bins=4, pad=pad) for pad in (None, {"tokens": -1}))
    for cut in range(6):
        rest = lz.run(new, lz.rebase(lz.state_at(old, cut), new))
        wanted = [row["tokens"] for row in islice(old, cut, None)]
        for found, expected in zip(rest, wanted, strict=True):
            assert found["tokens"].tolist() == np.where(expected, expected, -1).tolist()


@pytest.mark.parametrize("name", [*PACKS, "concat_then_split"])
def test_a_number_that_becomes_a_schedule_is_refused(name: str) -> None:
    data = lz.source([*enumerate([3] * 20, 1)]) | lz.map(tokens)
    pack = PACKS[name] if name in PACKS else lambda n, num_bins: lz.concat_then_split(n)
    old, new = (data | pack(n, num_bins=2) for n in (6, lz.schedule({0: 6, 9: 12})))
    with pytest.raises(lz.StateMismatch, match=r"rows were not counted, .*; pass an int"):
        lz.rebase(lz.state_at(old, 2), new)


def test_shorter_rows_that_would_drop_what_they_hold_are_refused() -> None:
    data = lz.source([*enumerate([3, 5, 4, 2, 6, 1], 1)]) | lz.map(tokens)
    old, new, larger = (data | lz.pack_first_fit(n, num_bins=3, overflow="drop") for n in (6, 4, 9))
    state = lz.state_at(old, 1)
    with pytest.raises(lz.StateMismatch, match="longer sequences; change the length between"):
        lz.rebase(state, new)
    lz.rebase(lz.state_at(old, 0), new)
    rows = [*islice(old, 1), *lz.run(larger, lz.rebase(state, larger), on_error="skip")]
    assert sorted(parts(rows)) == [*enumerate([3, 5, 4, 2, 6, 1], 1)]


ODD: list[list[Any]] = [
    [], [-1], ["0"], [0, 3], [0, []], [0, [6, 3]], [0, [6, 3, 0]], [0, [0, 3, 1]], [0, [6, 0, 1]],
    [0, [6, 3, 1, 1]], [0, [6, 3, 9]], [9], [1, 1, 0], [1, 1], [1, 1, 6, 6], [1, 1, [6, 3, 1]],
    [0, [[6], 3, 1]], [1, [6, 3, 1]], [10**9], [10**9, 0], [0, [10**9, 10**9, 10**9]],
]  # fmt: skip


@pytest.mark.parametrize("own", ODD, ids=repr)
@pytest.mark.parametrize("length", [6, lz.schedule({0: 6, 2: 9})], ids=repr)
def test_a_place_that_is_none_is_refused(own: list[Any], length: Any) -> None:
    pipeline = built([3] * 20, "pack_first_fit", length, 3)
    body = json.loads(lz.state_at(pipeline, 1).to_json())
    name, arguments, _ = body["stages"][-1]
    text = signed(body, stages=[*body["stages"][:-1], [name, arguments, own]])
    with suppress(lz.PipelineError):
        rows = parts(list(lz.run(pipeline, text)))
        assert {*rows} <= {(n, 3) for n in range(1, 21)}
        assert len({*rows}) == len(rows)
