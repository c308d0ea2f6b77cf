"""Docstrings in Google style, taken apart."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

FACTS = ("State", "Resume", "Random access", "Rank-invariant")

_SECTION = re.compile(r"^([A-Z][\w -]*):\n((?:\n|    .*\n)+)", re.MULTILINE)


class Docstring(NamedTuple):
    """A docstring: its first line, its sections by name, in order, without indent, and its text."""

    summary: str
    sections: dict[str, str]
    text: str


def parsed(function: Callable[..., Any]) -> Docstring:
    text = inspect.cleandoc(function.__doc__ or "")
    sections = {name: inspect.cleandoc(body) for name, body in _SECTION.findall(f"{text}\n")}
    return Docstring(text.partition("\n")[0], sections, text)


def sentence(section: str) -> str:
    """The first sentence of a section, on one line."""
    return re.split(r"\.(?:\s|$)", " ".join(section.split()), maxsplit=1)[0]


def named(section: str) -> list[str]:
    """The names that a section such as `Args:` describes, in order."""
    return re.findall(r"^(\*{0,2}\w+):", section, re.MULTILINE)
