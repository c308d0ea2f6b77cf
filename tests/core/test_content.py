"""Arguments as a state has them: by contents, the same in every process."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from array import array
from collections import ChainMap, OrderedDict, UserDict, UserList, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from enum import KEEP, Enum, IntFlag
from fractions import Fraction
from operator import le
from pathlib import PurePosixPath
from random import Random
from types import MappingProxyType, SimpleNamespace
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.core.content import content, dumps
from lazyckpt.core.machine import Machine
from lazyckpt.core.stages import passing


class Size(Enum):
    SMALL, LARGE = 1, 2


class Access(IntFlag):
    READ, WRITE = 1, 2


class Kept(IntFlag, boundary=KEEP):
    A = 1


@dataclass
class Options:
    name: str
    sizes: list[Any]
    calls: int = field(default=0, compare=False)


@dataclass
class Login:
    password: str
    size: int


class Tokenizer:
    def __init__(self, words: str) -> None:
        self.digest = words


Pair = namedtuple("Pair", "first second")

VALUES: list[Any] = [
    None, True, False, 0, 1, 1.0, 1.5, -0.0, float("nan"), float("inf"), 1 << 60, 1 << 61, 10**99,
    "", "1", "a" * 99, "a" * 999, "b" * 999, "#" + "0" * 16, b"", b"1", bytearray(b"1"),
    [], (), [1], (1,), [[1]], [1.0], [True], [None], list(range(99)), list(range(98)), ["1"],
    set(), {1}, {1, 2}, {"1"}, frozenset({1}), {}, {"a": 1}, {"a": 2}, {"b": 1}, {1: "a"},
    OrderedDict(a=1), {"a": {"b": [1]}}, {"a": {"b": [2]}}, Size.SMALL, Size.LARGE, Access.READ,
    Access.READ | Access.WRITE, Options("a", [1]), Options("a", [2]), Options("b", [1]),
    Options("a", [Options("a", [])]), Pair(1, 2), Pair(1, 3), PurePosixPath("/a"),
    PurePosixPath("/b"), Fraction(1, 3), Fraction(2, 3), Decimal("1.0"), Decimal("1.00"),
    date(2020, 1, 1), timedelta(1), timedelta(2), UUID(int=1), UUID(int=2), range(3), range(4),
    slice(1), slice(1, 2), 1j, 2j, re.compile("a"), re.compile("a", re.IGNORECASE),
    re.compile("b"), Tokenizer("a"), Tokenizer("b"), [max], [max, None],
    np.arange(3), np.arange(3.0), np.arange(4).reshape(2, 2), np.arange(4), np.array(["a", None]),
    np.array(["b", None]), np.array([1, "a"], object), np.array([[1], "a"], object),
    np.array(["a", "b"]), np.array(["a", "c"]), np.array([True]), np.array([1], "M8[D]"),
    np.array([2], "M8[D]"), np.array([1.5, 2], np.longdouble), np.array([1.5, 3], np.longdouble),
    np.array([(1, 2.0)], "u1,f8"), np.array([(1, 3.0)], "u1,f8"), np.array([(1, None)], "u1,O"),
    np.longdouble("1.1"), np.longdouble("1.2"),
    np.datetime64(1, "ns"), np.datetime64(2, "ns"), np.dtype("u1"), np.dtype("u2"),
    OrderedDict(a=1, b=2), OrderedDict(b=2, a=1), Kept(8), Kept(16),
    np.array([[1, 2]]).view(np.matrix), np.ma.array([1, 2], mask=[0, 1]),
    np.ma.array([1, 2], mask=[0, 0]), deque([1]), deque([2]), deque([1], maxlen=1), UserList([1]),
    UserDict(a=1), UserDict(a=2), ChainMap({"a": 1}), ChainMap({"a": 2}), array("i", [1]),
    array("i", [2]), memoryview(b"a"), memoryview(b"b"), MappingProxyType({"a": 1}),
    MappingProxyType({"a": 2}), SimpleNamespace(a=1), SimpleNamespace(a=2), SimpleNamespace(b=1),
]  # fmt: skip


@lz.composite
def tagged(value: Any) -> lz.Stage[Any, Any]:
    return lz.map(str)


@lz.combinator(registered=False)
def passed(upstream: Machine[Any], *, value: Any) -> Machine[Any]:
    return passing(upstream)


@lz.combinator(registered=False)
def passed_all(upstream: Machine[Any], *values: Any) -> Machine[Any]:
    return passing(upstream)


MADE: list[Callable[[Any], Any]] = [
    tagged, lambda value: passed(value=value), lambda value: passed_all(value, value)
]  # fmt: skip
DATA = lz.source(range(9))


def told(value: Any) -> str:
    """A value as a text, which is another for every other one."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return f"{kind}{sorted(told(pair) for pair in value.items())}"
    if isinstance(value, (set, frozenset, list, tuple)):
        texts = map(told, value)
        return f"{kind}{sorted(texts) if isinstance(value, (set, frozenset)) else [*texts]}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{told(value.ravel().tolist())}"
    return f"{kind}{vars(value) if isinstance(value, Options) else value!r}"


plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.fractions(),
    st.dates(), st.uuids(), st.sampled_from([*Size, Access.READ]),
    st.from_regex(r"/[a-z]{1,3}", fullmatch=True).map(PurePosixPath),
)  # fmt: skip
keys = st.one_of(st.integers(), st.text(max_size=3), st.booleans().map(str))
arrays = st.lists(st.integers(-9, 9), max_size=4).flatmap(
    lambda items: st.sampled_from(["i1", "i8", "f4", "U2", "O"]).map(
        lambda kind: np.array(items, kind)
    )
)
values = st.recursive(
    st.one_of(plain, arrays),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=20).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        st.builds(Options, st.text(max_size=3), st.lists(inner, max_size=2)),
    ),
    max_leaves=8,
) | st.one_of(st.sets(keys, max_size=4), st.frozensets(keys, max_size=4))


@given(values, values, st.sampled_from(MADE))
def test_a_state_is_of_equal_arguments_alone(one: Any, other: Any, made: Any) -> None:
    pipeline = DATA | made(one)
    text = lz.state_at(pipeline, 3).to_json()
    assert len(text) <= 1024
    again = DATA | made(pickle.loads(pickle.dumps(one)))
    assert next(lz.run(again, text)) is not None
    assume(told(one) != told(other))
    assert pipeline != DATA | made(other)
    with pytest.raises(lz.StateMismatch, match=r"\(values?="):
        lz.run(DATA | made(other), text)


def test_other_values_have_other_contents() -> None:
    found = [json.dumps(content(value)) for value in VALUES]
    assert [text for text in found if found.count(text) > 1] == []
    states = [lz.init(DATA | tagged(value)).to_json() for value in VALUES]
    assert len({*states}) == len(states)


def test_contents_are_those_of_another_process() -> None:
    code = (
        "import json\nfrom tests.core.test_content import VALUES, content\n"
        "print(json.dumps([content(value) for value in VALUES]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    printed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True
    ).stdout
    assert json.loads(printed) == json.loads(json.dumps([content(value) for value in VALUES]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a", "b", "c"}, {"c", "b", "a"}),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.arange(6)[::2], np.array([0, 2, 4])),
        (np.asfortranarray(np.eye(3)), np.eye(3)),
        (Options("a", [1], 2), Options("a", [1], 3)),
        (Login("one", 1), Login("other", 1)),
        ({"api_key": "one"}, {"api_key": "other"}),
    ],
)
def test_equal_values_have_one(one: Any, other: Any) -> None:
    assert content(one) == content(other)


def test_what_has_a_secret_by_name_tells_the_rest() -> None:
    assert content(Login("one", 1)) != content(Login("one", 2))
    assert content("a", "api_key") == content("b", "api_key") == "***"
    assert content("<eos>", "token") != content("<s>", "token")
    assert "<eos>" not in dumps(content("<eos>", "token"))


@pytest.mark.parametrize(
    "value",
    [Random(1), [1, object()], {"a": {"b": Random(1)}}, Options("a", [object()]), iter([])],
)
@pytest.mark.parametrize("made", MADE)
def test_what_has_no_contents_is_refused_where_it_is_given(value: Any, made: Any) -> None:
    remedy = r"isn't: give (Random|object|list_iterator) a digest, .* unrecorded="
    with pytest.raises(lz.ArgumentError, match=rf": values? must be .* {remedy}.*, got value"):
        made(value)


def test_what_is_within_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(lz.ArgumentError, match="tagged: value must be of bounded depth"):
        tagged(endless)


def test_what_changes_no_order_may_be_anything() -> None:
    @lz.composite(unrecorded=("log",))
    def logged(size: int, log: Any) -> lz.Stage[Any, Any]:
        return lz.batch(size)

    one, other = (DATA | logged(2, log) for log in (object(), Random(0)))
    assert next(lz.run(other, lz.state_at(one, 1))) == [2, 3]


def test_functions_and_what_they_are_called_with_may_be_anything() -> None:
    assert list(DATA | tagged(le) | lz.map(lambda log, x: x, object()))
    state = lz.init(DATA | tagged([le, 1]))
    assert lz.run(DATA | tagged([max, 1]), state)
    with pytest.raises(lz.StateMismatch):
        lz.run(DATA | tagged([max, 2]), state)


def test_stages_and_pipelines_within_arguments_are_told_apart() -> None:
    stages = [lz.batch(2), lz.batch(3), lz.batch(2) | lz.map(str), lz.shuffle(seed=1)]
    pipelines = [DATA, DATA | lz.batch(2), DATA | lz.batch(3), lz.source(range(8))]
    for some in (stages, pipelines):
        states = [lz.init(DATA | tagged([each])).to_json() for each in some]
        assert len({*states}) == len(states)
        assert lz.init(DATA | tagged([some[0]])).to_json() == states[0]


def test_an_array_is_read_when_a_state_is_made_not_before() -> None:
    class Read(np.ndarray[Any, Any]):
        def tobytes(self, *args: Any) -> bytes:
            raise AssertionError("it was read")

    stage = DATA | tagged([np.arange(3).view(Read)])
    assert "tagged" in repr(stage)
    with pytest.raises(AssertionError, match="it was read"):
        lz.init(stage)


@pytest.mark.parametrize("stage", [lz.map, lz.filter, lz.take_while])
def test_a_changed_argument_of_a_function_is_another_pipeline(stage: Any) -> None:
    old, new = (lz.source(range(9)) | stage(le, least) for least in (0, 1))
    with pytest.raises(lz.StateMismatch, match=r"args=\[0\]\) -> .*args=\[1\]"):
        lz.run(new, lz.state_at(old, 2))
    assert list(lz.run(old, lz.state_at(old, 7))) == [7, 8] or stage is lz.map
    assert lz.rebase(lz.state_at(old, 2), new).items == 2
