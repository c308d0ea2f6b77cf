"""The examples of docstrings: of every module that needs no framework."""

from __future__ import annotations

import doctest
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lazyckpt as lz

PACKAGE = Path(lz.__file__).parent
WORLD = {  # modules whose examples or imports need more than the core suite has
    *("integrations.accelerate", "integrations.grain", "integrations.jax"),
    *("integrations.lightning", "integrations.torch", "integrations.trackers.states"),
    "integrations.transformers",
    *("io.array_record", "io.huggingface"),
}


def modules() -> Iterator[str]:
    """All modules of the package by their names within it, but for scripts."""
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        if parts[-1] != "__main__":
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_of_world(name: str) -> bool:
    return any(f"{name}.".startswith(f"{each}.") for each in WORLD)


def examples(names: Iterable[str]) -> list[Any]:
    """The docstrings that have some, as parameters of a test."""
    loaded = [import_module(f"lazyckpt.{name}".rstrip(".")) for name in names]
    return [pytest.param(each, id=each.name) for module in loaded for each in found_in(module)]


def found_in(module: ModuleType) -> list[doctest.DocTest]:
    return [
        each for each in doctest.DocTestFinder(exclude_empty=True).find(module) if each.examples
    ]


def ran(example: doctest.DocTest) -> doctest.TestResults:
    return doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(example)


CORE = [name for name in modules() if not is_of_world(name)]


def test_there_is_a_module_for_each_name_of_world() -> None:
    assert {*WORLD} <= {*modules()}


@pytest.mark.parametrize("example", examples(CORE))
def test_it_prints_what_it_shows(example: doctest.DocTest) -> None:
    assert ran(example).failed == 0


def test_a_wrong_result_is_noticed() -> None:
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert ran(wrong).failed == 1
