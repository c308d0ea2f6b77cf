"""Shards: files that a list beside them names, each with a table of offsets at its front."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import brief
from lazyckpt.errors import ArgumentError
from lazyckpt.io.content import ContentScan
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.index import Scan
from lazyckpt.io.ranges import Options, Records
from lazyckpt.io.rows import RecordError
from lazyckpt.io.storage import File, storage_of

LIST = "index.json"  # what lists the shards of a folder

T = TypeVar("T", covariant=True)


class Shard(NamedTuple):
    """What a list says of a shard.

    - `names`: its file's name, and what it may have instead
    - `size`: how many records it has
    - `layout`: how a record is read, which all shards must have alike
    """

    names: tuple[str, ...]
    size: int
    layout: Any


class ShardScan(ContentScan):
    """Where records begin: a count, one offset more than that, and the records."""

    @property
    def name(self) -> str:
        return f"shard {self.compression}"

    def __call__(self, file: File) -> Iterator[NDArray[Any]]:
        content = self.content(file)
        head, passed, needed = b"", 0, 4  # bytes at the front, and how many of them there are
        for chunk in content.chunks(file):  # to its end: pieces are noted on the way
            passed += len(chunk)
            if len(head) < needed:
                head += chunk
                needed = 4 * (int(np.frombuffer(head, "<u4", 1)[0]) + 2) if len(head) > 3 else 4
        if len(head) < max(8, needed):
            raise RecordError(f"{file.path}: no shard, or it is cut: it has {passed:,} bytes")
        offsets = np.frombuffer(head, "<u4", needed // 4 - 1, 4).astype(np.int64)
        if (np.diff(offsets, prepend=needed, append=passed) < 0).any():
            raise RecordError(f"{file.path}: no shard, or it is cut: {passed:,} bytes lack records")
        yield offsets.astype(np.uint64)


class ShardRows(Records[T]):
    """Rows of shards, whose list says how many each has."""

    def __init__(
        self,
        files: Files,
        counts: Sequence[int],
        scan: Scan,
        options: Options,
        arguments: Mapping[str, Any],
    ) -> None:
        super().__init__(files, scan, options, arguments)
        self.arguments.pop("compression", None)  # it is the list's
        check_counts(files, self.row_index.counts.tolist(), counts)


def check_counts(files: Files, counts: Sequence[int], said: Sequence[int]) -> None:
    """Compare how many records shards have with what their list says."""
    for file, found, size in zip(files, counts, said, strict=True):
        if found != size:
            raise RecordError(f"{file.path}: {LIST} says {size:,} records, and it has {found:,}")


def shards(
    files: Any, reader: str, listed: Callable[[Any], list[Shard]]
) -> tuple[Files, list[int], Any]:
    """The shards that lists name, how many records each has, and the layout of all.

    Args:
        files: The lists, or patterns for them; shards that are listed too aren't looked for.
        reader: The reader's name.
        listed: What the JSON of a list says of its shards.
    """
    given = as_files(files, reader)
    known = {file.path: file for file in given}
    found: list[tuple[File, Shard]] = []
    for file in given:
        folder, _, name = file.path.rpartition("/")
        for shard in _shards(file, listed) if name == LIST else []:
            found.append((_file([f"{folder}/{each}" for each in shard.names], known), shard))
    if not found:
        raise ArgumentError(
            f"{reader}: files must be the {LIST} of folders, which list a shard, got {given!r}"
        )
    for file, shard in found:
        if shard.layout != found[0][1].layout:
            raise ArgumentError(
                f"{reader}: all shards must have one layout, got {brief(shard.layout)} of "
                f"{file.path}, and {brief(found[0][1].layout)} of {found[0][0].path}"
            )
    files, said = Files(file for file, _ in found), [shard for _, shard in found]
    return files, [shard.size for shard in said], said[0].layout


def _shards(file: File, listed: Callable[[Any], list[Shard]]) -> list[Shard]:
    try:
        return listed(json.loads(storage_of(file.path).read(file, 0, file.size)))
    except ArgumentError as error:
        raise ArgumentError(f"{error}, in {file.path}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{file.path}: no list of shards: {error!r}") from error


def _file(paths: list[str], known: Mapping[str, File]) -> File:
    """A shard's file: one that is listed, or else the first that is there."""
    *others, last = paths
    for path in others:
        with suppress(FileNotFoundError):
            return known.get(path) or storage_of(path).stat(path)
    return known.get(last) or storage_of(last).stat(last)
