"""Passwords, keys and tokens, which must not appear in any text shown or saved."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

MASK = "***"
_MOST = 1 << 16  # characters of a text that are looked through; what follows them is left out

# Names of secrets, with any prefix. Not every `..._token`: `eos_token` is no secret.
_WORDS = (
    r"(?:pass(?:word|wd|phrase)|secret|credential|authorization|api[-_]?key"
    r"|(?:access|account|private|secret|shared|signing)[-_]?key(?:[-_]?id)?"
    r"|(?:access|api|auth|bearer|github|gitlab|hf|id|oauth|refresh|sas|security|session)[-_]?token"
    r"|connection[-_]?string)s?"
)
_NAME = rf"(?<![\w.-])(?:[\w.-]*?{_WORDS}|(?-i:[A-Z0-9_]+_TOKEN))"
_SHORT = r"(?<![\w.-])(?:token|auth|pwd)"  # with no prefix, and no colon alone behind them
_NAMED = rf"{_NAME}(?:\\*[\"'])?\s*(?:=+>?|:)\s*"  # up to its value
_GIVEN = rf"(?:{_NAMED}|{_SHORT}(?:\s*=+>?|\\*[\"']\s*:)\s*)"
_CONSTANTS = r"(?:None|null|true|false|str|bytes|int|float|Any)(?:[\s,;&)\]}|]|\Z)"  # and types

_MARKS = (  # one of which is in all that a rule below finds, in small letters
    r"@|pass|secret|credential|key|token|string|auth|pwd|sig|gh[pousr]_|github_|glpat-|hf_|xox"
    r"|aiza|akia|asia|sk-|eyj|bearer|-----begin"
)


def _rules(given: str) -> list[tuple[str, str]]:
    return [
        # A password in a URL, or in one of HTTP a token in its place; a path has one slash.
        (r"(?<=\w)(:/{1,2})[^\s/@:]*:(?!\d{1,5}(?:[/?#\s'\"]|\Z))(?:(?!:/)\S)*@", rf"\1{MASK}@"),
        (r"((?:(?<=http)|(?<=https)):/{1,2})[^\s/@:'\"]+@", rf"\1{MASK}@"),
        # What is given to a secret's name: in a query, between quotes, or bare.
        (
            rf"(?<=[?&])((?:[\w.-]*?(?:{_WORDS}|signature)|sig|token|auth)=)[^&#\s'\"<>]+",
            rf"\1{MASK}",
        ),
        (rf"({given}b?)(\\*[\"'])(?:(?!\2)(?:\\.|[^\\]))*(?:\2|\Z)", rf"\1\2{MASK}\2"),
        (rf"({given})[(\[{{]\s*b?\\*[\"'][^()\[\]{{}}]*(?:[)\]}}]|\Z)", rf"\1{MASK}"),
        (
            rf"({given}(?:(?:basic|bearer|digest|token)\s+)?)(?!b?\\*[\"']|[=>]|{_CONSTANTS})"
            r"[^\s,;&'\"<>()\[\]{}]+",
            rf"\1{MASK}",
        ),
        # What issuers mark as theirs: GitHub, GitLab, Hugging Face, Slack, Google, AWS, OpenAI.
        (
            r"(?<![A-Za-z0-9])(?-i:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
            r"|hf_[A-Za-z0-9]{16,}|xox[a-z]-[\w-]{10,}|AIza[\w-]{30,}|(?:AKIA|ASIA)[A-Z0-9]{12,}"
            r"|sk-(?=[A-Za-z_-]{0,99}\d)[\w-]{16,})",
            MASK,
        ),
        # RFC 6750, 7519 and 7468: bearer tokens, JSON web tokens, private keys.
        (r"(\bbearer\s+)[\w.~+/=-]{16,}", rf"\1{MASK}"),
        (r"(?<![A-Za-z0-9])(?-i:eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)", MASK),
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", MASK),
    ]


@cache
def _has_mark() -> Callable[[str], Any]:
    return re.compile(_MARKS).search


@cache
def _compiled(in_data: bool) -> list[tuple[re.Pattern[str], str]]:
    rules = _rules(_NAMED if in_data else _GIVEN)
    return [(re.compile(rule, re.IGNORECASE | re.DOTALL), text) for rule, text in rules]


@cache
def _names(in_data: bool) -> Callable[[str], Any]:
    return re.compile(_NAME if in_data else rf"{_NAME}|{_SHORT}", re.IGNORECASE).fullmatch


@lru_cache(maxsize=256)
def _is_name(name: str, in_data: bool) -> bool:
    return _names(in_data)(name) is not None


def masked(text: str, *, in_data: bool = False) -> str:
    """Replace passwords, keys and tokens by `***`, as far as they can be recognised.

    In data, names as short as `token` also belong to other things, and hide nothing.
    """
    if not _has_mark()(text.casefold()):
        return text
    if len(text) > _MOST:
        text = text[:_MOST] + "..."
    for rule, replacement in _compiled(in_data):
        text = rule.sub(replacement, text)
    return text


def is_secret(name: Any, value: Any, *, in_data: bool = False) -> bool:
    """Return whether an argument, or the value of a key, is a secret by its name."""
    if not isinstance(name, str) or not _is_name(name, in_data):
        return False
    if isinstance(value, dict):
        value = (*value.values(),)
    several = value if isinstance(value, (list, tuple)) else (value,)
    return any(isinstance(each, (str, bytes, bytearray)) for each in several)
