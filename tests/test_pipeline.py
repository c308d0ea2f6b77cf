"""Pipelines as values: how they read, compare, pickle, compose, slice, and are made."""

from __future__ import annotations

import functools
import html
import operator
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.core.checks import positive
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine, Rate
from lazyckpt.core.stages import sourced, stateless
from lazyckpt.testing import check_combinator, check_pipeline, equal, strategies
from lazyckpt.testing.laws import Stream

CODE = [
    "source([1, 2])",
    "source(range(0, 9))",
    "source([]) | repeat()",
    "source((1, None, 'a')) | map(str) | filter(len)",
    "source([b'a', b'b'])",
    "source(b'abc')",
    "source([[1, {'a': (2.5, True)}]])",
    "source([1]) | shuffle(seed=0)",
    "source([1]) | shuffle(buffer_size=3, seed=1) | block_shuffle(4, seed=2)",
    "source([1]) | repeat(count=2) | shard(num_shards=3, index=1)",
    "source([1]) | batch(2) | unbatch()",
    "source([1]) | batch(2, drop_last=True, collate=stack)",
    "source([1]) | take(3) | skip(2) | flat_map(range)",
    "source([1]) | scan(divmod, 0)",
    "columns(x=[1, 2], y=(3, 4))",
    "zip(source([1]), source([2]) | map(str))",
    "concat(source([1]) | take(1)) | batch(2)",
]


@pytest.mark.parametrize("code", CODE)
def test_the_repr_reads_like_the_code(code: str) -> None:
    pipeline = eval(code, {name: getattr(lz, name) for name in lz.__all__})
    assert repr(pipeline) == code
    copy = pickle.loads(pickle.dumps(pipeline))
    assert copy == pipeline
    if "[" not in code:
        assert hash(copy) == hash(pipeline)


def test_a_pipeline_is_no_iterator() -> None:
    """A library that took it for an iterator wouldn't call `iter`, and so would start it again."""
    pipeline = lz.source(range(3))
    assert not isinstance(pipeline, Iterator)
    assert not hasattr(pipeline, "__next__")
    with pytest.raises(TypeError, match="not an iterator"):
        next(pipeline)  # type: ignore[call-overload]


@given(strategies.pipelines())
def test_every_repr_is_short_and_the_same_twice(pipeline: lz.Pipeline[Any]) -> None:
    text = repr(pipeline)
    assert text == repr(lz.Pipeline(pipeline.calls))
    assert all(len(line) < 400 for line in text.splitlines())


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (list, "source([0, 1, 2, ...])"),
        (tuple, "source((0, 1, 2, ...))"),
        (range, "source(range(0, 1000000))"),
        (lambda data: np.zeros((len(data), 3), np.float32), "source(<float32[1000000, 3]>)"),
        (Stream, "source(<Stream of 1000000>)"),
    ],
)
def test_long_data_is_abbreviated(kind: Any, shown: str) -> None:
    data = range(10**6)
    assert repr(lz.source(data if kind is range else kind(data))) == shown


@pytest.mark.parametrize("data", [["x" * 10**6], [b"x" * 10**6], b"x" * 10**6, [[["y"] * 99] * 99]])
def test_long_items_are_abbreviated(data: Any) -> None:
    assert len(repr(lz.source(data))) < 400


def test_functions_are_shown_by_name() -> None:
    class Local:
        def method(self, item: int) -> int:
            return item

        def __call__(self, item: int) -> int:
            return item

    stage = lz.map(lambda x: x) | lz.map(Local().method) | lz.map(np.sqrt) | lz.map(str.upper)
    assert repr(stage) == "map(<lambda>) | map(Local.method) | map(sqrt) | map(str.upper)"
    assert "partial" in repr(lz.map(functools.partial(max, 3)))
    assert "Local" in repr(lz.map(Local()))


def test_a_long_pipeline_takes_a_line_a_stage() -> None:
    pipeline = lz.source([1]) | lz.shuffle(seed=10**30)
    for n in range(3):
        pipeline = pipeline | lz.block_shuffle(10**12 + n, seed=10**20)
    lines = repr(pipeline).splitlines()
    assert (lines[0], lines[-1]) == ("(", ")")
    assert len(lines) == 7
    assert all(line.startswith("    | ") for line in lines[2:-1])


# --- equality, hash, immutability ---


