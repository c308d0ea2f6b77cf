"""Paths of this machine that a pattern matches; a folder that can't be read is an error."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import translate
from glob import has_magic

_Inode = tuple[int, int]


def inode(path: str) -> _Inode:
    """What a file or folder is, by whatever name."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


def matching(pattern: str) -> Iterator[str]:
    """The paths that an absolute pattern matches, as `glob` has them, but `**` never folders.

    Links are followed; one that leads to a folder above itself, once.
    """
    parts = pattern.lstrip("/").split("/")
    pairs = zip(parts, ["", *parts], strict=False)
    yield from _below("/", [part for part, before in pairs if (part, before) != ("**", "**")], ())


def _below(folder: str, parts: list[str], above: tuple[_Inode, ...]) -> Iterator[str]:
    """What the parts of a pattern match in a folder; `above` are those that `**` came by."""
    first, *rest = parts
    if first == "**":
        yield from _anywhere(folder, rest, above)
    elif has_magic(first):
        match = re.compile(translate(first)).match
        for entry in _entries(folder):
            if match(entry.name) and entry.name.startswith(".") <= first.startswith("."):
                yield from _found(entry.path, rest)
    elif os.path.lexists(path := os.path.join(folder, first)):
        yield from _found(path, rest)


def _found(path: str, rest: list[str]) -> Iterator[str]:
    if not rest:
        yield path
    elif os.path.isdir(path):
        yield from _below(path, rest, ())


def _anywhere(folder: str, rest: list[str], above: tuple[_Inode, ...]) -> Iterator[str]:
    here = inode(folder)
    if above.count(here) > 1:
        return
    if rest:
        yield from _below(folder, rest, ())
    for entry in _entries(folder):
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry)):
            yield from _below(entry.path, ["**", *rest], (*above, here))
        elif not rest:
            yield entry.path


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return list(found)
