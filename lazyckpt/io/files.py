"""Listings of files: immutable values with the size and version of each file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from io import IOBase
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import at_least, boolean, brief, checked
from lazyckpt.core.values import cached_property
from lazyckpt.errors import ArgumentError, InvalidState, StateMismatch
from lazyckpt.io.cache import short_digest, write_atomically
from lazyckpt.io.content import open_content
from lazyckpt.io.range_cache import BLOCK, RangeCache
from lazyckpt.io.storage import File, describe_change, inode, is_local, storage_of

CACHE_BYTES = 1 << 34

_FORMAT = 1
_PRIME = (1 << 32) - 5
_BRACES = re.compile(r"\{[^{}/]*(?:,|\.\.)[^{}/]*\}")  # of a shell, such as {000..002}
_AT_ONCE = 8  # files that are read in parallel for their digests


class Files(Sequence[File]):
    """A listing of files: an immutable sequence of `File`, compared by value.

    Made by `files`. Resuming from a saved listing doesn't list the files again. If a file differs
    from its entry in the listing, reading it raises an error that names it.
    """

    def __init__(self, found: Iterable[File]) -> None:
        self._files = tuple(found)
        for file in self._files:
            if not isinstance(file, File):
                raise ArgumentError(
                    f"Files: items must be File, got {brief(file)}; lz.io.files(patterns) lists "
                    "files"
                )

    def __len__(self) -> int:
        return len(self._files)

    @overload
    def __getitem__(self, index: int) -> File: ...
    @overload
    def __getitem__(self, index: slice) -> Files: ...
    def __getitem__(self, index: int | slice) -> File | Files:
        """Return a file by number, or a listing of a slice."""
        found = self._files[index]
        return found if isinstance(found, File) else Files(found)

    def __iter__(self) -> Iterator[File]:
        return iter(self._files)

    def iter_blocks(self, start: int) -> Iterator[list[File]]:
        """Yield the files from number `start` on, in one block."""
        yield list(self._files[start:])

    def locate(self, index: int) -> File:
        """Return the origin of an item computed from a file: the file."""
        return self._files[index]

    @property
    def paths(self) -> list[str]:
        """The paths of the files."""
        return [file.path for file in self._files]

    def locate_many(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the origins of items: the numbers of the files, and -1 for the row numbers.

        Args:
            indices: Numbers of files, of shape `(n,)`.
        """
        return indices, np.full(len(indices), -1)

    @property
    def source_identity(self) -> dict[str, Any]:
        """The values that a state stores in addition to the number of files."""
        return {"digest": self.digest}

    def changed_path(self, digest: Any) -> str | None:
        """Return the only file in which this listing differs from a digest; None if there is none.

        Args:
            digest: Digest such as that of `source_identity`.
        """
        return self.differing(self.digest, digest)

    def first_files(self, count: Any) -> Files | None:
        """Return a listing of the first `count` files; None if there are fewer."""
        return self[:count] if isinstance(count, int) and 0 <= count <= len(self) else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Files):
            return NotImplemented
        return self._files == other._files and self.digest == other.digest

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
        """The folder that contains all files."""
        common = os.path.commonprefix(self.paths)  # noqa: RUF071  # by characters, then by folders
        return common.rpartition("/")[0]

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits for names below `root`, order, sizes, and digests if known."""
        return self.digest_with([0] * len(self))

    def digest_with(self, sums: Sequence[int]) -> str:
        """Return the digest with a checksum of the content read from each file.

        It consists of the sum of the files' hashes, and the sum of the hashes times the files'
        numbers. If exactly one file differs, dividing the differences of the two sums yields its
        number.
        """
        skipped, plain, numbered = len(self.root), 0, 0
        for number, (file, found) in enumerate(zip(self, sums, strict=True), 1):
            text = f"{file.path[skipped:]}\n{file.size}\n{file.digest}\n{found}"
            value = int(short_digest(text)[:16], 16)
            plain, numbered = plain + value, numbered + number * value
        return f"{plain % _PRIME:08x}{numbered % _PRIME:08x}"

    def differing(self, digest: str, other: Any) -> str | None:
        """Return the path of the only file in which two digests differ; None if there is none."""
        if not isinstance(other, str):  # but what a state has in its place
            return None
        try:
            pairs = [(int(digest[at : at + 8], 16), int(other[at : at + 8], 16)) for at in (0, 8)]
            plain, numbered = ((mine - its) % _PRIME for mine, its in pairs)
            number = numbered * pow(plain, -1, _PRIME) % _PRIME
        except ValueError:
            return None
        return self[number - 1].path if 0 < number <= len(self) else None

    def to_json(self) -> str:
        """Return the listing as one line of JSON."""
        rows = [[file.path, file.size, file.version, file.digest] for file in self._files]
        check = short_digest(json.dumps(rows))
        return json.dumps({"lazyckpt_files": _FORMAT, "check": check, "files": rows})

    @staticmethod
    def from_json(text: str | bytes) -> Files:
        """Parse a listing written by `to_json`."""
        try:
            found = json.loads(text)
            made = Files(
                File(str(path), int(size), str(version), str(digest))
                for path, size, version, digest in found["files"]
            )
            is_whole = found == json.loads(made.to_json())
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidState(f"not a listing of files: {brief(text)}: {error}") from None
        if not is_whole:
            raise InvalidState(f"the listing is damaged, or of a newer format: {brief(text)}")
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the listing to a file, atomically."""
        write_atomically(os.fspath(path), f"{self.to_json()}\n".encode())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Files:
        """Read a listing written by `save`."""
        return Files.from_json(Path(path).read_bytes())

    def cached(self, cache_dir: str | os.PathLike[str], cache_bytes: int = CACHE_BYTES) -> Files:
        """Return the same files with a cache on this machine; for the arguments see `files`."""
        most = checked("files", "cache_bytes", cache_bytes, at_least(BLOCK))
        cache = RangeCache(os.path.abspath(os.fspath(cache_dir)), most)
        os.makedirs(cache.folder, exist_ok=True)
        return Files(replace(file, cache=cache) for file in self)

    def check(self, saved: Files) -> None:
        """Compare with a saved listing; a `StateMismatch` names the first file that differs.

        If both listings have the digest of a file, the digest decides and the modification time
        doesn't.
        """
        if not isinstance(saved, Files):
            raise ArgumentError(
                "files: a saved listing must be Files, such as Files.load(path) returns, got "
                f"{brief(saved)}"
            )
        if change := self._change(saved):
            raise StateMismatch(f"the files differ from the saved listing: {change}")

    def _change(self, saved: Files) -> str:
        mine = {file.path: number for number, file in enumerate(self)}
        for number, was in enumerate(saved):
            if was.path not in mine:
                return f"file {number}, {was.path}, is gone"
            now = self[mine[was.path]]
            if not _is_same(was, now):
                return f"file {number}, {was.path}: {describe_change(was, now)}"
            if mine[was.path] != number:
                known = {file.path for file in saved}
                added = next((f.path for f in self[: mine[was.path]] if f.path not in known), None)
                if added is not None:
                    return f"{added} is new, before file {number}, {was.path}"
                return f"file {number}, {was.path}, is now file {mine[was.path]}"
        if len(self) > len(saved):
            return f"{self[len(saved)].path} is new, after the last"
        return ""


