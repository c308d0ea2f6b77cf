"""Lines of real text: the standard library's, cut once into chunks, or the user's files."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import shutil
import sysconfig
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import IO, cast

CHUNKS = 64
_VERSION = 1  # version of the chunks; a change makes older ones stale
_CONTENTS = "contents.json"


class BadData(Exception):
    """The data can't be trained on; the message names the data and the reason."""


@dataclass(frozen=True)
class Text:
    """Files of text, by name in a folder, and their total number of lines."""

    folder: Path
    names: tuple[str, ...]
    lines: int
    files: int


def opened(path: Path) -> IO[bytes]:
    """Open a file of lines, decompressed if its name ends in `.gz`."""
    if path.suffix != ".gz":
        return path.open("rb")
    return BufferedReader(cast(BufferedReader, gzip.open(path, "rb")))


def users(paths: Sequence[str]) -> Text:
    """Return the user's own files, read once to check that they are text, else `BadData`."""
    names = [name for path in paths for name in _files(path)]
    lines = sum(_lines(name) for name in names)
    if not lines:
        raise BadData(f"no line of text in {', '.join(map(repr, paths))}")
    return Text(Path(), tuple(names), lines, len(names))


def _files(path: str) -> list[str]:
    place = Path(path)
    try:
        if place.is_dir():
            inside = sorted(p for p in place.rglob("*") if p.is_file())
            found = [str(p) for p in inside if not _is_hidden(p.relative_to(place))]
            if not found:
                raise BadData(f"no file in the folder {path!r}")
            return found
        if not place.exists():
            raise BadData(f"no such file or folder: {path!r}")
        if not place.is_file():
            raise BadData(f"not a regular file, so it can't be read again: {path!r}")
        if not place.stat().st_size:
            raise BadData(f"the file is empty: {path!r}")
    except OSError as error:
        raise BadData(f"cannot read {path!r}: {error.strerror}") from None
    return [path]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _lines(name: str) -> int:
    number = 0
    try:
        with opened(Path(name)) as file:
            for line in file:
                number += 1
                line.decode()
    except UnicodeDecodeError as error:
        raise BadData(f"not UTF-8 text: {name!r}, line {number:,}: {error.reason}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadData(f"not a whole gzip file: {name!r}: {error}") from None
    except OSError as error:
        raise BadData(f"cannot read {name!r}: {error.strerror}") from None
    return number


def library(tell: Callable[[str], None] = lambda text: None) -> Text:
    """Return the standard library's `.py` files, as 64 gzip chunks in the user's cache.

    They are cut on first use, and again if the library has changed. A folder of chunks appears
    whole or not at all.
    """
    root = Path(sysconfig.get_path("stdlib"))
    files = [path for path in sorted(root.rglob("*.py")) if not _is_foreign(path.relative_to(root))]
    if not files:
        raise BadData(f"no .py file in {str(root)!r}; pass your own text with --data")
    folder = _cache() / f"python-{platform.python_version()}-{_key(files)}"
    try:
        if _read(folder) is None:
            tell(f"cutting {len(files):,} files into chunks, kept in {str(folder.parent)!r}")
            _cut(files, folder)
    except OSError as error:
        raise BadData(
            f"cannot keep chunks in {str(folder.parent)!r}: {error.strerror}; "
            "set XDG_CACHE_HOME to a folder that can be written"
        ) from None
    found = _read(folder)
    if found is None:
        raise BadData(f"the chunks in {str(folder)!r} are gone; is something removing them?")
    return found


def _is_foreign(path: Path) -> bool:
    return any(part in ("site-packages", "dist-packages") for part in path.parts)


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "lazyckpt"


def _key(files: Sequence[Path]) -> str:
    stats = [(str(path), path.stat()) for path in files]
    content = repr([_VERSION, [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]])
    return hashlib.sha256(content.encode(errors="surrogateescape")).hexdigest()[:12]


def _read(folder: Path) -> Text | None:
    """Return the chunks in a folder; None if one is missing or has a different size."""
    try:
        contents = json.loads((folder / _CONTENTS).read_text("utf-8"))
        sizes: dict[str, int] = contents["sizes"]
        if any((folder / name).stat().st_size != size for name, size in sizes.items()):
            return None
        return Text(folder, tuple(sizes), contents["lines"], contents["files"])
    except (OSError, ValueError, KeyError):
        return None


def _cut(files: Sequence[Path], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
    try:
        texts = [text for path in files if (text := _utf8(path))]
        lines = BytesIO(b"".join(texts)).readlines()
        sizes = {}
        for number in range(CHUNKS):
            share = lines[len(lines) * number // CHUNKS : len(lines) * (number + 1) // CHUNKS]
            chunk = part / f"chunk-{number:02}.gz"
            sizes[chunk.name] = chunk.write_bytes(gzip.compress(b"".join(share), 6, mtime=0))
        contents = {"files": len(texts), "lines": len(lines), "sizes": sizes}
        (part / _CONTENTS).write_text(json.dumps(contents))
        _put(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _put(part: Path, folder: Path) -> None:
    """Rename, unless another process was faster; its result is equivalent."""
    try:
        part.rename(folder)
    except OSError:
        if _read(folder) is None:
            shutil.rmtree(folder)
            part.rename(folder)


def _utf8(path: Path) -> bytes:
    """Return a file's text with a newline at its end; nothing if it is not UTF-8.

    Some of the library's tests aren't.
    """
    text = path.read_bytes()
    try:
        text.decode()
    except UnicodeDecodeError:
        return b""
    return text if not text or text.endswith(b"\n") else text + b"\n"


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file."""
    with opened(path) as file:
        yield from file
