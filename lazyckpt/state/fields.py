"""The fields of a state's JSON: which there are, that they are whole, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, pairwise
from operator import index
from typing import Any, NamedTuple, TypeAlias

import toolz

from lazyckpt.core.checks import brief, is_integer
from lazyckpt.core.entries import Entries, dumps
from lazyckpt.core.flow import Position
from lazyckpt.errors import InvalidState
from lazyckpt.failures.skip_log import Skipped
from lazyckpt.state.codec import checksum, decode, decode_stages, is_count, joined, parsed

Ranges: TypeAlias = tuple[tuple[int, int], ...]
# What `State` and `TrackedState` are made of.
Content: TypeAlias = "tuple[Entries, int, Position, Skipped, Rebased | None]"
Tracking: TypeAlias = tuple[str, Ranges]

FORMAT = 3
# In the order of a text.
_FIELDS = ("lazyckpt", "items", "stages", "rebased", "skipped", "tracked")
IN_ALL = ("rebased", "skipped")  # that a flat state has, with null where there is none
_OPTIONAL = {*IN_ALL, "tracked"}
_LONGEST_NAME = 40  # of a tracked run


class Rebased(NamedTuple):
    """That a state was carried over to its pipeline: after how many items, and where that is in it.

    - `items`: how many items had been delivered then
    - `own`: how many items this pipeline gives from its beginning up to there;
      None where only reading tells
    """

    items: int
    own: int | None


def content_of(found: Any, is_checked: bool) -> tuple[Content, Tracking | None]:
    """What the fields of a state say; `InvalidState` for those of anything else.

    Args:
        found: The dict of a state, where it is one.
        is_checked: Whether its checksum was found to be right.
    """
    if not isinstance(found, Mapping) or "lazyckpt" not in found:
        raise InvalidState(f"not a lazyckpt state: {brief(found)}")
    found = {k: index(v) if is_integer(v) else v for k, v in found.items()}  # NumPy's
    try:
        _check_version(found["lazyckpt"])
        body = _body(found)
        if not is_checked:
            _check_content(body, found.get("check"))
        return _content(body), _tracking(body["tracked"]) if "tracked" in body else None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, InvalidState):
            raise
        raise InvalidState(f"malformed state: {error}") from None


def _check_version(version: Any) -> None:
    if version in (1, 2) and type(version) is int:
        raise InvalidState(
            f"the state has format {version}, of before the first release, which nothing reads "
            "any more: begin anew"
        )
    if version != FORMAT or type(version) is not int:
        is_newer = type(version) is int and version > FORMAT
        raise InvalidState(
            f"the state has format {brief(version)}, this lazyckpt reads {FORMAT}"
            + ("; a newer lazyckpt wrote it: upgrade" if is_newer else ", and none is that")
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


def _content(body: Mapping[str, Any]) -> Content:
    stages, position = decode_stages(body["stages"])
    items = decode(body["items"])
    if not is_count(items):
        raise InvalidState(f"items must be an int >= 0, got {brief(items)}")
    if position == ():
        raise InvalidState("the state has no place for its source")
    skipped = _skipped(body["skipped"]) if "skipped" in body else Skipped()
    rebased = _rebased(body["rebased"], items) if "rebased" in body else None
    return stages, items, position, skipped, rebased


def _skipped(found: Any) -> Skipped:
    if not isinstance(found, dict):
        raise InvalidState(f"not a record of skipped items: {brief(found)}")
    return Skipped.from_json(toolz.valmap(decode, found))


def _rebased(found: Any, items: int) -> Rebased:
    if isinstance(found, list) and len(found) == 2:
        at, own = map(decode, found)
        if is_count(at) and at <= items and (own is None or is_count(own)):
            return Rebased(at, own)
    raise InvalidState(f"no account of a rebase: {brief(found)}")


def _tracking(found: Any) -> Tracking:
    if isinstance(found, list) and len(found) == 2:
        tracker, finished = found[0], decode(found[1])
        if isinstance(tracker, str) and len(tracker) <= _LONGEST_NAME and _are_ranges(finished):
            return tracker, finished
    raise InvalidState(f"no account of what is finished: {brief(found)}")


def _are_ranges(found: Any) -> bool:
    """Whether these are ranges with gaps between them, in order."""
    if type(found) is not tuple or not all(type(r) is tuple and len(r) == 2 for r in found):
        return False
    edges = [*chain.from_iterable(found)]
    return all(map(is_count, edges)) and all(a < b for a, b in pairwise(edges))
