"""`State`: a position with the pipeline it belongs to, as an immutable value and as JSON."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import index
from os import PathLike
from typing import Any, TypeAlias

from lazyckpt.core.checks import brief, is_integer
from lazyckpt.core.machine import Position
from lazyckpt.core.user_state import FrozenDict, FrozenList, Own
from lazyckpt.errors import InvalidState, StateMismatch
from lazyckpt.failures.skip_log import Skipped

FORMAT = 1
_EXACT = 1 << 53  # ints below survive every JSON reader
_LONGEST = 1 << 24  # characters; a state is far smaller
_DIGITS = 1 << 16  # of a hexadecimal int; showing more in an error takes long


@dataclass(frozen=True, slots=True)
class State:
    """Where a pipeline stands: a few hundred bytes, immutable, hashable, comparable.

    - `items`: how many items were delivered before it
    - `position`: nested tuples of ints; what each stage needs to go on
    - `pipeline`: the stages and the arguments that decide the order, as JSON
    - `skipped`: what `on_error="skip"` has left out before it, as in `Run.skipped`

    States of one pipeline are ordered by their items; `StateMismatch` for those of two.

    >>> import lazyckpt as lz
    >>> state = lz.init(lz.source([1, 2, 3]) | lz.batch(2))
    >>> State.from_json(state.to_json()) == state
    True
    """

    pipeline: str
    items: int
    position: Position
    skipped: Skipped = field(default=Skipped(), repr=False)

    @property
    def epoch(self) -> int:
        """The pass, from 0, that the (first) source is in where a resume reads on.

        A stage that holds a window may still give items of it after the source
        has gone on, or read them again before it does.
        """
        leaf = self.position
        while type(leaf) is tuple and leaf:
            leaf = leaf[0]
        if type(leaf) is not int:
            raise InvalidState(f"a state's position {brief(self.position)} has no epoch")
        return leaf

    def __lt__(self, other: State) -> bool:
        return self.items < other.items if _has_order(self, other) else NotImplemented

    def __le__(self, other: State) -> bool:
        return self.items <= other.items if _has_order(self, other) else NotImplemented

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON values, of which ints are below 2**53."""
        body = {
            "lazyckpt": FORMAT,
            "items": _encode(self.items),
            "position": _encode(self.position),
            "pipeline": json.loads(self.pipeline),
        }
        if self.skipped:
            body["skipped"] = {k: _encode(v) for k, v in self.skipped.to_json().items()}
        return {**body, "check": _check(body)}

    def to_json(self) -> str:
        """One line of ASCII JSON, at most 1 KB for ten stages.

        A state of your own is of its own size, and each pipeline that a `mix`,
        `interleave`, `lanes` or `interleave_map` has open takes 20 bytes or more.
        """
        text = _dumps(self.to_dict())
        if len(text) > _LONGEST:
            raise InvalidState(f"a state of {len(text):,} characters is too long to be read again")
        return text

    @staticmethod
    def from_json(text: str | bytes) -> State:
        """The state that `to_json` wrote; `InvalidState` for anything else.

        Executes nothing, whoever wrote the text, and takes a few seconds and half
        a gigabyte at most: more than 16 MiB are refused. What no run of a pipeline
        could have reached is refused where that enters it, or reads again
        what it says was read before: an endless source can be read for ever.
        """
        if not isinstance(text, (str, bytes)):
            raise InvalidState(f"expected the JSON text of a state, got {brief(text)}")
        try:
            found = _parsed(text)
        except (ValueError, RecursionError) as error:
            raise InvalidState(
                f"not a state, or a truncated one: {error}: {_excerpt(text)}"
            ) from None
        return State.from_dict(found)

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> State:
        """The state that `to_dict` or `Run.state_dict` gave."""
        if not isinstance(found, Mapping) or "lazyckpt" not in found:
            raise InvalidState(f"not a lazyckpt state: {brief(found)}")
        found = {k: index(v) if is_integer(v) else v for k, v in found.items()}  # NumPy's
        version = found["lazyckpt"]
        if type(version) is not int or not 1 <= version <= FORMAT:
            raise InvalidState(
                f"the state has format {brief(version)}, this lazyckpt reads 1 to {FORMAT}; "
                "a newer lazyckpt wrote it: upgrade"
            )
        try:
            body = {name: _unfolded(value) for name, value in found.items() if name != "check"}
        except (ValueError, RecursionError) as error:
            raise InvalidState(f"malformed state: {error}") from None
        if body.get("skipped", ...) is None:
            del body["skipped"]
        if {*body} - {"skipped"} != {"lazyckpt", "items", "position", "pipeline"}:
            names = ", ".join(map(str, body))
            raise InvalidState(f"the state lacks a field or has a foreign one: {brief(names)}")
        try:
            if found.get("check") != _check(body):
                raise InvalidState(
                    f"the state is damaged: its checksum is {brief(found.get('check'))}, "
                    f"its content's {_check(body)}"
                )
            state = State(
                json.dumps(body["pipeline"], separators=(",", ":"), sort_keys=True),
                _decode(body["items"]),
                _decode(body["position"]),
                _left_out(body["skipped"]) if "skipped" in body else Skipped(),
            )
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            if isinstance(error, InvalidState):
                raise
            raise InvalidState(f"malformed state: {error}") from None
        if not _is_count(state.items):
            raise InvalidState(f"items must be an int >= 0, got {brief(state.items)}")
        if not _is_sound(state.position):
            raise InvalidState(
                f"a position is made of tuples and ints >= 0, got {brief(state.position)}"
            )
        if not _is_described(body["pipeline"]):
            raise InvalidState(f"no description of a pipeline: {brief(body['pipeline'])}")
        return state


