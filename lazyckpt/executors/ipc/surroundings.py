"""The surroundings of a process, for new ones: its paths, its environment, its limits."""

from __future__ import annotations

import os
import re
import resource
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from operator import is_not
from types import FunctionType
from typing import Any, NamedTuple

_INSTALLED = tuple([sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib")])
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


_code: dict[str, list[Any]] = {}  # of the program's own modules, at the last look


def were_reloaded() -> bool:
    """Return whether a module of the program has changed since the last call.

    It is executed again by `importlib.reload`; `%autoreload` of IPython replaces the code of its
    functions.
    """
    found = {name: [*_code_of(names)] for name, names in _own_modules()}
    pairs = [(_code[name], now) for name, now in found.items() if name in _code]
    _code.update(found)
    return any(len(was) != len(now) or any(map(is_not, was, now)) for was, now in pairs)


def _own_modules() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and contents of the modules that aren't installed packages."""
    for name, module in [*sys.modules.items()]:
        names = getattr(module, "__dict__", {})
        file = names.get("__file__")
        is_ours = name.partition(".")[0] in ("__main__", "__mp_main__", "lazyckpt")
        if isinstance(file, str) and not is_ours and not file.startswith(_INSTALLED):
            yield name, names


def _code_of(names: dict[str, Any]) -> Iterator[Any]:
    """Yield objects of a module that are different ones once it was reloaded."""
    yield names.get("__spec__")
    for value in [*names.values()]:
        found = [*vars(value).values()] if issubclass(type(value), type) else [value]
        yield from (each.__code__ for each in found if type(each) is FunctionType)
