"""States as JSON values and back. What isn't one is an `InvalidState`, and executes nothing."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any

from lazyckpt.core.checks import brief
from lazyckpt.core.entries import Described, Entries, Entry, dumps
from lazyckpt.core.flow import Position
from lazyckpt.core.user_state import FrozenDict, FrozenList, Own
from lazyckpt.errors import InvalidState
from lazyckpt.state.positions import Place, places, position_of

LONGEST = 1 << 24  # characters; a state is far smaller
_EXACT = 1 << 53  # ints below survive every JSON reader
_DIGITS = 1 << 16  # of a hexadecimal int; showing more in an error takes long


def parsed(text: str | bytes) -> Any:
    """JSON of a bounded length, without what isn't plain JSON; a `ValueError` for anything else."""
    if len(text) > LONGEST:
        raise ValueError(f"{len(text):,} characters are no state")
    return json.loads(
        text, parse_int=_short_int, parse_constant=_no_constant, object_pairs_hook=_no_twice
    )


def checksum(text: str) -> str:
    """That of the JSON text of a state without it."""
    return zlib.crc32(text.encode()).to_bytes(4, "big").hex()


def is_whole(text: str | bytes) -> bool:
    """Whether a text ends with its own checksum, as it was written."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    head, mark, check = text.rpartition(b',"check":"')
    return bool(mark) and check == f'{zlib.crc32(head + b"}"):08x}"}}'.encode()


def joined(fields: Mapping[str, str]) -> str:
    """The JSON object of these fields."""
    return "{" + ",".join([f'"{name}":{text}' for name, text in fields.items()]) + "}"


def encode_stages(entries: Entries, position: Position) -> str:
    """A JSON list `[name, arguments]` for each stage.

    Behind these its own place, if it has one, and the pipelines that it joins.
    """
    return f"[{','.join(map(encode_stage, entries, places(entries, position)))}]"


def encode_stage(entry: Entry, part: Place) -> str:
    """One of them."""
    found = f"[{encode_basestring_ascii(entry.name)},{entry.arguments}"
    if entry.owns:
        found += f",{'null' if part.own is None else written(part.own)}"
    if entry.pipelines:
        pairs = zip(entry.pipelines, part.children, strict=True)
        found += f",[{','.join([_encode_pipeline(*pair) for pair in pairs])}]"
    return f"{found}]"


def _encode_pipeline(pipeline: Described, place: Position) -> str:
    if isinstance(pipeline, str):
        place_text = "" if place == () else f",{written(place)}"
        return f"[{encode_basestring_ascii(pipeline)}{place_text}]"
    return encode_stages(pipeline, place)


def decode_stages(found: Any) -> tuple[Entries, Position]:
    """What `encode_stages` made: entries, and the position."""
    if not isinstance(found, list) or not found:
        raise InvalidState(f"no stages of a pipeline: {brief(found)}")
    pairs = [_decode_stage(stage, number == 0) for number, stage in enumerate(found)]
    entries = tuple([entry for entry, _ in pairs])
    return entries, position_of(entries, [part for _, part in pairs])


def _decode_stage(found: Any, is_first: bool) -> tuple[Entry, Place]:
    kinds = [type(part) for part in found] if isinstance(found, list) else []
    if kinds[:2] != [str, dict] or len(kinds) > 4 or any(k is not list for k in kinds[3:]):
        raise InvalidState(f"no stage of a pipeline: {brief(found)}")
    name, arguments, *rest = found
    own = None
    if rest and rest[0] is not None:
        own = decode(rest[0])
        if type(own) is not tuple or not _is_sound(own):
            raise InvalidState(f"a place is made of tuples and ints >= 0, got {brief(own)}")
    pipelines, children = [], []
    for each in rest[1] if len(rest) > 1 else ():
        pipeline, place = _decode_pipeline(each)
        pipelines.append(pipeline)
        children.append(place)
    if is_first and not rest:
        raise InvalidState(f"a source without a place: {brief(found)}")
    if pipelines and not is_first:
        raise InvalidState(f"pipelines within a stage that joins none: {brief(found)}")
    entry = Entry(name, dumps(arguments), bool(rest), tuple(pipelines))
    return entry, Place(own, tuple(children))


def _decode_pipeline(found: Any) -> tuple[Described, Position]:
    if isinstance(found, list) and found and isinstance(found[0], str):
        if len(found) > 2:
            raise InvalidState(f"no pipeline of a state: {brief(found)}")
        place = decode(found[1]) if len(found) == 2 else ()
        if type(place) is not tuple or not _is_sound(place):
            raise InvalidState(f"a place is made of tuples and ints >= 0, got {brief(place)}")
        return found[0], place
    return decode_stages(found)


def written(value: Any) -> str:
    """A position as JSON text: what `encode` makes of it, written."""
    kind = type(value)
    if kind is int and -_EXACT < value < _EXACT:
        return str(value)
    if kind is tuple:
        texts = [str(v) if type(v) is int and -_EXACT < v < _EXACT else written(v) for v in value]
        return f"[{','.join(texts)}]"
    return dumps(encode(value))


def encode(value: Any) -> Any:
    """A position, or a user's own state, as JSON values."""
    kind = type(value)
    if kind is int:
        return value if -_EXACT < value < _EXACT else {"int": _hex(value)}
    if kind is tuple:
        return [encode(v) for v in value]
    if kind is Own:
        return {"own": encode(value[0])}
    if kind is FrozenList:
        return {"list": [encode(v) for v in value]}
    if kind is FrozenDict:
        return {"dict": [[encode(k), encode(v)] for k, v in value]}
    if kind is float and not math.isfinite(value):
        return {"float": repr(value)}
    return value


def decode(value: Any) -> Any:
    """What `encode` was given."""
    kind = type(value)
    if kind is list:
        return tuple([decode(v) for v in value])
    if kind is not dict:
        return value
    ((tag, inner),) = value.items()
    if tag == "int":
        if len(inner) > _DIGITS:
            raise InvalidState(f"an int of {len(inner):,} digits is too long for a state")
        return int(inner, 16)
    if tag == "own":
        return Own((decode(inner),))
    if tag == "list":
        return FrozenList([decode(v) for v in inner])
    if tag == "dict":
        return FrozenDict([(decode(k), decode(v)) for k, v in inner])
    if tag == "float" and inner in ("nan", "inf", "-inf"):
        return math.nan if inner == "nan" else float(inner)
    raise InvalidState(f"malformed state: {brief(value)}")


def _is_sound(position: Any) -> bool:
    if type(position) is tuple:
        return all(map(_is_sound, position))
    return type(position) is Own or is_count(position)


def is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _hex(value: int) -> str:
    if value.bit_length() > 4 * _DIGITS - 16:  # a sign and 0x stand before them
        raise InvalidState(f"an int of {value.bit_length():,} bits is too long for a state")
    return hex(value)


def _short_int(text: str) -> int:
    if len(text) > 99:  # a state has longer ones as text, for decimal ones take long
        raise ValueError(f"an int of {len(text):,} digits")
    return int(text)


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON value")


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found
