"""Frames and series of pandas, polars and pyarrow as sources."""

from __future__ import annotations

import datetime
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest

import lazyckpt as lz
from lazyckpt.testing import check_pipeline, equal
from lazyckpt.testing.traces import modes
from tests.helpers import traced

COLUMNS: dict[str, list[Any]] = {
    "small": [np.int8(i) for i in range(7)],
    "float": [np.float32(i) / 2 for i in range(7)],
    "flag": [np.bool_(i % 2) for i in range(7)],
    "text": list("abcdefg"),
}
PYTHON: dict[str, list[Any]] = {
    "time": [datetime.datetime(2020, 1, 1 + i) for i in range(7)],
    "price": [Decimal(i) for i in range(7)],
    "many": [[i, i + 1] for i in range(7)],
    "gaps": [None, *range(6)],
    "words": ["a", None, "b", "c", "", "d", "e"],
}
ROWS = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
TABLE = pyarrow.table(
    {name: pyarrow.array(values) for name, values in COLUMNS.items() if name != "flag"}
    | {"flag": pyarrow.array([bool(each) for each in COLUMNS["flag"]])}
).select([*COLUMNS])
CHUNKED = pyarrow.concat_tables([TABLE.slice(0, 2), TABLE.slice(2, 0), TABLE.slice(2)])
PANDAS = pandas.DataFrame(
    {name: np.array(values) if name != "text" else values for name, values in COLUMNS.items()},
    index=range(7, 0, -1),
)
POLARS: Any = polars.from_arrow(CHUNKED)

FRAMES: dict[str, Any] = {
    "pandas": PANDAS,
    "pandas of arrow": TABLE.to_pandas(types_mapper=pandas.ArrowDtype),
    "polars": POLARS,
    "table": CHUNKED,
    "record batch": TABLE.combine_chunks().to_batches()[0],
}
STACK = lz.batch(3, collate=lz.stack)


def rows(frame: str) -> list[dict[str, Any]]:
    """The rows of a frame: extension arrays return values of their own."""
    if frame != "pandas of arrow":
        return ROWS
    return [{name: each.item() if name != "text" else each for name, each in row.items()}
            for row in ROWS]  # fmt: skip


@pytest.mark.parametrize("frame", FRAMES)
def test_rows_are_dicts_by_place(frame: str) -> None:
    pipeline, expected = lz.source(FRAMES[frame]), rows(frame)
    assert equal(list(pipeline), expected)
    assert equal([pipeline[i] for i in range(-7, 0)], expected)
    assert len(pipeline) == 7
    order = list(lz.source(range(7)) | lz.shuffle(seed=3))
    assert equal(list(pipeline | lz.shuffle(seed=3)), [expected[i] for i in order])
    assert equal(list(pipeline | lz.batch(4))[1], expected[4:])
    assert equal(list(lz.run(pipeline, on_error="skip")), expected)
    assert equal(list(lz.run(pipeline | lz.map(dict), executor=lz.processes(1))), expected)


@pytest.mark.parametrize("frame", FRAMES)
def test_batches_are_columns_of_their_own_kind(frame: str) -> None:
    pipeline = lz.source(FRAMES[frame])
    for stages in (STACK, lz.filter(lambda row: row["small"] >= 0) | STACK):
        first = next(iter(pipeline | stages))
        assert equal(first, lz.stack(rows(frame)[:3]))
        for values in first.values():
            assert isinstance(values, list) or values.flags.writeable
    if frame != "pandas of arrow":
        assert [first[name].dtype for name in ("small", "float", "flag")] == ["i1", "f4", "?"]
    (shuffled,) = pipeline | lz.shuffle(seed=0) | lz.batch(7, collate=lz.stack)
    assert shuffled["text"] == [row["text"] for row in pipeline | lz.shuffle(seed=0)]


@pytest.mark.parametrize("tail", [lz.take(7), lz.shuffle(seed=0), lz.repeat(2), lz.batch(2), STACK])
@pytest.mark.parametrize("frame", FRAMES)
def test_laws_over_frames(frame: str, tail: lz.Stage[Any, Any]) -> None:
    check_pipeline(lz.source(FRAMES[frame]) | tail, limit=20, model=False)


