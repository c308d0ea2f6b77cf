"""Files elsewhere: object stores by obstore, all else by fsspec.

Both try again by themselves where a server is busy or a connection ends: obstore up to 5 times
within a minute, fsspec's packages as `time_limits` says. Credentials are those of the
environment, so that no path, listing or state has any.
"""

from __future__ import annotations

import errno
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import chain
from typing import Any

from lazyckpt.errors import ArgumentError, PipelineError, StorageError
from lazyckpt.io.storage import File, Ranges, Storage, changed, gone, optional_module
from lazyckpt.io.time_limits import fsspec_options

_OBSTORE = {"s3", "gs", "az"}
_RETRY = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
_CLIENT = {"timeout": "60s", "connect_timeout": "10s"}
_VERSIONS = (
    "ETag", "etag", "version_id", "mtime", "last_modified", "LastModified", "Last-Modified",
    "created",
)  # fmt: skip

_first_process: int | None = None  # that has used obstore, which doesn't outlive a fork


def open_storage(scheme: str) -> Storage:
    """What reaches the URLs of a scheme, for this process."""
    global _first_process
    if scheme not in _OBSTORE or find_spec("obstore") is None:
        return FsspecStorage(scheme)
    if _first_process is None:
        _first_process = os.getpid()
    if _first_process == os.getpid():
        return ObstoreStorage(scheme)
    if scheme == "s3" and find_spec("s3fs") is not None:
        return FsspecStorage(scheme)
    raise PipelineError(
        f"{scheme}:// can't be read in a forked process by obstore, which would wait for ever; "
        "pass processes(..., start_method='spawn'), or for s3:// install s3fs"
    )