def test_equality_is_by_value_and_of_functions_by_identity() -> None:
    def make(function: Callable[[Any], Any] = str, **changed: Any) -> lz.Pipeline[Any]:
        data = changed.get("data", np.arange(6))
        return lz.source(data) | lz.map(function) | lz.batch(changed.get("size", 2))

    assert make() == make()
    for other in (make(repr), make(size=3), make(data=np.arange(7)), make(data=np.arange(6.0))):
        assert make() != other
    assert make(lambda x: x) != make(lambda x: x)
    assert make(data=[0, 1]) != make(data=(0, 1))
    assert lz.source([1]) != lz.source([True])
    assert lz.source([1]) != [1]
    assert lz.map(str) != lz.source([1]) | lz.map(str)
    assert lz.batch(2) == lz.batch(batch_size=2) == lz.batch(2, drop_last=False)
    assert len({lz.batch(2), lz.batch(2, drop_last=False), lz.batch(3)}) == 2


def test_a_pipeline_hashes_where_its_arguments_do() -> None:
    for data in ((1, (2,)), range(3), Stream([1]), b"ab"):
        assert hash(lz.source(data) | lz.map(str)) == hash(lz.source(data) | lz.map(str))
    for data in ([1], np.arange(3), (1, [2])):
        with pytest.raises(TypeError, match=r"^source\(.*\) is hashable only .*: unhashable type"):
            hash(lz.source(data) | lz.map(str))


def test_what_has_no_hash_is_named_once() -> None:
    deep = lz.source([1])
    for _ in range(9):
        deep = lz.concat(deep, lz.source(range(2)))
    text = r"^source\(\[1\]\) is hashable only if its arguments are: unhashable type: 'list'$"
    with pytest.raises(TypeError, match=text):
        hash(deep | lz.batch(2))


@pytest.mark.parametrize("value", [lz.source([1]) | lz.map(str), lz.map(str), lz.batch(2).calls[0]])
def test_pipelines_cannot_be_changed(value: Any) -> None:
    for name in ("calls", "machine", "combinator", "arguments", "other"):
        with pytest.raises(AttributeError):
            setattr(value, name, ())
    with pytest.raises(AttributeError):
        del value.calls
    before = repr(value)
    for call in getattr(value, "calls", [value]):
        call.arguments.clear()
    assert repr(value) == before


# --- composing ---


