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


TOLD = """One line.

Args:
    n: An int.

State:
    None.

Resume:
    Re-reads nothing.

Random access:
    Kept.

Rank-invariant:
    Yes.

>>> 1
1
"""


def written(text: str) -> Callable[[int], None]:
    def function(n: int) -> None: ...

    function.__doc__ = text
    return function


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("One line.", "One line", "the first line"),
        ("One line.\n", "One line.\nAnd one.\n", "the first line"),
        ("    n: An int.", "    m: An int.", "Args:"),
        ("    n: An int.", "    n: An int.\n    k: An int.", "Args:"),
        ("Args:\n    n: An int.\n\n", "", "Args:"),
        ("Resume:", "Resumes:", "no section Resume"),
        ("Rank-invariant:\n    Yes.\n", "", "no section Rank-invariant"),
        ("State:", "Memory:", "the sections are"),
        (">>> 1", "1", "no doctest"),
    ],
)
def test_bad_form_is_noticed(old: str, new: str, fault: str) -> None:
    assert list(form(parsed(written(TOLD)), written(TOLD))) == []
    bad = written(TOLD.replace(old, new))
    assert any(each.startswith(fault) for each in form(parsed(bad), bad))


@pytest.mark.parametrize(
    ("name", "old", "new", "fault"),
    [
        ("take", "None.", "None.", "State: but over a list it owns a part"),
        ("batch", "None.", "A count.", "State: but over a list it owns no part"),
        ("batch", "Kept.", "No.", "Random access: is not so over a list"),
        ("batch", "Kept.", "Yes.", "Random access: is not so over an iterable"),
        ("filter", "Kept.", "Yes.", "Random access: is not so over a list"),
        ("filter", "Kept.", "Perhaps.", "Random access: begins with Perhaps"),
    ],
)
def test_what_is_not_so_is_noticed(name: str, old: str, new: str, fault: str) -> None:
    found = facts(parsed(written(TOLD.replace(old, new))), machines(PLAIN[name]))
    assert fault in list(found)


def test_what_is_unsaid_is_noticed() -> None:
    cases = {(name, phrase): made for name, made, phrase in OTHERWISE}
    for name, phrase, facts in (
        ("shard", "with `contiguous`", ["State"]),
        ("mix", "with `deterministic`", ["Random access"]),
    ):
        docstring = parsed(written(TOLD))
        assert list(unsaid(docstring, PLAIN[name], cases[name, phrase], phrase)) == facts
