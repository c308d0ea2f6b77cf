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
from itertools import chain, compress, repeat
from operator import attrgetter, methodcaller, not_
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

_INSTALLED = (  # where modules lie that nobody reloads; "None" for those without a file
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


_files: dict[str, Any] = {}  # of modules of the program, as they were when first seen
_known: dict[Any, Any] = {}  # the specs of these modules, and the code of functions


def were_reloaded() -> bool:
    """Return whether a module of the program has changed since the last call.

    `importlib.reload` gives it a new `__spec__`; `%autoreload` of IPython may give its functions
    new code instead, once its file has changed. Modules and names that are new haven't changed.
    """
    modules = _own_modules()
    files = {name: _version(each.get("__file__")) for name, each in modules.items()}
    new_or_edited = {name: modules[name] for name in files if files[name] != _files.get(name)}
    _files.update({**files, **_files})
    found: dict[Any, Any] = {name: each.get("__spec__") for name, each in modules.items()}
    found |= _code(new_or_edited)
    has_changed = any(_known[each] is not found[each] for each in _known.keys() & found.keys())
    _known.update(found)
    return has_changed


def _version(file: Any) -> tuple[int, int] | None:
    """Return what differs between two versions of a file; None if there is no file."""
    with suppress(OSError, TypeError, ValueError):
        found = os.stat(file)
        return found.st_mtime_ns, found.st_size
    return None


# These have no loop in Python, as there may be thousands of modules, and many more names.


def _own_modules() -> dict[str, dict[str, Any]]:
    """Return the contents of the modules that are no installed packages, by name."""
    names, modules = zip(*[*sys.modules.items()], strict=True)
    contents = [*map(getattr, modules, repeat("__dict__"), repeat({}))]
    files = map(str, map(methodcaller("get", "__file__"), contents))
    are_own = map(not_, map(methodcaller("startswith", _INSTALLED), files))
    found = dict(compress(zip(names, contents, strict=True), are_own))
    found.pop("__main__", None)  # workers don't import it
    found.pop("__mp_main__", None)
    return found


def _code(modules: dict[str, dict[str, Any]]) -> dict[Any, Any]:
    """Return the code of functions and methods, by module or class, and name."""
    values = _by_name(modules)
    classes = [*_of_kinds(values, type, ABCMeta).values()]
    values |= _by_name(dict(zip(classes, map(vars, classes), strict=True)))
    functions = _of_kinds(values, FunctionType)
    return dict(zip(functions, map(attrgetter("__code__"), functions.values()), strict=True))


def _by_name(owners: dict[Any, Any]) -> dict[Any, Any]:
    """Return the values in several modules or classes, by their owner and name."""
    contents = [*map(dict, owners.values())]
    keys = chain.from_iterable(map(zip, map(repeat, owners), contents))
    values = chain.from_iterable(map(methodcaller("values"), contents))
    return dict(zip(keys, values, strict=True))


def _of_kinds(values: dict[Any, Any], *kinds: type) -> dict[Any, Any]:
    """Return the values that have one of some types exactly: no proxy is asked for its class."""
    are_kept = map({*kinds}.__contains__, map(type, values.values()))
    return dict(compress(values.items(), are_kept))
