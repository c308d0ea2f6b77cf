"""Remote files: object stores by obstore, all other URLs by fsspec.

If a server is busy or a connection ends, a request is retried up to 5 times within a minute.
Credentials come from the environment, so no path, listing or state contains any. For AWS, boto3
finds and renews them if it is installed, else obstore finds them.
"""

from __future__ import annotations

import errno
import os
import pickle
import re
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import lru_cache, partial, partialmethod
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from threading import Lock
from time import monotonic, sleep
from typing import Any, TypeVar

from lazyckpt.errors import ArgumentError, PipelineError, StorageError
from lazyckpt.io.storage import File, Ranges, Storage, changed_error, gone_error, optional_module

T = TypeVar("T")

_OBSTORE = {"s3", "gs", "az"}
CONNECT_TIMEOUT, READ_TIMEOUT = 10, 60  # seconds
_CLIENT = {"timeout": f"{READ_TIMEOUT}s", "connect_timeout": f"{CONNECT_TIMEOUT}s"}
RETRY = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
WAITS = [0.1, 0.3, 1, 3, 9]  # seconds before fsspec is asked again
KEPT = timedelta(minutes=10)  # credentials from boto3 stay valid for longer; it renews them
_VERSIONS = (
    "ETag", "etag", "version_id", "mtime", "last_modified", "LastModified", "Last-Modified",
    "created",
)  # fmt: skip

_first_process: int | None = None  # process that first used obstore, which breaks in a fork


def open_storage(scheme: str) -> Storage:
    """Return a storage for the URLs of a scheme, for this process."""
    global _first_process
    if scheme not in _OBSTORE:
        return FsspecStorage(scheme)
    if _first_process is None:
        _first_process = os.getpid()
    is_forked = _first_process != os.getpid()
    return ForkedObstoreStorage(scheme) if is_forked else ObstoreStorage(scheme)


