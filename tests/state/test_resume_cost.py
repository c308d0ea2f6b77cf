"""The cost of a resume: predicted, and counted."""

from __future__ import annotations

import math
from itertools import islice
from tempfile import mkdtemp
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream

N = 60
FOLDER = mkdtemp()  # of files that never change


def stream() -> lz.Pipeline[int]:
    return lz.source(Stream(range(N)))


def table() -> lz.Pipeline[int]:
    return lz.source(Table(N))


class Table:
    """Indexable data that count how many of their items are read."""

    def __init__(self, size: int) -> None:
        self.size, self.pulled = size, 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.pulled += 1
        return index


def again(pipeline: lz.Pipeline[Any], n: int) -> int:
    """How many more items a resume after n items reads than a run that continues, to the end."""

    def pulled() -> int:
        return sum(each.arguments["data"].pulled for each in sources(pipeline))

    run = lz.run(pipeline)
    list(islice(run, n))
    state, before = run.state, pulled()
    few = len(list(islice(run, 6)))
    straight = pulled() - before
    list(islice(lz.run(pipeline, state), few))
    return pulled() - before - 2 * straight


def sources(pipeline: Any) -> list[Any]:
    first = pipeline.calls[0]
    return [each for part in first.chains for each in sources(part)] or [first]


TWICE = lz.flat_map(lambda x: [x, x])
THREE = table() | lz.map(lambda x: [x] * 3)
EXACT: list[tuple[Any, int, float, dict[str, float]]] = [
    (table(), 7, 0, {}),
    (stream(), 7, 7, {"1 source": 7}),
    (table() | lz.map(str) | lz.filter(bool) | lz.batch(3) | lz.take(9) | lz.repeat(2), 5, 0, {}),
    (stream() | lz.batch(3) | lz.take(9), 5, 15, {"1 source": 15}),
    (table() | lz.shuffle(seed=0) | lz.repeat(), 7, 0, {}),
    (table() | TWICE, 6, 1, {"2 flat_map": 1}),
    (table() | TWICE, 0, 0, {}),
    (table() | lz.batch(4) | lz.unbatch(), 6, 4, {"3 unbatch": 1}),
    (table() | lz.sliding_window(5, stride=2), 3, 3, {"2 sliding_window": 3}),
    (table() | lz.sliding_window(2, stride=5), 3, 0, {}),
    (table() | lz.batch(2) | lz.sliding_window(5, stride=2), 3, 6, {"3 sliding_window": 3}),
    (table() | lz.group_by(lambda x: x // 5), 3, 1, {"2 group_by": 1}),
    (table() | lz.token_batch(40, key=lambda x: x), 1, 1, {"2 token_batch": 1}),
    (table() | lz.dedupe(lambda x: x, window=4), 15, 7, {"2 dedupe": 7}),
    (
        table()
        | lz.dedupe_bloom(hash, FOLDER, capacity=99, false_positive_rate=1e-9, block_size=4),
        15,
        3,
        {"2 dedupe_bloom": 3},
    ),
    (table() | lz.take_tokens(99, key=lambda x: 1), 3, 0, {}),
    (table() | lz.hash_range(0, 0.5, seed=0), 3, 0, {}),
    (table() | lz.bucket_batch(2, key=None, window_size=8, seed=0), 5, 8, {"2 bucket_batch": 8}),
    (table() | lz.bucket_batch(2, key=None, window_size=8, seed=0), 4, 0, {}),
    (table() | lz.shuffle(6, seed=0), 9, 0, {}),
    (table() | lz.batch(1) | lz.shuffle(6, seed=0), 0, 0, {}),
    (stream() | lz.shuffle(6, seed=0), 9, 15, {"2 shuffle": 15}),
    (stream() | lz.block_shuffle(5, seed=0), 7, 10, {"1 source": 5, "2 block_shuffle": 5}),
    (table() | lz.block_shuffle(5, seed=0), 7, 0, {}),
    (table() | lz.local_shuffle(2, seed=0, block_size=5), 7, 0, {}),
    (THREE | lz.concat_then_split(4), 2, 1, {"3 concat_then_split": 1}),
    (THREE | lz.concat_then_split(4), 3, 0, {}),
    (
        table() | lz.interleave_map(lambda x: [x] * 4, cycle_length=3),
        5,
        3,
        {"2 interleave_map": 3},
    ),
    (lz.zip(table(), stream()), 7, 7, {"1[1].1 source": 7}),
    (
        lz.interleave(table(), stream() | lz.batch(2)) | lz.shuffle(4, seed=0) | lz.take(9),
        0,
        0,
        {},
    ),
    (
        lz.mix([stream(), table() | TWICE], [1, 1], deterministic=True),
        9,
        6,
        {"1[0].1 source": 5, "1[1].2 flat_map": 1},
    ),
    (lz.concat(table(), stream()), 70, 10, {"1[1].1 source": 10}),
    (
        lz.lanes([stream(), table(), stream(), table() | TWICE], num_shards=2, index=0),
        6,
        6,
        {"1[0].1 source": 3, "1[2].1 source": 3},
    ),
]  # fmt: skip


def named(value: Any) -> str:
    """A test's name, the same in each process."""
    return str(value).replace(FOLDER, "folder")


@pytest.mark.parametrize(("pipeline", "n", "items", "stages"), EXACT, ids=named)
def test_what_is_said_is_what_is_read(
    pipeline: Any, n: int, items: float, stages: dict[str, float]
) -> None:
    state = lz.state_at(pipeline, n)
    cost = lz.resume_cost(pipeline, state.to_json())
    assert {f"{each.stage} {each.name}": each.items for each in cost.stages} == stages
    assert cost.items == items == again(pipeline, n)


def test_behind_stages_that_leave_out_or_add_only_reading_tells() -> None:
    pipeline = table() | lz.filter(lambda x: x % 3) | TWICE | lz.shuffle(6, seed=0) | lz.batch(2)
    cost = lz.resume_cost(pipeline, lz.state_at(pipeline, 10))
    assert cost.items == math.inf
    assert cost.stages == (lz.types.StageCost("4", "shuffle", 26),)
    assert str(cost).split("\n") == [
        "re-reads an unknown number of items of the sources",
        "stage 4, shuffle: re-reads 26 items",
    ]


def test_it_reads_no_data_and_is_a_value() -> None:
    data = Table(N)
    pipeline = lz.source(data) | TWICE | lz.shuffle(6, seed=0)
    state = lz.state_at(pipeline, 20)
    data.pulled = 0
    cost = lz.resume_cost(pipeline, state)
    assert data.pulled == 0
    assert cost == lz.resume_cost(pipeline, state)
    assert hash(cost) == hash(lz.resume_cost(pipeline, state))
    assert (
        eval(
            repr(cost),
            {"ResumeCost": lz.types.ResumeCost, "StageCost": lz.types.StageCost, "inf": math.inf},
        )
        == cost
    )


def test_bad_states_are_refused() -> None:
    pipeline = table() | lz.batch(2)
    for bad in (None, "", lz.init(stream()), {}):
        with pytest.raises(lz.InvalidState):
            lz.resume_cost(pipeline, bad)  # type: ignore[arg-type]
    with pytest.raises(lz.InvalidState):
        lz.resume_cost(pipeline, lz.State(pipeline.entries, 3, (0, 99)))
