"""What functions are called with, as a state has it: by contents, the same in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass
from datetime import date
from enum import Enum
from fractions import Fraction
from operator import le
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.core.content import content


class Size(Enum):
    SMALL, LARGE = 1, 2


@dataclass
class Options:
    name: str
    sizes: list[int]


Pair = namedtuple("Pair", "first second")

VALUES: list[Any] = [
    None, True, False, 0, 1, 1.5, float("nan"), float("inf"), 1 << 60, 1 << 61, "1", "a" * 99, b"1",
    [], (), [1], (1,), [[1]], {1}, {1, 2}, frozenset({1}), {}, {"a": 1}, {"a": 2}, {"b": 1},
    {"a": {"b": [1]}}, {"a": {"b": [2]}}, Size.SMALL, Size.LARGE, Options("a", [1]),
    Options("a", [2]), Pair(1, 2), Pair(1, 3), PurePosixPath("/a"), PurePosixPath("/b"),
    Fraction(1, 3), Fraction(2, 3), date(2020, 1, 1), range(3), range(4), slice(1), 1j,
    np.arange(3), np.arange(3.0), np.arange(4).reshape(2, 2), np.arange(4), np.array(["a", None]),
    np.array(["b", None]), np.array([1, "a"], object), np.longdouble("1.1"),
]  # fmt: skip


def test_other_values_have_other_contents() -> None:
    found = [json.dumps(content(value)) for value in VALUES]
    assert len({*found}) == len(found)


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
        (np.arange(6)[::2], np.array([0, 2, 4])),
    ],
)
def test_equal_values_have_one(one: Any, other: Any) -> None:
    assert content(one) == content(other)


@pytest.mark.parametrize("stage", [lz.map, lz.filter, lz.take_while])
def test_a_changed_argument_of_a_function_is_another_pipeline(stage: Any) -> None:
    old, new = (lz.source(range(9)) | stage(le, least) for least in (0, 1))
    with pytest.raises(lz.StateMismatch, match=r"args=\[0\]\) -> .*args=\[1\]"):
        lz.run(new, lz.state_at(old, 2))
    assert list(lz.run(old, lz.state_at(old, 7))) == [7, 8] or stage is lz.map
    assert lz.rebase(lz.state_at(old, 2), new).items == 2
