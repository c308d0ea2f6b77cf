"""Rows that are decoded many at once: a bounded number of decoded groups is kept."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.batch import stack
from lazyckpt.core.prng import Indices
from lazyckpt.errors import ArgumentError, SourceChanged, StorageError
from lazyckpt.io.columns import Columns, columns_of, joined, row, rows
from lazyckpt.io.files import Files
from lazyckpt.io.index import Index
from lazyckpt.io.lru_cache import LRUCache
from lazyckpt.io.rows import RecordError, Rows
from lazyckpt.io.schemas import common_type, schema_digest
from lazyckpt.io.storage import File, optional_module, storage_of, unreadable

CACHE_BYTES = 1 << 28

_FEW = 256  # rows of a group that are made at once, in order


class Group(NamedTuple):
    """Rows of a file that are decoded together.

    - `number`: what the file calls it
    - `size`: how many rows
    - `start`, `stop`: the bytes that it takes
    """

    number: int
    size: int
    start: int
    stop: int


def group_entries(groups: Sequence[Group], schema: Any) -> NDArray[np.uint64]:
    """What an index has of a file: its groups, and behind them a digest of its schema."""
    return np.array([*groups, Group(0, 0, schema_digest(schema), 0)], np.uint64)


def footer_sum(file: File, magic: int) -> int:
    """The checksum of a footer; its length stands before it, and `magic` bytes behind that."""
    storage, end = storage_of(file.path), file.size - magic - 4
    length = int.from_bytes(storage.read(file, end, end + 4), "little")
    return zlib.crc32(storage.read(file, max(0, end - length), end))


class _Decoded(NamedTuple):
    """A group's columns, and the bytes they take; or why there are none."""

    columns: Columns | None
    size: int
    error: RecordError | None = None


def _size(table: Any) -> int:
    """How many bytes a table takes."""
    try:
        return int(table.nbytes)
    except TypeError:  # of views, in pyarrow 18
        return int(table.get_total_buffer_size())


def _stacked(
    values: NDArray[Any] | list[Any], places: NDArray[np.int64] | None, is_text: bool
) -> Any:
    """A column of a batch, of its values in the order of `places`."""
    if isinstance(values, np.ndarray):
        return values if places is None else values[places]
    if places is not None:
        values = [values[place] for place in places.tolist()]
    return values if is_text or {*map(type, values)} <= {str} else stack(values)


def _stacked_parts(
    parts: Sequence[tuple[Columns, Indices]], places: NDArray[np.int64] | None
) -> dict[str, Any]:
    """A batch of some rows of each group, in the order of `places`."""
    found = {}
    for name in parts[0][0]:
        taken = [columns[name].take(some) for columns, some in parts]
        is_text = all(columns[name].is_text for columns, _ in parts)
        found[name] = _stacked(joined(taken) if len(taken) > 1 else taken[0], places, is_text)
    return found


