"""`State`: the position of a run and the pipeline it is checked against, as an immutable value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any, TypeAlias

import toolz

from lazyckpt.core.checks import brief, plural
from lazyckpt.core.content import Entries, dumps, encode, written
from lazyckpt.core.flow import Position
from lazyckpt.core.lines import columns, filled
from lazyckpt.core.machine import EPOCH_BITS, Rank
from lazyckpt.core.pictured import Legend, Pictured
from lazyckpt.errors import InvalidState, StateMismatch
from lazyckpt.failures.skip_log import Skipped
from lazyckpt.state.codec import (
    FORMAT,
    IN_ALL,
    LONGEST,
    Content,
    Ranges,
    Rebased,
    checksum,
    content_of,
    encode_stages,
    is_whole,
    joined,
    layers,
    own_parts,
    parsed,
    passes,
    shown,
)
from lazyckpt.state.words import own_position, own_positions

_FORMAT = str(FORMAT)
_NONE_SKIPPED = Skipped()
_ROWS = 40  # lines of stages in a repr


class State(Pictured):
    """The position of a run in its pipeline: immutable, hashable, comparable, a few hundred bytes.

    States of the same pipeline are ordered by their items; comparing states of different pipelines
    raises `StateMismatch`.

    Attributes:
        stages: The stages, with the arguments that decide the order.
        items: Number of items delivered before it.
        position: The position of each stage, as nested tuples of ints.
        skipped: The items that `on_error="skip"` skipped before it, as in `Run.skipped`.
        rebased: How `rebase` carried it over from a different pipeline; otherwise None.
        rank: The rank that it belongs to, if other ranks may be at different positions after the
            same number of items, as after `shard(...) | filter(...)`; None if it is the state of
            all ranks.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(100)) | lz.shuffle(8, seed=0) | lz.batch(2)
    >>> state = lz.state_at(pipeline, 7)
    >>> state
    State(items=7)
      source(length=100)              epoch 0 · item 7
      shuffle(buffer_size=8, seed=0)  14
      batch(batch_size=2)
    >>> State.from_json(state.to_json()) == state
    True
    """

    # There may be one per item, so building it has to be fast.
    __slots__ = (
        "__weakref__", "_items", "_position", "_rank", "_rebased", "_skipped", "_stages",
    )  # fmt: skip

    def __init__(
        self,
        stages: Entries,
        items: int,
        position: Position,
        skipped: Skipped = _NONE_SKIPPED,
        rebased: Rebased | None = None,
        rank: Rank | None = None,
    ) -> None:
        self._stages, self._items, self._position = stages, items, position
        self._skipped, self._rebased, self._rank = skipped, rebased, rank

    @property
    def stages(self) -> Entries:
        """The stages, with the arguments that decide the order."""
        return self._stages

    @property
    def items(self) -> int:
        """Number of items delivered before it."""
        return self._items

    @property
    def position(self) -> Position:
        """The position of each stage, as nested tuples of ints."""
        return self._position

    @property
    def skipped(self) -> Skipped:
        """The items that `on_error="skip"` skipped before it, as in `Run.skipped`."""
        return self._skipped

    @property
    def rebased(self) -> Rebased | None:
        """How `rebase` carried it over from a different pipeline; otherwise None."""
        return self._rebased

    @property
    def rank(self) -> Rank | None:
        """The rank that it belongs to; None if it is the state of all ranks."""
        return self._rank

    def at(
        self, position: Position, items: int | None = None, skipped: Skipped | None = None
    ) -> State:
        """Return the state at a different position; by default the number of items is the same."""
        return State(
            self._stages,
            self._items if items is None else items,
            position,
            self._skipped if skipped is None else skipped,
            self._rebased,
            self._rank,
        )

    @property
    def epoch(self) -> int:
        """The epoch, from 0, that the first source will be in after a resume.

        A stage that holds a window may still yield items of an epoch after the source has moved on,
        or re-read them before. If an endless repetition is restarted, as in
        `repeat() | take(5) | repeat(2)`, the epochs of both add up.
        """
        return passes(self._source_epoch)

    @property
    def _source_epoch(self) -> int:
        """The source's epoch, as one number with the epochs of stages that repeat it."""
        leaf = self.position
        while type(leaf) is tuple and leaf:
            leaf = next((part for part in leaf if part != ()), ())
        if type(leaf) is not int:
            raise InvalidState(f"a state's position {brief(self.position)} has no epoch")
        return leaf

    @property
    def own_items(self) -> int | None:
        """Number of items that its pipeline yields from the beginning up to this state.

        It equals `items`, unless `rebase` carried the state over; None if it can't be known without
        reading the data.
        """
        if self.rebased is None:
            return self.items
        own = self.rebased.own
        return None if own is None else own + self.items - self.rebased.items

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        others = other.stages, other.items, other.skipped, other.rebased, other.rank
        if (self.stages, self.items, self.skipped, self.rebased, self.rank) != others:
            return False
        try:
            return bool(self.position == other.position)
        except RecursionError:  # more stages than a tuple comparison can recurse through
            return own_parts(self.stages, self.position) == own_parts(other.stages, other.position)

    def __hash__(self) -> int:
        return hash((self.stages, self.items))  # not the position, which may be deep

    def __lt__(self, other: State) -> bool:
        return self.items < other.items if _has_order(self, other) else NotImplemented

    def __le__(self, other: State) -> bool:
        return self.items <= other.items if _has_order(self, other) else NotImplemented

    def __repr__(self) -> str:
        """Format as one line per stage, with the stage's own position; two if they don't fit."""
        rows = self._rows()
        if len(rows) > _ROWS:
            rows[_ROWS - 1 :] = [(f"... and {len(rows) - _ROWS + 1:,} more", "")]
        size, width = max(len(stage) for stage, _ in rows), columns()
        lines = [f"  {stage:{size}}  {position}".rstrip() for stage, position in rows]
        if max(map(len, lines)) > width:
            lines = [line for row in rows for line in _stacked(*row, width)]
        head = filled(f"{type(self).__name__}({self._summary()})", "", "    ", width)
        return "\n".join([*head, *lines])

    def _legend(self) -> Legend:
        return Legend(self.stages, own_positions(self.stages, self.position), tuple(_facts(self)))

    def _summary(self) -> str:
        found = f"items={self.items}"
        if self.skipped:
            found += f", skipped={int(self.skipped)}"
        if self.rank is not None:
            found += f", {self.rank}"
        return found if self.rebased is None else f"{found}, rebased_at={self.rebased.items}"

    def _rows(self) -> list[tuple[str, str]]:
        found = []
        for layer in layers(self.stages, self.position):
            *outer, number = layer.stage.split("[")
            pipeline, _, inner = number.partition("].") if outer else ("", "", number)
            first = f"[{pipeline.rstrip(']')}] " if outer and inner in ("", "1") else ""
            indent = "    " * len(outer)
            stage = f"{indent[len(first) :]}{first}{shown(layer.entry)}"
            found.append((stage, own_position(layer)))
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return State, self._content

    @property
    def _content(self) -> Content:
        return self.stages, self.items, self.position, self.skipped, self.rebased, self.rank

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON values, with ints below 2**53."""
        found: dict[str, Any] = json.loads(self.to_json())
        return found

    def to_json(self) -> str:
        """Return one line of ASCII JSON, at most 1 KB for ten stages.

        Your own state, as in `scan`, is written as it is, so keep secrets out of it. Each stage of
        a joined pipeline adds some 40 bytes.
        """
        text = joined(self._fields())
        text = f'{text[:-1]},"check":"{checksum(text)}"}}'
        if len(text) > LONGEST:
            raise InvalidState(f"a state of {len(text):,} characters is too long to be loaded")
        return text

    def _fields(self) -> dict[str, str]:
        """The fields as JSON strings, except the checksum."""
        fields = {
            "lazyckpt": _FORMAT,
            "items": written(self._items),
            "stages": encode_stages(self._stages, self._position),
        }
        rebased, skipped = self._rebased, self._skipped
        if rebased is not None:
            fields["rebased"] = dumps([None if n is None else encode(n) for n in rebased])
        if skipped or skipped.lost:
            left_out = skipped.to_json()
            fields["skipped"] = dumps(toolz.valmap(encode, left_out))
        if self._rank is not None:
            fields["rank"] = dumps(self._rank)
        return fields

    @staticmethod
    def from_json(text: str | bytes) -> State:
        """Parse the JSON of a state, or of its dict; raise `InvalidState` for anything else.

        Loading never executes code. It takes a few seconds and half a gigabyte at most; strings
        above 16 MiB are refused. A state that no run could have reached is rejected when a run
        starts from it, or re-reads the items that it claims were read. With an endless source that
        re-read may never end.
        """
        if not isinstance(text, (str, bytes)):
            raise InvalidState(f"expected the JSON string of a state, got {brief(text)}")
        try:
            found = parsed(text)
        except (ValueError, RecursionError) as error:
            raise InvalidState(
                f"not a state, or a truncated one: {error}: {brief(text[:80])}"
            ) from None
        if _of_ranks(found):  # the dict of a rank's state, as JSON
            return State.from_dict(found)
        return _from(found, is_whole(text))

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> State:
        """Build a state from the dict of `to_dict` or `Run.state_dict`."""
        if isinstance(found, Mapping) and "ranks" in found:
            raise InvalidState(
                "the state belongs to all ranks of a loader with group=; load it into such a loader"
            )
        own = _of_ranks(found)
        if len(own) > 1:
            raise InvalidState(
                f"the states of {len(own)} ranks, not one: {brief(', '.join(map(str, own)))}; "
                f"load that of one, such as found[{str(min(own))!r}], or use lz.reshard for a "
                "different number of ranks"
            )
        return State.from_json(*own.values()) if own else _from(found, False)


def _of_ranks(found: Any) -> dict[Rank, str]:
    """Return the strings of a dict with states of single ranks; empty if it is anything else."""
    if not isinstance(found, Mapping):
        return {}
    names = [re.fullmatch(r"rank (\d{1,9}) of (\d{1,9})", str(name)) for name in found]
    if not all(names):
        return {}
    ranks = [Rank(*map(int, name.groups())) for name in names if name]
    return dict(zip(ranks, found.values(), strict=True))


def _from(found: Any, is_checked: bool) -> State:
    content, tracked = content_of(found, is_checked)
    state = State(*content)
    return state if tracked is None else TrackedState(state, *tracked)


def count_of(ranges: Ranges) -> int:
    """Return the number of items in the ranges."""
    return sum(stop - start for start, stop in ranges)


def flat(state: State) -> dict[str, Any]:
    """Return the state as a dict of ints and strings, which `State.from_dict` also reads.

    Some checkpointers take containers apart, lose empty ones, and read only the fields that existed
    before the load. So all fields are present, even if nothing was rebased or skipped. Some merge
    the dicts of all ranks by key, so a state of a single rank is one string under the rank's name.
    """
    if state.rank is not None:
        return {str(state.rank): state.to_json()}
    fields = state._fields()
    found: dict[str, Any] = dict.fromkeys(IN_ALL, "null")
    for name, text in fields.items():
        found[name] = int(text) if text.isdigit() else text
    return {**found, "check": checksum(joined(fields))}


def of_all(state: State) -> State:
    """Return the state as if it were the state of all ranks."""
    return State(*state._content[:-1])


def _stacked(stage: str, position: str, width: int) -> list[str]:
    """Return a stage, and its position below it, in lines of at most `width` characters."""
    text = stage.lstrip()
    margin = " " * (2 + len(stage) - len(text))
    lines = filled(text, margin, f"{margin}    ", width)
    return lines + filled(position, f"{margin}  ", f"{margin}    ", width) if position else lines


def _facts(state: State) -> Iterator[str]:
    """Yield the facts of a state that a diagram shows in addition to positions."""
    yield plural(state.items, "item")
    with suppress(InvalidState):  # a state built by hand
        yield f"epoch {state.epoch:,}"
    if state.skipped:
        yield f"{int(state.skipped):,} skipped"
    if state.rebased is not None:
        yield f"rebased after {plural(state.rebased.items, 'item')}"
    if state.rank is not None:
        yield f"{state.rank} only"
    if isinstance(state, TrackedState):
        yield f"{count_of(state.finished):,} finished after it"


def _has_order(a: State, b: Any) -> bool:
    if isinstance(b, State) and a.stages != b.stages:
        raise StateMismatch(
            "states of different pipelines have no order: "
            f"{_names(a.stages)} and {_names(b.stages)}"
        )
    return isinstance(b, State)


def _names(entries: Entries) -> str:
    return brief(" | ".join(shown(entry) for entry in entries))


class TrackedState(State):
    """The state of a tracked run: a state, and the items finished after it. See `lazyckpt.tracked`.

    It is saved and loaded like a state. Only `lazyckpt.tracked` resumes from it; other functions
    take its `base`.

    Attributes:
        base: The state before the oldest unfinished item.
        tracker: Name of the run that issued its first ticket.
        finished: Ranges `(start, stop)` of items finished after it: item 0 is the first after
            `base`, `stop` is the first that is not finished.

    >>> import lazyckpt as lz
    >>> tracked = lz.tracked(lz.run(lz.source([*"abcde"])), max_in_flight=4)
    >>> tickets = [ticket for ticket, _ in [next(tracked) for _ in range(4)]]
    >>> for number in (0, 2, 3):
    ...     tracked.ack(tickets[number])
    >>> tracked.state
    TrackedState(items=1, finished=((1, 3),))
      source(length=5)  epoch 0 · item 1
    """

    __slots__ = ("_finished", "_tracker")

    def __init__(self, base: State, tracker: str, finished: Ranges) -> None:
        super().__init__(*base._content)
        self._tracker, self._finished = tracker, finished

    @property
    def base(self) -> State:
        """The state before the oldest unfinished item."""
        return State(*self._content)

    @property
    def tracker(self) -> str:
        """Name of the run that issued its first ticket."""
        return self._tracker

    @property
    def finished(self) -> Ranges:
        """Ranges of items finished after `base`."""
        return self._finished

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        if not isinstance(other, TrackedState) or self.base != other.base:
            return False
        return (self.tracker, self.finished) == (other.tracker, other.finished)

    __hash__ = State.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return TrackedState, (self.base, self.tracker, self.finished)

    def _summary(self) -> str:
        return f"{super()._summary()}, finished={brief(self.finished)}"

    def _fields(self) -> dict[str, str]:
        return {**super()._fields(), "tracked": dumps([self.tracker, encode(self.finished)])}


def epochs_between(first: State, second: State) -> int:
    """Return how many epochs one state is ahead of an earlier state of the same pipeline."""
    here, there = first._source_epoch, second._source_epoch
    while max(here, there) >> EPOCH_BITS > 0 and here >> EPOCH_BITS != there >> EPOCH_BITS:
        here, there = here >> EPOCH_BITS, there >> EPOCH_BITS
    return there - here


AnyState: TypeAlias = State | str | bytes | Mapping[str, Any]


def as_state(value: AnyState, ranks: Sequence[Rank | None] = ()) -> State:
    """Convert any form of a state to a `State`.

    Args:
        value: The state.
        ranks: The ranks it may belong to, if states of several were merged.
    """
    several = _of_ranks(value)
    state = any_state(next((several[rank] for rank in ranks if rank in several), value))
    if isinstance(state, TrackedState):
        raise InvalidState(
            f"the state is one of lazyckpt.tracked, with {count_of(state.finished):,} items "
            f"finished after item {state.items:,}; continue with lazyckpt.tracked(run, state), or "
            "pass its .base, which repeats those items"
        )
    return state


def any_state(value: AnyState) -> State:
    """Convert any form of a state, also of a tracked run."""
    if isinstance(value, State):
        return value
    if isinstance(value, Mapping):
        return State.from_dict(value)
    if isinstance(value, PathLike):
        raise InvalidState(
            f"expected a state, its JSON string or its dict, got the path {brief(value)}; "
            "pass its contents: path.read_text()"
        )
    if isinstance(getattr(value, "state", None), State):
        raise InvalidState(f"expected a state, got {brief(value)}; pass its .state")
    return State.from_json(value)
