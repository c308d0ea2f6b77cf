"""Files as a value: listed once, with size and version."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.cached_property import cached_property
from lazyckpt.core.checks import at_least, brief, checked
from lazyckpt.errors import ArgumentError, InvalidState, StateMismatch
from lazyckpt.io.cache import write_whole
from lazyckpt.io.patterns import inode
from lazyckpt.io.range_cache import BLOCK, RangeCache
from lazyckpt.io.storage import File, difference, is_local, one_file, storage_of

CACHE_BYTES = 1 << 34

_FORMAT = 1


class Files(Sequence[File]):
    """A listing of files: an immutable sequence of `File`, compared by value.

    Made by `files`. A resume on a saved listing lists nothing again; a file that isn't what
    the listing says is an error that names it, when it is read.
    """

    def __init__(self, found: Iterable[File]) -> None:
        self._files = tuple(found)
        for file in self._files:
            if not isinstance(file, File):
                raise ArgumentError(
                    f"Files: it holds File, got {brief(file)}; lz.io.files(patterns) lists"
                )

    def __len__(self) -> int:
        return len(self._files)

    @overload
    def __getitem__(self, index: int) -> File: ...
    @overload
    def __getitem__(self, index: slice) -> Files: ...
    def __getitem__(self, index: int | slice) -> File | Files:
        """A file; or a listing of some of them."""
        found = self._files[index]
        return found if isinstance(found, File) else Files(found)

    def __iter__(self) -> Iterator[File]:
        return iter(self._files)

    def iter_blocks(self, start: int) -> Iterator[list[File]]:
        """The files from number `start` on, all at once."""
        yield list(self._files[start:])

    def locate(self, index: int) -> File:
        """Where what is made of a file comes from: the file."""
        return self._files[index]

    @property
    def paths(self) -> list[str]:
        """Their paths."""
        return [file.path for file in self._files]

    def locate_many(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The numbers of files, which they are themselves; -1 for rows of them.

        Args:
            indices: Numbers of files, of shape `(n,)`.
        """
        return indices, np.full(len(indices), -1)

    @property
    def source_identity(self) -> dict[str, Any]:
        """What a state has of it, beside the number of files."""
        return {"digest": self.digest}

    def first_files(self, count: Any) -> Files | None:
        """So many files alone; None if there are not so many."""
        return self[:count] if isinstance(count, int) and 0 <= count <= len(self) else None

    def __eq__(self, other: object) -> bool:
        return self._files == other._files if isinstance(other, Files) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._files)

    def __repr__(self) -> str:
        if not self._files:
            return "Files([])"
        more = f", and {len(self) - 1:,} more" if len(self) > 1 else ""
        return f"<Files {self._files[0].path}{more}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Files, (self._files,)

    @cached_property
    def root(self) -> str:
        """The folder that all files are in."""
        paths = [file.path for file in self._files]
        ends = zip(min(paths), max(paths), strict=False)  # what these have in common, all have
        common = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], ends))
        return common.rpartition("/")[0]

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits for names below `root`, order, sizes and versions."""
        skipped = len(self.root)
        names = [f"{f.path[skipped:]}\n{f.size}\n{f.version}\n" for f in self._files]
        text = "".join(names).encode("utf-8", "surrogateescape")
        return hashlib.blake2b(text, digest_size=8).hexdigest()

    def to_json(self) -> str:
        """The listing as one line of JSON."""
        rows = [[file.path, file.size, file.version] for file in self._files]
        return json.dumps({"lazyckpt_files": _FORMAT, "digest": self.digest, "files": rows})

    @staticmethod
    def from_json(text: str | bytes) -> Files:
        """The listing that `to_json` gave."""
        try:
            found = json.loads(text)
            made = Files(
                File(str(path), int(size), str(version)) for path, size, version in found["files"]
            )
            known = found["lazyckpt_files"], found["digest"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidState(f"not a listing of files: {brief(text)}: {error}") from None
        if known != (_FORMAT, made.digest):
            raise InvalidState(f"the listing is damaged, or of a newer format: {brief(text)}")
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the listing to a file: the whole of it, or nothing."""
        write_whole(os.fspath(path), f"{self.to_json()}\n".encode())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Files:
        """The listing that `save` wrote."""
        return Files.from_json(Path(path).read_bytes())

    def cached(self, cache_dir: str | os.PathLike[str], cache_bytes: int = CACHE_BYTES) -> Files:
        """The same files, parts of which are kept on this machine, as of `files`."""
        most = checked("files", "cache_bytes", cache_bytes, at_least(BLOCK))
        cache = RangeCache(os.path.abspath(os.fspath(cache_dir)), most)
        os.makedirs(cache.folder, exist_ok=True)
        return Files(replace(file, cache=cache) for file in self)

    def check(self, saved: Files) -> None:
        """Compare with a saved listing; a `StateMismatch` names the first file that differs."""
        if not isinstance(saved, Files):
            raise ArgumentError(
                f"files: a saved listing must be Files, as of Files.load(path), got {brief(saved)}"
            )
        if self == saved:
            return
        raise StateMismatch(f"the files are not those of the saved listing: {self._change(saved)}")

    def _change(self, saved: Files) -> str:
        mine = {file.path: number for number, file in enumerate(self)}
        for number, was in enumerate(saved):
            if was.path not in mine:
                return f"file {number}, {was.path}, is gone"
            now = self[mine[was.path]]
            if now != was:
                return f"file {number}, {was.path}: {difference(was, now)}"
            if mine[was.path] != number:
                known = {file.path for file in saved}
                added = next((f.path for f in self[: mine[was.path]] if f.path not in known), None)
                if added is not None:
                    return f"{added} is new, before file {number}, {was.path}"
                return f"file {number}, {was.path}, is now file {mine[was.path]}"
        return f"{self[len(saved)].path} is new, behind the last"


