"""`read_dataset`, `stream_dataset`: datasets of Hugging Face's `datasets`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.unfold import unfold
from lazyckpt.core.checks import brief
from lazyckpt.core.frames import kinds
from lazyckpt.core.values import cached_property
from lazyckpt.errors import ArgumentError
from lazyckpt.io.files import Files
from lazyckpt.io.parquet import read_parquet
from lazyckpt.io.rows import Rows
from lazyckpt.io.storage import RowOrigin, optional_module, storage_of
from lazyckpt.io.text import read_jsonl
from lazyckpt.pipeline import Pipeline

EXACT = {  # stages whose states are tested to be exact
    "ExamplesIterable",
    "ArrowExamplesIterable",
    "RebatchedArrowExamplesIterable",
    "SelectColumnsIterable",
    "StepExamplesIterable",
    "CyclingMultiSourcesExamplesIterable",
    "RandomlyCyclingMultiSourcesExamplesIterable",
    "VerticallyConcatenatedMultiSourcesExamplesIterable",
    "HorizontallyConcatenatedMultiSourcesExamplesIterable",
    "MappedExamplesIterable",
    "FilteredExamplesIterable",
    "SkipExamplesIterable",
    "TakeExamplesIterable",
    "RepeatExamplesIterable",
    "FormattedExamplesIterable",
}
_MOST_OPEN = 8  # streams that stay open between steps


class DatasetRows(Rows[Any]):
    """The rows of a map-style dataset, read by its own `__getitems__`."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        tables = optional_module("datasets.table", "datasets", "read_dataset")
        paths = tables.list_table_cache_files(dataset.data)  # without files of indices
        files = Files(storage_of(path).stat(path) for path in paths)
        super().__init__("read_dataset", files, [len(dataset)], {"dataset": self.fingerprint})

    @property
    def fingerprint(self) -> str:
        """The identity that `datasets` computes from the files and functions of the dataset."""
        return str(self.dataset._fingerprint)

    @property
    def source_identity(self) -> dict[str, Any]:
        return {"files": len(self.files), "digest": self.fingerprint}

    def read_rows(self, number: int, records: Sequence[int]) -> list[Any]:
        return list(self.dataset.__getitems__([int(record) for record in records]))

    def locate(self, index: int) -> RowOrigin | None:  # type: ignore[override]
        """Return the file of a row and its number there; None for rows in memory."""
        _, row = self._find(index)
        (number,), (record,) = self.locate_many(np.array([row]))
        return None if number < 0 else self.files[number].record_origin(int(record))

    def locate_many(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the file numbers of rows, -1 for rows in memory, and the row numbers in the files.

        Args:
            indices: Numbers of rows, of shape `(n,)`.
        """
        if self.dataset._indices is not None:
            indices = np.asarray(self.dataset._indices.column(0).take(indices), np.int64)
        edges = np.asarray(self._edges)
        numbers = np.searchsorted(edges, indices, side="right") - 1
        is_known = numbers < len(edges) - 1
        records = np.where(is_known, indices - edges[numbers], -1)
        return np.where(is_known, numbers, -1), records

    @cached_property
    def _edges(self) -> list[int]:
        """The numbers of the first rows of each file, and the end of the last."""
        arrow = optional_module("pyarrow", "datasets", "read_dataset")
        sizes = []
        for file in self.files:
            with arrow.memory_map(file.path) as source, arrow.ipc.open_stream(source) as reader:
                sizes.append(sum(batch.num_rows for batch in reader))
        is_whole = sum(sizes) == self.dataset.data.num_rows
        return [0, *accumulate(sizes)] if is_whole else [0]

    def __repr__(self) -> str:
        return f"read_dataset(<Dataset of {len(self):,} rows, {self.fingerprint}>)"


def read_dataset(dataset: Any) -> Rows[Any]:
    """Read the rows of a dataset of Hugging Face's `datasets`, by number.

    A map-style dataset is read by its own `__getitems__`, in its own format. If a streaming dataset
    yields files of Parquet or JSON lines unchanged, `read_parquet` or `read_jsonl` reads those
    files, with random access. Rows then have the values of these readers: fields that a line lacks
    are not filled in. Use `stream_dataset` for all other datasets.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        dataset: A `datasets.Dataset`, or an `IterableDataset` returned by
            `load_dataset(..., streaming=True)` for files of Parquet or JSON lines.

    Raises:
        ArgumentError: If it is not such a dataset, or streams something else.
        RecordError: If a file is damaged.

    State:
        The epoch, a count of rows, and the fingerprint that `datasets` computes or the number of
        files and their digest.

    Resume:
        Re-reads nothing, or one row group of Parquet.

    Memory:
        About 256 rows at a time; the files are memory-mapped. For a stream, as in `read_parquet` or
        `read_jsonl`.

    >>> import datasets
    >>> import lazyckpt as lz
    >>> words = datasets.Dataset.from_dict({"word": ["to", "be"]})
    >>> list(lz.io.read_dataset(words))
    [{'word': 'to'}, {'word': 'be'}]
    """
    if "datasets.Dataset" in kinds(dataset):
        return DatasetRows(dataset)
    if "datasets.IterableDataset" not in kinds(dataset):
        raise ArgumentError(
            "read_dataset: dataset must be a Dataset or an IterableDataset of datasets, got "
            f"{brief(dataset)} ({type(dataset).__name__}); from a DatasetDict choose a split"
        )
    if (found := _own_files(dataset)) is not None:
        return found
    raise ArgumentError(
        "read_dataset: this IterableDataset is not a plain stream of Parquet or JSON lines, and "
        "only those have random access; load it without streaming, or use stream_dataset(dataset)"
    )


def _own_files(dataset: Any) -> Rows[Any] | None:
    """Return a reader of the files that a dataset streams unchanged; None for any other dataset."""
    stream = dataset._ex_iterable
    builder = getattr(getattr(stream, "generate_tables_fn", None), "__self__", None)
    is_plain = type(stream).__name__ == "ArrowExamplesIterable"
    if builder is None or not is_plain or dataset._formatting or dataset._distributed:
        return None
    config, given = builder.config, stream.kwargs
    usual = type(config)()
    kind = type(builder).__name__
    names = {"Parquet": ["filters", "features"], "Json": ["field", "features", "encoding"]}
    others = names.get(kind)
    if others is None or any(getattr(config, n) != getattr(usual, n) for n in others):
        return None
    if kind == "Json":
        return read_jsonl(_listed(given["original_files"]))
    if any(groups is not None for groups in given.get("row_groups_list", [])):
        return None
    return read_parquet(_listed(given["files"]), columns=config.columns)


def _listed(paths: Sequence[str]) -> Files:
    return Files(storage_of(str(path)).stat(str(path)) for path in paths)


def _apart(stream: Any) -> Any:
    """Copy a stream with its stages, because the stages hold their states."""
    made = copy(stream)
    if hasattr(made, "ex_iterable"):
        made.ex_iterable = _apart(made.ex_iterable)
    if hasattr(made, "ex_iterables"):
        made.ex_iterables = [_apart(each) for each in made.ex_iterables]
    return made


def _opened(dataset: Any, state: dict[str, Any] | None) -> tuple[Any, Iterator[Any]]:
    """Return an independent copy of a dataset, and its examples from a state on."""
    made = type(dataset)(
        _apart(dataset._ex_iterable),
        info=dataset.info,
        split=dataset.split,
        formatting=dataset._formatting,
        distributed=dataset._distributed,
        token_per_repo_id=dataset._token_per_repo_id,
    )
    made.set_epoch(int(dataset.epoch))
    if state is not None:
        made.load_state_dict(state)
    return made, iter(made)


class _Streaming:
    """The step function of `unfold` for a dataset; streams stay open at their last position."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._open: dict[str, Any] = {}  # by their states

    def __call__(self, state: dict[str, Any] | None) -> tuple[dict[str, Any], Any] | None:
        dataset, items = self._open.pop(json.dumps(state), None) or _opened(self.dataset, state)
        for item in items:
            after: dict[str, Any] = dataset.state_dict()
            self._open = dict([*self._open.items()][1 - _MOST_OPEN :])
            self._open[json.dumps(after)] = dataset, items
            return after, item
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return _Streaming, (self.dataset,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Streaming) and self.dataset is other.dataset

    def __hash__(self) -> int:
        return id(self.dataset)

    def __repr__(self) -> str:
        return f"stream_dataset(<IterableDataset of {self.dataset.num_shards} shards>)"


def stream_dataset(dataset: Any) -> Pipeline[Any]:
    """Stream the examples of an `IterableDataset` of Hugging Face's `datasets`, by its own state.

    Use it for datasets without random access; use `read_dataset` if it accepts the dataset.
    Resuming is exact for `map`, `filter`, `take`, `skip`, `repeat`, `select_columns`,
    `interleave_datasets`, `concatenate_datasets` and formats. Each epoch is the same. The state has
    a few hundred bytes, in the layout of one version of `datasets`.

    Args:
        dataset: The dataset; it must yield the same examples each time it is read.

    Returns:
        A pipeline of the dataset alone.

    Raises:
        ArgumentError: If it is not an `IterableDataset`, or if a stage of it is not exact:
            `shuffle`, whose buffer `datasets` loses, or a batched `map` of tables.

    State:
        The epoch, a count of examples, and the state of `datasets`. After a resume, that state may
        differ at the same position.

    Resume:
        Re-reads from the position in the state of `datasets`: part of the current file or row
        group, in batches.

    Random access:
        No.

    Rank-invariant:
        No.

    >>> import datasets
    >>> import lazyckpt as lz
    >>> words = datasets.Dataset.from_dict({"word": ["to", "be", "or"]}).to_iterable_dataset()
    >>> pipeline = lz.io.stream_dataset(words) | lz.batch(2)
    >>> state, _ = lz.step(pipeline, lz.init(pipeline))
    >>> list(lz.run(pipeline, state.to_json()))
    [[{'word': 'or'}]]
    """
    if "datasets.IterableDataset" not in kinds(dataset):
        raise ArgumentError(
            "stream_dataset: dataset must be an IterableDataset of datasets, got "
            f"{brief(dataset)} ({type(dataset).__name__}); read_dataset reads map-style datasets"
        )
    for stage in _stages(dataset._ex_iterable):
        if not _is_exact(stage):
            raise ArgumentError(
                f"stream_dataset: the state that datasets has of {type(stage).__name__} is not "
                "exact; use shuffle(buffer_size, seed=...) of lazyckpt instead, and for a batched "
                "map of tables its map"
            )
    return unfold(_Streaming(dataset), None)


def _stages(stream: Any) -> Iterator[Any]:
    """Yield a stream and the streams inside it."""
    yield stream
    for each in [getattr(stream, "ex_iterable", None), *getattr(stream, "ex_iterables", [])]:
        if each is not None:
            yield from _stages(each)


def _is_exact(stage: Any) -> bool:
    """Return whether the state of a stage is exact; `datasets` may lose one batch of tables."""
    is_table = getattr(getattr(stage, "formatting", None), "is_table", False)
    is_mapped_table = is_table and getattr(stage, "batched", False)
    return type(stage).__name__ in EXACT and not is_mapped_table