def files(
    patterns: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    like: Files | None = None,
    digest: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int = CACHE_BYTES,
) -> Files:
    """List the files that match patterns, in the order of the patterns.

    Files of one pattern are sorted by path, character by character, so `part-10` comes before
    `part-2`. A pattern is a path or a URL. `*`, `?` and `[...]` match within a folder, and `**`
    matches folders. On this machine they don't match names that begin with a dot. Braces are not
    expanded. `[*]` matches a star itself, and `glob.escape(path)` makes a pattern of a path. Paths
    are made absolute.

    URLs of `s3://`, `gs://` and `az://` are read by obstore, others by fsspec with the settings in
    `fsspec.config.conf[scheme]`. A path must not contain credentials. They come from the
    environment (`AWS_ACCESS_KEY_ID`, ...). For AWS, boto3 also finds them if it is installed,
    including profiles and single sign-on, and renews them when they expire. Timeouts are 10 s to
    connect and 60 s for an answer. If a server is busy or a connection ends, the request is retried
    up to 5 times within a minute. After that the error is a `StorageError`, which no `on_error`
    skips.

    Args:
        patterns: One pattern, or several.
        like: A saved listing that the new one must equal.
        digest: If True, read all files and store a digest of the content of each, by which states
            identify them. If False, a state identifies files by name and size, and by the parts
            that a reader reads to find their rows. A new modification time alone is not a change.
        cache_dir: Folder on this machine for a cache of remote files, in blocks of 1 MiB; None for
            no cache. All processes share it: one fetches a block while the others wait. Blocks are
            verified against size and version, and a kill doesn't damage them. A saved listing has
            no cache; `Files.load(path).cached(cache_dir)` adds one.
        cache_bytes: Most bytes that the cache may take. The least recently used blocks are removed
            first. If the disk is full, nothing is cached.

    Raises:
        ArgumentError: If a pattern matches no file or a directory, or is the name of a file that it
            doesn't match, or if a file is listed twice, even through a link to its folder. Links
            to one file count as copies of it.
        FileNotFoundError: If a path without a pattern doesn't exist.
        StateMismatch: If a file was changed, removed, added or moved compared with `like`; the
            first such file is named.

    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("to be\\nor not\\n")
    ...     [file.size for file in lz.io.files(f"{folder}/*.txt")]
    [13]
    """
    is_read = checked("files", "digest", digest, boolean)
    given = _listed(patterns)
    if not given:
        raise ArgumentError("files: at least one pattern is needed, got none")
    known: dict[str, str] = {}
    found: list[File] = []
    for pattern in map(_text, given):
        matched = _matching(pattern)
        if not matched:
            raise ArgumentError(f"files: no file matches {pattern!r}{_hint(pattern)}")
        for file in matched:
            if file.path in known:
                raise ArgumentError(
                    f"files: {file.path} is listed twice, by {known[file.path]!r} and {pattern!r}"
                )
            known[file.path] = pattern
        found += matched
    _check_links(found)
    listed = Files(found)
    if cache_dir is not None:
        listed = listed.cached(cache_dir, cache_bytes)
    if is_read:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            listed = Files(pool.map(_digested, listed))
    if like is not None:
        listed.check(like)
    return listed


