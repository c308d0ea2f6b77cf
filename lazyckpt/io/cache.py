"""Files that are made once and kept: whole or not at all, by one process at a time."""

from __future__ import annotations

import errno
import os
import platform
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path
from uuid import uuid4
from weakref import WeakSet

from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.io.locks import lock, unlock

_HOST = f"{zlib.crc32(platform.node().encode()):08x}"
_TEMPORARY = re.compile(r"\.([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.tmp$")

_SUFFIXES = (".index", ".counts", ".pieces", ".points")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


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


def write_whole(path: str, content: bytes) -> None:
    """Write a file: the whole of it, or nothing."""
    with writing(path) as temporary:
        Path(temporary).write_bytes(content)


@contextmanager
def writing(path: str) -> Iterator[str]:
    """A path to write to, which becomes `path` once that is done without an error."""
    temporary = f"{path}.{_HOST}-{os.getpid()}-{uuid4().hex[:8]}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            os.remove(temporary)


def remove_abandoned(folder: str) -> None:
    """Remove what processes of this machine have begun to write that were killed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            found = _TEMPORARY.search(entry.name)
            if found and found[1] == _HOST and not _is_alive(int(found[2])):
                with suppress(OSError):  # another may be at it
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


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":  # 0 is Ctrl-C's
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


@contextmanager
def storing(folder: str) -> Iterator[None]:
    """Errors of a cache folder say where it is, and how to have another."""
    try:
        os.makedirs(folder, exist_ok=True)
        yield
    except OSError as error:
        if error.errno not in _FULL and not str(error.filename or "").startswith(folder):
            raise  # of what is read
        raise PipelineError(
            f"the index can't be written to {folder}: {error}; set LAZYCKPT_CACHE, or "
            "index_dir=, to a folder with room"
        ) from error


@contextmanager
def alone(path: str, is_done: Callable[[], bool]) -> Iterator[bool]:
    """Whether there is something to do, once no other process does it.

    The lock is the kernel's, so that it ends with a process that is killed; what that has
    forked doesn't keep it.
    """
    if is_done():
        yield False
        return
    with open(path, "ab") as file:
        _locked.add(file)
        lock(file)
        try:
            yield not is_done()
        finally:
            if not file.closed:  # as in what was forked, which may not have come to it yet
                unlock(file)


_locked: WeakSet[BufferedWriter] = WeakSet()


def _close_locked() -> None:
    for file in list(_locked):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_locked)