class RemoteStorage:
    """Remote files, with an optional cache on this machine; a subclass fetches the bytes."""

    def fetch(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        """Fetch the bytes of non-empty ranges from the server."""
        raise NotImplementedError

    def read(self, file: File, start: int, stop: int) -> bytes:
        return self.read_ranges(file, [(start, stop)])[0]

    def read_ranges(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        wanted = [(start, stop) for start, stop in ranges if start < stop]
        found: Iterator[bytes] = iter(())
        if wanted and file.cache is None:
            found = iter(self.fetch(file, wanted))
        elif wanted and file.cache is not None:
            name, fetch = f"{file.path}\n{file.size}\n{file.version}", partial(self.fetch, file)
            found = iter(file.cache.read_ranges(name, file.size, wanted, fetch))
        return [next(found) if start < stop else b"" for start, stop in ranges]


class ObstoreStorage(RemoteStorage):
    """An object store; files must have the ETag of the listing when they are read."""

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme
        self._obstore = optional_module("obstore", scheme, f"{scheme}://")
        self._store = lru_cache(self._open)

    def _open(self, bucket: str) -> Any:
        is_plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
        return self._obstore.store.from_url(
            f"{self.scheme}://{bucket}",
            client_options={**_CLIENT, "allow_http": is_plain},
            retry_config=RETRY,
            credential_provider=_boto_credentials() if self.scheme == "s3" else None,
        )

    def list(self, pattern: str) -> Sequence[File]:
        with _naming(pattern):
            try:
                return self._matching(pattern)
            except self._obstore.exceptions.BaseError as error:
                if "invalid path" not in str(error):
                    raise
                return self._by_fsspec(pattern, _reason(error))

    def _matching(self, pattern: str) -> Sequence[File]:
        store, bucket, key = self._place(pattern)
        fixed = _MAGIC.split(key)[0]
        if fixed == key:
            return [self._listed(pattern, store, key)]
        folder, matches = fixed.rpartition("/")[0], matcher(key)
        if "/" in key[len(folder) + 1 :] or "**" in key:
            listed = chain.from_iterable(self._obstore.list(store, prefix=folder or None))
            below: Sequence[str] = ()
        else:  # the pattern matches in one folder only
            level = self._obstore.list_with_delimiter(store, prefix=folder or None)
            listed, below = level["objects"], [f"{each}/" for each in level["common_prefixes"]]
        found = {each["path"]: each for each in listed}
        keys = sorted([*found, *below])
        return [
            self._file(f"{self.scheme}://{bucket}/{key}", found[key])
            for key in keys
            if key in found and matches(key) and (found[key]["size"] or not _is_folder(key, keys))
        ]

    def _by_fsspec(self, pattern: str, reason: str) -> Sequence[File]:
        """List the files of a pattern by fsspec, because obstore fails at an invalid path."""
        if self.scheme != "s3" or find_spec("s3fs") is None:
            raise PipelineError(
                f"{pattern} can't be listed: {reason}; rename that key, or match a folder without "
                "it" + ", or install s3fs, which can list it" * (self.scheme == "s3")
            )
        return FsspecStorage(self.scheme).list(pattern)

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

    def fetch(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        store, _, key = self._place(file.path)
        with _reading(file):
            if len(ranges) == 1:
                options = {"range": ranges[0], "if_match": f'"{file.version}"'}
                with suppress(self._obstore.exceptions.PreconditionError):
                    found = bytes(self._obstore.get(store, key, options=options).bytes())
                    if len(found) == ranges[0][1] - ranges[0][0]:
                        return [found]
            else:
                starts, ends = map(list, zip(*ranges, strict=True))
                parts = self._obstore.get_ranges(store, key, starts=starts, ends=ends)
                if self.stat(file.path) == file:  # get_ranges takes no `if_match`
                    return [bytes(part) for part in parts]
            raise changed_error(file, self.stat(file.path))

    def _place(self, path: str) -> tuple[Any, str, str]:
        bucket, _, key = path.partition("://")[2].partition("/")
        if not bucket or not key:
            raise ArgumentError(f"files: {path} needs a bucket and a key: {self.scheme}://bucket/*")
        return self._store(bucket), bucket, key

    def _file(self, path: str, found: Any) -> File:
        version = found["e_tag"] or str(found["last_modified"])
        return File(path, found["size"], version.strip('"'))


def _boto_credentials() -> Any:
    """Return a provider of the credentials that boto3 finds and renews; None if it finds none."""
    try:
        return import_module("obstore.auth.boto3").Boto3CredentialProvider(ttl=KEPT)
    except (ImportError, ValueError):
        return None


class ForkedObstoreStorage(RemoteStorage):
    """An object store read by a new process for a forked one, where obstore would hang."""

    def __init__(self, scheme: str) -> None:
        self.scheme, self._lock = scheme, Lock()
        self.process = self._started()

    def _started(self) -> Any:
        return subprocess.Popen(
            [sys.executable, "-c", f"import {__name__} as it; it.serve({self.scheme!r})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,  # it ends when stdin closes, and ignores Ctrl-C
        )

    def _ask(self, *asked: Any) -> Any:
        with self._lock:
            try:
                pickle.dump(asked, self.process.stdin)
                self.process.stdin.flush()
                error, found = pickle.load(self.process.stdout)
            except BaseException as reason:  # a later answer would belong to this request
                self.process.kill()
                self.process = self._started()
                if not isinstance(reason, (EOFError, OSError)):
                    raise
                what = f"the process that reads {self.scheme}:// has died"
                raise StorageError(f"{what}: asked to {asked[0]} {asked[1]}") from reason
        if error is not None:
            raise error
        return found

    list: Any = partialmethod(_ask, "list")
    stat: Any = partialmethod(_ask, "stat")
    fetch: Any = partialmethod(_ask, "fetch")


def serve(scheme: str) -> None:
    """Answer the requests of another process for an object store, until stdin ends."""
    storage, answers = ObstoreStorage(scheme), sys.stdout.buffer
    sys.stdout = sys.stderr
    with suppress(EOFError):
        while True:
            name, *arguments = pickle.load(sys.stdin.buffer)
            answer: tuple[Exception | None, Any]
            try:
                answer = None, getattr(storage, name)(*arguments)
            except Exception as error:
                answer = error, None
            pickle.dump(answer, answers)
            answers.flush()


class FsspecStorage(RemoteStorage):
    """Files that fsspec reads; a process compares the version of a file when it first reads it."""

    def __init__(self, scheme: str) -> None:
        fsspec = optional_module("fsspec", "fsspec", f"{scheme}://")
        try:
            options = _http_options() if scheme in ("http", "https") else {}
            options |= fsspec.config.conf.get(scheme, {})
            self.system = fsspec.filesystem(scheme, **options)
        except ImportError as error:
            raise PipelineError(f"{scheme}:// can't be opened: {error}") from error
        except ValueError as error:
            raise ArgumentError(f"files: {error}") from error
        self._known: set[File] = set()

    def list(self, pattern: str) -> Sequence[File]:
        if _MAGIC.search(pattern) is None:
            return [self.stat(pattern)]
        found = _with_retries(pattern, lambda: self.system.glob(pattern, detail=True)).values()
        return [
            self.stat(info["name"]) if info["size"] is None else self._file(info)
            for info in found
            if info["type"] == "file" and not info["name"].endswith("/")
        ]

    def stat(self, path: str) -> File:
        self.system.invalidate_cache()
        info = _with_retries(path, lambda: self.system.info(path))
        if info["type"] == "directory":
            raise _directory(path)
        return self._file(info)

    def fetch(self, file: File, ranges: Ranges) -> Sequence[bytes]:
        if file not in self._known:
            self._check(file)
            self._known.add(file)
        starts, ends = map(list, zip(*ranges, strict=True))
        paths = [file.path] * len(ranges)
        with _reading(file):
            found: list[bytes] = _with_retries(
                file.path,
                lambda: self.system.cat_ranges(paths, starts, ends, on_error="raise"),
            )
        if any(len(part) != end - start for part, (start, end) in zip(found, ranges, strict=True)):
            self._check(file)
            raise StorageError(f"reading {file.path} returned fewer bytes than requested")
        return found

    def _check(self, file: File) -> None:
        with _reading(file):
            now = self.stat(file.path)
        if now != file:
            raise changed_error(file, now)

    def _file(self, info: Any) -> File:
        version = next((info[name] for name in _VERSIONS if info.get(name) is not None), "")
        if isinstance(version, datetime):  # some servers report one time in two forms
            version = version.timestamp()
        path = self.system.unstrip_protocol(info["name"])
        if info["size"] is None:
            raise PipelineError(f"{path}: its server doesn't report its size")
        return File(path, info["size"], str(version).strip('"'))


def _http_options() -> dict[str, Any]:
    """Return time limits for aiohttp's client; a whole answer has none, because it may be large."""
    limit = import_module("aiohttp").ClientTimeout
    limits = limit(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT)
    return {"client_kwargs": {"timeout": limits}}


def _with_retries(path: str, ask: Callable[[], T]) -> T:
    """Return the result of a request to fsspec, with retries if it fails temporarily."""
    waits, begun = iter(WAITS), monotonic()
    with _naming(path):
        while True:
            try:
                return ask()
            except Exception as error:
                wait = next(waits, None)
                if wait is None or monotonic() - begun > READ_TIMEOUT or not _is_transient(error):
                    raise
            sleep(wait)


def _is_transient(error: Exception) -> bool:
    """Return whether the same request may succeed later."""
    cause = _no_answer(error) if isinstance(error, FileNotFoundError) else error
    status = getattr(cause, "status", None)
    if status is not None:
        return bool(status >= 500 or status == 429)
    is_http = type(cause).__module__.startswith("aiohttp")
    return is_http or isinstance(cause, (TimeoutError, ConnectionError))


def _no_answer(error: FileNotFoundError) -> Exception | None:
    """Return the cause if fsspec reports a missing file over HTTP without an answer."""
    cause = error.__cause__
    is_http = isinstance(cause, TimeoutError) or type(cause).__module__.startswith("aiohttp")
    is_unknown = is_http and getattr(cause, "status", 0) not in (404, 410)
    return cause if is_unknown and isinstance(cause, Exception) else None


def _directory(path: str) -> ArgumentError:
    return ArgumentError(f"files: {path} is a directory; write {path.rstrip('/')}/*")


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Add the path to errors of storage packages."""
    try:
        yield
    except (ArgumentError, PipelineError):
        raise
    except FileNotFoundError as error:
        if (cause := _no_answer(error)) is not None:
            raise StorageError(f"{path} can't be read: {_reason(cause)}") from error
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    except Exception as error:
        raise StorageError(f"{path} can't be read: {_reason(error)}") from error


@contextmanager
def _reading(file: File) -> Iterator[None]:
    """Turn errors of reading a listed file into `SourceChanged` or `StorageError`."""
    try:
        with _naming(file.path):
            yield
    except FileNotFoundError:
        raise gone_error(file) from None


def _reason(error: Exception) -> str:
    """Return an error as one line; of XML only the code and the message, which have no names."""
    text = str(error)
    said = dict.fromkeys(re.findall(r"<(?:Code|Message)>([^<\n]*)", text))
    return ": ".join([re.split("\n|<", text)[0].rstrip(": "), *said])


def _is_folder(key: str, keys: Sequence[str]) -> bool:
    """Return whether an empty key only marks a folder; `keys` are sorted."""
    at = bisect_left(keys, f"{key}/")
    return at < len(keys) and keys[at].startswith(f"{key}/")


_MAGIC = re.compile(r"((?<![^/])\*\*(?:/|$)|[*?]|\[[^]]+\])")


def matcher(pattern: str) -> Callable[[str], object]:
    """Return a function that matches keys: `*` within a folder, `**` across folders."""
    parts = _MAGIC.split(pattern)
    return re.compile("".join(map(_expression, parts)), re.DOTALL).fullmatch


def _expression(part: str) -> str:
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if _MAGIC.fullmatch(part) and part not in known:
        return part.replace("[!", "[^")
    return known.get(part) or re.escape(part)