@pytest.mark.parametrize("name", [*COLUMNS, *PYTHON])
@pytest.mark.parametrize(
    "series",
    [
        lambda name, values: pandas.Series(values, index=range(7, 0, -1)),
        lambda name, values: polars.Series(values),
        lambda name, values: pyarrow.chunked_array([values[:3], values[3:]]),
        lambda name, values: pyarrow.array(values),
    ],
    ids=["pandas", "polars", "chunked array", "array"],
)
def test_a_series_by_place(series: Callable[..., Any], name: str) -> None:
    values = {**COLUMNS, **PYTHON}[name]
    data = series(name, [each.item() if hasattr(each, "item") else each for each in values])
    order = list(lz.source(range(7)) | lz.shuffle(seed=1))
    pipeline = lz.source(data)
    found = list(pipeline)
    assert [None if each != each else each for each in found] == values
    assert equal(list(pipeline | lz.shuffle(seed=1)), [found[i] for i in order])
    assert equal([pipeline[i] for i in range(7)], found)
    assert equal([item for some in pipeline | lz.batch(3) for item in some], found)
    if name in COLUMNS:  # which can be stacked
        modes(pipeline, 9)


def test_many_rows_in_blocks() -> None:
    frame = pandas.DataFrame({"x": np.arange(1000)})
    pipeline = lz.source(frame)
    run = lz.run(pipeline)
    for number, row in enumerate(run):
        assert row == {"x": number}
        if number % 97 == 0:
            state = run.state
            assert state.position == (0, number + 1)
            assert [row["x"] for row in lz.run(pipeline, state)] == [*range(number + 1, 1000)]


BIG = np.arange(1 << 21)  # of 16 MiB


@pytest.mark.parametrize(
    "frame",
    [pandas.DataFrame({"x": BIG}), polars.DataFrame({"x": BIG}), pyarrow.table({"x": BIG})],
    ids=["pandas", "polars", "table"],
)
def test_no_frame_is_copied(frame: Any) -> None:
    list(lz.source(FRAMES["table"]) | STACK)  # the first use imports modules
    with traced():
        allocated = pyarrow.total_allocated_bytes()
        pipeline = lz.source(frame) | lz.shuffle(seed=0) | lz.batch(64, collate=lz.stack)
        assert len(pipeline[9]["x"]) == 64
        assert sorted(row["x"] for row in lz.source(frame)[7:300]) == [*range(7, 300)]
        peak = tracemalloc.get_traced_memory()[1] + pyarrow.total_allocated_bytes() - allocated
    assert peak < BIG.nbytes / 8


def test_frames_on_the_left_of_a_bar() -> None:
    for data in (PANDAS, PANDAS["text"], POLARS, TABLE, TABLE["text"]):
        pipeline = data | lz.batch(2)
        assert isinstance(pipeline, lz.Pipeline)
        assert pipeline == lz.source(data) | lz.batch(2)
        assert pipeline == lz.batch(2)(data)


def test_frames_that_are_no_source(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(TABLE, path)
    twice = pyarrow.Table.from_arrays([pyarrow.array([1])] * 2, ["x", "x"])
    cases: list[tuple[Any, str]] = [
        (pyarrow.parquet.ParquetFile(path), r"pass \.read\(\) of it, or read its row groups"),
        (pyarrow.dataset.dataset(path), r"pass \.to_table\(\) of it"),
        (POLARS.lazy(), r"pass \.collect\(\) of it"),
        (twice, r"distinct names: \['x', 'x'\]"),
        (pandas.DataFrame(index=[1, 2]), "at least one column"),
        (None, "does a function that makes it lack a return"),
    ]
    for data, remedy in cases:
        with pytest.raises(lz.ArgumentError, match=remedy):
            lz.source(data)
    groups = lz.source(range(1)) | lz.flat_map(
        lambda group: lz.source(pyarrow.parquet.ParquetFile(path).read_row_group(group))
    )
    assert equal(list(groups), ROWS)


def test_a_frame_that_grows() -> None:
    frame = PANDAS.copy()
    pipeline = lz.source(frame)
    frame.loc[99] = [1, 2, True, "z"]
    with pytest.raises(lz.SourceChanged, match=r"had 7 items .* have 8"):
        list(pipeline)


def test_no_package_is_imported_for_it() -> None:
    code = "import sys, lazyckpt as lz; list(lz.source([1])); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pandas", "polars", "pyarrow"} & {*done.stdout.split()}