@pytest.fixture
def recursion_limit() -> Iterator[int]:
    """Python's own, whatever has been imported; mypy raises it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield 1000
    sys.setrecursionlimit(before)


def test_a_pipeline_of_many_stages(recursion_limit: int) -> None:
    most = recursion_limit // 3
    stages = functools.reduce(operator.or_, [lz.enumerate()] * (most - 2))
    run = lz.run(lz.source([1]) | stages | lz.take(1))
    assert len(list(run)) == 1
    assert lz.State.from_json(run.state.to_json()) == run.state
    for many in (3000, most + 1):
        with pytest.raises(lz.ArgumentError, match=r"stages in a row are too many: .* allows \d+"):
            functools.reduce(operator.or_, [lz.source([1]), *[lz.map(str)] * many])


def test_a_fragment_can_be_used_again() -> None:
    fragment = lz.map(str) | lz.batch(2)
    one, two = [1, 2, 3] | fragment, lz.source(range(2)) | fragment
    assert list(one) == [["1", "2"], ["3"]]
    assert list(two) == [["0", "1"]]
    assert pickle.loads(pickle.dumps(fragment)) == fragment
    with pytest.raises(TypeError, match="no source"):
        list(fragment)


JOINED = """\
(
    mix(
        (
            source(range(0, 1000000000), name='a') | shuffle(seed=0) | repeat() | batch(2),
            source([1]),
        ),
        (1, 2),
        seed=0,
        stop='never',
    )
    | unbatch()
)"""


def test_joined_pipelines_are_indented() -> None:
    part = lz.source(range(10**9), name="a") | lz.shuffle(seed=0) | lz.repeat() | lz.batch(2)
    joined = lz.mix([part, lz.source([1])], [1, 2], seed=0, stop="never") | lz.unbatch()
    assert repr(joined) == JOINED
    assert eval(JOINED, vars(lz)) == joined
    assert repr(lz.zip(part, part)).startswith("zip(\n    source(range(0, 1000000000), ")
    assert repr(lz.zip(lz.source([1]), lz.source([2]))) == "zip(source([1]), source([2]))"
    assert repr(lz.concat(lz.source([1]))) == "concat(source([1]))"
    assert repr(lz.mix([lz.source([1])], [1], seed=0)) == "mix((source([1]),), (1,), seed=0)"


def test_html_escapes() -> None:
    pipeline = lz.source(["<b>&"]) | lz.map(lambda x: x)
    shown = pipeline._repr_html_()
    assert "<b>" not in shown
    assert "<lambda>" not in shown
    assert html.escape("<lambda>") in shown
    assert html.escape("<b>&") in shown


# --- items and slices ---

BOUNDS = st.none() | st.integers(-12, 12)


def test_an_index_that_no_table_holds_is_no_wrong_item() -> None:
    pipeline = lz.source(range(7)) | lz.repeat() | lz.batch(3)
    assert pipeline[2**60] == [(3 * 2**60 + n) % 7 for n in range(3)]
    with pytest.raises(OverflowError):
        pipeline[2**62]


@given(strategies.pipelines(), st.data())
def test_random_access_agrees_with_iteration(
    pipeline: lz.Pipeline[Any], data: st.DataObject
) -> None:
    items = list(pipeline)
    try:
        length = len(pipeline)
    except TypeError:
        assert pipeline.machine.length is None
    else:
        assert length == len(items)
    assert bool(pipeline)
    index = data.draw(st.integers(-len(items) - 2, len(items) + 2))
    if pipeline.machine.skip is None:
        with pytest.raises(TypeError, match="random access"):
            pipeline[index]
    elif -len(items) <= index < len(items):
        assert equal(pipeline[index], items[index])
        assert equal(pipeline[np.int64(index)], items[index])
    else:
        with pytest.raises(IndexError, match="out of range"):
            pipeline[index]


@given(strategies.pipelines(max_stages=3), BOUNDS, BOUNDS, st.none() | st.integers(1, 4))
def test_slices_are_those_of_a_list(
    pipeline: lz.Pipeline[Any], start: int | None, stop: int | None, stride: int | None
) -> None:
    whole = slice(start, stop, stride)
    if pipeline.machine.length is None and min(start or 0, stop or 0) < 0:
        with pytest.raises(TypeError, match=r"len\(\)"):
            pipeline[whole]
    else:
        assert equal(list(pipeline[whole]), list(pipeline)[whole])


@pytest.mark.parametrize("start", [None, *range(-7, 8)])
def test_every_slice_of_a_short_one(start: int | None) -> None:
    items = list(range(5))
    for pipeline in (
        lz.source(items),
        lz.source(items) | lz.repeat(1),
        lz.concat(lz.source(items)),
    ):
        for stop in (None, *range(-7, 8)):
            for stride in (None, 1, 2, 3, 9):
                found = pipeline[start:stop:stride]
                assert list(found) == items[start:stop:stride]
                assert len(found) == len(items[start:stop:stride])


def test_wrong_indices_raise_as_a_lists_do() -> None:
    pipeline, items = lz.source([1, 2, 3]), [1, 2, 3]
    for index in ("a", 1.0, None, (1,), [1], np.array([1])):
        for sequence in (pipeline, items):
            if not isinstance(index, np.ndarray):
                words = "an int or a slice of ints, got" if sequence is pipeline else None
                with pytest.raises(TypeError, match=words):
                    sequence[index]
    for index in (3, -4, 10**30, -(10**30)):
        for sequence in (pipeline, items):
            with pytest.raises(IndexError):
                sequence[index]
    for bad in (slice("a", None), slice(1.0), slice(None, None, "a")):
        with pytest.raises(TypeError, match="an int or a slice of ints, got"):
            pipeline[bad]
    for stride in (0, -1):
        with pytest.raises(ValueError, match=f"step must be >= 1, got {stride}"):
            pipeline[::stride]
    assert list(pipeline[-(10**30) : 10**30]) == items
    for endless in (pipeline | lz.repeat(), pipeline | lz.repeat() | lz.batch(2)):
        assert endless
        for use in (len, lambda it: it[-1], lambda it: it[:-1]):
            with pytest.raises(TypeError, match="endless"):
                use(endless)


@pytest.mark.parametrize(
    ("several", "remedy"),
    [
        (lz.split({"train": 0.9, "val": 0.1}, seed=0), "parts['train']"),
        (lz.split([0.9, 0.1], seed=0), "parts[0]"),
        (lz.kfold(2, seed=0), "parts[0][0]"),
    ],
)
def test_several_stages_are_no_stage(several: Any, remedy: str) -> None:
    with pytest.raises(lz.ArgumentError, match=re.escape(f"write parts = ..., then | {remedy}")):
        _ = lz.source([1]) | several
    with pytest.raises(lz.ArgumentError, match=r"is not a stage$"):
        _ = lz.source([1]) | [several, 3][1:]


def test_a_billion_items_at_once() -> None:
    n = 10**9
    shuffled = lz.source(range(n)) | lz.shuffle(seed=0)
    for pipeline in (shuffled, shuffled | lz.batch(2) | lz.map(tuple), shuffled | lz.repeat()):
        state = lz.state_at(pipeline, n // 2 - 3)
        run = lz.run(pipeline, state)
        assert equal(next(run), pipeline[n // 2 - 3])
        assert run.state == lz.state_at(pipeline, n // 2 - 2)
        assert len(list(islice(pipeline[n // 2 - 5 :][1:], 3))) == 3
    assert len(shuffled) == n
    assert shuffled[-1] == shuffled[n - 1]
    assert list(shuffled[-2:]) == [shuffled[n - 2], shuffled[n - 1]]
    assert list(lz.source(range(n)) | lz.skip(n - 2)) == [n - 2, n - 1]
    assert list((lz.source(range(n)) | lz.shard(num_shards=n // 2, index=3))[1:]) == [n // 2 + 3]
    assert (lz.source(range(n)) | lz.block_shuffle(1000, seed=1))[-1] >= n - 1000
    endless = shuffled | lz.repeat()
    assert endless[10**15] == next(iter(endless[10**15 :]))


# --- combinators of the user's own ---


@lz.combinator(checks={"n": positive})
def add(upstream: Machine[int], n: int, *, also: int = 0) -> Machine[int]:
    """Numbers, n higher."""
    return stateless(
        upstream,
        rate=Rate(),
        flow=lambda position: upstream.flow(position).map(lambda x: x + n + also),
        skip=upstream.skip,
        length=upstream.length,
    )


@lz.source_combinator(checks={"n": positive})
def triangle(n: int) -> Machine[int]:
    """1, 1 2, 1 2 3 and so on, n rows."""

    def flow(position: Position) -> Flow[int]:
        epoch, given = position

        def items() -> Iterator[int]:
            nonlocal given
            for item in [x for row in range(n) for x in range(row + 1)][given:]:
                given += 1
                yield item

        return Flow(items(), lambda: (epoch, given))

    return sourced("triangle", flow=flow)


OWN = {name: lz.registry.pop(name) for name in ("add", "triangle")}


@pytest.fixture
def _registered() -> Iterator[None]:
    """Other tests are about the library's own combinators alone."""
    lz.registry.update(OWN)
    yield
    for name in OWN:
        del lz.registry[name]


