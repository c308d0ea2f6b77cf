"""Batches: a padded last one, and `stack`."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from types import MappingProxyType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt import testing
from tests.combinators.cases import alike


def test_a_table_is_padded_whichever_lane_reads_it() -> None:
    row = {"x": np.int64(-1)}
    padded = lz.columns(x=np.arange(5)) | lz.batch(2, collate=lz.stack, pad=row)
    testing.check_pipeline(padded)
    assert padded[2]["x"].tolist() == list(padded)[2]["x"].tolist() == [4, -1]
    few = lz.source(np.arange(3)) | lz.batch(2, collate=lz.stack, pad=np.int64(9))
    assert [each.tolist() for each in few] == [[0, 1], [2, 9]]


Point = namedtuple("Point", "x y")


class Typed(NamedTuple):
    name: str
    size: float


A, B = np.arange(6).reshape(2, 3), np.arange(6, 12).reshape(2, 3)
STACKED: list[tuple[list[Any], Any]] = [
    ([1, 2], np.array([1, 2])),
    ([True, False], np.array([True, False])),
    ([1, 2.5], np.array([1, 2.5])),
    ([1j, 2], np.array([1j, 2])),
    ([np.float32(1), np.float32(2)], np.array([1, 2], np.float32)),
    ([np.uint8(1), np.uint8(255)], np.array([1, 255], np.uint8)),
    ([np.int32(1), 0], np.array([1, 0], np.int32)),
    ([0.1, np.float32(2), 3], np.array([0.1, 2, 3], np.float32)),
    ([np.float32(1), np.float64(2), 0], np.array([1, 2, 0], np.float64)),
    ([np.int8(1), 2.5, True], np.array([1, 2.5, 1])),
    ([np.int8(1), 300], np.array([1, 300])),
    ([np.float32(1), 2**24 + 1], np.array([1, 2**24 + 1], np.float64)),
    ([np.float16(1), 1e9, -np.inf], np.array([1, 1e9, -np.inf])),
    ([np.float16(1), np.nan, -np.inf], np.array([1, np.nan, -np.inf], np.float16)),
    ([np.complex64(1), 2j], np.array([1, 2j], np.complex64)),
    ([np.bool_(True), False], np.array([True, False])),
    ([2**63, 2**63 + 1], np.array([2**63, 2**63 + 1], np.uint64)),
    ([A, B], np.stack([A, B])),
    ([A.astype(np.float16)], A.astype(np.float16)[None]),
    ([A[:0], B[:0]], np.zeros((2, 0, 3), A.dtype)),
    (["a", "bc"], ["a", "bc"]),
    ([b"a", b""], [b"a", b""]),
    ([(1, "a"), (2, "b")], (np.array([1, 2]), ["a", "b"])),
    ([[1, 2], [3, 4]], [np.array([1, 3]), np.array([2, 4])]),
    ([(), ()], ()),
    ([{}, {}], {}),
    ([Point(1, A), Point(2, B)], Point(np.array([1, 2]), np.stack([A, B]))),
    ([Typed("a", 1.0), Typed("b", 2.0)], Typed(["a", "b"], np.array([1.0, 2.0]))),
    ([{"a": 1, "b": {"c": (A,)}}] * 2, {"a": np.array([1, 1]), "b": {"c": (np.stack([A, A]),)}}),
    ([{"a": 1, "b": 2}, {"b": 4, "a": 3}], {"a": np.array([1, 3]), "b": np.array([2, 4])}),
]


@pytest.mark.parametrize(("items", "expected"), STACKED, ids=lambda it: repr(it)[:30])
def test_stack(items: list[Any], expected: Any) -> None:
    found = lz.stack(items)
    assert type(found) is type(expected)
    assert alike(found, expected)
    assert alike(next(iter(lz.source(items) | lz.batch(9, collate=lz.stack))), expected)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3), (100, 100)])
@pytest.mark.parametrize("dtypes", ["?", "i1", ">i4", "f2", "f8", "F", "U3", "M8[s]", "O", "i4 f8"])
def test_stack_is_numpys(shape: tuple[int, ...], dtypes: str) -> None:
    kinds = dtypes.split()
    items = [np.full(shape, i, "i8").astype(kinds[i % len(kinds)]) for i in range(4)]
    found, expected = lz.stack(items), np.stack(items)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(found, expected)
    with pytest.raises(ValueError, match="item 3 has shape"):
        lz.stack([*items[:3], np.zeros((7, *shape))])


@pytest.mark.parametrize(
    ("items", "error", "words"),
    [
        ([A, A[:1]], ValueError, r"item 1 has shape \(1, 3\), item 0 has \(2, 3\)"),
        (
            [{"a": 1}, {"a": 1}, {"b": 1}],
            ValueError,
            r"item 2 has keys .'b'., item 0 has .'a'.; use the same keys",
        ),
        ([(1, 2), (1,)], ValueError, "item 1 has length 1, item 0 has 2"),
        ([None, None], TypeError, "None"),
        ([1, None], TypeError, "item 1 is None"),
        ([None, 1], TypeError, "None"),
        ([1, "a"], TypeError, r"item 1 is 'a' \(str\), item 0 is 1 \(int\)"),
        (["a", b"a"], TypeError, "item 1 is b'a'"),
        (["a", 1], TypeError, "item 1 is 1"),
        ([1, A], TypeError, "item 1 is array"),
        ([A, 1], TypeError, "item 1 is 1"),
        ([(1,), [1]], TypeError, r"item 1 is \[1\]"),
        ([{"a": 1}, [1]], TypeError, r"item 1 is \[1\]"),
        ([1, 2**70], (TypeError, ValueError), "1180591620717411303424"),
        ([-1, 2**63], (TypeError, ValueError), "9223372036854775808"),
        ([{1, 2}, {1, 2}], TypeError, "set"),
        ([memoryview], TypeError, "type"),
        (
            [{"a": {"b": None}}],
            TypeError,
            "field 'a.b': no .* None .NoneType.; convert it or leave",
        ),
        ([{"a": A}, {"a": A[:1]}], ValueError, r"field 'a': item 1 has shape \(1, 3\), .*; pad"),
        ([{"a": (1, {"b": [1]})}, {"a": (1, {"b": []})}], ValueError, "field 'a.1.b': item 1 has"),
        ([{"a": 1}, {"a": "b"}], TypeError, "field 'a': item 1 is 'b' .*; convert them to one"),
        ([{3: np.ma.array([1])}] * 2, TypeError, "field '3': an array is masked"),
    ],
    ids=lambda it: repr(it)[:30],
)
def test_stack_refuses(items: list[Any], error: Any, words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        lz.stack(items)
    assert str(caught.value).startswith("stack: ")


class Name(str):
    pass


KINDS: list[tuple[Any, Any]] = [
    (np.str_("a"), "b"),
    (np.bytes_(b"a"), b"b"),
    (Name("a"), "b"),
    (OrderedDict(a=1), {"a": 2}),
    (defaultdict(int, a=1), MappingProxyType({"a": 2})),
    (np.zeros(3).view(np.recarray), np.ones(3)),
    (True, np.float32(2)),
]


@pytest.mark.parametrize(("one", "other"), KINDS, ids=lambda it: type(it).__name__)
def test_items_of_two_types_stack_in_either_order(one: Any, other: Any) -> None:
    found, turned = lz.stack([one, other]), lz.stack([other, one])
    assert type(found) is type(turned)
    rows, back = [*lz.source([found]) | lz.unbatch()], [*lz.source([turned]) | lz.unbatch()]
    assert testing.equal(rows, back[::-1])


@pytest.mark.parametrize(
    ("one", "other"),
    [(Point(1, 2), (1, 2)), ((1,), [1]), ("a", b"a"), (1, "a"), (1, np.str_("a")), (A, 1), ({}, 1)],
)
def test_items_of_two_types_are_refused_in_either_order(one: Any, other: Any) -> None:
    for items in ([one, other], [other, one]):
        with pytest.raises(TypeError, match=r"^stack: "):
            lz.stack(items)


COLUMNS: list[Any] = [
    ["a", "bb", "c"],
    [b"a", b"b\0", b"c"],
    np.array([b"a", b"bb", b"c"]),
    np.array([1, 2.5, 3], object),
    np.array(["a", "b", "c"], object),
    np.arange(3).astype("i2,f4"),
    *(np.arange(3).astype(kind) for kind in ("?", "f2", ">i4", "F", ">f8", "M8[us]", ">m8[s]")),
    *(np.arange(6).reshape(3, 2).astype(kind) for kind in (">i4", "i2", "U2", "O")),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda it: repr(it)[:30])
@pytest.mark.parametrize("pad", [None, 0])
def test_the_types_of_a_batch_are_the_same_by_every_path(column: Any, pad: Any) -> None:
    rows = np.asarray(column)
    for data in (lz.columns(x=column), lz.source(rows)):
        stacked = lz.batch(2, collate=lz.stack, pad=None if pad is None else data[pad])
        expected = [*data | lz.filter(lambda row: True) | stacked]
        assert testing.equal([*data | stacked], expected)
        for options in ({"on_error": "skip"}, {"executor": lz.threads(2)}):
            with lz.run(data | stacked, **options) as run:
                assert testing.equal([*run], expected)


def test_what_a_vectorized_function_returns_is_stacked_by_every_path() -> None:
    for fn in (lambda x: {"s": x.astype("U2")}, lambda x: (x.astype(">i4"), x.tolist())):
        made = lz.source(np.arange(3)) | lz.map(fn, vectorized=True)
        stacked = lz.batch(2, collate=lz.stack)
        assert testing.equal([*made | stacked], [*made | lz.filter(lambda row: True) | stacked])


class Rows:
    """Data that count how many of their rows are there."""

    def __init__(self) -> None:
        self._made: list[Any] = []
        self.most = 0

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        row = np.full(3, index)
        self._made.append(ref(row))
        self.most = max(self.most, sum(made() is not None for made in self._made))
        return row


class RowsAtOnce(Rows):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


@pytest.mark.parametrize("kind", [Rows, RowsAtOnce])
@pytest.mark.parametrize("collate", [None, lz.stack])
def test_the_rows_of_a_batch_are_gone_when_the_next_is_made(kind: Any, collate: Any) -> None:
    for in_order in (True, False):
        data = kind()
        rows = lz.source(data) if in_order else lz.source(data) | lz.shuffle(seed=0)
        for batch in lz.run(rows | lz.batch(4, collate=collate)):
            del batch
        assert data.most == 4


@pytest.mark.parametrize(
    "padded",
    [
        lambda pad: lz.batch(2, pad=pad),
        lambda pad: lz.shard(num_shards=2, index=1, remainder="pad", pad=pad),
        lambda pad: lz.shard(num_shards=2, index=1, remainder="pad", pad=pad, contiguous=True),
    ],
)
def test_padding_is_part_of_a_pipeline_and_may_be_rebased(padded: Any) -> None:
    values: list[Any] = [-1, None, "#", [0] * 999, [1] * 999, {"x": np.zeros(2)}, {"x": np.ones(2)}]
    data = lz.source(range(5))
    for pad in values:
        state = lz.state_at(data | padded(pad), 1)
        assert len(state.to_json()) < 300
        for other in values:
            new = data | padded(other)
            if other is pad:
                assert lz.run(new, state.to_json()).state == state
                continue
            with pytest.raises(lz.StateMismatch, match="pad"):
                lz.run(new, state)
            assert repr(list(lz.run(new, lz.rebase(state, new)))) == repr(list(new)[1:])
    assert len(list(data | padded(dict) | lz.shuffle(2, seed=0)))  # no function of the order
    mark = object()  # which has no contents to compare
    assert list(lz.run(data | padded(mark), lz.state_at(data | padded(object()), 1)))[-1]
