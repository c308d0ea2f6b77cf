"""Sources of all kinds of data, which aren't read early."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.testing import check_resume, equal
from lazyckpt.testing.laws import Stream
from tests.combinators.cases import Odd, alike
from tests.combinators.test_arguments import refusal
from tests.helpers import Indexed

NUMBERS = Indexed(7, lambda index: {"x": np.full(2, index), "y": index})
ODD = [Odd(), Odd(), Odd(), Odd(), Odd()]
ROWS = np.arange(14.0).reshape(7, 2)

# Data with its items, and whether there is random access.
DATA: dict[str, tuple[Any, list[Any], bool]] = {
    "list": ([3, 1, 2], [3, 1, 2], True),
    "tuple": ((3, 1, 2), [3, 1, 2], True),
    "range": (range(9, 0, -2), [9, 7, 5, 3, 1], True),
    "bytes": (b"abc", [97, 98, 99], True),
    "array": (ROWS, list(ROWS), True),
    "1-d array": (np.arange(5), list(np.arange(5)), True),
    "strings": (np.array(["a", "bc"]), [np.str_("a"), np.str_("bc")], True),
    "map-style": (NUMBERS, [NUMBERS[i] for i in range(7)], True),
    "dict values": ({"a": 1, "b": 2}.values(), [1, 2], False),
    "re-iterable": (Stream([1, None, "a"]), [1, None, "a"], False),
    "nones": ([None, None, None], [None, None, None], True),
    "items that are arrays": ([ROWS, ROWS[:0]], [ROWS, ROWS[:0]], True),
    "odd items": (ODD, ODD, True),
    "a stream of odd items": (Stream(ODD), ODD, False),
    "pipelines": ([lz.source([1]), lz.source([2])], [lz.source([1]), lz.source([2])], True),
    "empty list": ([], [], True),
    "empty range": (range(0), [], True),
    "empty array": (np.zeros((0, 3)), [], True),
    "empty stream": (Stream([]), [], False),
}
TAILS: list[lz.Stage[Any, Any]] = [
    lz.batch(3), lz.shuffle(2, seed=0), lz.block_shuffle(2, seed=0), lz.repeat(2), lz.take(4),
    lz.skip(1), lz.shard(num_shards=2, index=0), lz.batch(2) | lz.unbatch(),
    lz.flat_map(lambda item: [item, item]), lz.map(lambda item: (item,)),
]  # fmt: skip


@pytest.mark.parametrize(("data", "items", "access"), DATA.values(), ids=DATA)
def test_the_items_are_the_data(data: Any, items: list[Any], access: bool) -> None:
    pipeline = lz.source(data)
    assert alike(list(pipeline), items)
    assert alike(list(pipeline), items), "it begins anew"
    for cut in range(len(items) + 1):
        assert alike(list(lz.run(pipeline, lz.state_at(pipeline, cut).to_json())), items[cut:])
    if access:
        assert len(pipeline) == len(items)
        assert alike([pipeline[i] for i in range(-len(items), 0)], items)
        assert len(list(pipeline | lz.shuffle(seed=0))) == len(items)
    else:
        with pytest.raises(TypeError, match=r"len\(\)"):
            len(pipeline)


@pytest.mark.parametrize("tail", TAILS, ids=str)
@pytest.mark.parametrize("data", [data for data, _, _ in DATA.values()], ids=DATA)
def test_resuming_over_every_kind_of_data(data: Any, tail: lz.Stage[Any, Any]) -> None:
    pipeline = lz.source(data) | tail
    whole = list(pipeline)
    for cut in range(len(whole) + 1):
        state = lz.state_at(pipeline, cut).to_json()
        assert alike(list(lz.run(pipeline, state)), whole[cut:])


COMPARABLE = {name: (data, items) for name, (data, items, _) in DATA.items() if "odd" not in name}


@pytest.mark.parametrize(("data", "items"), COMPARABLE.values(), ids=COMPARABLE)
def test_the_left_of_a_bar(data: Any, items: list[Any]) -> None:
    pipeline = data | lz.batch(2)
    assert isinstance(pipeline, lz.Pipeline)
    assert alike([x for some in pipeline for x in some], items)
    assert pipeline == lz.source(data) | lz.batch(2)


@pytest.mark.parametrize("data", [np.arange(3), np.arange(3.0), np.array([0, "1", 2], object)])
def test_an_array_on_the_left_does_not_broadcast(data: Any) -> None:
    assert isinstance(data | lz.batch(2), lz.Pipeline)
    assert len(list(data | lz.batch(2))) == 2
    assert list(data | (lz.map(float) | lz.batch(2))) == [[0.0, 1.0], [2.0]]


class Unread:
    """Counts its readers; refuses to be compared or to be turned into an array."""

    def __init__(self, many: bool = False) -> None:
        self.read: list[Any] = []

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        self.read.append(index)
        return index

    def __getitems__(self, indices: list[int]) -> list[int]:
        assert all(type(i) is int for i in indices)
        self.read.append(indices)
        return list(indices)


class Uneven(Unread):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [*range(len(indices) + self.more)]

    more = 1


class Short(Uneven):
    more = -1


@pytest.mark.parametrize("data", [Uneven(), Short()])
def test_data_with_other_numbers_of_items_than_indices_are_an_error(data: Unread) -> None:
    for order in (lz.skip(0), lz.shuffle(seed=0)):
        with pytest.raises(ValueError, match=r"returned [24] items for 3 indices"):
            next(iter(lz.source(data) | order | lz.batch(3)))


@pytest.mark.parametrize("tail", TAILS, ids=str)
def test_building_and_looking_reads_no_data(tail: lz.Stage[Any, Any]) -> None:
    for data, count in ((Unread(), lambda d: len(d.read)), (Stream([1, 2, 3]), lambda d: d.pulled)):
        pipeline = lz.source(data) | tail
        other = lz.source(data) | tail
        assert pipeline == other
        assert hash(pipeline) == hash(other)
        assert repr(pipeline) == repr(other)
        assert pipeline._repr_html_()
        lz.run(pipeline, lz.init(pipeline).to_json())
        lz.zip(pipeline, other)
        lz.concat(pipeline | lz.repeat(), other)[3:9:2]
        if "lambda" not in repr(tail):
            pickle.dumps(pipeline)
        assert pipeline.entries
        assert count(data) == 0


def test_positions_are_reached_without_reading() -> None:
    data = Unread()
    pipeline = lz.source(data) | lz.shuffle(seed=0) | lz.repeat() | lz.map(str) | lz.batch(3)
    state = lz.state_at(pipeline, 10**15)
    pipeline[5:][2:]
    assert data.read == []
    next(lz.run(pipeline, state))
    assert len(data.read) <= 3


def test_batches_are_asked_for_whole() -> None:
    data = Unread()
    pipeline = lz.source(data) | lz.shuffle(seed=0) | lz.batch(4, collate=tuple)
    batches = list(pipeline)
    assert [list(batch) for batch in batches] == data.read
    assert [len(batch) for batch in batches] == [4, 4, 2]


def test_memory_maps(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, ROWS)
    mapped = np.load(path, mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    plain = [lz.source(ROWS), lz.columns(x=ROWS, y=ROWS[:, 0])]
    for tail in (lz.batch(3, collate=lz.stack), lz.shuffle(seed=0) | lz.batch(2, collate=lz.stack)):
        lazy = [lz.source(mapped), lz.columns(x=mapped, y=mapped[:, 0])]
        for one, other in zip(lazy, plain, strict=True):
            assert equal(list(one | tail), list(other | tail))
            assert (one | tail).entries == (other | tail).entries
            check_resume(one | tail)
    items = [lz.source(mapped)[0], next(iter(lz.source(mapped) | lz.batch(2, collate=lz.stack)))]
    items += [lz.columns(x=mapped)[1]["x"], *lz.columns(x=mapped) | lz.map(lambda row: row["x"])]
    assert {type(item) for item in items} == {np.ndarray}
    assert lz.source(mapped) == lz.source(np.load(path, mmap_mode="r"))


def test_stacked_batches_are_the_users_own() -> None:
    rows = ROWS.copy()
    for pipeline in (
        rows | lz.batch(3, collate=lz.stack),
        lz.columns(x=rows) | lz.batch(3, collate=lz.stack),
    ):
        for batch in pipeline:
            (batch if isinstance(batch, np.ndarray) else batch["x"])[:] = -1
    assert np.array_equal(rows, ROWS)


@pytest.mark.parametrize("tail", [lz.map(str), lz.batch(2), lz.shuffle(3, seed=0), lz.take(9)])
@pytest.mark.parametrize("kind", [list, Stream])
def test_data_that_became_shorter(kind: Callable[..., Any], tail: lz.Stage[Any, Any]) -> None:
    long, short = (lz.source(kind(range(n))) | tail for n in (12, 2))
    state = lz.state_at(long, 4)
    with pytest.raises((lz.SourceChanged, lz.InvalidState)):
        next(lz.run(short, state, strict=False))


def test_a_name_tells_data_of_one_length_apart() -> None:
    web, wiki, plain = (
        lz.source([1, 2], name="web"),
        lz.source([3, 4], name="wiki"),
        lz.source([5, 6]),
    )
    state = lz.state_at(web, 1)
    assert list(lz.run(lz.source([7, 8], name="web"), state)) == [8]
    for other in (wiki, plain):
        with pytest.raises(lz.StateMismatch, match='name="web"'):
            lz.run(other, state)
    assert "name" not in lz.state_at(plain, 1).to_json()
    assert repr(web) == "source([1, 2], name='web')"


class Rewinding:
    """A dataset that is its own iterator and starts again whenever `iter` is called."""

    def __init__(self, count: int) -> None:
        self.count, self.begun = count, 0

    def __iter__(self) -> Iterator[int]:
        self.begun += 1
        self.left = iter(range(self.count))
        return self

    def __next__(self) -> int:
        return next(self.left)


class Spent(Rewinding):
    def __iter__(self) -> Iterator[int]:
        if not self.begun:
            super().__iter__()
        return self


def test_data_that_rewind_themselves() -> None:
    data = Rewinding(5)
    pipeline = lz.source(data) | lz.filter(bool) | lz.batch(2)
    state = lz.state_at(pipeline, 1)
    begun = data.begun
    pipeline.entries, repr(pipeline), pipeline | lz.repeat(2), lz.run(pipeline, state)
    assert data.begun == begun, "begun before it was read"
    assert list(pipeline) == [[1, 2], [3, 4]] == list(pipeline)
    assert list(lz.run(pipeline, state)) == [[3, 4]]
    assert data.begun == begun + 3
    assert list(pipeline | lz.repeat(2)) == [[1, 2], [3, 4]] * 2
    assert list(lz.source(Rewinding(0))) == []


def test_data_that_do_not_rewind() -> None:
    spent = lz.source(Spent(3))
    assert list(spent) == [0, 1, 2]
    with pytest.raises(lz.SourceChanged, match="yielded items before and yields none now"):
        list(spent)
    with pytest.raises(lz.SourceChanged, match="yielded items before and yields none now"):
        list(lz.source(Spent(3)) | lz.repeat(2))


def test_one_reader_at_a_time_of_data_that_rewind_themselves() -> None:
    data = lz.source(Rewinding(3))
    first = iter(data)
    assert next(first) == 0
    assert list(data) == [0, 1, 2]
    with pytest.raises(lz.SourceChanged, match="iterated again while it was read"):
        next(first)
    with pytest.raises(lz.SourceChanged, match="iterated again while it was read"):
        list(lz.zip(data, data))


class Endless(Iterator[int]):
    def __next__(self) -> int:
        return 0


class Bare(Endless):
    def __iter__(self) -> Iterator[int]:
        return self


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        (iter([1]), "or one whose __iter__ opens it again"),
        ((x for x in [1]), "or one whose __iter__ opens it again"),
        (map(len, ["a"]), "pass the object it came from"),
        (zip([1], [2], strict=True), "pass the object it came from"),
        (enumerate("ab"), "pass the object it came from"),
        (lz.run(lz.source(range(3))), "pass the object it came from"),
        (Endless(), "or one whose __iter__ opens it again"),
        (Bare(), "or one whose __iter__ opens it again"),
        ({"a": [1]}, "columns(**data)"),
        ({1, 2}, "sorted(data)"),
        (frozenset([1]), "sorted(data)"),
        ("text", "[data]"),
        ("", "[data]"),
        (3, "list"),
        (1.5, "list"),
        (None, "list"),
        (len, "from_generator"),
        (np.array(3), "list"),
        (np.int64(3), "list"),
        (lz.map(len), "map(len)"),
        (lz.source([1]), "is a pipeline already"),
    ],
)
def test_data_that_cannot_be_a_source(data: Any, remedy: str) -> None:
    message = refusal(lambda: lz.source(data))
    assert message.startswith("source: data ")
    assert repr(data)[:40] in message
    assert remedy in message
    if not isinstance(data, (lz.Stage, lz.Pipeline)):
        assert remedy in refusal(lambda: data | lz.map(len))


class Broken:
    """A data set with a method that fails in a way of its own."""

    def __init__(self, method: str, error: Exception) -> None:
        self.method, self.error = method, error

    def fail(self, method: str) -> None:
        if method == self.method:
            raise self.error


class BrokenTable(Broken):
    def __len__(self) -> int:
        self.fail("len")
        return 3

    def __getitem__(self, index: int) -> int:
        self.fail("getitem")
        return index


class BrokenStream(Broken):
    def __iter__(self) -> Iterator[int]:
        self.fail("iter")
        yield 1


OWN_ERRORS = [AttributeError("mine"), TypeError("mine"), OverflowError("mine"), ValueError("mine")]


@pytest.mark.parametrize("error", OWN_ERRORS, ids=repr)
@pytest.mark.parametrize("method", ["len", "getitem", "iter"])
def test_an_error_of_the_data_is_told_as_it_is(method: str, error: Exception) -> None:
    data: Any = BrokenStream(method, error) if method == "iter" else BrokenTable(method, error)
    with pytest.raises(type(error), match="mine") as caught:
        list(lz.source(data) | lz.map(str) | lz.batch(2))
    assert caught.value is error
    assert caught.value.__cause__ is None
    assert "lazyckpt" not in str(caught.value)


@pytest.mark.parametrize("error", OWN_ERRORS, ids=repr)
def test_an_error_of_data_that_are_made_anew_is_told_too(error: Exception) -> None:
    """After a pipeline was unpickled, or once its length fails."""
    data = BrokenTable("", error)
    pipeline: Any = lz.source(data) | lz.shuffle(seed=0)
    data.method = "len"
    with pytest.raises(type(error), match="mine"):
        list(pipeline)
    pipeline = type(pipeline)(pipeline.calls)
    with pytest.raises(type(error), match="mine"):
        len(pipeline)


def test_a_pipeline_has_no_other_attributes() -> None:
    pipeline: Any = lz.source([1])
    with pytest.raises(AttributeError, match="composed with"):
        pipeline.batch(2)
    with pytest.raises(AttributeError, match="'Pipeline' object has no attribute 'nothing'"):
        pipeline.nothing()


def test_what_is_handed_on_by_a_wrapper_is_not_the_wrappers() -> None:
    class Doubled:
        def __init__(self, data: Any) -> None:
            self.data = data

        def __getattr__(self, name: str) -> Any:
            return getattr(self.data, name)

        def __len__(self) -> int:
            return len(self.data)

        def __getitem__(self, index: int) -> int:
            return 2 * int(self.data[index])

    assert list(lz.source(Doubled(Unread())) | lz.batch(10)) == [list(range(0, 20, 2))]
