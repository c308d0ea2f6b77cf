"""`State`: where a pipeline stands, with what it is checked against, as an immutable value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter, index
from os import PathLike
from typing import Any, NamedTuple, TypeAlias

from lazyckpt.core.checks import brief, is_integer
from lazyckpt.core.entries import Entries, dumps
from lazyckpt.core.flow import Position
from lazyckpt.diagram import table
from lazyckpt.errors import InvalidState, StateMismatch
from lazyckpt.failures.skip_log import Skipped
from lazyckpt.state.codec import (
    LONGEST,
    checksum,
    decode,
    decode_stages,
    encode,
    encode_stages,
    is_count,
    is_whole,
    joined,
    parsed,
    written,
)
from lazyckpt.state.positions import layers, places, shown

FORMAT = 2
_FIELDS = ("lazyckpt", "items", "stages", "rebased", "skipped")  # in the order of a text
_OPTIONAL = {"rebased", "skipped"}
_NONE_SKIPPED = Skipped()
_ROWS = 40  # that a repr shows of the stages


class Rebased(NamedTuple):
    """That a state was carried over to its pipeline: after how many items, and where that is in it.

    - `items`: how many items had been delivered then
    - `own`: how many items this pipeline gives from its beginning up to there;
      None where only reading tells
    """

    items: int
    own: int | None


@dataclass(init=False, repr=False, eq=False)
class State:
    """Where a pipeline stands: a few hundred bytes, immutable, hashable, comparable.

    States of one pipeline are ordered by their items; those of two raise `StateMismatch`.

    Attributes:
        stages: The stages, with the arguments that decide the order.
        items: How many items were delivered before it.
        position: What the stages need to go on, as nested tuples of ints.
        skipped: What `on_error="skip"` has left out before it, as in `Run.skipped`.
        rebased: Where `rebase` carried it over from another pipeline; else None.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(100)) | lz.shuffle(8, seed=0) | lz.batch(2)
    >>> state = lz.state_at(pipeline, 7)
    >>> state
    State(items=7)
      source(length=100)              0, 7
      shuffle(buffer_size=8, seed=0)  14
      batch(batch_size=2)
    >>> State.from_json(state.to_json()) == state
    True
    """

    # There may be one for each item: it is made in a third of the time of a frozen dataclass.
    __slots__ = ("__weakref__", "_items", "_position", "_rebased", "_skipped", "_stages")

    stages: Entries
    items: int
    position: Position
    skipped: Skipped
    rebased: Rebased | None

    def __init__(
        self,
        stages: Entries,
        items: int,
        position: Position,
        skipped: Skipped = _NONE_SKIPPED,
        rebased: Rebased | None = None,
    ) -> None:
        self._stages, self._items, self._position = stages, items, position
        self._skipped, self._rebased = skipped, rebased

    @property
    def epoch(self) -> int:
        """The pass, from 0, that the (first) source is in where a resume reads on.

        A stage that holds a window may still give items of it after the source
        has gone on, or read them again before it does.
        """
        leaf = self.position
        while type(leaf) is tuple and leaf:
            leaf = next((part for part in leaf if part != ()), ())
        if type(leaf) is not int:
            raise InvalidState(f"a state's position {brief(self.position)} has no epoch")
        return leaf

    @property
    def own_items(self) -> int | None:
        """How many items its pipeline gives from its beginning up to there.

        The same as `items`, unless `rebase` carried it over; None where only reading tells.
        """
        if self.rebased is None:
            return self.items
        own = self.rebased.own
        return None if own is None else own + self.items - self.rebased.items

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        others = other.stages, other.items, other.skipped, other.rebased
        if (self.stages, self.items, self.skipped, self.rebased) != others:
            return False
        try:
            return bool(self.position == other.position)
        except RecursionError:  # of more stages than a tuple is compared through
            return places(self.stages, self.position) == places(other.stages, other.position)

    def __hash__(self) -> int:
        return hash((self.stages, self.items))  # not the position, which may be deep

    def __lt__(self, other: State) -> bool:
        return self.items < other.items if _has_order(self, other) else NotImplemented

    def __le__(self, other: State) -> bool:
        return self.items <= other.items if _has_order(self, other) else NotImplemented

    def __repr__(self) -> str:
        """A line for each stage, with its own place."""
        rows = list(self._rows())
        width = max(len(stage) for _, stage, _ in rows)
        lines = [f"  {stage:{width}}  {place}".rstrip() for _, stage, place in rows]
        if len(lines) > _ROWS:
            lines[_ROWS - 1 :] = [f"  ... and {len(lines) - _ROWS + 1:,} more"]
        return "\n".join([f"State({self._summary()})", *lines])

    def _repr_html_(self) -> str:
        rows = ((number, stage.strip(), place) for number, stage, place in self._rows())
        return table(f"State({self._summary()})", ("stage", "place"), rows)

    def _summary(self) -> str:
        found = f"items={self.items}"
        if self.skipped:
            found += f", skipped={int(self.skipped)}"
        return found if self.rebased is None else f"{found}, rebased_at={self.rebased.items}"

    def _rows(self) -> list[tuple[str, str, str]]:
        found = []
        for stage, entry, own in layers(self.stages, self.position):
            *outer, number = stage.split("[")
            pipeline, _, behind = number.partition("].") if outer else ("", "", number)
            first = f"[{pipeline.rstrip(']')}] " if outer and behind in ("", "1") else ""
            place = "" if own is None else ", ".join(brief(part) for part in own)
            indent = "    " * len(outer)
            found.append((stage, f"{indent[len(first) :]}{first}{shown(entry)}", place))
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return State, (self.stages, self.items, self.position, self.skipped, self.rebased)

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON values, of which ints are below 2**53."""
        found: dict[str, Any] = json.loads(self.to_json())
        return found

    def to_json(self) -> str:
        """One line of ASCII JSON, at most 1 KB for ten stages.

        A state of your own is of its own size, and each pipeline that a stage
        joins adds some 40 bytes.
        """
        text = joined(self._fields())
        text = f'{text[:-1]},"check":"{checksum(text)}"}}'
        if len(text) > LONGEST:
            raise InvalidState(f"a state of {len(text):,} characters is too long to be read again")
        return text

    def _fields(self) -> dict[str, str]:
        """The fields as JSON texts, but for the checksum."""
        fields = {
            "lazyckpt": str(FORMAT),
            "items": written(self.items),
            "stages": encode_stages(self.stages, self.position),
        }
        if self.rebased is not None:
            fields["rebased"] = dumps([None if n is None else encode(n) for n in self.rebased])
        if self.skipped:
            left_out = self.skipped.to_json()
            fields["skipped"] = dumps({name: encode(value) for name, value in left_out.items()})
        return fields

    @staticmethod
    def from_json(text: str | bytes) -> State:
        """The state that `to_json` wrote; `InvalidState` for anything else.

        Executes nothing, whoever wrote the text, and takes a few seconds and half
        a gigabyte at most: more than 16 MiB are refused. What no run of a pipeline
        could have reached is refused where that enters it, or re-reads
        what it says was read before: an endless source can be read forever.
        """
        if not isinstance(text, (str, bytes)):
            raise InvalidState(f"expected the JSON text of a state, got {brief(text)}")
        try:
            found = parsed(text)
        except (ValueError, RecursionError) as error:
            raise InvalidState(
                f"not a state, or a truncated one: {error}: {brief(text[:80])}"
            ) from None
        return _from(found, is_whole(text))

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> State:
        """The state that `to_dict` or `Run.state_dict` gave."""
        return _from(found, False)