@pytest.mark.usefixtures("_registered")
def test_a_combinator_of_ones_own() -> None:
    pipeline = lz.source([1, 2, 3]) | add(10) | add(n=5, also=1)
    assert list(pipeline) == [17, 18, 19]
    assert repr(pipeline) == "source([1, 2, 3]) | add(10) | add(5, also=1)"
    assert pipeline == pickle.loads(pickle.dumps(pipeline))
    assert add.__name__ == "add"
    assert add.__doc__ == "Numbers, n higher."
    assert list(lz.registry["add"].signature.parameters) == ["n", "also"]
    for wrong in (lambda: add(0), lambda: add("a"), lambda: add(), lambda: add(1, 2)):
        with pytest.raises(lz.ArgumentError, match=r"^add: "):
            wrong()
    check_combinator(add(3), [1, 2, 3, 4], model=lambda items: [x + 3 for x in items])
    with pytest.raises(lz.StateMismatch, match=r"add\(n=10\) -> add\(n=11\)"):
        lz.run(lz.source([1]) | add(11), lz.init(lz.source([1]) | add(10)))


@lz.combinator(registered=False)
def unlisted(upstream: Machine[int], n: int) -> Machine[int]:
    """Numbers, n times as high."""
    return stateless(upstream, flow=lambda at: upstream.flow(at).map(lambda x: x * n))


def test_a_combinator_that_no_registry_lists() -> None:
    pipeline = lz.source([1, 2, 3]) | unlisted(10)
    assert "unlisted" not in lz.registry
    assert list(pickle.loads(pickle.dumps(pipeline))) == list(pipeline) == [10, 20, 30]
    assert pipeline == pickle.loads(pickle.dumps(pipeline))
    with pytest.raises(lz.StateMismatch, match=r"unlisted\(n=10\) -> unlisted\(n=11\)"):
        lz.run(lz.source([1]) | unlisted(11), lz.init(lz.source([1]) | unlisted(10)))


@pytest.mark.usefixtures("_registered")
def test_a_producer_of_ones_own() -> None:
    pipeline = triangle(3) | lz.shuffle(2, seed=0) | lz.batch(4)
    assert sorted(x for some in pipeline for x in some) == [0, 0, 0, 1, 1, 2]
    assert repr(pipeline) == "triangle(3) | shuffle(buffer_size=2, seed=0) | batch(4)"
    assert pipeline == pickle.loads(pickle.dumps(pipeline))
    with pytest.raises(lz.ArgumentError, match="triangle: n must be an int >= 1"):
        triangle(-1)
    check_pipeline(pipeline, model=False)
    check_pipeline(triangle(3), model=False)


def test_ints_too_long_for_python_to_write() -> None:
    huge = 10**5000
    one = lz.source([huge])
    assert repr(one | lz.take(huge)).count("<int>") == 2
    assert "<range>" in repr(lz.source(range(huge, huge + 2)))
    for fails in (lambda: one[huge], lambda: lz.state_at(one, huge), lambda: lz.trace(one, huge)):
        with pytest.raises(IndexError, match="<int>"):
            fails()
