"""The examples of docstrings of modules that need a framework or an engine."""

from __future__ import annotations

import doctest

import pytest

from tests.test_doctests import examples, is_of_world, modules, ran


@pytest.mark.parametrize("example", examples(name for name in modules() if is_of_world(name)))
def test_it_prints_what_it_shows(example: doctest.DocTest) -> None:
    assert ran(example).failed == 0
