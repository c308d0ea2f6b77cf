"""Data sets of Hugging Face: rows by number, files of streams, and streams by their state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import datasets.distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch  # noqa: F401  (which datasets imports when it first streams)
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.testing import equal
from tests.io.cases import check_reader, folder

FEW = settings(max_examples=max(3, settings.default.max_examples // 20))
ROWS = [{"n": n, "t": f"t{n}"} for n in range(11)]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    datasets.disable_progress_bars()


def written(kind: str) -> list[str]:
    """Files of a kind, of five, five and one rows."""
    place = folder()
    for number, rows in enumerate((ROWS[:5], ROWS[5:10], ROWS[10:])):
        path = f"{place}/{number}.{kind}"
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
        else:
            Path(path).write_text("\n".join(map(json.dumps, rows)))
    return sorted(map(str, place.iterdir()))


def loaded(kind: str, **options: Any) -> Any:
    files = options.pop("data_files", None) or written(kind)
    name = "json" if kind == "jsonl" else kind
    return datasets.load_dataset(name, data_files=files, split="train", **options)


def streamed(kind: str = "parquet", **options: Any) -> Any:
    return loaded(kind, streaming=True, **options)


@FEW
@given(st.lists(st.tuples(st.integers(-9, 9), st.text(max_size=3) | st.none()), max_size=9))
def test_rows_in_memory_keep_all_laws(values: list[tuple[int, str | None]]) -> None:
    rows = [{"n": n, "t": t} for n, t in values]
    columns = {name: [row[name] for row in rows] for name in ("n", "t")}
    reader = lz.io.read_dataset(datasets.Dataset.from_dict(columns))
    assert [reader.locate(n) for n in range(len(rows))] == [None] * len(rows)
    unknown = np.full(len(rows), -1)
    assert equal(reader.locate_many(np.arange(len(rows))), (unknown, unknown))
    assert equal(list(reader), rows)
    testing.check_pipeline(lz.source(reader) | lz.shuffle(seed=1) | lz.batch(2), limit=6)


def test_rows_of_files_keep_all_laws() -> None:
    check_reader(lz.io.read_dataset(loaded("parquet")), ROWS)


def test_a_row_says_where_it_is() -> None:
    one, other = loaded("parquet"), loaded("jsonl")
    joined = datasets.concatenate_datasets([one, other]).shuffle(seed=0)
    reader = lz.io.read_dataset(joined)
    assert [each.path for each in reader.files] == [
        each["filename"] for source in (one, other) for each in source.cache_files
    ]
    for number, row in enumerate(joined):
        (found,) = lz.trace(lz.source(reader), number)
        assert found.row.record == row["n"]
    assert len({reader.locate(number).path for number in range(22)}) == 2
    files, records = reader.locate_many(np.arange(22))
    assert [(reader.paths[n], record) for n, record in zip(files, records, strict=True)] == [
        reader.locate(number)[:2] for number in range(22)
    ]


def test_formats_are_its_own() -> None:
    table = datasets.Dataset.from_dict({"x": [[1], [2, 3]]}).with_format("numpy")
    assert equal([row["x"] for row in lz.io.read_dataset(table)], [np.array([1]), np.array([2, 3])])


def test_a_state_knows_the_fingerprint() -> None:
    table = datasets.Dataset.from_dict({"x": [1, 2, 3]})
    state = lz.init(lz.source(lz.io.read_dataset(table)))
    lz.run(lz.source(lz.io.read_dataset(table)), state)
    with pytest.raises(lz.StateMismatch, match="digest"):
        lz.run(lz.source(lz.io.read_dataset(table.select([2, 1, 0]))), state)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_files_of_streams_have_random_access(kind: str) -> None:
    reader = lz.io.read_dataset(streamed(kind))
    assert [{**row, "n": int(row["n"])} for row in reader] == list(streamed(kind))
    (found,) = lz.trace(lz.source(reader), 10)
    assert (Path(found.row.path).name, found.row.record) == (f"2.{kind}", 0)
    assert len(reader | lz.shuffle(seed=0)) == 11


def test_columns_of_streams_are_read() -> None:
    reader = lz.io.read_dataset(streamed(columns=["t"]))
    assert reader[3] == {"t": "t3"}


OTHERS: dict[str, Callable[[], Any]] = {
    "mapped": lambda: streamed().map(dict),
    "formatted": lambda: streamed().with_format("numpy"),
    "filtered": lambda: streamed(filters=[("n", ">", 3)]),
    "field": lambda: streamed("jsonl", field="x"),
    "csv": lambda: streamed("csv", data_files=written("jsonl")),
    "generated": lambda: datasets.IterableDataset.from_generator(lambda: iter(ROWS)),
    "shard": lambda: datasets.distributed.split_dataset_by_node(streamed(), 0, 2),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_streams_are_refused(name: str) -> None:
    with pytest.raises(lz.ArgumentError, match=r"not a plain stream .*stream_dataset\(dat"):
        lz.io.read_dataset(OTHERS[name]())


def test_what_is_no_data_set_is_refused() -> None:
    with pytest.raises(lz.ArgumentError, match=r"from a DatasetDict choose a split"):
        lz.io.read_dataset(datasets.DatasetDict({"train": datasets.Dataset.from_dict({"x": [1]})}))
    with pytest.raises(lz.ArgumentError, match=r"read_dataset reads map-style datasets"):
        lz.io.stream_dataset(datasets.Dataset.from_dict({"x": [1]}))


def numbers(count: int, shards: int = 1) -> Any:
    table = datasets.Dataset.from_dict({"x": list(range(count)), "y": list(range(count))})
    return table.to_iterable_dataset(num_shards=shards)


def generated(limits: list[int]) -> Any:
    for limit in limits:
        for n in range(limit):
            yield {"x": n}


def paired(batch: Any) -> Any:
    return {"x": [x for x in batch["x"] for _ in range(2)]}


def is_odd(row: Any) -> bool:
    return bool(row["x"] % 2)


STREAMS: dict[str, Callable[[], Any]] = {
    "parquet": streamed,
    "jsonl": lambda: streamed("jsonl"),
    "shards": lambda: numbers(7, 3),
    "generator": lambda: datasets.IterableDataset.from_generator(
        generated, gen_kwargs={"limits": [3, 0, 4]}
    ),
    "map": lambda: numbers(5).map(lambda row: {"z": row["x"] + 1}),
    "batched": lambda: numbers(5, 2).map(paired, batched=True, batch_size=2, remove_columns="y"),
    "filter": lambda: numbers(9, 2).filter(is_odd),
    "both": lambda: streamed().map(lambda row: {"x": row["n"]}).filter(is_odd),
    "take": lambda: numbers(9, 2).take(5),
    "skip": lambda: numbers(9, 2).skip(4),
    "repeat": lambda: numbers(3).repeat(2),
    "columns": lambda: numbers(4).select_columns(["y"]),
    "renamed": lambda: numbers(4).rename_column("y", "z"),
    "numpy": lambda: streamed().with_format("numpy"),
    "arrow": lambda: numbers(5).with_format("arrow").map(lambda table: table),
    "batch": lambda: numbers(5).batch(2),
    "node": lambda: datasets.distributed.split_dataset_by_node(numbers(9, 3), 1, 2),
    "concatenated": lambda: datasets.concatenate_datasets([numbers(3), numbers(2)]),
    "interleaved": lambda: datasets.interleave_datasets([numbers(3), numbers(5)]),
    "mixed": lambda: datasets.interleave_datasets(
        [numbers(3), numbers(5)], probabilities=[0.4, 0.6], seed=1
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_resumed_exactly(name: str) -> None:
    stream = STREAMS[name]()
    expected = list(stream)
    assert expected
    pipeline = lz.io.stream_dataset(stream)
    assert equal(list(pipeline), expected)
    state = last = lz.init(pipeline)
    for number in range(len(expected)):
        again = lz.State.from_json(state.to_json())
        anew = lz.io.stream_dataset(stream)  # with nothing open
        assert equal(list(lz.run(anew, again, strict=False)), expected[number:]), number
        state, item = lz.step(pipeline, state)
        assert equal(item, expected[number])
        again, item = lz.step(anew, last)  # resumed from each state
        assert equal(item, expected[number])
        last = lz.State.from_json(again.to_json())
    with pytest.raises(lz.errors.Exhausted):
        lz.step(pipeline, state)


def test_streams_keep_all_laws() -> None:
    # its states don't say how it got there, like the states of Arrow tables
    pipeline = lz.io.stream_dataset(STREAMS["generator"]()) | lz.repeat(2) | lz.batch(2)
    testing.check_pipeline(pipeline, limit=6)


def test_streams_are_read_on_where_they_are_open() -> None:
    made = []

    def row(number: dict[str, Any]) -> dict[str, Any]:
        made.append(number["x"])
        return number

    run = lz.run(lz.io.stream_dataset(numbers(20).map(row)))
    for _ in range(20):
        next(run)
        run.state.to_json()
    assert made == list(range(20))


INEXACT: dict[str, Callable[[], Any]] = {
    "BufferShuffled": lambda: numbers(9).shuffle(seed=0, buffer_size=4).map(dict),
    "Mapped": lambda: numbers(9).with_format("arrow").map(lambda table: table, batched=True),
}


@pytest.mark.parametrize("name", INEXACT)
def test_what_is_not_exact_is_refused(name: str) -> None:
    with pytest.raises(lz.ArgumentError, match=f"state that datasets has of {name}Examples"):
        lz.io.stream_dataset(INEXACT[name]())


def test_executors_give_the_examples() -> None:
    pipeline = lz.io.stream_dataset(streamed()) | lz.map(lambda row: row["n"])
    with lz.run(pipeline, executor=lz.processes(2)) as run:
        assert list(run) == list(range(11))
