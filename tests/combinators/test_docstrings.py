"""The docstrings of combinators are in Google style and agree with the machines."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.core.machine import Machine
from lazyckpt.testing.laws import Stream
from tests.combinators.table import NUMBERS, OTHERWISE, PLAIN, Made
from tests.docstrings import FACTS, Docstring, named, parsed, sentence

DATA = {"a list": NUMBERS, "an iterable": Stream(NUMBERS)}


def machines(made: Made) -> dict[str, Machine[Any]]:
    """The machines that it builds over a list and over an iterable, if it can."""
    found = {}
    for name, data in DATA.items():
        try:
            found[name] = made(lz.source(data)).machine
        except lz.ArgumentError:
            assert name != "a list"
    return found


def form(docstring: Docstring, function: Callable[..., Any]) -> Iterator[str]:
    """Yield each part that isn't in Google style or is missing."""
    lines = docstring.text.splitlines()
    if not docstring.summary.endswith(".") or len(lines) < 2 or lines[1]:
        yield "the first line is no sentence of its own"
    parameters = [*inspect.signature(function).parameters]
    if named(docstring.sections.get("Args", "")) != parameters:
        yield f"Args: are not {parameters}"
    known = ["Args", "Raises", *FACTS, "Memory", "Source"]
    if (order := [*docstring.sections]) != [name for name in known if name in order]:
        yield f"the sections are {order}"
    yield from (f"no section {fact}:" for fact in FACTS if fact not in docstring.sections)
    if "\n>>> " not in docstring.text:
        yield "no doctest"


def facts(docstring: Docstring, built: dict[str, Machine[Any]]) -> Iterator[str]:
    """Yield each wrong claim about state and random access."""
    says_none = docstring.sections["State"].startswith("None")
    access = sentence(docstring.sections["Random access"]).split()[0].rstrip(";,")
    if access not in ("Yes", "Kept", "No", "If", "With"):
        yield f"Random access: begins with {access}"
    for over, machine in built.items():
        if says_none == machine.owns:
            yield f"State: but over {over} it owns {'a' if machine.owns else 'no'} part"
        expected = {
            "Yes": True,
            "Kept": over == "a list",
            "If": over == "a list",
        }.get(access, False)
        if expected != (machine.skip is not None):
            yield f"Random access: is not so over {over}"


@pytest.mark.parametrize("name", lz.registry)
def test_the_docstring_is_google_style_and_true(name: str) -> None:
    public = lz.registry[name].public
    docstring = parsed(public)
    assert list(form(docstring, public)) == []
    assert list(facts(docstring, machines(PLAIN[name]))) == []


@pytest.mark.parametrize(
    ("name", "made", "phrase"), OTHERWISE, ids=[f"{name}-{phrase}" for name, _, phrase in OTHERWISE]
)
def test_what_depends_on_arguments_is_said(name: str, made: Made, phrase: str) -> None:
    assert list(unsaid(parsed(lz.registry[name].public), PLAIN[name], made, phrase)) == []


def unsaid(docstring: Docstring, plain: Made, other: Made, phrase: str) -> Iterator[str]:
    """The facts that differ without the phrase that says so."""
    one, two = (machines(made)["a list"] for made in (plain, other))
    differ = {
        "State": one.owns != two.owns,
        "Random access": (one.skip is None) != (two.skip is None),
    }
    for fact, differs in differ.items():
        if differs and phrase not in sentence(docstring.sections[fact]).lower():
            yield fact
