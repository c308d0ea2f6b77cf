"""Files as a value: listed once, with size and version."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.cached_property import cached_property
from lazyckpt.core.checks import at_least, boolean, brief, checked
from lazyckpt.errors import ArgumentError, InvalidState, StateMismatch
from lazyckpt.io.cache import short_digest, write_atomically
from lazyckpt.io.content import open_content
from lazyckpt.io.range_cache import BLOCK, RangeCache
from lazyckpt.io.storage import File, describe_change, inode, is_local, storage_of

CACHE_BYTES = 1 << 34

_FORMAT = 1
_PRIME = (1 << 32) - 5
_AT_ONCE = 8  # files that are read for their digests


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

    def changed_path(self, digest: Any) -> str | None:
        """The file by which alone these are others than those of a digest; None if there is none.

        Args:
            digest: Such as of `source_identity`.
        """
        return self.differing(self.digest, digest)

    def first_files(self, count: Any) -> Files | None:
        """So many files alone; None if there are not so many."""
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
        """The folder that all files are in."""
        common = os.path.commonprefix(self.paths)  # noqa: RUF071  # by characters, then by folders
        return common.rpartition("/")[0]

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits for names below `root`, order, sizes, and digests if known."""
        return self.digest_with([0] * len(self))

    def digest_with(self, sums: Sequence[int]) -> str:
        """The same, with a checksum of what was read of each file.

        It is the sum of the files' hashes, and that of their products with their numbers: where
        one file alone differs, the differences of the two have its number as their quotient.
        """
        skipped, plain, numbered = len(self.root), 0, 0
        for number, (file, found) in enumerate(zip(self, sums, strict=True), 1):
            text = f"{file.path[skipped:]}\n{file.size}\n{file.digest}\n{found}"
            value = int(short_digest(text)[:16], 16)
            plain, numbered = plain + value, numbered + number * value
        return f"{plain % _PRIME:08x}{numbered % _PRIME:08x}"

    def differing(self, digest: str, other: Any) -> str | None:
        """The path of the one file by which a digest of these is another one; None if none is."""
        try:
            pairs = [(int(digest[at : at + 8], 16), int(other[at : at + 8], 16)) for at in (0, 8)]
            plain, numbered = ((mine - its) % _PRIME for mine, its in pairs)
            number = numbered * pow(plain, -1, _PRIME) % _PRIME
        except (ValueError, TypeError):
            return None
        return self[number - 1].path if 0 < number <= len(self) else None

    def to_json(self) -> str:
        """The listing as one line of JSON."""
        rows = [[file.path, file.size, file.version, file.digest] for file in self._files]
        check = short_digest(json.dumps(rows))
        return json.dumps({"lazyckpt_files": _FORMAT, "check": check, "files": rows})

    @staticmethod
    def from_json(text: str | bytes) -> Files:
        """The listing that `to_json` gave."""
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
        """Write the listing to a file: the whole of it, or nothing."""
        write_atomically(os.fspath(path), f"{self.to_json()}\n".encode())

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
        """Compare with a saved listing; a `StateMismatch` names the first file that differs.

        Where both have a file's digest, that decides, and not when it was written.
        """
        if not isinstance(saved, Files):
            raise ArgumentError(
                f"files: a saved listing must be Files, as of Files.load(path), got {brief(saved)}"
            )
        if change := self._change(saved):
            raise StateMismatch(f"the files are not those of the saved listing: {change}")

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
            return f"{self[len(saved)].path} is new, behind the last"
        return ""


def files(
    patterns: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    like: Files | None = None,
    digest: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int = CACHE_BYTES,
) -> Files:
    """List files, once: those of each pattern in the order of the patterns.

    Within a pattern they come by path, character by character, so that `part-10` is
    before `part-2`. A pattern is a path or a URL, of which `*`, `?` and `[...]` match within
    a folder, and `**` matches folders; on this machine they leave out names that begin with a
    dot. `[*]` stands for a star itself. Paths are made absolute.

    URLs of `s3://`, `gs://` and `az://` are read by obstore, others by fsspec, with what
    `fsspec.config.conf[scheme]` says. A path may have no credentials: they are those of the
    environment (`AWS_ACCESS_KEY_ID`, ...), of AWS as boto3 finds them where it is installed,
    profiles and single sign-on included, and renewed when they expire. A connection may take
    10 s and an answer 60 s. Where a server is busy or a connection ends, it is asked up to 5
    times more within a minute. What is still not there is a `StorageError`, which no `on_error`
    leaves out.

    Args:
        patterns: One pattern, or several.
        like: A saved listing that this one has to equal.
        digest: Whether to read all files for digests of what they hold, which states then know
            them by. Without, a state knows them by name and size, and by what a reader reads of
            them when it finds their rows; that they were written at another time is no change.
        cache_dir: A folder of this machine which keeps what is read of files elsewhere, by
            blocks of 1 MiB: all processes share it, one fetches a block and the others wait.
            It is verified against size and version, and outlives kills. None for no cache. A
            saved listing has none; `Files.load(path).cached(cache_dir)` does.
        cache_bytes: How many bytes it may take; blocks that were not used for long give way
            to others. Where the disk has no room, nothing is kept.

    Raises:
        ArgumentError: A pattern matches no file, or a directory; two give the same file, also
            by a link to its folder. Links to one file are as copies of it.
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
    is_read = checked("files", "digest", digest, boolean)
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
    """No folder may be listed by two names."""
    folder_of = lru_cache(inode)
    known: dict[Any, str] = {}
    for file in found:
        if is_local(file.path):
            folder, _, name = file.path.rpartition("/")
            other = known.setdefault((folder_of(folder or "/"), name), file.path)
            if other != file.path:
                raise ArgumentError(
                    f"files: {other} and {file.path} are one file, by a link to its folder"
                )


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
