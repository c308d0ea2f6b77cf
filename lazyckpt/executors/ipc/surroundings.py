"""The surroundings of a process, for new ones: its paths, its environment, its limits."""

from __future__ import annotations

import os
import re
import resource
import sys
from contextlib import suppress
from importlib import import_module
from typing import NamedTuple

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