def files(
    patterns: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    like: Files | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int = CACHE_BYTES,
) -> Files:
    """List files, once: those of each pattern in the order of the patterns.

    Within a pattern they come by path, character by character, so that `part-10` is
    before `part-2`. A pattern is a path or a URL, of which `*`, `?` and `[...]` match within
    a folder, and `**` matches folders; on this machine they leave out names that begin with a
    dot. `[*]` stands for a star itself. Paths are made absolute.

    URLs of `s3://`, `gs://` and `az://` are read by obstore, others by fsspec. Credentials are
    those of the environment (`AWS_ACCESS_KEY_ID`, ...); a path may not have any. obstore
    connects within 10 s, waits 60 s for an answer, and where a server is busy or a connection
    ends tries up to 5 times within a minute. fsspec's packages connect within 10 s and wait
    60 s for an answer. s3fs waits 20 s, and tries 10 times in all, within 10 s where a
    server is busy; gcsfs tries 6 times within 40 s; adlfs as Azure's client does; and
    `http://` once. `fsspec.config.conf[scheme]` and AWS's own settings come first. What is
    still not there is a `StorageError`, which no `on_error` leaves out.

    Args:
        patterns: One pattern, or several.
        like: A saved listing that this one has to equal.
        cache_dir: A folder of this machine which keeps what is read of files elsewhere, by
            blocks of 1 MiB: all processes share it, one fetches a block and the others wait.
            It is verified against size and version, and outlives kills. None for no cache. A
            saved listing has none; `Files.load(path).cached(cache_dir)` does.
        cache_bytes: How many bytes it may take; blocks that were not used for long give way
            to others. Where the disk has no room, nothing is kept.

    Raises:
        ArgumentError: A pattern matches no file, or a directory; two give the same file; a
            link leads to a file that is listed already.
        FileNotFoundError: A path without a pattern doesn't exist.
        StateMismatch: A file is changed, gone, added or moved against `like`; the first such
            is named.

    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("to be\\nor not\\n")
    ...     [file.size for file in lz.io.files(f"{folder}/*.txt")]
    [13]
    """
    given = [patterns] if isinstance(patterns, (str, bytes, os.PathLike)) else list(patterns)
    if not given:
        raise ArgumentError("files: at least one pattern is needed, got none")
    known: dict[str, str] = {}
    found: list[File] = []
    for pattern in map(_text, given):
        matched = sorted(storage_of(pattern).list(pattern), key=lambda file: file.path)
        if not matched:
            raise ArgumentError(f"files: no file matches {pattern!r}")
        for file in matched:
            if file.path in known:
                raise ArgumentError(
                    f"files: {file.path} is listed twice, by {known[file.path]!r} and {pattern!r}"
                )
            known[file.path] = pattern
        found += matched
    if len(given) > 1:
        _check_links(found)
    listed = Files(found)
    if like is not None:
        listed.check(like)
    return listed if cache_dir is None else listed.cached(cache_dir, cache_bytes)


def _check_links(found: Iterable[File]) -> None:
    """Patterns may not match one file by two names; of one pattern its storage has checked that."""
    known: dict[tuple[int, int], str] = {}
    for file in found:
        if is_local(file.path):
            other = known.setdefault(inode(file.path), file.path)
            if other != file.path:
                raise one_file(other, file.path)


def as_files(value: Any, stage: str) -> Files:
    """A listing, or what `files` makes of patterns."""
    if isinstance(value, Files):
        if not value:
            raise ArgumentError(f"{stage}: files must hold at least one file, got none")
        return value
    if isinstance(value, File):
        return Files([value])
    return files(value)


def _text(pattern: Any) -> str:
    if isinstance(pattern, File):
        raise ArgumentError(
            "files: a pattern must be a str or a path, got a File; of Files a slice is a listing, "
            "files[:3], and lz.io.Files(...) of a list of them"
        )
    if not isinstance(pattern, (str, os.PathLike)):
        raise ArgumentError(f"files: a pattern must be a str or a path, got {brief(pattern)}")
    found: Callable[[Any], str | bytes] = os.fspath
    text = found(pattern)
    return os.fsdecode(text)
