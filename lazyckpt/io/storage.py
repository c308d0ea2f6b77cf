"""Storage of files: on this machine, or remote by obstore and fsspec."""

from __future__ import annotations

import glob
import io
import os
import re
import stat as modes
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from glob import has_magic
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeAlias
from weakref import finalize

from lazyckpt.errors import ArgumentError, PipelineError, SourceChanged, StorageError
from lazyckpt.io.range_cache import RangeCache

Ranges: TypeAlias = Sequence[tuple[int, int]]
_Inode: TypeAlias = tuple[int, int]

_QUERY = re.compile(r"\?[^/=]+=")  # a query, not a pattern with `?`
_FAR = os.path.join("..", "..", "")  # start of a relative path that leads far from a folder


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was when it was listed.

    Attributes:
        path: Absolute path or URL.
        size: Length in bytes.
        version: A value that changes with the content: the modification time in nanoseconds, or a
            version or ETag of an object store.
        digest: Sixteen hexadecimal digits for the content; "" if it wasn't computed.
        cache: Cache on this machine for parts of the file; ignored by comparisons.
    """

    path: str
    size: int
    version: str
    digest: str = field(default="", compare=False)
    cache: RangeCache | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash(self.path)  # a string's is kept; a tuple's would be computed per row

    def record_origin(self, number: int) -> RowOrigin:
        """Return the origin of a record whose range of bytes is unknown."""
        return RowOrigin(self.path, number, 0, self.size)


class RowOrigin(NamedTuple):
    """The origin of a row.

    - `path`: the file
    - `record`: the row's number in it, from 0
    - `start`, `stop`: its range of bytes there, counted without compression; the whole file if
      the range is unknown
    """

    path: str
    record: int
    start: int
    stop: int


class Storage(Protocol):
    """The interface that a reader needs of the place where files are stored."""

    def list(self, pattern: str) -> Iterable[File]:
        """Return the files that match a pattern, in any order."""

    def stat(self, path: str) -> File:
        """Return a file as it is now; raise `FileNotFoundError` if it doesn't exist."""

    def read(self, file: File, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop`; raise `SourceChanged` if the file changed."""

    def read_ranges(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        """Return the bytes of several ranges, possibly with one request."""


def storage_of(path: str) -> Storage:
    """Return the storage of a path or URL, opened once per process."""
    if is_local(path):
        return local_storage
    scheme, _, rest = path.partition("://")
    _, is_user, host = rest.partition("/")[0].rpartition("@")
    is_http = scheme in ("http", "https")
    if is_user and (is_http or ":" in rest.partition("@")[0]):
        raise ArgumentError(
            f"files: {scheme}://...@{host} has a password, which every listing would show; "
            "put it in the environment"
        )
    if is_http and _QUERY.search(rest):
        host_and_path = rest.partition("?")[0]
        raise ArgumentError(
            f"files: {scheme}://{host_and_path}?... has a query, such as a signature, which every "
            "listing would show; read the bucket itself, by s3://, gs:// or az://, with "
            "credentials in the environment, or download the file"
        )
    key = os.getpid(), scheme
    if key not in opened_storages:
        opened_storages[key] = import_module("lazyckpt.io.remote").open_storage(scheme)
    return opened_storages[key]


def is_local(path: str) -> bool:
    """Return whether a path is on this machine."""
    return "://" not in path or path.startswith("file://")


def relative_path(folder: str, path: str) -> str:
    """Return a name for a path that is kept if the file and a nearby folder move together."""
    if is_local(path):
        found = os.path.relpath(path.removeprefix("file://"), folder)
        if not found.startswith(_FAR):
            return found
    return path


def missing_package_error(package: str, extra: str, what: str) -> PipelineError:
    """Return the error for an optional package that isn't installed."""
    return PipelineError(f'{what} needs {package}: pip install "lazyckpt[{extra}]"')


def optional_module(module: str, extra: str, what: str) -> Any:
    """Import an optional package; if it is missing, the error names the extra."""
    try:
        return import_module(module)
    except ImportError as error:
        raise missing_package_error(module.partition(".")[0], extra, what) from error


def changed_error(file: File, now: File) -> SourceChanged:
    """Return the error for a file that has changed since it was listed."""
    return SourceChanged(f"{file.path} changed since it was listed: {describe_change(file, now)}")


def gone_error(file: File) -> SourceChanged:
    """Return the error for a file that no longer exists."""
    hint = "; fsspec's memory belongs to one process" * file.path.startswith("memory://")
    return SourceChanged(f"{file.path} was removed since it was listed{hint}")


def unreadable(file: File, error: OSError) -> PipelineError:
    """Return the error for a file that the system can't read."""
    if isinstance(error, FileNotFoundError):
        return gone_error(file)
    return StorageError(f"{file.path} can't be read: {os.strerror(error.errno or 0)}")


def check_unchanged(file: File) -> None:
    """Raise an error if a file has changed or was removed since it was listed."""
    try:
        now = storage_of(file.path).stat(file.path)
    except OSError as error:
        raise unreadable(file, error) from error
    except ArgumentError as error:  # a folder has its name now
        raise gone_error(file) from error
    if now != file:
        raise changed_error(file, now)


def describe_change(was: File, now: File) -> str:
    """Return a description of the difference between two versions of a file."""
    if was.size != now.size:
        return f"it had {was.size:,} bytes and has {now.size:,}"
    if was.digest and now.digest:
        return f"its digest was {was.digest} and is {now.digest}"
    return f"its version was {was.version} and is {now.version}"


class _Handle:
    """An open file, closed when it is garbage-collected."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDONLY)
        finalize(self, os.close, self.fd).atexit = False

    def now(self, path: str) -> File:
        """Return the current state of the file."""
        return _file(path, os.fstat(self.fd))

    def has(self, file: File) -> bool:
        """Return whether the open file is the listed one."""
        now = os.fstat(self.fd)
        return now.st_size == file.size and str(now.st_mtime_ns) == file.version


def open_limit() -> int:
    """Return the most files that a process may have open."""
    try:
        resource: Any = import_module("resource")
    except ImportError:  # on Windows
        return 512
    found = int(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return found if found > 0 else 1 << 20  # negative if there is no limit


MOST_OPEN = min(1024, open_limit() // 2)  # local files that are kept open


class LocalStorage:
    """Files on this machine; reads are positional, so threads and forks may share open files."""

    def __init__(self) -> None:
        self._handle = lru_cache(MOST_OPEN)(_open)

    def list(self, pattern: str) -> Sequence[File]:
        pattern = _absolute(pattern)
        if not glob.has_magic(pattern):
            return [self.stat(pattern)]
        paths = [*glob_files(pattern)]
        if pattern not in paths and os.path.lexists(pattern):
            raise ArgumentError(
                f"files: {pattern} exists, but as a pattern it doesn't match its own name; pass "
                "glob.escape(path)"
            )
        found = ((path, os.stat(path)) for path in paths)
        return [_regular(*each) for each in found if not modes.S_ISDIR(each[1].st_mode)]

    def stat(self, path: str) -> File:
        path = _absolute(path)
        return _regular(path, os.stat(path))

    def read(self, file: File, start: int, stop: int) -> bytes:
        return self.read_ranges(file, [(start, stop)])[0]

    def read_ranges(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        handle = self._handle(file)
        if not handle.has(file):
            raise changed_error(file, handle.now(file.path))
        return [self._read(handle, file, start, stop) for start, stop in ranges]

    def _read(self, handle: _Handle, file: File, start: int, stop: int) -> bytes:
        try:
            found = os.pread(handle.fd, stop - start, start)
            while len(found) < stop - start:
                more = os.pread(handle.fd, stop - start - len(found), start + len(found))
                if not more:
                    raise changed_error(file, self.stat(file.path))
                found += more
            return found
        except OSError as error:
            raise unreadable(file, error) from error


def _open(file: File) -> _Handle:
    try:
        found = _Handle(file.path)
    except OSError as error:
        raise unreadable(file, error) from error
    if not found.has(file):
        raise changed_error(file, found.now(file.path))
    return found


def _absolute(path: str) -> str:
    """Return the absolute form of a local path, with exactly one slash at the front."""
    return f"/{os.path.abspath(path.removeprefix('file://')).lstrip('/')}"


def _regular(path: str, status: os.stat_result) -> File:
    if modes.S_ISDIR(status.st_mode):
        raise ArgumentError(f"files: {path} is a directory; write {os.path.join(path, '*')}")
    if not modes.S_ISREG(status.st_mode):
        raise ArgumentError(f"files: {path} is not a regular file")
    return _file(path, status)


def _file(path: str, status: os.stat_result) -> File:
    return File(path, status.st_size, str(status.st_mtime_ns))


def inode(path: str) -> _Inode:
    """Return the identity of a file or folder, whatever its name."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


def glob_files(pattern: str) -> Iterator[str]:
    """Yield the paths that match an absolute pattern, like `glob`.

    `**` never yields folders. Links are followed, unless they lead to a folder above themselves.
    """
    parts = pattern.lstrip("/").split("/")
    pairs = zip(parts, ["", *parts], strict=False)
    yield from _below("/", [part for part, before in pairs if (part, before) != ("**", "**")])


def _below(folder: str, parts: list[str], above: tuple[_Inode, ...] = ()) -> Iterator[str]:
    """Yield the paths in a folder that match the parts of a pattern.

    `above` are the folders that `**` has entered on the way.
    """
    first, *rest = parts
    if first == "**":
        yield from _anywhere(folder, parts, above)
        return
    paths = [os.path.join(folder, first)]
    if has_magic(first):
        match = re.compile(translate(first)).match
        paths = [path for name, path in _entries(folder, first.startswith(".")) if match(name)]
    for path in paths:
        if rest and os.path.isdir(path):
            yield from _below(path, rest)
        elif not rest and os.path.lexists(path):
            yield path


def _anywhere(folder: str, parts: list[str], above: tuple[_Inode, ...]) -> Iterator[str]:
    _, *rest = parts
    here = inode(folder)
    if here in above:
        return
    if rest:
        yield from _below(folder, rest)
    for _, path in _entries(folder, False):
        if os.path.isdir(path):
            yield from _below(path, parts, (*above, here))
        elif not rest:
            yield path


def _entries(folder: str, is_hidden: bool) -> list[tuple[str, str]]:
    """Return the names and paths in a folder, including names with a leading dot if `is_hidden`."""
    names = [name for name in os.listdir(folder) if name.startswith(".") <= is_hidden]
    return [(name, os.path.join(folder, name)) for name in names]


local_storage = LocalStorage()
opened_storages: dict[tuple[int, str], Storage] = {}


class FileObject(io.RawIOBase):
    """A file of any storage as a Python file object; it has the bytes of the listed version.

    Args:
        file: The file.
        size: Number of bytes to expose; None for all.

    Attributes:
        error: The error of the last failed read, which C libraries lose; None if it succeeded.
    """

    error: Exception | None = None

    def __init__(self, file: File, size: int | None = None) -> None:
        self._file, self._at = file, 0
        self._size = file.size if size is None else size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        place = offset + (0, self._at, self._size)[whence]
        if place < 0:
            raise ValueError(f"negative seek position {place}")
        self._at = place
        return place

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        count = left if size is None or size < 0 else min(size, left)
        if not count:
            return b""
        try:
            found = storage_of(self._file.path).read(self._file, self._at, self._at + count)
        except Exception as error:
            self.error = error
            raise
        self.error = None
        self._at += count
        return found

    def readinto(self, buffer: Any) -> int:
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


class ChunkStream(io.RawIOBase):
    """A stream of chunks as a Python file object that is read from the front."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._left = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left and (chunk := next(self._chunks, None)) is not None:
            self._left = memoryview(chunk)
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count
