"""What is kept: files that are made once, on disk, and what was used last, in memory.

Files are whole or not there: they are written beside their places and renamed. One process makes
one at a time, by the kernel's locks. Nothing is wrong without those, which Windows and some file
systems don't have: processes may then do the same work twice, and a cache of ranges may for a while
take more than it should.
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
SMALL = 1 << 16  # bytes that are read rather than mapped

_ABANDONED = 3600  # seconds in which nothing was written
_SUFFIXES = (".index", ".counts", ".pieces", ".points")
_MAGIC = 0x2_6C7A_636B_7074  # of our files; the first digit is the format
_FOOTER = 5  # numbers at a file's end: entries, columns, what they are of, checksum, magic

try:
    _FCNTL: Any = import_module("fcntl")
except ImportError:
    _FCNTL = None


_held: set[int] = set()  # open files whose locks this process has


def _close_held() -> None:
    for held in _held:
        os.close(held)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_held)


@contextmanager
def exclusive_lock(path: str, *, waits: bool = True) -> Iterator[None]:
    """Hold the lock of a file, which is made, or of a folder, where its file system has locks.

    It ends with a process that is killed; what that has forked doesn't keep it.

    Raises:
        BlockingIOError: Another has it, and this one doesn't wait.
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
        except OSError:  # of Lustre without `-o flock`, of NFS for a folder
            pass
        yield
    finally:
        if held in _held:  # and this isn't a fork, which has closed it
            _held.remove(held)
            with suppress(OSError):
                _FCNTL.flock(held, _FCNTL.LOCK_UN)  # also for a fork that hasn't come to it yet
            os.close(held)


def cache_folder() -> str:
    """Where indices are kept: `LAZYCKPT_CACHE`, or the user's folder for caches."""
    if given := os.environ.get("LAZYCKPT_CACHE"):
        return os.path.abspath(given)
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Caches/lazyckpt")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "lazyckpt")


def cache_bytes() -> int:
    """Return how many bytes the cache folder may take: `LAZYCKPT_CACHE_BYTES`, or 16 GiB."""
    given = os.environ.get("LAZYCKPT_CACHE_BYTES", "")
    if given and not given.isdecimal():
        raise ArgumentError(f"LAZYCKPT_CACHE_BYTES must be a number of bytes, got {given!r}")
    return int(given or 1 << 34)


def write_atomically(path: str, content: bytes) -> None:
    """Write a file: the whole of it, or nothing."""
    with atomic_writer(path) as temporary:
        Path(temporary).write_bytes(content)


@contextmanager
def atomic_writer(path: str) -> Iterator[str]:
    """A path to write to, which becomes `path` once that is done without an error."""
    temporary = f"{path}.{uuid4().hex[:16]}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            os.remove(temporary)


def remove_abandoned(folder: str) -> None:
    """Remove what was begun to be written by processes that were killed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # another may be at it
                if entry.name.endswith(".tmp") and time() - entry.stat().st_mtime > _ABANDONED:
                    os.remove(entry.path)


def remove_unused(folder: str, most: int) -> None:
    """Remove the indices of a folder that were not used for longest, if it takes more bytes."""
    used = []
    with os.scandir(folder) as entries, suppress(FileNotFoundError):  # another may be at it
        for entry in entries:
            if entry.name.endswith(_SUFFIXES):
                used.append((entry.stat(), entry.path))
    used.sort(key=lambda each: each[0].st_mtime_ns)
    size = sum(status.st_size for status, _ in used)
    for status, path in used:
        if size <= most:
            break
        with suppress(OSError):  # another may be at it
            os.remove(path)
        size -= status.st_size


@contextmanager
def cache_errors(folder: str) -> Iterator[None]:
    """Errors of a cache folder say where it is, and how to have another."""
    try:
        os.makedirs(folder, exist_ok=True)
        yield
    except OSError as error:
        if error.errno not in FULL and not str(error.filename or "").startswith(folder):
            raise  # of what is read
        raise PipelineError(
            f"the index can't be written to {folder}: {error}; set LAZYCKPT_CACHE, or "
            "index_dir=, to a folder with room"
        ) from error


@contextmanager
def build_lock(path: str, find: Callable[[], F | None]) -> Iterator[F | None]:
    """What is found, or None for the one process that is to make it, while others wait."""
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
    """Write numbers that come some at a time, `columns` of them an entry; what `array_footer` says.

    Args:
        path: The file.
        chunks: The numbers. What a generator returns at its end, a checksum of what they are
            of, is kept with them.
        columns: How many numbers an entry has.
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
    """How many entries a file has, and the checksum of what they are of, or 0.

    None if there is no such file, or not the whole of it.
    """
    try:
        with open(path, "rb") as file:
            return _footer_of(file)
    except OSError:
        return None


