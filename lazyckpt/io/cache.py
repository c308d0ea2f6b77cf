"""Caches: files that are written once, on disk, and values that were used last, in memory.

A file is whole or absent: it is written next to its path and renamed. Kernel locks make sure that
one process at a time writes one. Windows and some file systems have no such locks. Results are
still correct there, but processes may do the same work twice, and a cache of ranges may exceed its
limit for a while.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from time import time
from typing import Any, BinaryIO, Generic, Protocol, TypeVar
from uuid import uuid4
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from lazyckpt.errors import ArgumentError, PipelineError


class _HasSize(Protocol):
    @property
    def size(self) -> int: ...


T = TypeVar("T", bound=_HasSize)
F = TypeVar("F")
Uint64Array = NDArray[np.uint64]

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
SMALL = 1 << 16  # bytes up to which a file is read rather than mapped

_ABANDONED = 3600  # seconds without a write after which a file is abandoned
_SUFFIXES = (".index", ".counts", ".pieces", ".points")
_MAGIC = 0x2_6C7A_636B_7074  # of our files; the first digit is the format
_FOOTER = 5  # numbers at a file's end: entries, columns, the content's checksum, its own, magic

try:
    _FCNTL: Any = import_module("fcntl")
except ImportError:
    _FCNTL = None


_held: set[int] = set()  # open files that this process has locked


def _close_held() -> None:
    for held in _held:
        os.close(held)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_held)


@contextmanager
def exclusive_lock(path: str, *, waits: bool = True) -> Iterator[None]:
    """Hold the lock of a file, which is created, or of a folder, if its file system has locks.

    The lock ends with a process that is killed, even if that process has forked.

    Raises:
        BlockingIOError: If another process holds the lock and `waits` is False.
    """
    if _FCNTL is None:
        yield
        return
    held = os.open(path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT)
    _held.add(held)
    try:
        try:
            _FCNTL.flock(held, _FCNTL.LOCK_EX | (0 if waits else _FCNTL.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:  # Lustre without `-o flock`, or a folder on NFS
            pass
        yield
    finally:
        if held in _held:  # a fork has closed it
            _held.remove(held)
            with suppress(OSError):
                _FCNTL.flock(held, _FCNTL.LOCK_UN)  # a new fork may not have closed its copy yet
            os.close(held)


def cache_folder() -> str:
    """Return the folder for indices: `LAZYCKPT_CACHE`, or the user's cache folder."""
    if given := os.environ.get("LAZYCKPT_CACHE"):
        return os.path.abspath(given)
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Caches/lazyckpt")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if base.startswith("~"):  # this user has no home
        return os.path.join(gettempdir(), f"lazyckpt-{os.getuid()}")
    return os.path.join(base, "lazyckpt")


def cache_bytes() -> int:
    """Return the most bytes that the cache folder may take: `LAZYCKPT_CACHE_BYTES`, or 16 GiB."""
    given = os.environ.get("LAZYCKPT_CACHE_BYTES", "")
    if given and not given.isdecimal():
        raise ArgumentError(f"LAZYCKPT_CACHE_BYTES must be a number of bytes, got {given!r}")
    return int(given or 1 << 34)


def write_atomically(path: str, content: bytes) -> None:
    """Write a whole file, or nothing."""
    with atomic_writer(path) as temporary:
        Path(temporary).write_bytes(content)


@contextmanager
def atomic_writer(path: str) -> Iterator[str]:
    """Provide a path to write to; it becomes `path` if no error is raised."""
    temporary = f"{path}.{uuid4().hex[:16]}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            os.remove(temporary)