for _name in State.__dataclass_fields__:
    setattr(State, _name, property(attrgetter(f"_{_name}")))


def _from(found: Any, is_checked: bool) -> State:
    if not isinstance(found, Mapping) or "lazyckpt" not in found:
        raise InvalidState(f"not a lazyckpt state: {brief(found)}")
    found = {k: index(v) if is_integer(v) else v for k, v in found.items()}  # NumPy's
    _check_version(found["lazyckpt"])
    try:
        body = _body(found)
        if not is_checked:
            _check_content(body, found.get("check"))
        return _from_body(body)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, InvalidState):
            raise
        raise InvalidState(f"malformed state: {error}") from None


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


def _from_body(body: Mapping[str, Any]) -> State:
    stages, position = decode_stages(body["stages"])
    items = decode(body["items"])
    if not is_count(items):
        raise InvalidState(f"items must be an int >= 0, got {brief(items)}")
    if position == ():
        raise InvalidState("the state has no place for its source")
    skipped = _skipped(body["skipped"]) if "skipped" in body else Skipped()
    rebased = _rebased(body["rebased"], items) if "rebased" in body else None
    return State(stages, items, position, skipped, rebased)


def _skipped(found: Any) -> Skipped:
    if not isinstance(found, dict):
        raise InvalidState(f"not a record of skipped items: {brief(found)}")
    return Skipped.from_json({name: decode(value) for name, value in found.items()})


def _rebased(found: Any, items: int) -> Rebased:
    if isinstance(found, list) and len(found) == 2:
        at, own = map(decode, found)
        if is_count(at) and at <= items and (own is None or is_count(own)):
            return Rebased(at, own)
    raise InvalidState(f"no account of a rebase: {brief(found)}")


def flat(state: State) -> dict[str, Any]:
    """The state as a dict of ints and texts, which `State.from_dict` takes too.

    Some checkpointers take containers apart, and lose empty ones, and read only the
    fields that there are before they do: it has all of them, whether or not it was
    rebased and something was left out.
    """
    fields = state._fields()
    found: dict[str, Any] = dict.fromkeys(sorted(_OPTIONAL), "null")
    for name, text in fields.items():
        found[name] = int(text) if text.isdigit() else text
    return {**found, "check": checksum(joined(fields))}


def _has_order(a: State, b: Any) -> bool:
    if isinstance(b, State) and a.stages != b.stages:
        raise StateMismatch(
            f"states of two pipelines have no order: {_names(a.stages)} and {_names(b.stages)}"
        )
    return isinstance(b, State)


def _names(entries: Entries) -> str:
    return brief(" | ".join(shown(entry) for entry in entries))


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
