"""Types of other packages: mappings that aren't dicts, columns that aren't arrays, values."""

from __future__ import annotations

import re
from collections import UserDict, UserList
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lazyckpt as lz
from lazyckpt.testing import equal

LENGTHS = [3, 1, 4, 1, 5]
FIELDS: dict[str, Any] = {
    "unbatch": lz.unbatch(),
    "split_batch": lz.split_batch(2),
    "stack": lz.batch(1, collate=lz.stack),
    "concat_then_split": lz.concat_then_split(4),
    "pack_first_fit": lz.pack_first_fit(8, num_bins=2),
    "pack_best_fit": lz.pack_best_fit(8, num_bins=2),
    "pack_by_plan": lz.pack_by_plan(lz.plan_packing(LENGTHS, 8, seed=0)),
}
"""Stages that look at what an item has by name."""


def named(size: int) -> dict[str, Any]:
    return {"input_ids": np.arange(size), "labels": [-1] * size}


@pytest.mark.parametrize("kind", [UserDict, MappingProxyType])
@pytest.mark.parametrize("stage", FIELDS)
def test_any_mapping_has_fields(stage: str, kind: Any) -> None:
    """As transformers' BatchEncoding and tensordict's TensorDict have, which are no dicts."""
    rows = lz.source(LENGTHS) | lz.map(named)
    wanted = [*rows | FIELDS[stage]]
    assert wanted
    found = rows | lz.map(kind) | FIELDS[stage]
    assert equal([*found], wanted)
    assert lz.trace(found, 0) == lz.trace(rows | FIELDS[stage], 0)


def test_a_vectorized_function_may_give_any_mapping() -> None:
    fields = lz.map(lambda numbers: UserDict(x=numbers, y=-numbers), vectorized=True)
    assert [*lz.source(np.arange(3)) | fields] == [{"x": n, "y": -n} for n in range(3)]


@pytest.mark.parametrize("kind", [UserList, np.array, pa.array])
def test_any_sequence_is_a_batch(kind: Any) -> None:
    assert [*lz.source([[1, 2, 3]]) | lz.map(kind) | lz.unbatch()] == [*kind([1, 2, 3])]


@pytest.mark.parametrize("text", ["abc", b"abc"])
@pytest.mark.parametrize(
    "stage", [lz.unbatch(), lz.split_batch(2), lz.concat_then_split(2)], ids=repr
)
def test_a_text_is_one_value(text: Any, stage: Any) -> None:
    with pytest.raises(TypeError, match="abc"):
        list(lz.source([text]) | stage)