def _matching(pattern: str) -> list[File]:
    """Return the files that match a pattern, sorted by path."""
    try:
        return sorted(storage_of(pattern).list(pattern), key=lambda file: file.path)
    except FileNotFoundError:
        if _BRACES.search(pattern) is None:
            raise
        return []


def _hint(pattern: str) -> str:
    if _BRACES.search(pattern) is not None:
        return f"; braces aren't expanded, pass {_BRACES.sub('*', pattern)!r} or a list of paths"
    return "; glob.escape(name) makes a pattern of a name with [...]" * ("[" in pattern)


def _is_same(was: File, now: File) -> bool:
    if was.digest and now.digest:
        return (was.size, was.digest) == (now.size, now.digest)
    return was == now


def _digested(file: File) -> File:
    found = blake2b(digest_size=8)
    for chunk in open_content(file.path, "none", "").chunks(file):
        found.update(chunk)
    return replace(file, digest=found.hexdigest())


def _check_links(found: Iterable[File]) -> None:
    """Raise an error if a folder is listed by two names."""
    folder_of = lru_cache(inode)
    known: dict[Any, str] = {}
    for file in found:
        if is_local(file.path):
            folder, _, name = file.path.rpartition("/")
            other = known.setdefault((folder_of(folder or "/"), name), file.path)
            if other != file.path:
                raise ArgumentError(
                    f"files: {other} and {file.path} are the same file, through a link to its "
                    "folder"
                )


def as_files(value: Any, stage: str) -> Files:
    """Return a listing as it is, or list the files of patterns."""
    if isinstance(value, Files):
        if not value:
            raise ArgumentError(f"{stage}: files must contain at least one file, got none")
        return value
    if isinstance(value, File):
        return Files([value])
    return files(value)


def _listed(patterns: Any) -> list[Any]:
    if isinstance(patterns, (str, bytes, os.PathLike)):
        return [patterns]
    if isinstance(patterns, Iterable) and not isinstance(patterns, (Set, Mapping, IOBase)):
        return list(patterns)
    hint = "; a set has no stable order, pass sorted(...) of it" * isinstance(patterns, Set)
    raise ArgumentError(
        f"files: patterns must be a str, a path or a list of them, got {brief(patterns)} "
        f"({type(patterns).__name__}){hint}"
    )


def _text(pattern: Any) -> str:
    if isinstance(pattern, File):
        raise ArgumentError(
            "files: a pattern must be a str or a path, got a File; for a part of a listing use a "
            "slice, files[:3], or lz.io.Files([...])"
        )
    if not isinstance(pattern, (str, os.PathLike)):
        raise ArgumentError(f"files: a pattern must be a str or a path, got {brief(pattern)}")
    found: Callable[[Any], str | bytes] = os.fspath
    text = found(pattern)
    return os.fsdecode(text)
