"""The fields of a state's JSON: which there are, and that they are whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lazyckpt.core.checks import brief
from lazyckpt.core.entries import dumps
from lazyckpt.errors import InvalidState
from lazyckpt.state.codec import checksum, joined, parsed

FORMAT = 2
# In the order of a text.
_FIELDS = ("lazyckpt", "items", "stages", "rebased", "skipped", "tracked")
IN_ALL = ("rebased", "skipped")  # that a flat state has, with null where there is none
_OPTIONAL = {*IN_ALL, "tracked"}


def body_of(found: Mapping[str, Any], is_checked: bool) -> dict[str, Any]:
    """The fields but the checksum, those that are texts as what they say.

    Args:
        found: The dict of a state.
        is_checked: Whether its checksum was found to be right.
    """
    _check_version(found["lazyckpt"])
    body = _body(found)
    if not is_checked:
        _check_content(body, found.get("check"))
    return body


def _check_version(version: Any) -> None:
    if version == 1 and type(version) is int:
        raise InvalidState(
            "the state has format 1, of before the first release, which nothing reads any more: "
            "begin anew"
        )
    if version != FORMAT or type(version) is not int:
        raise InvalidState(
            f"the state has format {brief(version)}, this lazyckpt reads {FORMAT}; "
            "a newer lazyckpt wrote it: upgrade"
        )


def _body(found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a state but its checksum, those that are texts as what they say."""
    body = {
        name: parsed(value) if isinstance(value, str) else value
        for name, value in found.items()
        if name != "check"
    }
    for name in _OPTIONAL:  # null in a flat state
        if body.get(name, ...) is None:
            del body[name]
    if {*body} - _OPTIONAL != {*_FIELDS} - _OPTIONAL:
        names = ", ".join(map(str, body))
        raise InvalidState(f"the state lacks a field or has a foreign one: {brief(names)}")
    return body


def _check_content(body: Mapping[str, Any], check: Any) -> None:
    content = checksum(joined({name: dumps(body[name]) for name in _FIELDS if name in body}))
    if check != content:
        raise InvalidState(
            f"the state is damaged: its checksum is {brief(check)}, its content's {content}"
        )
