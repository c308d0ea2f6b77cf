"""Lower bounds of dependencies are the versions of `lowest.txt`, which a suite has run with."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]


def pinned() -> dict[str, Version]:
    """The versions of `lowest.txt`, by name."""
    lines = (ROOT / "tests/lowest.txt").read_text().splitlines()
    found = {}
    for line in lines:
        if not line.startswith("#"):
            name, version = re.fullmatch(r"([\w.-]+)==([\w.]+)", line).groups()  # type: ignore[union-attr]
            found[canonicalize_name(name)] = Version(version)
    return found


def required(project: Any, lines: list[str]) -> Iterator[Requirement]:
    """The requirements of some lines, with those of the project's own extras that they name."""
    for line in lines:
        requirement = Requirement(line)
        if requirement.name != project["name"]:
            yield requirement
        for extra in requirement.extras if requirement.name == project["name"] else ():
            yield from required(project, project["optional-dependencies"][extra])


def test_every_lower_bound_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    bounds = {}
    for requirement in required(project, lines):
        (specifier,) = requirement.specifier
        assert specifier.operator in (">=", "=="), requirement
        bounds[canonicalize_name(requirement.name)] = Version(specifier.version)
    lowest = pinned()
    assert bounds == {name: lowest.get(name) for name in bounds}
    assert len(bounds) > 15
    assert project["requires-python"] == ">=3.11"
