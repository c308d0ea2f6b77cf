"""`head`: the first items, the facts about them, and that nothing else is read."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from sys import getsizeof
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import lazyckpt as lz
from lazyckpt.pictures.values import lines
from lazyckpt.testing import strategies
from tests.pictures.cases import SCRIPT, Counting, Endlessly, Stream, Unshowable
from tests.pictures.test_figures import Page


@dataclass
class Sample:
    text: str
    tokens: Any


Pair = namedtuple("Pair", "left right")


class Fragile:
    """An object all of whose answers are errors."""

    @property
    def shape(self) -> Any:
        raise RuntimeError("no shape")

    dtype = nbytes = shape

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __len__(self) -> int:
        raise RuntimeError("no len")

    def __sizeof__(self) -> int:
        raise RuntimeError("no size")


class Unsure(list[int]):
    def __len__(self) -> int:
        raise RuntimeError("no len")


SELF: list[Any] = []
SELF.append(SELF)


def told(value: Any) -> tuple[str, ...]:
    return next(lines("0", value))[1:]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, ("int", "", "", "28 B", "3")),
        (None, ("NoneType", "", "", "", "None")),
        ("abc", ("str", "len 3", "", "3 B", "'abc'")),
        (b"abc", ("bytes", "len 3", "", "3 B", "b'abc'")),
        ("\u00e4", ("str", "len 1", "", "2 B", "'\u00e4'")),
        (np.zeros((2, 3), "f4"), ("ndarray", "(2, 3)", "float32", "24 B", "[0.0, 0.0, 0.0, ...]")),
        (np.arange(9), ("ndarray", "(9,)", "int64", "72 B", "[0, 1, 2, 3, ...]")),
        (np.float32(2), ("float32", "()", "float32", "4 B", "2.0")),
        (np.zeros((0, 3)), ("ndarray", "(0, 3)", "float64", "0 B", "")),
        (Unshowable(), ("Unshowable", "", "", f"{getsizeof(Unshowable())} B", "<Unshowable>")),
        (Fragile(), ("Fragile", "", "", "<Fragile>", "<Fragile>")),
        (Sample("a", 1), ("Sample", "", "", "29 B", "Sample(text='a', tokens=1)")),
        (Pair(1, None), ("Pair", "len 2", "", "28 B", "Pair(left=1, right=None)")),
        (np.array([Unshowable()]), ("ndarray", "(1,)", "object", "8 B", "[<Unshowable>]")),
        (10**5000, ("int", "", "", "2.2 KiB", "<int>")),
        ({}, ("dict", "len 0", "", "0 B", "{}")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_told_of_an_item(value: Any, expected: tuple[str, ...]) -> None:
    assert told(value) == expected


def test_what_an_item_consists_of_has_lines_of_its_own() -> None:
    item = {"image": np.zeros((2, 2)), "sample": Sample("a", [np.ones(1), {"deep": {}}])}
    names = [line.name for line in lines("0", item)]
    assert names == ["0", "0['image']", "0['sample']", "0['sample'].text", "0['sample'].tokens"]
    assert [line.name for line in lines("0", [1, 2, 3])] == ["0"]
    assert [line.name for line in lines("0", (np.ones(2), 1))] == ["0", "0[0]", "0[1]"]
    *_, last = lines("0", dict.fromkeys(range(20)))
    assert (last.name, last.type) == ("0...", "12 more parts")


class Abysmal(list[Any]):
    """A list that must not be read as a whole."""

    def __iter__(self) -> Any:
        return islice(super().__iter__(), 1_200)

    def __repr__(self) -> str:
        raise AssertionError("the whole of it is shown")


HUGE: dict[str, Callable[[], Any]] = {
    "a list": lambda: Abysmal(range(10**6)),
    "a string": lambda: "x" * 10**7,
    "bytes": lambda: b"x" * 10**7,
    "an iterator": Endlessly,
    "itself": lambda: SELF,
    "a range": lambda: range(10**12),
    "a dict": lambda: dict.fromkeys(range(10**5), "x" * 100),
    "a set": lambda: {*range(10**5)},
    "an array": lambda: np.zeros((10**4, 10**3)),
    "no len": Unsure,
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_items_are_abbreviated(name: str) -> None:
    found = [*lines("0", HUGE[name]())]
    assert len(found) <= 10
    assert all(len(text) <= 60 for text in found[0])


@given(strategies.pipelines(), st.integers(1, 4))
def test_items_are_those_of_the_pipeline(pipeline: lz.Pipeline[Any], n: int) -> None:
    found = lz.head(pipeline, n)
    assert repr(found.items) == repr(list(islice(pipeline, n)))
    assert str(found)
    Page(found._repr_html_())


@pytest.mark.parametrize(
    ("made", "read"),
    [
        (lambda p: p, 3),
        (lambda p: p | lz.map(str), 3),
        (lambda p: p | lz.batch(4), 12),
        (lambda p: p | lz.flat_map(lambda x: [x, x]), 2),
        (lambda p: p | lz.filter(lambda x: x % 2), 6),
        (lambda p: lz.zip(p, lz.count()), 3),
        (lambda p: p | lz.repeat(), 3),
    ],
)
@pytest.mark.parametrize("kind", [Counting, Stream])
def test_no_more_is_read(kind: type[Any], made: Callable[[Any], Any], read: int) -> None:
    data = kind(range(100))
    lz.head(made(lz.source(data)))
    assert data.read == [*range(read)]


def test_no_function_is_called_for_more() -> None:
    seen: list[int] = []
    for data in (range(9), [*range(9)], np.arange(9)):
        seen.clear()
        lz.head(lz.source(data) | lz.map(seen.append), 2)  # type: ignore[arg-type]
        assert len(seen) == 2


def test_an_error_is_told_behind_the_items_before_it() -> None:
    found = lz.head(lz.source(["1", "2", SCRIPT, "4"]) | lz.map(int), 9)
    assert found.items == [1, 2]
    assert isinstance(found.error, ValueError)
    assert "2     ValueError" in str(found)
    html = found._repr_html_()
    assert SCRIPT not in html
    assert any("invalid literal" in text for text in Page(html).texts)


def test_an_interrupt_is_no_item() -> None:
    def stop(item: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lz.head(lz.count() | lz.map(stop))


def test_of_nothing_and_of_much() -> None:
    assert str(lz.head(lz.source([]))).startswith("no items")
    assert "30 more items" in str(lz.head(lz.count(), 80))
    assert len(lz.head(lz.count(), 80).items) == 80


@pytest.mark.parametrize("width", [10, 40, 80])
def test_in_a_terminal(width: int) -> None:
    found = lz.head(lz.source([{"x": np.zeros((3, 224, 224)), "y": "a " * 500}]) | lz.repeat())
    console = Console(width=width, file=StringIO())
    console.print(found)
    assert "items" in console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    text = found.to_text(width)
    assert max(map(len, text.split("\n"))) <= max(width, 24)
    assert "ndarray" in text


@pytest.mark.parametrize("n", [0, -1, 1.5, None])
def test_a_bad_count_is_refused(n: Any) -> None:
    with pytest.raises(lz.ArgumentError, match="head: n must be an int >= 1, got n="):
        lz.head(lz.count(), n)


def test_a_secret_by_name_is_masked_in_its_own_line_too() -> None:
    found = lz.head(lz.source([{"password": "hunter2", "size": 3}]))
    line = next(line for line in str(found).splitlines() if "0['password']" in line)
    assert line.split() == ["0['password']", "str", "***"]
    assert "hunter2" not in str(found)
    assert "hunter2" not in found._repr_html_()


@pytest.mark.parametrize("item", [{"token": "hello"}, Sample("token='hello'", ["hello"])])
def test_tokens_of_text_are_no_secrets(item: Any) -> None:
    found = lz.head(lz.source([item]))
    console = Console(width=120, file=StringIO())
    console.print(found)
    for text in str(found), found._repr_html_(), console.file.getvalue():  # type: ignore[attr-defined]
        assert "hello" in text
        assert "***" not in text
