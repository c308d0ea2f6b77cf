"""States as JSON values and back, and the division of a position among stages.

Malformed states raise `InvalidState`; nothing in them is ever executed.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise, starmap
from json.encoder import encode_basestring_ascii
from operator import index
from typing import Any, NamedTuple, TypeAlias

import toolz

from lazyckpt.core.checks import brief, cut, is_integer
from lazyckpt.core.content import Entries, Entry, decode, dumps, written
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import EPOCH_BITS, MISFITS, Machine, Rank, apart, misfit
from lazyckpt.core.user_state import Own
from lazyckpt.errors import InvalidState
from lazyckpt.failures.skip_log import Skipped

LONGEST = 1 << 24  # characters; a state is far smaller
Ranges: TypeAlias = tuple[tuple[int, int], ...]
# The fields of `State` and `TrackedState`.
Content: TypeAlias = "tuple[Entries, int, Position, Skipped, Rebased | None, Rank | None]"
Tracking: TypeAlias = tuple[str, Ranges]

FORMAT = 3
# In the order of the JSON.
_FIELDS = ("lazyckpt", "items", "stages", "rebased", "skipped", "rank", "tracked")
IN_ALL = ("rebased", "skipped")  # always in a flat state, null if there is none
_OPTIONAL = {*IN_ALL, "rank", "tracked"}
_LONGEST_NAME = 40  # for a tracked run


class Rebased(NamedTuple):
    """A record that a state was carried over to its pipeline.

    Attributes:
        items: Number of items delivered by then.
        own: Number of items that the new pipeline would have yielded by then; None if that can't
            be known without reading the data.
    """

    items: int
    own: int | None


def parsed(text: str | bytes) -> Any:
    """Parse JSON of bounded length; raise a `ValueError` for anything that isn't plain JSON."""
    if len(text) > LONGEST:
        raise ValueError(f"{len(text):,} characters are too long for a state")
    return json.loads(
        text, parse_int=_short_int, parse_constant=_no_constant, object_pairs_hook=_no_twice
    )


def checksum(text: str) -> str:
    """Return the checksum of a state's JSON, which is written without it."""
    return zlib.crc32(text.encode()).to_bytes(4, "big").hex()


def is_whole(text: str | bytes) -> bool:
    """Return whether a string ends with its own checksum, as it was written."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    head, mark, check = text.rpartition(b',"check":"')
    return bool(mark) and check == f'{zlib.crc32(head + b"}"):08x}"}}'.encode()


def joined(fields: Mapping[str, str]) -> str:
    """Return the JSON object of these fields."""
    return "{" + ",".join([f'"{name}":{text}' for name, text in fields.items()]) + "}"


def encode_stages(entries: Entries, position: Position) -> str:
    """Encode stages as a JSON list with one `[name, arguments]` per stage.

    These are followed by the stage's own position, if it has one, and the pipelines that it joins.
    """
    return f"[{','.join(map(encode_stage, entries, own_parts(entries, position)))}]"


def encode_stage(entry: Entry, part: OwnPart) -> str:
    found = f"[{encode_basestring_ascii(entry.name)},{entry.arguments}"
    if entry.owns:
        found += f",{'null' if part.own is None else written(part.own)}"
    if entry.pipelines:
        pairs = zip(entry.pipelines, part.children, strict=True)
        found += f",[{','.join([encode_stages(*pair) for pair in pairs])}]"
    return f"{found}]"


def decode_stages(found: Any) -> tuple[Entries, Position]:
    """Decode the result of `encode_stages`: return entries, and the position."""
    if not isinstance(found, list) or not found:
        raise InvalidState(f"not the stages of a pipeline: {brief(found)}")
    pairs = [_decode_stage(stage, number == 0) for number, stage in enumerate(found)]
    entries = tuple([entry for entry, _ in pairs])
    return entries, position_of(entries, [part for _, part in pairs])


def _decode_stage(found: Any, is_first: bool) -> tuple[Entry, OwnPart]:
    kinds = [type(part) for part in found] if isinstance(found, list) else []
    if kinds[:2] != [str, dict] or len(kinds) > 4 or any(k is not list for k in kinds[3:]):
        raise InvalidState(f"not a stage of a pipeline: {brief(found)}")
    name, arguments, *rest = found
    own = None
    if rest and rest[0] is not None:
        own = decode(rest[0])
        if type(own) is not tuple or not _is_sound(own):
            raise InvalidState(f"a position consists of tuples and ints >= 0, got {brief(own)}")
    pipelines, children = [], []
    for each in rest[1] if len(rest) > 1 else ():
        pipeline, position = decode_stages(each)
        pipelines.append(pipeline)
        children.append(position)
    if is_first and not rest:
        raise InvalidState(f"a source without a position: {brief(found)}")
    if pipelines and not is_first:
        raise InvalidState(f"pipelines in a stage that joins none: {brief(found)}")
    entry = Entry(name, dumps(arguments), bool(rest), tuple(pipelines))
    return entry, OwnPart(own, tuple(children))


def _is_sound(position: Any) -> bool:
    if type(position) is tuple:
        return all(map(_is_sound, position))
    return type(position) is Own or is_count(position)


def is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _short_int(text: str) -> int:
    if len(text) > 99:  # longer ones are strings in a state: decimal ones are slow
        raise ValueError(f"an int of {len(text):,} digits")
    return int(text)


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON value")


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def content_of(found: Any, is_checked: bool) -> tuple[Content, Tracking | None]:
    """Check the fields of a state; raise `InvalidState` if they are not one.

    Args:
        found: The dict of a state, if it is one.
        is_checked: Whether its checksum was already verified.
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
            f"the state has format {version}, from before the first release, which can't be read "
            "any more: start from the beginning"
        )
    if version != FORMAT or type(version) is not int:
        is_newer = type(version) is int and version > FORMAT
        raise InvalidState(
            f"the state has format {brief(version)}, this lazyckpt reads {FORMAT}"
            + ("; it was written by a newer lazyckpt: upgrade" if is_newer else "")
        )