class RemoteStorage:
    """Files elsewhere, of which parts may be kept on this machine. A subclass fetches them."""

    def fetch(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        """The bytes of ranges, from where they are."""
        raise NotImplementedError

    def read(self, file: File, start: int, stop: int) -> bytes:
        return self.read_ranges(file, [(start, stop)])[0]

    def read_ranges(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        if file.cache is None:
            return self.fetch(file, ranges)
        name = f"{file.path}\n{file.size}\n{file.version}"
        return file.cache.read_ranges(name, file.size, ranges, partial(self.fetch, file))


class ObstoreStorage(RemoteStorage):
    """An object store. What is read has to have the ETag of the listing."""

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme
        self._obstore = optional_module("obstore", scheme, f"{scheme}://")
        self._store = lru_cache(self._open)

    def _open(self, bucket: str) -> Any:
        is_plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
        return self._obstore.store.from_url(
            f"{self.scheme}://{bucket}",
            client_options={**_CLIENT, "allow_http": is_plain},
            retry_config=_RETRY,
        )

    def list(self, pattern: str) -> Sequence[File]:
        store, bucket, key = self._place(pattern)
        fixed = _MAGIC.split(key)[0]
        with _naming(pattern):
            if fixed == key:
                return [self._listed(pattern, store, key)]
            folder, matches = fixed.rpartition("/")[0], matcher(key)
            if "/" in key[len(folder) + 1 :] or "**" in key:
                listed = chain.from_iterable(self._obstore.list(store, prefix=folder or None))
                below: Sequence[str] = ()
            else:  # of one folder alone
                level = self._obstore.list_with_delimiter(store, prefix=folder or None)
                listed, below = level["objects"], [f"{each}/" for each in level["common_prefixes"]]
            found = {each["path"]: each for each in listed}
        keys = sorted([*found, *below])
        return [
            self._file(f"{self.scheme}://{bucket}/{key}", found[key])
            for key in keys
            if key in found and matches(key) and (found[key]["size"] or not _is_folder(key, keys))
        ]

    def _listed(self, path: str, store: Any, key: str) -> File:
        try:
            return self.stat(path)
        except FileNotFoundError:
            if any(self._obstore.list(store, prefix=key.rstrip("/"), chunk_size=1)):
                raise _directory(path) from None
            raise

    def stat(self, path: str) -> File:
        store, _, key = self._place(path)
        with _naming(path):
            return self._file(path, self._obstore.head(store, key))

    def _get(self, file: File, start: int, stop: int) -> bytes:
        if start == stop:
            return b""
        store, _, key = self._place(file.path)
        options = {"range": (start, stop), "if_match": f'"{file.version}"'}
        with _reading(file):
            try:
                found = bytes(self._obstore.get(store, key, options=options).bytes())
            except self._obstore.exceptions.PreconditionError as error:
                raise changed(file, self.stat(file.path)) from error
            if len(found) != stop - start:
                raise changed(file, self.stat(file.path))
        return found

    def fetch(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        return _read_filled(ranges, lambda some: self._fetch_filled(file, some))

    def _fetch_filled(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        if len(ranges) == 1:
            return [self._get(file, *ranges[0])]
        store, _, key = self._place(file.path)
        starts, ends = map(list, zip(*ranges, strict=True))
        with _reading(file):
            found = self._obstore.get_ranges(store, key, starts=starts, ends=ends)
            now = self.stat(file.path)  # it has no condition of its own
        if now != file:
            raise changed(file, now)
        return [bytes(part) for part in found]

    def _place(self, path: str) -> tuple[Any, str, str]:
        bucket, _, key = path.partition("://")[2].partition("/")
        if not bucket or not key:
            raise ArgumentError(f"files: {path} needs a bucket and a key: {self.scheme}://bucket/*")
        return self._store(bucket), bucket, key

    def _file(self, path: str, found: Any) -> File:
        version = found["e_tag"] or str(found["last_modified"])
        return File(path, found["size"], version.strip('"'))


class FsspecStorage(RemoteStorage):
    """What fsspec reaches. A file's version is compared when a process first reads it."""

    def __init__(self, scheme: str) -> None:
        extra = "s3" if scheme == "s3" else "fsspec"
        fsspec = optional_module("fsspec", extra, f"{scheme}://")
        try:
            given = fsspec.config.conf.get(scheme, {})
            self._system = fsspec.filesystem(scheme, **fsspec_options(scheme, given))
        except ImportError as error:
            raise PipelineError(f"{scheme}:// can't be opened: {error}") from error
        except ValueError as error:
            raise ArgumentError(f"files: {error}") from error
        self._known: set[File] = set()

    def list(self, pattern: str) -> Sequence[File]:
        if _MAGIC.search(pattern) is None:
            return [self.stat(pattern)]
        with _naming(pattern):
            found = self._system.glob(pattern, detail=True).values()
        return [
            self.stat(info["name"]) if info["size"] is None else self._file(info)
            for info in found
            if info["type"] == "file" and not info["name"].endswith("/")
        ]

    def stat(self, path: str) -> File:
        self._system.invalidate_cache()
        with _naming(path):
            info = self._system.info(path)
        if info["type"] == "directory":
            raise _directory(path)
        return self._file(info)

    def fetch(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        if file not in self._known:
            self._check(file)
            self._known.add(file)
        return _read_filled(ranges, lambda some: self._read_ranges(file, some))

    def _read_ranges(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        starts, ends = map(list, zip(*ranges, strict=True))
        paths = [file.path] * len(ranges)
        with _reading(file):
            found: list[bytes] = self._system.cat_ranges(paths, starts, ends, on_error="raise")
        if any(len(part) != end - start for part, (start, end) in zip(found, ranges, strict=True)):
            self._check(file)
            raise StorageError(f"{file.path} gave fewer bytes than were asked for")
        return found

    def _check(self, file: File) -> None:
        with _reading(file):
            now = self.stat(file.path)
        if now != file:
            raise changed(file, now)

    def _file(self, info: Any) -> File:
        version = next((info[name] for name in _VERSIONS if info.get(name) is not None), "")
        if isinstance(version, datetime):  # some say the same in two ways
            version = version.timestamp()
        path = self._system.unstrip_protocol(info["name"])
        if info["size"] is None:
            raise PipelineError(f"{path}: its server doesn't say how many bytes it has")
        return File(path, info["size"], str(version).strip('"'))


def _read_filled(ranges: Ranges, read: Callable[[Ranges], Sequence[bytes]]) -> Sequence[bytes]:
    """The bytes of ranges, of which `read` is asked for those that have any."""
    wanted = [(start, stop) for start, stop in ranges if start < stop]
    found = iter(read(wanted) if wanted else ())
    return [next(found) if start < stop else b"" for start, stop in ranges]


def _directory(path: str) -> ArgumentError:
    return ArgumentError(f"files: {path} is a directory; write {path.rstrip('/')}/*")


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Errors of a package name what was to be read."""
    try:
        yield
    except (ArgumentError, PipelineError):
        raise
    except FileNotFoundError as error:
        if (reason := _no_answer(error)) is not None:
            raise StorageError(f"{path} can't be read: {reason}") from error
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    except Exception as error:
        raise StorageError(f"{path} can't be read: {_reason(error)}") from error


@contextmanager
def _reading(file: File) -> Iterator[None]:
    """Errors of reading what was listed."""
    try:
        with _naming(file.path):
            yield
    except FileNotFoundError:
        raise gone(file) from None


def _no_answer(error: FileNotFoundError) -> str | None:
    """Why nobody knows whether there is a file, which fsspec takes for none over HTTP."""
    cause = error.__cause__
    is_http = isinstance(cause, TimeoutError) or type(cause).__module__.startswith("aiohttp")
    if not isinstance(cause, Exception) or not is_http:
        return None
    return None if getattr(cause, "status", 0) in (404, 410) else _reason(cause)


def _reason(error: Exception) -> str:
    """What an error says in one line: of XML the code and the message, which have no names."""
    text = str(error)
    said = dict.fromkeys(re.findall("<(?:Code|Message)>([^<]*)<", text))
    return ": ".join([re.split("\n|<", text)[0].rstrip(": "), *said])


def _is_folder(key: str, keys: Sequence[str]) -> bool:
    """Whether a key without content only makes a folder seen; `keys` are sorted."""
    at = bisect_left(keys, f"{key}/")
    return at < len(keys) and keys[at].startswith(f"{key}/")


_MAGIC = re.compile(r"((?<![^/])\*\*(?:/|$)|[*?]|\[[^]]+\])")


def matcher(pattern: str) -> Callable[[str], object]:
    """Whether a key matches: `*` within a folder, `**` across folders."""
    parts = _MAGIC.split(pattern)
    return re.compile("".join(map(_expression, parts)), re.DOTALL).fullmatch


def _expression(part: str) -> str:
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if _MAGIC.fullmatch(part) and part not in known:
        return part.replace("[!", "[^")
    return known.get(part) or re.escape(part)
