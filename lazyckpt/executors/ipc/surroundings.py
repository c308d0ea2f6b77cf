"""The surroundings of a process, for new ones: its paths, its environment, its limits."""

from __future__ import annotations

import os
import re
import resource
import sys
import sysconfig
from abc import ABCMeta
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from itertools import chain, compress, repeat
from operator import is_not, methodcaller, not_
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

_INSTALLED = (  # where modules lie that nobody reloads; `None` has no file
    "None",
    str(Path(__file__).parents[2]),
    *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
)
_WORDS = re.compile(rb"[A-Za-z_][A-Za-z_0-9.]*")


class Surroundings(NamedTuple):
    """The surroundings of a process.

    Attributes:
        path: Where it looks for modules.
        arguments: The arguments of its program.
        directory: Its working directory; empty if that was deleted.
        environment: Its environment variables.
        modules: Modules to import.
        recursion_limit: How deep its calls may nest.
        file_limit: How many files it may open.
    """

    path: list[str]
    arguments: list[str]
    directory: str
    environment: dict[str, str]
    modules: list[str]
    recursion_limit: int
    file_limit: int

    def enter(self) -> None:
        """Give this process the same surroundings, except for its modules."""
        sys.path[:], sys.argv[:] = self.path, self.arguments
        os.environ.clear()
        os.environ.update(self.environment)
        with suppress(OSError):
            os.chdir(self.directory)
        sys.setrecursionlimit(self.recursion_limit)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with suppress(ValueError, OSError):  # above what this process may have
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.file_limit, most))

    def import_modules(self) -> bool:
        """Import the modules that can be imported; return whether there were new ones."""
        new = [name for name in self.modules if name not in sys.modules]
        for name in new:
            with suppress(Exception, SystemExit):  # what needs the module raises it again
                import_module(name)
        return bool(new)


def surroundings(pickled: bytes) -> Surroundings:
    """Return the surroundings of this process, with the modules that are named in a pickle."""
    try:
        directory = os.getcwd()
    except OSError:
        directory = ""
    named = {word.decode() for word in _WORDS.findall(pickled)} & sys.modules.keys()
    return Surroundings(
        sys.path[:],
        sys.argv[:],
        directory,
        {**os.environ},
        sorted(named - {"__main__"}),
        sys.getrecursionlimit(),
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


_code: dict[Any, Any] = {}  # of the program's own modules, at the last look


def were_reloaded() -> bool:
    """Return whether a module of the program has changed since the last call.

    It is executed again by `importlib.reload`; `%autoreload` of IPython replaces the code of its
    functions.
    """
    # Without loops in Python, as there may be thousands of modules.
    names, modules = zip(*[*sys.modules.items()], strict=True)
    contents = [*map(getattr, modules, repeat("__dict__"), repeat({}))]
    files = map(str, map(methodcaller("get", "__file__"), contents))
    are_own = map(not_, map(methodcaller("startswith", _INSTALLED), files))
    values = _flat(dict(compress(zip(names, contents, strict=True), are_own)))
    are_classes = map({type, ABCMeta}.__contains__, map(type, values.values()))
    classes = [*compress(values.values(), are_classes)]
    values |= _flat(dict(zip(classes, map(vars, classes), strict=True)))
    is_code = map({FunctionType, ModuleSpec}.__contains__, map(type, values.values()))
    found = dict(compress(values.items(), is_code))
    codes = map(getattr, found.values(), repeat("__code__"), found.values())
    found = dict(zip(found, codes, strict=True))
    known = [*_code.keys() & found.keys()]
    has_changed = any(map(is_not, map(_code.get, known), map(found.get, known)))
    _code.update(found)
    return has_changed


def _flat(parts: dict[Any, Any]) -> dict[Any, Any]:
    """Return the values of several modules or classes, by these and their names."""
    contents = [*map(dict, parts.values())]
    keys = chain.from_iterable(map(zip, map(repeat, parts), contents))
    values = chain.from_iterable(map(methodcaller("values"), contents))
    return dict(zip(keys, values, strict=True))
