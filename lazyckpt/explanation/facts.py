"""What the docstrings of combinators say of a resume, of memory and of ranks."""

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Any

from lazyckpt.core.call import Call
from lazyckpt.core.checks import is_integer
from lazyckpt.core.machine import Machine

_SECTION = re.compile(r"^(Resume|Memory|Rank-free):\n((?:\n|    .*\n)+)", re.MULTILINE)
_NAME = re.compile(r"`([^`]+)`")


def rereads(call: Call, machine: Machine[Any]) -> str:
    """What a resume reads again, for this stage."""
    text = _sections(call).get("Resume", "").partition(". ")[0]
    return _told(text.removeprefix("Re-reads "), call, machine)


def holds(call: Call, machine: Machine[Any]) -> str:
    """What this stage has in memory."""
    return _told(_sections(call).get("Memory", ""), call, machine)


def is_rank_free(call: Call) -> bool:
    """Whether every rank has the same state behind it, as far as is said."""
    found = _sections(call).get("Rank-free", "")
    return call.combinator.is_source or not found or found.startswith("Yes")


@cache
def _parsed(docstring: str) -> dict[str, str]:
    text = f"{inspect.cleandoc(docstring)}\n"
    return {name: " ".join(body.split()) for name, body in _SECTION.findall(text)}


def _sections(call: Call) -> dict[str, str]:
    return _parsed(call.combinator.public.__doc__ or "")


def _told(text: str, call: Call, machine: Machine[Any]) -> str:
    """What of it is so here, with the arguments' values."""
    arguments = call.arguments
    clauses = [each for each in text.rstrip(".").split("; ") if _applies(each, arguments)]
    is_stream = machine.skip is None
    cases = {
        "over a stream ": is_stream,
        "an iterable is ": is_stream,
        "over a table, ": machine.view is not None,
        "without it, ": None in map(arguments.get, _NAME.findall(text)),
    }
    chosen = [
        clause.removeprefix(case)
        for case, holds in cases.items()
        for clause in clauses
        if holds and clause.startswith(case)
    ]
    plain = chosen or [each for each in clauses if not each.startswith((*cases,))]
    if plain and plain[0].startswith("nothing,"):
        return "nothing"

    def value(match: re.Match[str]) -> str:
        found = arguments.get(match[1])
        return f"{found:,}" if is_integer(found) else match[1]

    found = _NAME.sub(value, "; ".join(plain))
    return found[:1].lower() + found[1:]


def _applies(clause: str, arguments: dict[str, Any]) -> bool:
    """Whether it is not of an argument that isn't given."""
    found = re.match(r"[Ww]ith `(\w+)`", clause)
    return found is None or bool(arguments.get(found[1], True))