def _body(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a state except its checksum, with the strings of a flat one parsed."""
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
        raise InvalidState(f"the state lacks a field or has an unknown one: {brief(names)}")
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
        raise InvalidState("the state has no position for its source")
    skipped = _skipped(body["skipped"]) if "skipped" in body else Skipped()
    rebased = _rebased(body["rebased"], items) if "rebased" in body else None
    rank = _rank(body["rank"]) if "rank" in body else None
    return stages, items, position, skipped, rebased, rank


def _skipped(found: Any) -> Skipped:
    if not isinstance(found, dict):
        raise InvalidState(f"not a record of skipped items: {brief(found)}")
    return Skipped.from_json(toolz.valmap(decode, found))


def _rebased(found: Any, items: int) -> Rebased:
    if isinstance(found, list) and len(found) == 2:
        at, own = map(decode, found)
        if is_count(at) and at <= items and (own is None or is_count(own)):
            return Rebased(at, own)
    raise InvalidState(f"not a record of a rebase: {brief(found)}")


def _rank(found: Any) -> Rank:
    if isinstance(found, list) and len(found) == 2 and all(map(is_count, found)):
        rank = Rank(*found)
        if rank.number < rank.of:
            return rank
    raise InvalidState(f"not a rank: {brief(found)}")


def _tracking(found: Any) -> Tracking:
    if isinstance(found, list) and len(found) == 2:
        tracker, finished = found[0], decode(found[1])
        if isinstance(tracker, str) and len(tracker) <= _LONGEST_NAME and _are_ranges(finished):
            return tracker, finished
    raise InvalidState(f"not a record of finished items: {brief(found)}")


def _are_ranges(found: Any) -> bool:
    """Return whether these are ordered ranges with gaps between them."""
    if type(found) is not tuple or not all(type(r) is tuple and len(r) == 2 for r in found):
        return False
    edges = [*chain.from_iterable(found)]
    return all(map(is_count, edges)) and all(a < b for a, b in pairwise(edges))


class OwnPart(NamedTuple):
    """A stage's own part of a position.

    Attributes:
        own: The part; None if the stage has none, or isn't open.
        children: The positions of joined pipelines; `()` for one that isn't open.
    """

    own: Position | None = None
    children: tuple[Position, ...] = ()


_NOT_OWN = OwnPart()


def own_parts(entries: Entries, position: Position) -> list[OwnPart]:
    """Divide a position into the parts of all stages, from the source on.

    A position that these stages can't have raises `InvalidState`.
    """
    try:
        return _own_parts(entries, position)
    except MISFITS as error:
        raise misfit(position, error) from None


def _own_parts(entries: Entries, position: Position) -> list[OwnPart]:
    found: list[OwnPart] = []
    for entry in reversed(entries[1:]):
        if entry.owns and position != ():
            position, *own = position
            found.append(OwnPart(tuple(own)))
        else:
            found.append(_NOT_OWN)
    first = entries[0]
    if position == ():
        found.append(OwnPart(None, ((),) * len(first.pipelines)))
    elif first.pipelines:
        children, *own = position
        if type(children) is not tuple or len(children) != len(first.pipelines):
            raise InvalidState(
                f"{cut(first.name)}: {len(first.pipelines)} pipelines, but positions "
                f"{brief(children)}"
            )
        found.append(OwnPart(tuple(own), children))
    else:
        found.append(OwnPart(position))
    return found[::-1]


def position_of(entries: Entries, parts: Sequence[OwnPart]) -> Position:
    """Build a position from its parts: the inverse of `own_parts`."""
    first, *rest = parts
    if first.own is None:
        if any(part.own is not None for part in rest):
            raise InvalidState(f"{cut(entries[0].name)} has no position, but a stage after it has")
        return ()
    position: Position = (first.children, *first.own) if entries[0].pipelines else first.own
    for entry, part in zip(entries[1:], rest, strict=True):
        if entry.owns:
            if part.own is None:
                raise InvalidState(f"{cut(entry.name)} has no position, but stages before it have")
            position = (position, *part.own)
    return position


class Layer(NamedTuple):
    """A stage with its own part of a position; `1[0].2` is stage 2 of pipeline 0 of stage 1."""

    stage: str
    entry: Entry
    own: Position | None

    @property
    def name(self) -> str:
        return self.entry.name


def layers(entries: Entries, position: Position, prefix: str = "") -> Iterator[Layer]:
    """Yield all stages from the source on, joined pipelines after the stage that joins them."""
    pairs = zip(entries, own_parts(entries, position), strict=True)
    for number, (entry, part) in enumerate(pairs, 1):
        yield Layer(f"{prefix}{number}", entry, part.own)
        if number == 1:
            for n, (pipeline, inner) in enumerate(zip(entry.pipelines, part.children, strict=True)):
                yield from layers(pipeline, inner, f"{prefix}{number}[{n}].")


def passes(epoch: int) -> int:
    """Return the number of passes through a source, summed over all stages that repeat it."""
    found = 0
    while epoch >> EPOCH_BITS > 0:
        found, epoch = found + epoch % (1 << EPOCH_BITS), epoch >> EPOCH_BITS
    return found + epoch


def shown(entry: Entry) -> str:
    """Format a stage as it would be written."""
    arguments = ", ".join(starmap(_argument, entry.known.items()))
    return cut(f"{entry.name}({arguments})", in_data=True)


def _argument(name: str, value: Any) -> str:
    text = repr(value)
    return f"{name}={text if len(text) <= 24 else text[:21] + '...'}"


def items_before(machine: Machine[Any], position: Position) -> int | None:
    """Count the items from the beginning to a position; None if unknown without reading."""
    epoch, length = machine.epoch(position), machine.length
    if epoch and not isinstance(length, int):
        return None
    found = items_before_in_epoch(machine, position)
    return None if found is None else found + (epoch * int(length or 0) if epoch else 0)


def items_before_in_epoch(machine: Machine[Any], position: Position) -> int | None:
    """Count the items from the beginning of its epoch to a position.

    None if that can't be known without reading the data, or if no run from there reaches it.
    """
    skip = machine.skip
    if skip is None:
        return None
    begin, end = machine.init(machine.epoch(position)), progress(machine, position)

    def is_reached(n: int) -> bool:
        here, passed = skip(begin, n)
        return passed == n and progress(machine, here) <= end

    high = 1
    try:
        while is_reached(high):
            high *= 2
    except IndexError:  # beyond what can be counted
        return None
    found = bisect_left(range(high), True, key=lambda n: not is_reached(n)) - 1
    return found if skip(begin, found)[0] == position else None


def progress(machine: Machine[Any], position: Position) -> Position:
    """Return a position in a form that grows as items are delivered."""
    if machine.upstream is not None:
        inner, own = apart(machine, position)
        return (progress(machine.upstream, inner), *own)
    if not machine.children:
        return position
    positions = [
        (number, progress(child, inner))
        for number, (child, inner) in enumerate(zip(machine.children, position[0], strict=True))
        if inner != ()
    ]
    return (positions, *position[1:])
