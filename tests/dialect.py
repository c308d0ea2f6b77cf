"""Turns of phrase that readers stumble over, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

START = r"(?:^ *|(?<=[.!?:] )|(?<=\n))(?:[-*] |\| )?"
PHRASES = {
    rf"{START}(?:What|Who|That of|Those of)\b[^.?!|]*[.!|]": "name the noun",
    rf"{START}Where\b[^.?!|]*,": "if or when, unless it is a place",
    r"\banew\b": "again, from scratch",
    r"\bgo(?:es)? on\b|\bwent on\b|\bgone on\b": "continue",
    r"\bgo(?:es)? along\b": "advances too",
    r"\b[Bb]ehind (?:x|it|that|which)\b": "after, downstream of",
    r"\bfor ever\b": "forever",
    r"\bbesides?\b": "next to, plus",
    r"\bsooner done\b": "cheaper",
    r"\bonly reading(?: it)? tells\b": "can't be known without reading the data",
    r"\bat once\b": "immediately, simultaneously, in one call",
    r"\ba training(?! (?:run|script|loop|step|process|set|data|job))\b": "training, a training run",
    r"\b[Aa]nother (?:batch size|executor|number|order|seed|value)\b": "a different",
    r"\brank-free\b": "rank-invariant",
    r"\bnobody asks\b|\basks nobody\b": "say what happens",
    r"\bhas a meaning\b|\bhave a meaning\b": "is well defined",
}
IN_DOCSTRINGS = {  # where people look things up, also
    r"\b[Bb]ehind\b(?!:)": "after, downstream of",
    r"\b[Ww]ho\b": "name the noun",
    r"\bgave\b|\bgiving\b": "yielded, returned, passed",
    r"\b[Aa]s of\b": "as for, as in",
    r"\blikewise\b": "repeat the word",
    r"\bcomes? of\b|\bmade of\b": "name the result, or what it contains",
    r"\bnobody\b": "say what happens",
}
_FENCE = r"^(`{3,}|:{3,})(?!{glossary}).*?^\1\s*$"
_CODE = re.compile(rf"{_FENCE}|`[^`\n]*`|<!--.*?-->", re.DOTALL | re.MULTILINE)
_HEAD = re.compile(r"\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r"^#+ .*$", re.MULTILINE)
_LINK = re.compile(r"\]\([^)]*\)")


def prose(page: str) -> str:
    """A page without its code, headings and addresses."""
    return _LINK.sub("]", _TITLE.sub("", _CODE.sub("x", _HEAD.sub("", page))))


def dialect(page: str, phrases: Mapping[str, str] = PHRASES) -> Iterator[str]:
    """Each turn of phrase on a page, with what is meant."""
    text = prose(page)
    for pattern, better in phrases.items():
        for found in re.finditer(pattern, text, re.MULTILINE):
            yield f"{' '.join(found[0].split())[:60]!r}: {better}"