def remove_abandoned(folder: str) -> None:
    """Remove unfinished files of processes that were killed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # another process may remove it too
                if entry.name.endswith(".tmp") and time() - entry.stat().st_mtime > _ABANDONED:
                    os.remove(entry.path)


def remove_unused(folder: str, most: int) -> None:
    """Remove the least recently used indices of a folder that takes more than `most` bytes."""
    used = []
    with os.scandir(folder) as entries, suppress(FileNotFoundError):  # another may remove one too
        for entry in entries:
            if entry.name.endswith(_SUFFIXES):
                used.append((entry.stat(), entry.path))
    used.sort(key=lambda each: each[0].st_mtime_ns)
    size = sum(status.st_size for status, _ in used)
    for status, path in used:
        if size <= most:
            break
        with suppress(OSError):  # another process may remove it too
            os.remove(path)
        size -= status.st_size


@contextmanager
def cache_errors(folder: str) -> Iterator[None]:
    """Add to errors of a cache folder where it is and how to choose a different one."""
    is_made = False
    try:
        os.makedirs(folder, exist_ok=True)
        is_made = True
        yield
    except OSError as error:
        is_in_folder = error.errno in FULL or str(error.filename or "").startswith(folder)
        if is_made and not is_in_folder:
            raise  # of a file that is read
        raise PipelineError(
            f"the index can't be written to {folder}: {error}; set LAZYCKPT_CACHE, or "
            "index_dir=, to a folder with room"
        ) from error


@contextmanager
def build_lock(path: str, find: Callable[[], F | None]) -> Iterator[F | None]:
    """Provide the result of `find`, or None in the one process that must build it; others wait."""
    if (found := find()) is not None:
        yield found
        return
    with exclusive_lock(path):
        try:
            yield find()
        finally:
            with suppress(OSError):
                os.remove(path)


def write_array(path: str, chunks: Iterable[NDArray[Any]], columns: int) -> tuple[int, int]:
    """Write numbers that arrive in chunks, and return the result of `array_footer`.

    Args:
        path: The file.
        chunks: The numbers. A generator may return a checksum of the content that they describe,
            which is stored with them.
        columns: Number of numbers per entry.
    """
    size, content = 0, 0
    found = iter(chunks)
    with open(path, "xb") as out:
        while True:
            try:
                chunk = next(found)
            except StopIteration as end:
                content = end.value or 0
                break
            out.write(chunk.astype("<u8", copy=False).tobytes())
            size += chunk.size
        out.write(_footer(size // columns, columns, content).tobytes())
    return size // columns, content


def _footer(entries: int, columns: int, content: int) -> Uint64Array:
    check = int(short_digest(str(entries), str(columns), str(content))[:12], 16)
    return np.array([entries, columns, content, check, _MAGIC], "<u8")


def array_footer(path: str) -> tuple[int, int] | None:
    """Return the number of entries of a file, and the checksum of the content they describe, or 0.

    None if the file is missing or incomplete.
    """
    try:
        with open(path, "rb") as file:
            return read_footer(file)
    except OSError:
        return None


def read_footer(file: BinaryIO) -> tuple[int, int] | None:
    file.seek(-8 * _FOOTER, os.SEEK_END)
    footer = np.frombuffer(file.read(), "<u8")
    entries, columns, content = map(int, footer[:3])
    is_whole = file.tell() == 8 * (entries * columns + _FOOTER)
    is_ours = is_whole and np.array_equal(footer, _footer(entries, columns, content))
    return (entries, content) if is_ours else None


def map_array(path: str, columns: int) -> Uint64Array | None:
    """Return the numbers of a file; None if it is missing or incomplete.

    They are memory-mapped, which keeps a file open in the system, unless they are few.
    """
    try:
        with open(path, "rb") as file:
            footer = read_footer(file)
            if footer is None:
                return None
            file.seek(0)
            is_small = 8 * footer[0] * columns <= SMALL
            whole = np.fromfile(file, "<u8") if is_small else np.memmap(file, "<u8", "r")
    except OSError:  # another process may have removed it
        return None
    touch(path)
    numbers: Uint64Array = whole.view(np.ndarray)[:-_FOOTER]
    return numbers if columns == 1 else numbers.reshape(footer[0], columns)


def touch(path: str) -> None:
    """Mark a file as used, because unused ones may be removed from the cache folder."""
    with suppress(OSError):  # the folder may be read-only
        os.utime(path)


def short_digest(*texts: str) -> str:
    """Return hexadecimal digits that identify strings."""
    content = "\n\n".join(texts).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class _Place(Generic[T]):
    """The place of a value that one thread computes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: T | None = None
        self.size = 0


class LRUCache(Generic[T]):
    """The most recently used values by key, up to `most` bytes in all, but at least one value.

    One thread computes a value while others wait for it. A forked process starts empty, and so does
    one that receives a pickle.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._places: OrderedDict[Any, _Place[T]] = OrderedDict()
        self.renew()
        _caches.add(self)

    def renew(self) -> None:
        self._forked = self._places  # closing a value that a thread holds could hang
        self._lock = threading.Lock()
        self._places = OrderedDict()
        self._size = 0
        self._left: Any = None  # the last key passed to `leave`

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """Return the cached value of a key, or compute it by `make`."""
        with self._lock:
            place = self._places.get(key)
            if place is None:
                place = self._places[key] = _Place()
            self._places.move_to_end(key)
        if place.value is not None:
            return place.value
        with place.lock:
            if place.value is None:
                try:
                    place.value = make()
                finally:
                    self._made(key, place)
            return place.value

    def _made(self, key: Any, place: _Place[T]) -> None:
        with self._lock:
            if self._places.get(key) is not place:  # evicted meanwhile
                return
            if place.value is None:  # an error
                del self._places[key]
                return
            place.size = place.value.size
            self._size += place.size
            while self._size > self.most and len(self._places) > 1:
                self._size -= self._places.popitem(last=False)[1].size

    def leave(self, key: Any, count: float) -> None:
        """Note that a value was read to its end, in order, as one of about `count` values.

        If `count` such values don't fit, only the last two are kept: the others would be evicted
        before they are read again.
        """
        with self._lock:
            place = self._places.get(key)
            if place is not None and place.size * count > self.most and self._left != key:
                if (left := self._places.pop(self._left, None)) is not None:
                    self._size -= left.size
                self._left = key

    def values(self) -> list[T]:
        with self._lock:
            return [place.value for place in self._places.values() if place.value is not None]

    def __reduce__(self) -> tuple[Any, ...]:
        return LRUCache, (self.most,)


_caches: WeakSet[LRUCache[Any]] = WeakSet()


def _renew_all() -> None:
    for cache in _caches:
        cache.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