def flat(state: State, *, skips: bool = False) -> dict[str, Any]:
    """The state as a dict of ints and texts, which `State.from_dict` takes too.

    Some checkpointers take containers apart, and lose empty ones, or want a
    state to have the same shape before and after: where it `skips`, with what
    was left out also before there is any.
    """
    found = {"skipped": None, **state.to_dict()} if skips else state.to_dict()
    return {k: v if isinstance(v, (int, str)) else _dumps(v) for k, v in found.items()}


def _unfolded(value: Any) -> Any:
    return _parsed(value) if isinstance(value, str) else value


def _parsed(text: str | bytes) -> Any:
    if len(text) > _LONGEST:
        raise ValueError(f"{len(text):,} characters are no state")
    return json.loads(
        text, parse_int=_short_int, parse_constant=_no_constant, object_pairs_hook=_no_twice
    )


def _has_order(a: State, b: Any) -> bool:
    if isinstance(b, State) and a.pipeline != b.pipeline:
        raise StateMismatch(
            f"states of two pipelines have no order: {brief(a.pipeline)} and {brief(b.pipeline)}"
        )
    return isinstance(b, State)


AnyState: TypeAlias = State | str | bytes | Mapping[str, Any]


def as_state(value: AnyState) -> State:
    """A state from any of its forms."""
    if isinstance(value, State):
        return value
    if isinstance(value, Mapping):
        return State.from_dict(value)
    if isinstance(value, PathLike):
        raise InvalidState(
            f"expected a state, its JSON text or its dict, got the path {brief(value)}; "
            "pass the text: path.read_text()"
        )
    if isinstance(getattr(value, "state", None), State):
        raise InvalidState(f"expected a state, got {brief(value)}; pass its .state")
    return State.from_json(value)


def _encode(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return value if -_EXACT < value < _EXACT else {"int": _hex(value)}
    if kind is tuple:
        return [_encode(v) for v in value]
    if kind is Own:
        return {"own": _encode(value[0])}
    if kind is FrozenList:
        return {"list": [_encode(v) for v in value]}
    if kind is FrozenDict:
        return {"dict": [[_encode(k), _encode(v)] for k, v in value]}
    if kind is float and not math.isfinite(value):
        return {"float": repr(value)}
    return value


def _decode(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return tuple([_decode(v) for v in value])
    if kind is not dict:
        return value
    ((tag, inner),) = value.items()
    if tag == "int":
        if len(inner) > _DIGITS:
            raise InvalidState(f"an int of {len(inner):,} digits is too long for a state")
        return int(inner, 16)
    if tag == "own":
        return Own((_decode(inner),))
    if tag == "list":
        return FrozenList([_decode(v) for v in inner])
    if tag == "dict":
        return FrozenDict([(_decode(k), _decode(v)) for k, v in inner])
    if tag == "float" and inner in ("nan", "inf", "-inf"):
        return math.nan if inner == "nan" else float(inner)
    raise InvalidState(f"malformed state: {brief(value)}")


def _left_out(found: Any) -> Skipped:
    if not isinstance(found, dict):
        raise InvalidState(f"not a record of skipped items: {brief(found)}")
    return Skipped.from_json({name: _decode(value) for name, value in found.items()})


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_sound(position: Any) -> bool:
    if type(position) is tuple:
        return all(map(_is_sound, position))
    return type(position) is Own or _is_count(position)


def _is_described(pipeline: Any) -> bool:
    return isinstance(pipeline, list) and all(
        isinstance(stage, list) and [type(part) for part in stage] == [str, dict]
        for stage in pipeline
    )


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _check(body: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(body, sort_keys=True).encode()):08x}"


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


def _excerpt(text: str | bytes) -> str:
    return brief(text[:80])