class Told:
    """A column of which an array can be made, and nothing else."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self._values, dtype)


@pytest.mark.parametrize(
    "kind", [UserList, Told, pa.array, lambda values: pa.chunked_array([values])]
)
@pytest.mark.parametrize(
    "stage",
    [
        lz.gather,
        lambda column: lz.sample(column, seed=0),
        lambda column: lz.sample_balanced(column, seed=0),
        lambda column: lz.oversample(column, seed=0),
    ],
)
def test_a_column_is_an_argument(stage: Callable[[Any], Any], kind: Any) -> None:
    column = [0, 1, 1, 3]
    items = lz.source(list("abcd"))
    assert [*items | stage(kind(column))] == [*items | stage(column)]
    mixed = [lz.mix([items] * 4, weights, seed=0) for weights in (kind(column), column)]
    assert mixed[0] == mixed[1]


@pytest.mark.parametrize(
    "values",
    [
        [b"\x01\x00", b"\x02"],
        [b"a"],
        [[b"a\x00"], [b"b"]],
        [None, "a"],
        [1, None],
        [True, False],
        [1, 2.5],
        [2**53, 0.5],
        [2**64 - 1, 2**63],
        [2**70, -1],
    ],
)
def test_columns_have_values_as_they_were_given(values: Any) -> None:
    found = [row["x"] for row in lz.columns(x=values)]
    assert [each.tolist() if isinstance(each, np.ndarray) else each for each in found] == values


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "a"], r"'1' instead of 1 \(int\); .* pass numpy.array\(values, object\)"),
        ([True, "a"], "instead of True"),
        ([b"a", "a"], "instead of b'a'"),
        (["a\x00"], r"'a' instead of 'a\\x00'"),
        ([True, 2], r"1 instead of True \(bool\)"),
        ([[0.5], [False]], r"0.0 instead of False \(bool\)"),
        ([2**60 + 1, 0.5], rf"instead of {2**60 + 1} \(int\)"),
        ([2**63, 1], rf"instead of {2**63} \(int\)"),
        (np.ma.masked_equal([1, 2], 2), r"x is masked, .* \.filled\(value\)"),
    ],
)
def test_columns_refuse_what_no_array_holds(values: Any, message: str) -> None:
    with pytest.raises(lz.ArgumentError, match=message):
        lz.columns(x=values)
    if isinstance(values, list):
        kept = lz.columns(x=np.array(values, object))
        assert [row["x"] for row in kept] == values


@pytest.mark.parametrize(
    "values", [[2**63 + 1, -1], [2**60 + 1, 0.5], [np.uint64(2**63 + 1), np.int64(-1)]]
)
def test_no_int_is_rounded(values: list[Any]) -> None:
    """NumPy turns ints into floats next to floats, and ints below and above 2**63 too."""
    arrays = [np.array([each]) for each in values]
    batches = lz.batch(2, collate=lz.stack)
    packers = [lz.pack_first_fit(2, num_bins=1), lz.concat_then_split(2)]
    cases = [(items, batches) for items in (values, arrays)]
    cases += [(items, packer) for items in ([values], arrays) for packer in packers]
    for items, stage in cases:
        with pytest.raises(ValueError, match=f"{max(values)} can't be in one array"):
            list(lz.source(items) | stage)
    same = [values[0]] * 2
    assert lz.stack(same).tolist() == same


PACKERS = [lz.pack_first_fit(4, num_bins=1), lz.concat_then_split(4)]
BATCHES = lz.batch(2, collate=lz.stack)


@pytest.mark.parametrize(
    ("one", "other", "value", "kept"),
    [
        ("a", 1, "1 (int)", "'1'"),
        (True, "a", "True (bool)", "'True'"),
        ("a", 2.5, "2.5 (float)", "'2.5'"),
        (b"a", "b", "b'a' (bytes)", "'a'"),
        ("a\0", "b", r"'a\x00' (str)", "'a'"),
    ],
)
def test_no_value_becomes_a_different_string(one: Any, other: Any, value: str, kept: str) -> None:
    """NumPy turns numbers into strings next to strings, and drops zeros at the end of one."""
    message = re.escape(f"{value} would be {kept} in an array of strings")
    for packer in PACKERS:
        for items in (
            [[one], [other]],
            [[one, other]],
            [{"x": [1], "y": one}, {"x": [1], "y": other}],
        ):
            with pytest.raises(TypeError, match=message):
                list(lz.source(items) | packer)
    if "\0" not in str(one):  # an array of it has lost its end already
        with pytest.raises(TypeError, match=message):
            lz.stack([np.array([one]), np.array([other])])
    same = [["a", "bc"], ["d"]]
    for packer in PACKERS:
        assert [row["tokens"].tolist() for row in lz.source(same) | packer] == [
            ["a", "bc", "d", ""]
        ]


def test_no_number_pads_strings() -> None:
    with pytest.raises(ValueError, match=r"pad=\{'x': -1\} is not a valid <U1"):
        list(lz.source([{"x": ["a"]}]) | lz.concat_then_split(2, pad={"x": -1}))


def test_numbers_without_an_array_are_named() -> None:
    with pytest.raises(
        TypeError, match=r"item 1 is .*'2020'.* \(datetime64\), item 0 is 1 \(int\)"
    ):
        lz.stack([1, np.datetime64("2020")])


MASKED = np.ma.masked_equal([1, 0, 1, 1], 0)


@pytest.mark.parametrize(
    "use",
    [
        lz.source,
        lambda column: lz.stack([column, column]),
        lambda column: list(lz.source([column, column]) | BATCHES),
        *[lambda column, each=each: list(lz.source([column]) | each) for each in PACKERS],
        lambda column: lz.source(range(4)) | lz.gather(column),
        lambda column: lz.source(range(4)) | lz.sample(column, seed=0),
        lambda column: lz.source(range(4)) | lz.sample_balanced(column, seed=0),
        lambda column: lz.mix([lz.source(range(4))] * 4, column, seed=0),
        lambda column: lz.random_indices(column, seed=0),
        lambda column: lz.plan_packing(column, 4, seed=0),
    ],
)
def test_no_mask_is_lost(use: Any) -> None:
    with pytest.raises(TypeError, match=r"mask.* \.filled\(value\)"):
        use(MASKED)
    use(np.ones(4, int))
