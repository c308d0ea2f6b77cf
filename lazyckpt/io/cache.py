"""Files that are made once and kept: whole or not at all, by one process at a time."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from uuid import uuid4

from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.io.locks import exclusive_lock

_ABANDONED = 3600  # seconds in which nothing was written
_SUFFIXES = (".index", ".counts", ".pieces", ".points")
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


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
def build_lock(path: str, is_done: Callable[[], bool]) -> Iterator[bool]:
    """Whether there is something to do, once no other process does it."""
    if is_done():
        yield False
        return
    with exclusive_lock(path):
        yield not is_done()
