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


def glob_files(pattern: str) -> Iterator[str]:
    """The paths that an absolute pattern matches, as `glob` has them, but `**` never folders.

    Links are followed, but for those that lead to a folder above themselves.
    """
    parts = pattern.lstrip("/").split("/")
    pairs = zip(parts, ["", *parts], strict=False)
    yield from _below("/", [part for part, before in pairs if (part, before) != ("**", "**")])


def _below(folder: str, parts: list[str], above: tuple[_Inode, ...] = ()) -> Iterator[str]:
    """What the parts of a pattern match in a folder; `above` are those that `**` came by."""
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
    """The names in a folder, and their paths, of which some may begin with a dot."""
    names = [name for name in os.listdir(folder) if name.startswith(".") <= is_hidden]
    return [(name, os.path.join(folder, name)) for name in names]