def _footer_of(file: BinaryIO) -> tuple[int, int] | None:
    file.seek(-8 * _FOOTER, os.SEEK_END)
    footer = np.frombuffer(file.read(), "<u8")
    entries, columns, content = map(int, footer[:3])
    is_whole = file.tell() == 8 * (entries * columns + _FOOTER)
    is_ours = is_whole and np.array_equal(footer, _footer(entries, columns, content))
    return (entries, content) if is_ours else None


def map_array(path: str, columns: int) -> Uint64Array | None:
    """The numbers of a file; None if there is no such file, or not the whole of it.

    They are mapped, of which the system keeps a file open, unless they are few.
    """
    try:
        with open(path, "rb") as file:
            footer = _footer_of(file)
            if footer is None:
                return None
            file.seek(0)
            is_small = 8 * footer[0] * columns <= SMALL
            whole = np.fromfile(file, "<u8") if is_small else np.memmap(file, "<u8", "r")
    except OSError:  # another may have removed it
        return None
    touch(path)
    numbers: Uint64Array = whole.view(np.ndarray)[:-_FOOTER]
    return numbers if columns == 1 else numbers.reshape(footer[0], columns)


def touch(path: str) -> None:
    """Note that a file is used, as those that aren't may be removed from the cache folder."""
    with suppress(OSError):  # of a folder that can't be written
        os.utime(path)


def short_digest(*texts: str) -> str:
    """A name for texts, of hexadecimal digits."""
    content = "\n\n".join(texts).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class _Place(Generic[T]):
    """Where a value is, once a thread has made it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: T | None = None
        self.size = 0


class LRUCache(Generic[T]):
    """Values by keys, those used last, of so many bytes in all; one in any case.

    One thread makes a value, and others wait for it. A forked process, and one that gets a
    pickle, begins without any.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._places: OrderedDict[Any, _Place[T]] = OrderedDict()
        self.renew()
        _caches.add(self)

    def renew(self) -> None:
        self._forked = self._places  # to close what a thread holds may never end
        self._lock = threading.Lock()
        self._places = OrderedDict()
        self._size = 0
        self._left: Any = None  # the key that was left last

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """What is kept, or else what `make` gives."""
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
            if self._places.get(key) is not place:  # dropped meanwhile
                return
            if place.value is None:  # but an error
                del self._places[key]
                return
            place.size = place.value.size
            self._size += place.size
            while self._size > self.most and len(self._places) > 1:
                self._size -= self._places.popitem(last=False)[1].size

    def leave(self, key: Any, count: float) -> None:
        """A value was read to its end, in order, as one of about so many.

        Of these the last two stay, where not all of them fit: the others would be dropped before
        they are read again.
        """
        with self._lock:
            place = self._places.get(key)
            if place is not None and place.size * count > self.most and self._left != key:
                if (left := self._places.pop(self._left, None)) is not None:
                    self._size -= left.size
                self._left = key

    def values(self) -> list[T]:
        """What is kept."""
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