class GroupedRows(Rows[dict[str, Any]]):
    """Rows as dicts, of files whose rows are decoded in groups. A subclass decodes one.

    Args:
        reader: The reader's name.
        files: The files.
        index: Of each file its groups: number, rows, and where it starts and stops.
        cache_bytes: How many bytes of decoded groups are kept.
        arguments: As of `Rows`.
    """

    def __init__(
        self,
        reader: str,
        files: Files,
        index: Index,
        cache_bytes: int,
        arguments: Mapping[str, Any],
    ) -> None:
        self.row_index = index
        found = [index.entries(n).reshape(-1, 4).astype(np.int64) for n in range(len(files))]
        self._digests = [int(groups[-1, 2]) if len(groups) else 0 for groups in found]
        self._groups = [groups[groups[:, 1] > 0] for groups in found]
        self._types: dict[str, Any] = {}  # of columns that have several
        self._edges = [[0, *np.cumsum(groups[:, 1]).tolist()] for groups in self._groups]
        self._cache = LRUCache[_Decoded](cache_bytes)
        super().__init__(reader, files, [edges[-1] for edges in self._edges], arguments)
        self.sums = index.sums.tolist()

    def decode(self, number: int, group: Group) -> Any:
        """The table of a group of file `number`, as pyarrow has it."""
        raise NotImplementedError

    def schema(self, number: int) -> Any:
        """The columns of file `number`, as pyarrow has it."""
        raise NotImplementedError

    def unify(self, names: Sequence[str]) -> None:
        """Find the types that columns have in all files; an error names two that don't fit."""
        firsts: dict[int, int] = {}
        for number, digest in enumerate(self._digests):
            firsts.setdefault(digest, number)
        types: dict[str, Any] = {}
        for number in firsts.values():
            schema, path = self.schema(number), self.files[number].path
            for name in names:
                if (count := schema.names.count(name)) != 1:
                    reason = f"has {count} columns {name!r}" if count else f"has no column {name!r}"
                    where = f", which {self.files[0].path} has" if number else ""
                    raise ArgumentError(f"{self.reader}: {path} {reason}{where}")
                kind = schema.field(name).type
                known = types.setdefault(name, kind)
                if (found := common_type(known, kind)) is None:
                    raise ArgumentError(
                        f"{self.reader}: {name!r} is {kind} in {path}, where files before, such as "
                        f"{self.files[0].path}, have {known}; convert one of them, or read them "
                        "apart"
                    )
                if found != known or found != kind:
                    types[name] = self._types[name] = found

    def _cast(self, table: Any) -> Any:
        """A table, with the types that its columns have in all files."""
        if not self._types:
            return table
        fields = [
            field.with_type(self._types.get(field.name, field.type)).with_nullable(True)
            for field in table.schema
        ]
        return table.cast(optional_module("pyarrow", "arrow", self.reader).schema(fields))

    @property
    def block_starts(self) -> NDArray[np.int64]:
        """The first row of each group."""
        pairs = zip(self._begins, self._edges, strict=False)
        return np.concatenate([np.array(edges[:-1], np.int64) + begin for begin, edges in pairs])

    def read_rows(self, number: int, records: Sequence[int]) -> list[dict[str, Any]]:
        if len(records) == 1:
            return [self._row(number, records[0])]
        parts: Sequence[tuple[Columns, Indices]]
        if isinstance(records, range):
            begin = self._begins[number]
            parts = self._spans(range(records.start + begin, records.stop + begin, records.step))
        else:
            parts = self._parts(number, np.asarray(records, np.int64))
        try:
            return [each for columns, places in parts for each in rows(columns, places)]
        except Exception:  # of one row
            return [self._row(number, record) for record in records]

    def _row(self, number: int, record: int) -> dict[str, Any]:
        place, begin = self._place(number, record)
        columns = self._columns(number, place)
        try:
            return row(columns, record - begin)
        except Exception as error:  # such as of bytes that are no text
            raise self.error(number, record, error) from error

    def read_block(self, number: int, record: int, budget: int) -> list[dict[str, Any]]:
        place, begin = self._place(number, record)
        end = self._edges[number][place + 1]
        stop = min(record + _FEW, end)
        found = rows(self._columns(number, place), range(record - begin, stop - begin))
        if stop == end:
            self._leave(number, place)
        return found

    def read_stacked(self, indices: Indices) -> dict[str, Any]:
        """Rows as `stack` makes them a batch, column by column."""
        places = None
        if isinstance(indices, range):  # which rises
            parts = self._spans(indices)
        else:
            parts, places = self._found(indices)
        try:
            return _stacked_parts(parts, places)
        except UnicodeDecodeError:
            for index in indices:  # one of them is named
                self[int(index)]
            raise

    def _found(
        self, indices: NDArray[np.int64]
    ) -> tuple[list[tuple[Columns, Indices]], NDArray[np.int64]]:
        """As `_spans`, of rows in any order, and where each of them is among those found."""
        order = np.argsort(indices, kind="stable")
        ascending = indices[order]
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        files = np.searchsorted(self._begins, ascending, side="right") - 1
        parts: list[tuple[Columns, Indices]] = [
            part
            for number in np.unique(files).tolist()
            for part in self._parts(number, ascending[files == number] - self._begins[number])
        ]
        return parts, places

    def _spans(self, indices: range) -> list[tuple[Columns, Indices]]:
        """The columns of each group that has some of these rows, and their places in it."""
        found: list[tuple[Columns, Indices]] = []
        while indices:
            number, record = self._find(indices[0])
            place, begin = self._place(number, record)
            count = -(-(self._edges[number][place + 1] - record) // indices.step)
            some, indices = indices[:count], indices[count:]
            shift = self._begins[number] + begin
            places = range(some.start - shift, some.stop - shift, some.step)
            found.append((self._columns(number, place), places))
            if places.stop + begin >= self._edges[number][place + 1]:
                self._leave(number, place)
        return found

    def _leave(self, number: int, place: int) -> None:
        self._cache.leave((number, place), len(self) / self.group(number, place).size)

    def span(self, number: int, record: int) -> tuple[int, int]:
        group = self.group(number, self._place(number, record)[0])
        return group.start, group.stop

    def group(self, number: int, place: int) -> Group:
        """One of a file's groups that have rows."""
        return Group(*self._groups[number][place].tolist())

    def _place(self, number: int, record: int) -> tuple[int, int]:
        """Which of a file's groups a record is in, and the first record of that."""
        edges = self._edges[number]
        place = bisect_right(edges, record) - 1
        return place, edges[place]

    def _parts(
        self, number: int, records: NDArray[np.int64]
    ) -> list[tuple[Columns, NDArray[np.int64]]]:
        """The columns of each group that has some of these records, and their places in it."""
        edges = self._edges[number]
        groups = np.searchsorted(edges, records, side="right") - 1
        found = []
        done = 0
        for place, some in groupby(groups.tolist()):
            end = done + sum(1 for _ in some)
            found.append((self._columns(number, place), records[done:end] - edges[place]))
            done = end
        return found

    def _columns(self, number: int, place: int) -> Columns:
        def decode() -> _Decoded:
            try:
                table = self._cast(self.decode(number, self.group(number, place)))
                return _Decoded(columns_of(table), _size(table))
            except (SourceChanged, StorageError):
                raise
            except Exception as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise unreadable(self.files[number], error) from error
                found = self.error(number, self._edges[number][place], error)
                if not isinstance(error, (ValueError, OSError)):
                    raise found from error  # such as of no memory
                found.__cause__ = error  # kept, or each row would decode what is damaged
                return _Decoded(None, 0, found)

        found = self._cache.get((number, place), decode)
        if found.columns is None:
            raise RecordError(str(found.error)) from found.error
        return found.columns

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_cache": self._cache.most}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _cache=LRUCache(state["_cache"]))
