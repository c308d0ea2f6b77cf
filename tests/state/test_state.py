"""States as values, as JSON, of other pipelines, and damaged in every way."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
from collections.abc import Iterator
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import State
from lazyckpt.core.content import dumps, encode, written
from lazyckpt.core.user_state import freeze
from lazyckpt.testing.laws import Stream
from tests.helpers import Unread
from tests.state.cases import signed

PIPELINE = (
    lz.source(range(100))
    | lz.shuffle(seed=2**64)
    | lz.repeat()
    | lz.shard(num_shards=2, index=1)
    | lz.flat_map(range)
    | lz.shuffle(5, seed=1)
    | lz.batch(4)
)
STATE = lz.state_at(PIPELINE, 7)
TEXT = STATE.to_json()


# --- a value ---


def test_a_state_is_a_value() -> None:
    same = lz.state_at(PIPELINE, 7)
    others = [lz.state_at(PIPELINE, 8), lz.init(PIPELINE), lz.init(PIPELINE, epoch=1)]
    assert same == STATE
    assert hash(same) == hash(STATE)
    assert len({STATE, same, *others}) == 4
    for other in (pickle.loads(pickle.dumps(STATE)), copy.deepcopy(STATE), State.from_json(TEXT)):
        assert other == STATE
        assert hash(other) == hash(STATE)
        assert other.to_json() == TEXT
    for name in ("items", "position", "stages", "rebased", "other"):
        with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
            setattr(STATE, name, 0)
    assert STATE.to_dict() != STATE


places = st.recursive(
    st.integers(0, 2**70) | st.builds(lambda value: freeze(value, ""), st.text() | st.floats()),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=20,
)


@given(places)
def test_a_place_is_written_as_it_is_encoded(place: Any) -> None:
    assert written(place) == dumps(encode(place))


def test_items_and_epoch() -> None:
    pipeline = lz.source(range(3)) | lz.repeat() | lz.batch(2)
    found = [(state.items, state.epoch) for _, state in islice(lz.run(pipeline).with_state(), 4)]
    assert found == [(1, 0), (2, 1), (3, 1), (4, 2)]


def test_json_is_plain() -> None:
    assert TEXT.isascii()
    assert "\n" not in TEXT
    assert json.loads(TEXT) == STATE.to_dict()
    assert State.from_json(TEXT.encode()) == State.from_dict(STATE.to_dict()) == STATE
    spaced = json.dumps(STATE.to_dict(), indent=2, sort_keys=True)  # as another tool writes it
    assert State.from_json(spaced) == STATE


def test_ten_stages_take_at_most_a_kilobyte() -> None:
    big = 2**200
    long = lz.columns(**{f"a_column_with_a_long_name_{i}": np.arange(2000) for i in range(50)})
    pipeline = (
        long | lz.shuffle(seed=big) | lz.repeat() | lz.shard(num_shards=10**15, index=10**14)
        | lz.block_shuffle(10**9, seed=big) | lz.map(str) | lz.scan(print, 2**60)
        | lz.shuffle(10**6, seed=big) | lz.take(10**18) | lz.batch(10**12, drop_last=True)
    )  # fmt: skip
    assert len(lz.init(pipeline, epoch=10**15).to_json()) <= 1024


# --- damaged ---


def test_truncated_at_every_length() -> None:
    for length in range(len(TEXT)):
        for text in (TEXT[:length], TEXT[length + 1 :], TEXT[:length].encode()):
            with pytest.raises(lz.InvalidState):
                lz.run(PIPELINE, text)


def test_a_flipped_character_is_noticed() -> None:
    for place, new in product(range(len(TEXT)), 'a0159,"[]{}-. \\e'):
        text = TEXT[:place] + new + TEXT[place + 1 :]
        try:
            found = State.from_json(text)
        except lz.InvalidState:
            continue
        assert found == STATE, (place, new)


resigned = partial(signed, STATE.to_dict())


def test_signing_works() -> None:
    assert State.from_json(resigned()) == STATE


FOREIGN: dict[str, Any] = {
    "nothing": "",
    "null": "null",
    "number": "7",
    "list": "[]",
    "dict": "{}",
    "string": json.dumps(TEXT),
    "other json": '{"epoch": 3, "model": [1, 2]}',
    "two states": TEXT + TEXT,
    "a key twice": TEXT.replace('"items":7', '"items":7,"items":7'),
    "the last key twice": TEXT[:-1] + ',"check":"00000000"}',
    "nan": TEXT.replace('"items":7', '"items":NaN'),
    "infinity": TEXT.replace('"items":7', '"items":Infinity'),
    "deep lists": "[" * 100_000,
    "closed deep lists": "[" * 50_000 + "]" * 50_000,
    "deep dicts": '{"a":' * 100_000,
    "a deep position": TEXT.replace('"stages":', '"stages":' + "[" * 5000 + "]" * 5000),
    "a huge int": '{"lazyckpt":3,"items":' + "9" * 100_000 + "}",
    "pickle": pickle.dumps(STATE),
    "no utf-8": b"\xff\xfe\x00",
    "surrogate": '{"lazyckpt":"\\ud800"}',
    "a field missing": json.dumps({"lazyckpt": 3, "items": 0}),
    "a field more": resigned(extra=1),
    "no check": json.dumps({k: v for k, v in STATE.to_dict().items() if k != "check"}),
    "None": None,
    "an int": 3,
    "a list": [STATE],
    "bytearray": bytearray(TEXT.encode()),
    "a set": {1},
    "a run": lz.run(PIPELINE),
    "keys of other kinds": {1: 2, None: 3, "lazyckpt": 3},
}
LONG = {
    "zeros": lambda: "0" * 10_000_000,
    "zero bytes": lambda: b"\0" * 10_000_000,
    "spaces": lambda: " " * (1 << 24) + TEXT,
}


@pytest.mark.parametrize("name", [*FOREIGN, *LONG])
def test_foreign_text(name: str) -> None:
    foreign = LONG[name]() if name in LONG else FOREIGN[name]
    for read in (
        State.from_json,
        lambda it: lz.step(PIPELINE, it),
        lz.run(PIPELINE).load_state_dict,
    ):
        with pytest.raises(lz.InvalidState) as caught:
            read(foreign)
        assert len(str(caught.value)) < 500
    if foreign is not None:
        with pytest.raises(lz.InvalidState):
            lz.run(PIPELINE, foreign)


def test_a_path_is_no_state(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(TEXT)
    for read in (lz.run(PIPELINE).load_state_dict, lambda it: lz.run(PIPELINE, it)):
        with pytest.raises(lz.InvalidState, match=r"got the path .*; pass its contents: path.read"):
            read(path)
    assert lz.run(PIPELINE, path.read_text()).state == STATE


@pytest.mark.parametrize("version", [4, 99, 2**70])
def test_formats_of_later_releases(version: Any) -> None:
    with pytest.raises(lz.InvalidState, match=r"format .* reads 3; .* by a newer .*: upgrade"):
        State.from_json(resigned(lazyckpt=version))


@pytest.mark.parametrize("version", [0, -1, "3", "2", 3.0, 2.0, True, None, []])
def test_formats_that_are_none(version: Any) -> None:
    with pytest.raises(lz.InvalidState, match=r"format .* this lazyckpt reads 3"):
        State.from_json(resigned(lazyckpt=version))


def test_formats_before_the_first_release() -> None:
    with pytest.raises(lz.InvalidState, match=r"format 2, from before the first .*the beginning"):
        State.from_json(resigned(lazyckpt=2))
    for old in (
        resigned(lazyckpt=1),
        '{"lazyckpt":1,"items":3,"position":[0,3],"pipeline":[["source",{"length":7}]],'
        '"check":"dceb4ab1"}',
    ):
        with pytest.raises(
            lz.InvalidState, match=r"format 1, from before the first .*the beginning"
        ):
            State.from_json(old)


def placed(place: Any) -> list[Any]:
    """The stages of a state, of which the first has another place."""
    first, *rest = STATE.to_dict()["stages"]
    return [[*first[:2], place], *rest]


def test_placing_works() -> None:
    assert placed([0, 0]) == STATE.to_dict()["stages"]


@pytest.mark.parametrize(
    "changed",
    [
        *({"items": bad} for bad in (-1, 1.5, "1", None, True, [], {"int": "-0x1"})),
        *({"stages": placed(bad)} for bad in ({}, {"int": 3}, {"int": "x"}, {"a": 1})),
        *({"stages": placed(bad)} for bad in ({"list": 3}, {"dict": [1]}, {"dict": 3})),
        *({"stages": placed(bad)} for bad in (None, 0, "x", [], {"float": "1"}, {"int": None})),
        *({"stages": placed([0, bad])} for bad in ({"a": 1, "b": 2}, {"int": "0x" + "f" * 10**6})),
        *({"stages": placed([0, bad])} for bad in (-1, 0.5, None, True, "a", {"list": [0]})),
        *({"stages": placed({"dict": [bad]})} for bad in ([{"list": []}, 1], [1], "ab")),
        *({"stages": bad} for bad in (None, 3, "x", {}, [], [[]], [3], [["source"]], [[1, 2]])),
        *({"stages": [[bad, {}, [0, 0]]]} for bad in (None, 3, ["source"], "no_such_stage")),
        *({"stages": [["source", bad, [0, 0]]]} for bad in (None, 3, "x", [])),
        *({"stages": [["source", {"length": {"a": []}}, *rest]]} for rest in ([], [[0, 0]])),
        *({"stages": [["source", {}, [0, 0], bad]]} for bad in (None, 3, "x", [3], [[]], [[3]])),
        *({"stages": [["zip", {}, [0], [bad]]]} for bad in (["a#0", 1, 2], ["a#0", 0], [["b"]])),
        *({"rebased": bad} for bad in (3, "x", [], [1], [8, 1], [1, -1], [None, 1], [1, 1, 1])),
    ],
    ids=lambda changed: json.dumps(changed)[:60],
)
def test_malformed_with_a_right_checksum(changed: dict[str, Any]) -> None:
    for use in (lz.run, lz.step, lambda pipeline, text: lz.rebase(text, pipeline)):
        with pytest.raises(lz.InvalidState):
            use(PIPELINE, resigned(**changed))


# --- positions that don't fit, with a right checksum ---

DATA = lz.source(range(10))
STREAM = lz.source(Stream(range(10)))
LATER: list[lz.Pipeline[Any]] = [
    DATA, STREAM, lz.columns(x=range(10)), lz.zip(DATA, STREAM), lz.concat(DATA, STREAM),
    *(data | stage for data in (DATA, STREAM) for stage in (
        lz.map(str), lz.filter(bool), lz.take(9),
        lz.skip(1), lz.batch(2), lz.repeat(), lz.repeat(2),
        lz.flat_map(lambda x: [x, x]), lz.flat_map(lambda x: lz.source([x, x])),
        lz.batch(2) | lz.unbatch(), lz.shuffle(4, seed=0), lz.block_shuffle(4, seed=0),
        lz.shard(num_shards=2, index=0),
    )),
    DATA | lz.shuffle(seed=0),
    DATA | lz.shuffle(seed=0) | lz.repeat() | lz.block_shuffle(3, seed=0),
]  # fmt: skip


def spoiled(position: Any) -> Iterator[Any]:
    """The position with one leaf of another kind, or of another shape."""
    if isinstance(position, tuple):
        yield position[:-1]
        yield (*position, 0)
        for number, inner in enumerate(position):
            for bad in spoiled(inner):
                yield (*position[:number], bad, *position[number + 1 :])
    else:
        yield from (-1, -(2**70), None, "a", 0.5, math.nan, (0,), (), (0, (0, 0)))


@pytest.mark.parametrize("pipeline", LATER, ids=str)
@pytest.mark.parametrize("items", [0, 3])
def test_a_position_that_does_not_fit(pipeline: lz.Pipeline[Any], items: int) -> None:
    good = lz.state_at(pipeline, items)
    for position in (0, None, "a", (), *spoiled(good.position)):
        if position == good.position:  # of a pipeline that isn't open there is nothing to spoil
            continue
        state = State(good.stages, items, position)
        for use in (
            lambda state: next(lz.run(pipeline, state)),
            lambda state: lz.step(pipeline, state),
            lambda state: State.from_json(state.to_json()) and lz.step(pipeline, state.to_json()),
        ):
            try:
                use(state)
            except lz.InvalidState:
                continue
            pytest.fail(f"{position} was taken")


@pytest.mark.parametrize("pipeline", LATER, ids=str)
def test_a_position_beyond_the_end(pipeline: lz.Pipeline[Any]) -> None:
    good = lz.state_at(pipeline, 3).position
    for far in (99, 2**31, 2**70):
        position = (
            (*good[:-1], far) if isinstance(good[-1], int) else ((*good[0][:-1], far), *good[1:])
        )
        if pipeline.calls[0].name in ("zip", "concat"):
            continue
        if pipeline.calls[-1] == lz.shuffle(4, seed=0).calls[0] and far < 2**60:
            continue  # a shuffle counts from its insertion, which may be far into the run
        with pytest.raises((lz.InvalidState, lz.SourceChanged)):
            next(lz.run(pipeline, State(pipeline.entries, 3, position).to_json()))


# --- another pipeline ---

BASE = DATA | lz.shuffle(seed=1) | lz.map(str) | lz.shard(num_shards=2, index=0) | lz.batch(2)


def changed(**stages: lz.Stage[Any, Any] | None) -> lz.Pipeline[Any]:
    """BASE with other stages."""
    kept = [stages.get(call.name, lz.Stage((call,))) for call in BASE.calls[1:]]
    pipeline = DATA if "source" not in stages else lz.source(range(11))
    for stage in kept:
        pipeline = pipeline if stage is None else pipeline | stage
    return pipeline


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (changed(shuffle=lz.shuffle(seed=2)), ["stage 2", "shuffle(seed=1) -> shuffle(seed=2)"]),
        (changed(batch=lz.batch(3)), ["stage 5", "batch(batch_size=2) -> batch(batch_size=3)"]),
        (changed(source=None), ["stage 1", "source(length=10) -> source(length=11)"]),
        (changed(shard=lz.shard(num_shards=3, index=0)), ["num_shards=2", "num_shards=3"]),
        (
            changed(shuffle=lz.shuffle(9, seed=1)),
            ["shuffle() -> shuffle(buffer_size=9)"],
        ),
        (
            changed(map=None),
            ["source | shuffle | map | shard | batch\n -> source | shuffle | shard | batch"],
        ),
    ],
)
def test_a_mismatch_shows_the_difference(other: lz.Pipeline[Any], said: list[str]) -> None:
    state = lz.state_at(BASE, 1)
    for use in (lambda: lz.run(other, state), lambda: lz.step(other, state)):
        with pytest.raises(lz.StateMismatch) as caught:
            use()
        for words in said:
            assert words in str(caught.value)
        if "->" in said[-1] and "|" not in said[-1]:
            assert "strict=False" in str(caught.value)


@pytest.mark.parametrize(
    "other",
    [
        changed(map=lz.map(repr)),
        changed(shard=lz.shard(num_shards=2, index=1)),
        changed(batch=lz.batch(2, collate=tuple)),
    ],
    ids=str,
)
def test_what_changes_no_order_does_not_count(other: lz.Pipeline[Any]) -> None:
    state = lz.state_at(BASE, 1)
    assert list(lz.run(other, state)) == list(other)[1:]


def test_not_strict() -> None:
    state = lz.state_at(DATA, 4)
    assert list(lz.run(lz.source(range(12)), state, strict=False)) == list(range(4, 12))
    with pytest.raises(lz.InvalidState):
        next(lz.run(lz.source(range(3)), state, strict=False))
    with pytest.raises(lz.InvalidState):
        next(lz.run(DATA | lz.take(3), state, strict=False))


# --- rebase ---


def test_rebase_reads_no_data() -> None:
    small, large = (lz.source(Unread()) | lz.shuffle(seed=0) | lz.batch(n) for n in (2, 5))
    state = lz.rebase(lz.init(small), large)
    assert state.stages == large.entries
    assert lz.rebase(lz.init(small).to_json(), large) == lz.rebase(lz.init(small).to_dict(), large)


def test_rebase_to_the_same_is_the_same() -> None:
    assert lz.rebase(STATE, PIPELINE) == STATE


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_arguments_that_json_has_no_numbers_for(number: float) -> None:
    pipeline = lz.source([1, 2, 3]) | lz.scan(lambda least, x: (min(least, x), x), number)
    run = lz.run(pipeline)
    assert next(run) == 1
    assert list(lz.run(pipeline, run.state.to_json())) == [2, 3]


# --- released formats ---

FORMATS = sorted(Path(__file__).parent.glob("format-*.json"))


def test_there_is_a_fixture_for_every_format() -> None:
    newest = json.loads(TEXT)["lazyckpt"]
    assert [path.stem for path in FORMATS] == [f"format-{n}" for n in range(3, newest + 1)]


@pytest.mark.parametrize("path", FORMATS, ids=lambda path: path.stem)
def test_old_states_are_read(path: Path) -> None:
    for case in json.loads(path.read_text()):
        pipeline = eval(case["code"], {"lz": lz, "np": np})
        state = State.from_json(json.dumps(case["state"]))
        run = lz.run(pipeline, state)
        assert [repr(item) for item in islice(run, len(case["then"]))] == case["then"], case["code"]
        if case["ends"]:
            assert list(run) == []


def test_numpys_ints_are_ints() -> None:
    state = lz.state_at(lz.source(range(5)), 3)
    body = {k: np.int64(v) if isinstance(v, int) else v for k, v in state.to_dict().items()}
    assert State.from_dict(body) == state


OWN: list[Any] = [
    1, True, 1.0, 0, False, 0.0, -0.0, None, "1", [], (), {}, [1], (1,), [True], [[1]], [(1,)],
    {"a": 1}, {"a": True}, {1: "a"}, {True: "a"}, {"a": [1]}, {"a": (1,)}, float("nan"),
]  # fmt: skip


def after_one(own: Any) -> lz.State:
    pipeline = lz.source([1, 2]) | lz.scan(lambda _, x: (own, x), 0)
    return lz.step(pipeline, lz.init(pipeline))[0]


def test_states_are_equal_if_their_json_is() -> None:
    for one, other in product(map(after_one, OWN), repeat=2):
        is_same = one.to_json() == other.to_json()
        assert (one == other, one != other) == (is_same, not is_same)
        assert bool(lz.diff(one, other)) == (not is_same)
        assert not is_same or hash(one) == hash(other)
    assert [State.from_json(after_one(own).to_json()) for own in OWN] == [*map(after_one, OWN)]
