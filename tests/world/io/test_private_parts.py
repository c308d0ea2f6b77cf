"""Private parts of `datasets` that `lazyckpt.io` uses: gone or changed, they are named here."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import iterable_dataset
from datasets.packaged_modules.json.json import JsonConfig
from datasets.packaged_modules.parquet.parquet import ParquetConfig
from datasets.table import list_table_cache_files

from lazyckpt.io import huggingface
from tests.world.io.test_huggingface import loaded, quiet, streamed  # noqa: F401


def test_a_data_set_has_its_fingerprint_indices_and_files() -> None:
    """`DatasetRows`."""
    plain: Any = loaded("parquet")
    assert isinstance(plain._fingerprint, str)
    assert plain._fingerprint != plain.select([0, 2])._fingerprint
    assert plain._indices is None
    shuffled = plain.shuffle(seed=0)
    assert [row["n"] for row in shuffled] == shuffled._indices.column(0).to_pylist()
    assert [Path(path).suffix for path in list_table_cache_files(plain.data)] == [".arrow"]
    assert plain.__getitems__([3, 1]) == [plain[3], plain[1]]


@pytest.mark.parametrize(
    ("kind", "files", "config"),
    [("parquet", "files", ParquetConfig), ("jsonl", "original_files", JsonConfig)],
)
def test_a_stream_knows_what_it_reads(kind: str, files: str, config: Any) -> None:
    """`_own_files`."""
    stream: Any = streamed(kind)
    assert (stream._formatting, stream._distributed) == (None, None)
    made = stream._ex_iterable
    assert type(made).__name__ == "ArrowExamplesIterable"
    builder = made.generate_tables_fn.__self__
    assert type(builder).__name__ == {"parquet": "Parquet", "jsonl": "Json"}[kind]
    assert isinstance(builder.config, config)
    names = {"parquet": ["filters", "features", "columns"], "jsonl": ["field", "features", "encoding"]}  # fmt: skip  # noqa: E501
    assert {*names[kind]} <= {*vars(config())}
    assert [Path(str(path)).name for path in made.kwargs[files]] == [f"{n}.{kind}" for n in range(3)]  # fmt: skip  # noqa: E501


def test_a_stream_is_made_of_stages_with_states() -> None:
    """`_Live`, `_apart` and `_stages`."""
    stream: Any = streamed().map(lambda row: row)
    assert hasattr(stream._ex_iterable, "ex_iterable")
    both: Any = datasets.concatenate_datasets([stream, streamed()])
    assert len(both._ex_iterable.ex_iterables) == 2
    given = [*inspect.signature(datasets.IterableDataset).parameters]
    assert given[0] == "ex_iterable"
    assert {"info", "split", "formatting", "distributed", "token_per_repo_id"} < {*given}
    assert isinstance(stream._token_per_repo_id, dict)
    iterator = iter(stream)
    next(iterator)
    state = json.loads(json.dumps(stream.state_dict()))
    again: Any = streamed().map(lambda row: row)
    again.load_state_dict(state)
    assert [row["n"] for row in again] == list(range(1, 11))


@pytest.mark.parametrize("name", sorted(huggingface.EXACT))
def test_a_stage_that_is_known_is_there(name: str) -> None:
    assert inspect.isclass(getattr(iterable_dataset, name))


@pytest.mark.parametrize("name", ["Formatted", "Mapped"])
def test_a_stage_of_tables_says_so(name: str) -> None:
    """`_is_exact`."""
    stage = getattr(iterable_dataset, f"{name}ExamplesIterable")
    assert "formatting" in inspect.signature(stage).parameters
    assert name == "Formatted" or "batched" in inspect.signature(stage).parameters
    assert isinstance(iterable_dataset.FormattingConfig.is_table, property)
