"""Rows in an order of their own: many are read per call, and not many ahead."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.core import flow
from lazyckpt.io.rows import Rows
from tests.io.cases import written

N = 4_000


@pytest.fixture(scope="module")
def rows() -> Rows[Any]:
    half = N // 2
    contents = [[*range(half)], [*range(half, N)]]
    return lz.io.read_jsonl(written([lines(each) for each in contents], ".jsonl"))


def lines(items: Sequence[Any]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows read by each call."""
    found: list[int] = []
    one, many = Rows.__getitem__, Rows.__getitems__

    def read_one(self: Any, index: Any) -> Any:
        found.append(1)
        return one(self, index)

    def read_many(self: Any, indices: Any) -> Any:
        found.append(len(indices))
        return many(self, indices)

    monkeypatch.setattr(Rows, "__getitem__", read_one)
    monkeypatch.setattr(Rows, "__getitems__", read_many)
    return found


ORDERS = {
    "shuffle": lz.shuffle(seed=0),
    "gather": lz.gather([*range(N - 1, -1, -1)]),
    "local_shuffle": lz.local_shuffle(2, seed=0),
    "shard": lz.shuffle(seed=0) | lz.shard(num_shards=2, index=1),
    "map": lz.shuffle(seed=0) | lz.map(str),
    "filter": lz.shuffle(seed=0) | lz.filter(lambda item: item % 3),
}


@pytest.mark.parametrize("order", ORDERS)
def test_rows_are_read_many_at_once(
    order: str, rows: Rows[Any], reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "perf_counter", lambda: 0.0)  # each read is quick
    pipeline = lz.source(rows) | ORDERS[order]
    expected = list(pipeline | lz.batch(2) | lz.unbatch())
    if order != "local_shuffle":  # it reads the beginnings of a file's blocks
        assert expected == list(lz.source(range(N)) | ORDERS[order])
    reads.clear()
    assert list(pipeline) == expected
    assert len(reads) < sum(reads) / 8


@pytest.mark.parametrize("count", [1, 3, 10, 100, 1_000])
def test_a_quarter_more_is_read_at_most(count: int, rows: Rows[Any], reads: list[int]) -> None:
    run = lz.run(lz.source(rows) | lz.shuffle(seed=0))
    assert len([*islice(run, count)]) == count
    assert count <= sum(reads) <= 1.25 * count + 1


def test_rows_that_take_long_come_one_by_one(
    rows: Rows[Any], reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = Rows.__getitems__

    def slow(self: Any, indices: Any) -> Any:
        time.sleep(2e-3)
        return many(self, indices)

    monkeypatch.setattr(Rows, "__getitems__", slow)
    assert len([*islice(lz.source(rows) | lz.shuffle(seed=0), 30)]) == 30
    assert reads == [1] * 30


@pytest.mark.parametrize("place", [0, 1, 17, 64, 140])
def test_a_bad_row_fails_in_its_place(place: int) -> None:
    order = list(lz.source(range(150)) | lz.shuffle(seed=0))
    texts = [str(item).encode() for item in range(150)]
    texts[order[place]] = b"{"
    rows = lz.io.read_jsonl(written([b"\n".join(texts)], ".jsonl"))
    pipeline = lz.source(rows) | lz.shuffle(seed=0)
    run, found = lz.run(pipeline), []
    for _ in range(2):  # asked again, it is the same
        with pytest.raises(lz.io.RecordError):
            found.extend(run)
        assert found == order[:place]
        assert run.state == lz.state_at(pipeline, place)
    rest = lz.run(pipeline, lz.state_at(pipeline, place + 1))
    assert [*rest] == order[place + 1 :]
    lenient = lz.run(pipeline, on_error="skip")
    assert [*lenient] == order[:place] + order[place + 1 :]
    assert lenient.skipped == 1


class Own(list[int]):
    """A user's data set."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        raise AssertionError("many are asked for where a batch is made")


def test_a_users_own_code_runs_for_what_is_asked_for(rows: Rows[Any]) -> None:
    called: list[int] = []

    def noted(item: int) -> int:
        called.append(item)
        return item

    items: Iterator[int] = iter(lz.source(rows) | lz.map(noted) | lz.shuffle(seed=0))
    found = [*islice(items, 500)]
    assert called == found
    assert sorted(lz.source(Own(range(300))) | lz.shuffle(seed=0)) == [*range(300)]


def test_laws(rows: Rows[Any]) -> None:
    few = lz.source(rows) | lz.take(90)
    testing.check_pipeline(few | lz.shuffle(seed=1))
    testing.check_pipeline(few | lz.gather([*range(80, 0, -2)] * 2) | lz.enumerate())


def test_a_reader_that_gives_no_rows_where_there_are_some_is_an_error() -> None:
    class Empty(Rows[int]):
        def read_rows(self, number: int, records: Any) -> list[int]:
            return []

    rows = Empty("empty", written([b"a"], ".txt"), [2], {})
    with pytest.raises(lz.PipelineError, match=r"empty: .*000\.txt has no more rows"):
        list(rows)
