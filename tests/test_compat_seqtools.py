"""`lazyckpt.compat.seqtools` beside SeqTools 1.4.1 and torch's DataLoader, item by item."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from itertools import islice
from multiprocessing import active_children
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import seqtools as theirs
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data import DataLoader as TorchLoader

import lazyckpt as lz
from lazyckpt.compat import pinning
from lazyckpt.compat import seqtools as ours
from lazyckpt.compat.seqtools import fetching
from lazyckpt.compat.seqtools import instrument as instrument_module

NUMBERS = [*range(1, 20), *range(21, 29), 30, 32, 33, 35]
CODES = {f"SQ{number}" for number in NUMBERS}

REFUSED = ValueError  # by both libraries, each in words of its own
Point = namedtuple("Point", "x y")


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    faulthandler.dump_traceback_later(60, exit=True)
    yield
    if any(thread.name.startswith("lazyckpt") for thread in threading.enumerate()):
        gc.collect()  # of an error's traceback; where threads live, processes start slowly
    faulthandler.cancel_dump_traceback_later()


def test_every_code_has_a_test() -> None:
    named = {name.split("_")[1].upper() for name in globals() if name.startswith("test_sq")}
    assert named == CODES


def test_every_public_name_is_there() -> None:
    assert set(theirs.__all__) <= set(ours.__all__)
    assert all(hasattr(ours, name) for name in ours.__all__)
    assert ours.__all__ == sorted(ours.__all__)
    assert ours.instrument.debug is ours.debug


def test_importing_brings_no_optional_package() -> None:
    code = "import sys, lazyckpt.compat.seqtools; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "multiprocessing", "seqtools", "hypothesis"} & set(done.stdout.split())


# Functions that workers can be sent.


def double(x: Any) -> Any:
    return x * 2


def fails_at_five(x: int) -> int:
    if x == 5:
        raise KeyError("five")
    return x


def steals(x: int) -> int:
    if x == 2:
        raise StopIteration
    return x


def dies(x: int) -> int:
    if x == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def rows(x: int) -> np.ndarray[Any, Any]:
    return np.full(5000, x)


def as_list(batch: Any) -> Any:
    return [int(each) for each in batch]


def plain(value: Any) -> Any:
    """Something that `==` compares, of any batch."""
    if isinstance(value, torch.Tensor):
        return "tensor", str(value.dtype), value.tolist()
    if isinstance(value, np.ndarray):
        return "array", str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(each) for each in value]
    return value


def outcomes(items: Any, most: int = 10**6) -> list[Any]:
    """All items, the names of errors in their places."""
    found, iterator = [], iter(items)
    while len(found) < most:
        try:
            found.append(next(iterator))
        except StopIteration:
            break
        except Exception as error:
            found.append(type(error).__name__)
    return found


class Endless:
    """A sequence without a length."""

    def __getitem__(self, index: int) -> int:
        return index * 10


class Ends(Endless):
    def __getitem__(self, index: int) -> int:
        if index >= 7:
            raise IndexError(index)
        return index


# Lazy sequences

ITEMS = st.lists(st.one_of(st.integers(-5, 5), st.none(), st.text(max_size=2)), max_size=12)
BOUND = st.one_of(st.none(), st.integers(-15, 15))
SLICES = st.builds(slice, BOUND, BOUND, st.one_of(st.none(), st.integers(-4, 4).filter(bool)))


def show(x: Any) -> str:
    return f"<{x}>"


@st.composite
def programs(draw: st.DrawFn) -> Callable[[Any], Any]:
    """A function that builds the same sequence with either library."""
    first = draw(ITEMS)
    steps: list[Callable[[Any, Any], Any]] = []
    size = len(first)
    for _ in range(draw(st.integers(0, 4))):
        kinds = ["smap", "concatenate", "interleave", "collate", "split", "add_cache"]
        kinds += ["gather", "slice", "switch", "cycle", "batch", "unbatch"] if size else []
        kind = draw(st.sampled_from(kinds))
        if kind == "smap":
            steps.append(lambda lib, s: lib.smap(show, s))
        elif kind == "concatenate":
            more = draw(ITEMS)
            size += len(more)
            steps.append(lambda lib, s, more=more: lib.concatenate([s, more]))
        elif kind == "interleave":
            more = draw(ITEMS)
            size += len(more)
            steps.append(lambda lib, s, more=more: lib.interleave(s, more))
        elif kind == "collate":
            steps.append(lambda lib, s: lib.collate([s, s]))
        elif kind == "split" and size % 2 == 0 and size:
            steps.append(lambda lib, s: lib.smap(list, lib.split(s, 1)))
            size = 2
        elif kind == "add_cache":
            steps.append(lambda lib, s: lib.add_cache(s, 3))
        elif kind == "gather":
            chosen = draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=8))
            size = len(chosen)
            steps.append(lambda lib, s, chosen=chosen: lib.gather(s, chosen))
        elif kind == "slice":
            cut = slice(draw(st.integers(0, size - 1)), size, draw(st.sampled_from([None, 1, 2])))
            size = len(range(size)[cut])
            steps.append(lambda lib, s, cut=cut: s[cut] if hasattr(s, "__len__") else s)
        elif kind == "switch":
            flags = draw(st.lists(st.booleans(), min_size=size, max_size=size))
            steps.append(lambda lib, s, flags=flags: lib.switch(flags, s, lib.smap(show, s)))
        elif kind == "cycle":
            size = draw(st.integers(1, 15))
            steps.append(lambda lib, s, size=size: lib.cycle(s, size))
        elif kind == "batch":
            k, last = draw(st.integers(1, 4)), draw(st.booleans())
            size = size // k if last else -(-size // k)
            steps.append(lambda lib, s, k=k, last=last: lib.batch(s, k, drop_last=last))
        elif kind == "unbatch":
            k = draw(st.integers(1, 3))
            rest = size % k or k
            steps.append(lambda lib, s, k=k, rest=rest: lib.unbatch(lib.batch(s, k), k, rest))

    def build(lib: Any) -> Any:
        sequence: Any = first
        for step in steps:
            sequence = step(lib, sequence)
        return lib.smap(same, sequence)

    return build


def same(x: Any) -> Any:
    return x


@given(programs(), st.integers(-20, 20))
def test_sq10_any_composition_is_what_theirs_is(build: Callable[[Any], Any], index: int) -> None:
    mine, other = build(ours), build(theirs)
    expected = list(other)
    assert (list(mine), len(mine)) == (expected, len(other))
    assert [mine[i] for i in range(-len(mine), len(mine))] == expected + expected
    assert list(pickle.loads(pickle.dumps(mine))) == expected
    if -len(expected) <= index < len(expected):
        assert mine[index] == other[index]
    else:
        with pytest.raises(IndexError):
            mine[index]
    run = lz.run(mine.pipeline)
    seen = list(islice(run, len(expected) // 2))
    assert seen + list(lz.run(mine.pipeline, run.state.to_json())) == expected


@given(ITEMS, st.lists(SLICES, max_size=3))
def test_sq10_slices_are_a_lists_and_flatten(items: list[Any], slices: list[slice]) -> None:
    sequence: Any = ours.smap(same, items)
    for each in slices:
        sequence, items = sequence[each], items[each]
    assert list(sequence) == items == [sequence[i] for i in range(len(items))]
    assert len(sequence.pipeline.calls) <= 3
    assert list(reversed(sequence)) == items[::-1]
    assert all(item in sequence for item in items)


def test_sq10_errors_are_a_lists() -> None:
    sequence = ours.smap(double, [1, 2])
    for index in (2, -3):
        with pytest.raises(IndexError, match="out of range"):
            sequence[index]
    for key in ("0", 1.0, None):
        with pytest.raises(TypeError, match="integers or slices"):
            sequence[key]  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="zero"):
        sequence[::0]
    with pytest.raises(TypeError):
        sequence[0] = 1  # type: ignore[index]
    assert sequence[np.int64(1)] == 4


def test_sq10_sequences_without_a_length() -> None:
    endless = ours.smap(double, Endless())
    with pytest.raises(TypeError, match="len"):
        len(endless)
    with pytest.raises(IndexError, match="from the end"):
        endless[-1]
    with pytest.raises(IndexError, match="from the end"):
        endless[-3:]
    assert (endless[10**9], list(endless[2:8:3])) == (2 * 10**10, [40, 100])
    assert list(islice(endless[3:], 2)) == [60, 80]
    ends = ours.smap(same, Ends())
    assert list(ends) == list(theirs.smap(same, Ends())) == list(range(7))
    with pytest.raises(IndexError):
        ends[7]


@given(st.lists(st.lists(st.integers(), max_size=6), min_size=1, max_size=3))
def test_sq11_smap_is_as_long_as_the_shortest(sequences: list[list[int]]) -> None:
    def added(*args: int) -> int:
        return sum(args)

    mine, other = ours.smap(added, *sequences), theirs.smap(added, *sequences)
    assert list(mine) == list(other)
    assert len(mine) == len(list(mine)) == min(map(len, sequences))  # theirs: the first's
    zipped = list(zip(*sequences, strict=False))
    assert list(ours.starmap(added, zipped)) == list(theirs.starmap(added, zipped)) == list(mine)


def test_sq11_wrong_arguments() -> None:
    for library in (ours, theirs):
        with pytest.raises(TypeError):
            library.smap(None, [1])
        with pytest.raises(REFUSED):
            library.smap(same)
    with pytest.raises(ValueError, match="one-shot"):
        ours.smap(same, (x for x in [1]))


def test_sq12_an_error_names_the_items_index_and_the_line() -> None:
    line = sys._getframe().f_lineno + 1
    sequence = ours.smap(fails_at_five, range(10))
    with pytest.raises(ours.EvaluationError, match=f"item 5 of .*{__name__}.py:{line}") as caught:
        sequence[5]
    assert isinstance(caught.value.__cause__, KeyError)
    assert sequence[6] == 6
    assert outcomes(sequence) == [0, 1, 2, 3, 4, "EvaluationError", 6, 7, 8, 9]
    assert list(sequence[6:]) == [6, 7, 8, 9]


@given(st.permutations(range(8)), st.integers(1, 3), st.booleans())
def test_sq12_the_index_is_that_in_the_failing_stage(order: list[int], k: int, walks: bool) -> None:
    """As theirs, whatever is built upon it."""

    def build(library: Any) -> Any:
        inner = library.smap(fails_at_five, library.gather(list(range(8)), order))
        backwards = library.gather(library.cycle(inner, 24), list(range(23, -1, -1)))
        return library.batch(backwards, k)

    mine = build(ours)
    number = next(i for i in range(len(mine)) if 5 in [order[(23 - j) % 8] for j in span(i, k)])
    with pytest.raises(ours.EvaluationError, match=f"item {order.index(5)} of smap"):
        list(mine) if walks else mine[number]
    with pytest.raises(theirs.EvaluationError, match=f"item {order.index(5)} in Mapping"):
        build(theirs)[number]


def span(number: int, k: int) -> range:
    return range(number * k, min(number * k + k, 24))


def test_sq12_passthrough_raises_the_error_itself() -> None:
    sequence = ours.smap(fails_at_five, range(6))
    assert ours.seterr() == theirs.seterr() == "wrap"
    try:
        assert ours.seterr("passthrough") == "passthrough"
        for read in (lambda: sequence[5], lambda: list(sequence)):
            with pytest.raises(KeyError) as caught:
                read()
            assert any("item 5 of smap" in note for note in caught.value.__notes__)
    finally:
        ours.seterr("wrap")
    for library in (ours, theirs):
        with pytest.raises(ValueError, match="evaluation"):
            library.seterr("other")


def test_sq12_errors_of_other_stages_keep_their_type() -> None:
    def refuse(batch: list[int]) -> int:
        raise ZeroDivisionError

    batches = ours.batch(range(6), 2, collate_fn=refuse)
    with pytest.raises(ZeroDivisionError) as caught:
        batches[1]
    assert "item 1" in caught.value.__notes__[0]
    assert "batch" in caught.value.__notes__[0]
    assert outcomes(batches) == ["ZeroDivisionError"] * 3
    stolen = ours.smap(steals, range(4))
    assert outcomes(stolen) == [0, 1, "EvaluationError", 3]
    with pytest.raises(ours.EvaluationError) as caught_too:
        ours.smap(double, ours.smap(fails_at_five, range(6)))[5]
    assert str(caught_too.value).startswith("item 5 of smap(fails_at_five)")


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-4, 4).filter(bool))
def test_sq13_arange_has_the_bounds_of_range(start: int, stop: int, step: int) -> None:
    mine, expected = ours.arange(start, stop, step), range(start, stop, step)
    assert list(mine) == list(expected) == list(theirs.arange(start, stop, step))
    assert list(ours.arange(stop)) == list(range(stop))
    with pytest.raises(IndexError):  # theirs goes on counting
        mine[len(expected)]
    with pytest.raises(IndexError):
        mine[-len(expected) - 1]


@given(st.lists(st.integers(-4, 3), max_size=9), st.sampled_from([list, tuple, np.array]))
def test_sq14_gather_repeats_and_counts_from_the_end(indexes: list[int], kind: Any) -> None:
    chosen = kind(indexes) if indexes or kind is not np.array else np.array([], int)
    for mine, other in ((ours.gather, theirs.gather), (ours.take, theirs.take)):
        assert list(mine("abcd", chosen)) == list(other("abcd", chosen))
    lazily = ours.gather("abcd", ours.smap(same, indexes))
    assert list(lazily) == ["abcd"[i] for i in indexes]
    assert len(lazily) == len(indexes)


def test_sq14_an_index_that_there_is_none_of() -> None:
    for index in (4, -5):
        with pytest.raises(IndexError):
            ours.gather("abcd", [0, index])
        with pytest.raises(IndexError):
            theirs.gather("abcd", [0, index])[1]
        assert outcomes(ours.gather("abcd", ours.smap(same, [0, index]))) == ["a", "IndexError"]
    forever = ours.gather("abcd", ours.cycle([3, 1]))
    assert (list(islice(forever, 3)), forever[10**6]) == (["d", "b", "d"], "d")
    assert len(ours.gather(ours.gather("abcd", [3, 2, 1]), range(2))[::-1].pipeline.calls) <= 4


@given(st.lists(st.integers(), min_size=1, max_size=5), st.integers(1, 20), st.integers(0, 10**12))
def test_sq15_cycle(items: list[int], limit: int, index: int) -> None:
    mine, other = ours.cycle(items, limit), theirs.cycle(items, limit)
    assert (list(mine), len(mine)) == (list(other), len(other))
    assert ours.cycle(items)[index] == theirs.cycle(items)[index]
    assert list(mine[::-1]) == list(reversed(mine)) == list(mine)[::-1]
    assert list(ours.cycle(items)[2:9:2]) == list(theirs.cycle(items)[2:9:2])


def test_sq15_cycle_of_nothing_and_to_nothing() -> None:
    assert list(ours.cycle([1], 0)) == list(ours.cycle([], 0)) == []
    for limit in (None, 1):
        with pytest.raises(ValueError, match="nothing"):
            ours.cycle([], limit)
    with pytest.raises(ValueError, match="limit"):
        ours.cycle([1], -1)


@given(st.lists(st.lists(st.integers(), max_size=5), max_size=4))
def test_sq16_interleave(sequences: list[list[int]]) -> None:
    mine, other = ours.interleave(*sequences), theirs.interleave(*sequences)
    assert (list(mine), len(mine)) == (list(other), len(other))
    assert [mine[i] for i in range(len(mine))] == list(other)


def test_sq16_interleave_of_what_has_no_length() -> None:
    mixed = ours.interleave([1, 2], ours.cycle("ab"))
    assert list(islice(mixed, 7)) == [1, "a", 2, "b", "a", "b", "a"]
    assert mixed[3] == "b"
    streams = ours.interleave(IterableTen(3), [7])
    assert list(streams) == [0, 7, 1, 2]
    with pytest.raises(TypeError, match="no indices"):
        streams[0]


class IterableTen(IterableDataset[int]):
    """A stream."""

    def __init__(self, size: int = 10) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))


@given(st.integers(0, 5), st.one_of(st.none(), st.integers(), st.lists(st.integers())))
def test_sq17_repeat(times: int, value: Any) -> None:
    assert list(ours.repeat(value, times)) == [value] * times
    if times > 1:
        assert list(theirs.repeat(value, times)) == [value] * times
    else:
        with pytest.raises(TypeError):
            theirs.repeat(value, times)
    assert ours.repeat(value)[10**9] == value
    assert list(ours.repeat(value)[3:7]) == [value] * 4


def test_sq17_wrong_times() -> None:
    for times in (-1, 1.5, "2"):
        with pytest.raises(TypeError):
            ours.repeat(0, times)  # type: ignore[arg-type]


@given(st.data(), st.integers(0, 8))
def test_sq18_switch_and_case(data: st.DataObject, size: int) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    numbers = data.draw(st.lists(st.integers(-3, 2), min_size=size, max_size=size))
    values = [[f"{letter}{i}" for i in range(size)] for letter in "abc"]
    assert list(ours.switch(flags, *values[:2])) == list(theirs.switch(flags, *values[:2]))
    assert list(ours.switch(np.array(flags, bool), *values[:2])) == list(
        theirs.switch(flags, *values[:2])
    )
    mine, other = ours.case(numbers, *values), theirs.case(numbers, *values)
    assert (list(mine), len(mine)) == (list(other), len(other))


def test_sq18_a_wrong_selector_is_an_error() -> None:
    assert list(theirs.case([0, 7, 1], "abc", "xyz")) == ["a"]  # cut short in silence
    assert outcomes(ours.case([0, 7, 1], "abc", "xyz")) == ["a", "ValueError", "z"]
    assert outcomes(ours.case([0, None, 1], "abc", "xyz")) == ["a", "TypeError", "z"]
    assert list(ours.switch([2, 0, ""], "abc", "xyz")) == ["a", "y", "z"]
    for library in (ours, theirs):
        with pytest.raises(REFUSED):
            library.case([0, 1], "abc", "xyz")
        with pytest.raises(REFUSED):
            library.switch([True] * 3, "abc", "xy")


@given(st.data(), st.integers(0, 4), st.integers(1, 3), st.booleans())
def test_sq19_uniter(data: st.DataObject, cache: int, parallel: int, sized: bool) -> None:
    """Whatever is asked for in whatever order; theirs goes wrong past the end and in its cache."""
    items = [f"i{n}" for n in range(9)]
    mine = ours.uniter(items, cache, parallel, len(items) if sized else None)
    for index in data.draw(st.lists(st.integers(0, 11), max_size=15)):
        if index < len(items):
            assert mine[index] == items[index]
        else:
            with pytest.raises(IndexError):
                mine[index]
    assert list(mine) == items
    assert list(pickle.loads(pickle.dumps(mine))) == items
    if sized:
        assert (len(mine), mine[-1]) == (9, "i8")
        other = theirs.uniter(items, cache, parallel, 9)
        assert [other[i] for i in range(9)] == items


def test_sq19_uniter_goes_back_no_more_than_it_must() -> None:
    begun: list[int] = []

    class Source:
        def __iter__(self) -> Iterator[int]:
            mine = len(begun)
            begun.append(0)
            for item in range(20):
                begun[mine] += 1
                yield item

    near = ours.uniter(Source(), cache_size=3, n_parallel=2, size=20)
    begun.clear()  # of looking whether it begins anew
    assert [near[i] for i in (9, 8, 7, 6, 2, 10, 3)] == [9, 8, 7, 6, 2, 10, 3]
    assert begun == [11, 4]
    with pytest.raises(ValueError, match="anew"):
        ours.uniter(iter([1]))
    unsized = ours.uniter([1, 2])
    with pytest.raises(TypeError, match="len"):
        len(unsized)
    with pytest.raises(IndexError):
        unsized[-1]


@given(st.lists(st.lists(st.integers(), max_size=4), min_size=1, max_size=3))
def test_sq21_collate(sequences: list[list[int]]) -> None:
    if len(set(map(len, sequences))) > 1:
        for library in (ours, theirs):
            with pytest.raises(REFUSED):
                library.collate(sequences)
        return
    mine, other = ours.collate(sequences), theirs.collate(sequences)
    assert (list(mine), len(mine)) == (list(other), len(other))
    assert list(ours.collate([sequences[0], ours.repeat(0)])) == [(x, 0) for x in sequences[0]]


@given(st.lists(ITEMS, max_size=4))
def test_sq22_concatenate(sequences: list[list[Any]]) -> None:
    nested = [sequences[:1], sequences[1:]]
    mine = ours.concatenate([ours.concatenate(each) for each in nested])
    other = theirs.concatenate([theirs.concatenate(each) for each in nested])
    assert (list(mine), len(mine)) == (list(other), len(other))
    assert len(mine.pipeline.calls) == 1
    assert [mine[i] for i in range(len(mine))] == list(other)


@given(st.lists(st.integers(), max_size=12), st.integers(1, 5), st.booleans(), st.booleans())
def test_sq23_batch(items: list[int], k: int, drop_last: bool, padded: bool) -> None:
    pad = 0 if padded else None
    mine = ours.batch(items, k, drop_last, pad, list)
    with warnings.catch_warnings():
        other = theirs.batch(items, k, drop_last, None if drop_last else pad, list)
    expected = list(other)
    if padded and not drop_last and expected and len(items) % k == 0:
        assert len(expected[-1]) == 2 * k  # a whole batch was padded with k more
        expected[-1] = expected[-1][:k]
    assert (list(mine), len(mine)) == (expected, len(other))
    with pytest.raises(REFUSED):
        ours.batch(items, 0)


def test_sq23_batch_of_no_end() -> None:
    assert list(islice(ours.batch(Endless(), 2), 2)) == [[0, 10], [20, 30]]
    assert ours.batch(ours.cycle("ab"), 3, collate_fn="".join)[10**6] == "aba"


@given(st.lists(st.integers(), max_size=12), st.integers(1, 5))
def test_sq24_unbatch(items: list[int], k: int) -> None:
    last = len(items) % k
    mine = ours.unbatch(ours.batch(items, k), k, last or None)
    assert list(mine) == items == [mine[i] for i in range(len(items))]
    assert len(mine) == len(items)
    if items:
        assert list(theirs.unbatch(theirs.batch(items, k), k, last)) == items
    else:
        assert len(theirs.unbatch([], k)) == k  # of nothing


def test_sq24_each_batch_is_made_once_and_wrong_sizes_are_told() -> None:
    made: list[int] = []

    def batches(n: int) -> list[int]:
        made.append(n)
        return [n, n]

    assert list(ours.unbatch(ours.smap(batches, range(3)), 2)) == [0, 0, 1, 1, 2, 2]
    assert made == [0, 1, 2]
    assert outcomes(ours.unbatch([[1, 2], [3]], 2)) == [1, 2, 3, "ValueError"]
    assert list(islice(ours.unbatch(ours.cycle(["ab"]), 2), 5)) == list("ababa")


@given(st.integers(1, 12), st.data())
def test_sq25_split(size: int, data: st.DataObject) -> None:
    items = list(range(size))
    bound = st.integers(0, size)
    edges = data.draw(
        st.one_of(
            st.lists(st.integers(0, size - 1), min_size=1, max_size=4).map(sorted),
            st.lists(st.tuples(st.integers(0, size - 1), bound), min_size=1, max_size=4),
            st.integers(0, 4),
        )
    )
    if isinstance(edges, int) and size % (edges + 1):
        for library in (ours, theirs):
            with pytest.raises(REFUSED):
                library.split(items, edges)
        return
    mine, other = ours.split(items, edges), theirs.split(items, edges)
    assert (list(mine), len(mine)) == (list(other), len(other))
    lazily = ours.split(ours.smap(double, items), edges)
    assert [list(part) for part in lazily] == [[2 * x for x in part] for part in other]
    assert list(ours.split(items, [])) == [items]
    assert list(ours.split(items, [size, size])) == [items, [], []]
    assert list(theirs.split(items, [size, size]))[1] == items[-1:]  # which comes twice


@given(st.integers(1, 4), st.lists(st.integers(0, 5), max_size=30), st.booleans())
def test_sq26_add_cache_keeps_what_was_used_last(size: int, reads: list[int], own: bool) -> None:
    made: list[int] = []
    expected: list[int] = []
    kept: OrderedDict[int, None] = OrderedDict()
    cached = ours.add_cache(
        ours.smap(lambda x: made.append(x) or x, range(6)), size, {} if own else None
    )
    for index in reads:
        assert cached[index] == index
        if index not in kept:
            expected.append(index)
        kept[index] = None
        kept.move_to_end(index)
        while len(kept) > size:
            kept.popitem(last=False)
    assert made == expected


def test_sq26_theirs_was_first_in_first_out() -> None:
    for library, expected in ((ours, [0, 1, 2]), (theirs, [0, 1, 2, 0])):
        made: list[int] = []
        cached = library.add_cache(library.smap(lambda x, made=made: made.append(x), range(3)), 2)
        for index in (0, 1, 0, 2, 0):
            cached[index]
        assert made == expected
    with pytest.raises(ValueError, match="size"):
        ours.add_cache([1], 0)


# Prefetching

METHODS = ["process", "thread"]  # in a process with threads, processes start slowly


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("workers", [1, 2])
def test_sq27_prefetch_is_ordered_and_follows_jumps(method: str, workers: int) -> None:
    data = ours.smap(double, range(300))
    ahead: Any = ours.prefetch(data, workers, method, max_buffered=7)
    assert list(ahead) == list(data)
    for index in (250, 251, 3, 4, 5, 299, -1, 0, np.int64(17)):
        assert ahead[index] == data[index]
    assert (len(ahead), list(ahead[10:20:3]), list(ahead)) == (300, [20, 26, 32, 38], list(data))
    assert list(ours.smap(double, ahead)[:3]) == [0, 4, 8]
    with pytest.raises(IndexError):
        ahead[300]
    assert list(ours.prefetch([], workers, method)) == []


def test_sq27_as_theirs() -> None:
    data = list(range(50))
    for method in METHODS:
        mine = ours.prefetch(ours.smap(double, data), 2, method, 5)
        other = theirs.prefetch(theirs.smap(double, data), 2, method, 5)
        assert list(mine) == [other[i] for i in range(50)]
    assert ours.prefetch(data) is theirs.prefetch(data) is data
    left = len(os.sched_getaffinity(0))
    assert list(ours.prefetch(data, 1 - left)) == data
    for library in (ours, theirs):
        for wrong in ({"method": "other"}, {"max_buffered": 0}, {"nworkers": -left}):
            with pytest.raises(REFUSED):
                library.prefetch(data, **{"nworkers": 1} | wrong)


@pytest.mark.parametrize("method", METHODS)
def test_sq27_endless_sources(method: str) -> None:
    ahead: Any = ours.prefetch(ours.cycle([1, 2, 3]), 2, method)
    assert list(islice(ahead, 7)) == [1, 2, 3, 1, 2, 3, 1]
    assert [ahead[i] for i in (10**9, 10**9 + 1, 0)] == [2, 3, 1]
    assert list(ours.prefetch(Ends(), 2, method)) == list(range(7))
    with pytest.raises(IndexError):
        ours.prefetch(Ends(), 2, method)[7]  # type: ignore[index]


ORPHANS = """
import os, signal, time
from lazyckpt.compat import seqtools
def linger(x):
    return x
if __name__ == "__main__":
    ahead = seqtools.prefetch(seqtools.smap(linger, range(10**6)), 2, "process")
    ahead[0]
    print("started", flush=True)
    signal.pause()
"""


def test_sq27_orphaned_workers_end(tmp_path: Any) -> None:
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    # The workers hold the pipe's other end: it is at its end when all are gone.
    child = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"started\n"
    child.kill()
    child.wait()
    with child.stdout:
        assert select.select([child.stdout], [], [], 3.0)[0], "workers live on"
        assert child.stdout.read() == b""


@pytest.mark.parametrize("method", METHODS)
def test_sq28_errors_are_the_items_own(method: str) -> None:
    ahead: Any = ours.prefetch(ours.smap(fails_at_five, range(9)), 2, method)
    assert outcomes(ahead) == [0, 1, 2, 3, 4, "EvaluationError", 6, 7, 8]
    with pytest.raises(ours.EvaluationError, match="item 5 of smap") as caught:
        ahead[5]
    assert isinstance(caught.value.__cause__, KeyError)
    assert (ahead[6], ahead[4], ahead[-1]) == (6, 4, 8)
    ours.seterr("passthrough")
    try:
        with pytest.raises(KeyError):
            ahead[5]
    finally:
        ours.seterr("wrap")
    wrapped: Any = ours.prefetch(ours.batch(range(9), 3, collate_fn=refuse_fives), 1, method)
    assert outcomes(wrapped) == [3, "EvaluationError", 21]
    with pytest.raises(ours.EvaluationError, match=r"item 1 of prefetch, built at .*test_compat"):
        wrapped[1]


def refuse_fives(batch: list[int]) -> int:
    if 5 in batch:
        raise ValueError(batch)
    return sum(batch)


def test_sq28_a_killed_worker_raises() -> None:
    ahead: Any = ours.prefetch(ours.smap(dies, range(8)), 2, "process")
    with pytest.raises(RuntimeError, match="SIGKILL"):
        list(ahead)
    assert ahead[6] == 6
    loader = ours.DataLoader(ours.smap(dies, range(8)), 2, num_workers=2)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1]
    for _ in range(2):  # the same batch is tried again
        with pytest.raises(lz.WorkerDied):
            next(batches)
    assert loader.state_dict()["items"] == 1


def test_sq30_arrays_in_shared_memory_are_used_in_place() -> None:
    ahead: Any = ours.prefetch(ours.smap(rows, range(40)), 2, "process", 4, shm_size=10**6)
    first = ahead[0]
    base = first
    while getattr(base, "base", None) is not None and not isinstance(base, memoryview):
        base = base.base
    assert not first.flags.owndata
    kept = [first, *(ahead[i] for i in range(1, 30))]  # more than there are slots: copies
    assert [int(row[0]) for row in kept] == list(range(30))
    kept[3][:] = -1
    assert [int(row[-1]) for row in kept if row is not kept[3]] == [*range(3), *range(4, 30)]
    del ahead
    gc.collect()
    assert [int(row[4999]) for row in kept[:2]] == [0, 1]


def test_sq32_the_last_item() -> None:
    for method in METHODS:
        ahead: Any = ours.prefetch(ours.smap(double, range(20)), 2, method)
        assert (ahead[-1], ahead[-20], ahead[-1]) == (38, 0, 38)
        with pytest.raises(IndexError):
            ahead[-21]


def refuse(*numbers: int) -> None:
    raise OSError("no licence")


def test_sq33_a_start_hook_is_called_where_workers_start() -> None:
    called: list[int] = []
    ahead: Any = ours.prefetch(
        range(50), 2, start_hook=lambda: called.append(threading.get_ident())
    )
    assert list(ahead) == list(range(50))
    assert 1 <= len(set(called)) == len(called) <= 2
    assert threading.get_ident() not in called
    del ahead
    numbers: Any = ours.prefetch(ours.smap(told, range(8)), 2, "process", start_hook=tell)
    assert set(numbers) <= {0, 1}


TOLD: list[int] = []


def tell(number: int) -> None:
    TOLD.append(number)


def told(x: int) -> int:
    return TOLD[-1]


@pytest.mark.parametrize("method", METHODS)
def test_sq33_a_raising_start_hook_is_an_error(method: str) -> None:
    ahead: Any = ours.prefetch(range(3), 1, method, start_hook=refuse)
    for _ in range(2):
        with pytest.raises(ours.EvaluationError) as caught:
            ahead[0]
        assert isinstance(caught.value.__cause__, OSError)


def test_sq33_workers_start_off_the_main_thread() -> None:
    found: list[list[int]] = []
    data = ours.smap(double, range(5))
    work = [
        threading.Thread(target=lambda m=m: found.append(list(ours.prefetch(data, 1, m))))
        for m in METHODS
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert found == [[0, 2, 4, 6, 8]] * 2


@given(st.lists(st.integers(-4, 3), max_size=8), st.one_of(st.none(), st.integers(0, 5)))
def test_sq35_debug(reads: list[int], most: int | None) -> None:
    seen: dict[str, list[Any]] = {"ours": [], "theirs": []}
    mine = ours.debug("abcd", lambda i, x: seen["ours"].append((i, x)), most)
    other = theirs.instrument.debug("abcd", lambda i, x: seen["theirs"].append((i, x)), most)
    assert [mine[i] for i in reads] == [other[i] for i in reads]
    assert seen["ours"] == seen["theirs"]
    assert list(mine) == list(other)
    assert len(seen["ours"]) == len(seen["theirs"])
    assert all("abcd"[i] == x for i, x in seen["ours"])  # theirs: 0 each time


def test_sq35_debug_at_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 0.4, 0.9, 1.0, 1.0, 1.6])
    monkeypatch.setattr(instrument_module, "monotonic", lambda: next(clock))
    seen: list[int] = []
    watched = ours.debug("abcd", lambda i, x: seen.append(i), max_rate=1)
    assert list(watched) == list("abcd")
    assert seen == [0, 3]


def test_sq35_monitor_throughput(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = ours.monitor_throughput(ours.smap(double, range(4)))
    with pytest.raises(RuntimeError):
        watched.read_delay()
    with pytest.raises(RuntimeError):
        watched.throughput()
    now = iter(range(100))
    monkeypatch.setattr(instrument_module, "perf_counter", lambda: next(now) / 2)
    assert (watched[1], watched[-1], list(watched), len(watched)) == (2, 6, [0, 2, 4, 6], 4)
    assert (watched.read_delay(), watched.throughput()) == (0.5, 2.0)
    watched.reset()
    with pytest.raises(RuntimeError):
        watched.read_delay()
    assert list(watched[1:3]) == [2, 4]


# The DataLoader


class Repeated:
    """A batch or index sampler that is no sequence."""

    def __init__(self, items: list[Any], sized: bool = True) -> None:
        self.items = items
        if sized:
            self.__class__ = Sized

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self.items))


class Sized(Repeated):
    def __len__(self) -> int:
        return len(self.items)


class Forever:
    def __iter__(self) -> Iterator[int]:
        while True:
            yield from (3, 1, 2)


class Many(list[Any]):
    """A data set that gives many items at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [("many", self[i]) for i in indices]


@st.composite
def arguments(draw: st.DrawFn) -> tuple[Any, dict[str, Any]]:
    size = draw(st.integers(1, 12))
    dataset: Any = draw(
        st.sampled_from(
            [list(range(size)), np.arange(size) / 2, [(i, float(i)) for i in range(size)]]
        )
    )
    indices = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=15))
    found: dict[str, Any] = {}
    kind = draw(st.sampled_from(["order", "sampler", "batch_sampler", "many", "iterable"]))
    if kind == "batch_sampler":
        k = draw(st.integers(1, 4))
        batches = [indices[i : i + k] for i in range(0, len(indices), k)]
        found["batch_sampler"] = draw(
            st.sampled_from(
                [batches, Repeated(batches), BatchSampler(SequentialSampler(dataset), k, False)]
            )
        )
        return dataset, found
    if kind == "sampler":
        found["sampler"] = draw(
            st.sampled_from([indices, Repeated(indices), SequentialSampler(dataset)])
        )
    elif kind == "many":
        dataset = Many(range(size))
    elif kind == "iterable":
        dataset = IterableTen(size)
    found["batch_size"] = draw(st.one_of(st.none(), st.integers(1, 5)))
    if found["batch_size"] is not None:
        found["drop_last"] = draw(st.booleans())
    return dataset, found


@given(arguments(), st.data())
def test_sq1_batches_are_torchs_and_resume_anywhere(
    given_: tuple[Any, dict[str, Any]], data: st.DataObject
) -> None:
    dataset, options = given_
    mine, other = ours.DataLoader(dataset, **options), TorchLoader(dataset, **options)
    expected = plain(list(other))
    assert plain(list(mine)) == expected == plain(list(mine))
    if not isinstance(dataset, IterableDataset):
        assert len(mine) == len(other) == len(expected[1])
    cut = data.draw(st.integers(0, len(expected[1])))
    loader = ours.DataLoader(dataset, **options)
    batches = iter(loader)
    seen = list(islice(batches, cut))
    state = json.loads(json.dumps(loader.state_dict()))
    resumed = ours.DataLoader(dataset, **options)
    resumed.load_state_dict(state)
    assert plain(seen + list(resumed)) == expected
    assert plain(seen + list(batches)) == expected
    assert len(json.dumps(state)) < 1024


@settings(max_examples=6)
@given(arguments(), st.data())
def test_sq1_workers_make_the_same_batches_and_states(
    given_: tuple[Any, dict[str, Any]], data: st.DataObject
) -> None:
    dataset, options = given_
    inline = ours.DataLoader(dataset, **options, seed=1)
    loader = ours.DataLoader(dataset, **options, num_workers=2, seed=1)
    expected = plain(list(inline))
    cut = data.draw(st.integers(0, len(expected[1])))
    first, second = iter(inline), iter(loader)
    seen = list(islice(second, cut))
    list(islice(first, cut))
    state = loader.state_dict()
    assert {**state, "position": 0, "check": 0} == {
        **inline.state_dict(),
        "position": 0,
        "check": 0,
    }
    fresh = ours.DataLoader(dataset, **options, num_workers=2, seed=1)
    fresh.load_state_dict(state)
    assert plain(seen + list(fresh)) == expected
    assert plain(seen + list(second)) == expected
    if not isinstance(dataset, IterableDataset):
        assert plain(list(TorchLoader(dataset, **options, num_workers=2))) == expected


@pytest.mark.parametrize("workers", [1, 2])
def test_sq1_collate_and_items_are_made_by_workers(workers: int) -> None:
    loader = ours.DataLoader(Where(), 2, num_workers=workers, collate_fn=where, prefetch_factor=3)
    for maker, makers in loader:
        assert os.getpid() not in {maker, *makers}
    del loader
    gc.collect()
    assert not [each for each in active_children() if each.name.startswith("lazyckpt")]


class Where:
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return os.getpid()


def where(batch: list[int]) -> tuple[int, list[int]]:
    return os.getpid(), batch


def test_sq1_every_position_of_a_long_run_resumes_twice() -> None:
    def loader() -> Any:
        return ours.DataLoader(list(range(1000)), None, shuffle=True, seed=3, collate_fn=same)

    whole = list(loader())
    assert sorted(whole) == list(range(1000)) != whole
    once, twice = loader(), loader()
    source = loader()
    batches = iter(source)
    for position in range(1000):
        once.load_state_dict(source.state_dict())
        again = iter(once)
        assert next(again) == whole[position]
        twice.load_state_dict(once.state_dict())
        assert list(islice(twice, 2)) == whole[position + 1 : position + 3]
        assert next(batches) == whole[position]


def test_sq1_long_run_with_workers_in_flight() -> None:
    def loader(workers: int) -> Any:
        return ours.DataLoader(
            range(1000), 7, True, num_workers=workers, seed=5, collate_fn=as_list
        )

    whole = list(loader(0))
    current = loader(2)
    found: list[Any] = []
    for workers, many in ((2, 31), (0, 17), (2, 5), (1, 40), (2, 1000)):
        found += list(islice(current, many))
        following = loader(workers)
        following.load_state_dict(current.state_dict())
        current = following
    assert found == whole


def test_sq2_what_comes_first() -> None:
    options: dict[str, Any] = {"collate_fn": as_list, "seed": 0}
    loader = ours.DataLoader(
        range(9), shuffle=True, sampler=[1, 2], batch_sampler=[[5], [6, 7]], **options
    )
    assert list(loader) == [[5], [6, 7]]
    assert list(ours.DataLoader(range(9), 2, True, [1, 2, 8], **options)) == [[1, 2], [8]]
    alone = ours.DataLoader(range(3), None, sampler=[2, 0], collate_fn=same)
    assert (list(alone), len(alone)) == ([2, 0], 2)


class Positions(list[int]):
    """A sampler that can tell where an index is to come, too."""

    def __iter__(self) -> Iterator[int]:
        return (super(Positions, self).index(i) for i in range(len(self)))


@pytest.mark.parametrize(
    "sampler", [Positions([2, 0, 1]), {2: "c", 0: "a"}, torch.tensor([2, 0]), (2, 0)]
)
def test_sq2_a_sampler_is_iterated_over_whatever_its_indices_give(sampler: Any) -> None:
    theirs, loader = (kind("abc", 2, sampler=sampler) for kind in (TorchLoader, ours.DataLoader))
    expected = list(theirs)
    assert list(loader) == expected
    assert (len(loader), next(iter(loader))) == (len(theirs), expected[0])
    resumed = ours.DataLoader("abc", 2, sampler=sampler)
    resumed.load_state_dict(loader.state_dict())
    assert list(resumed) == expected[1:]


def test_sq1_it_may_stand_in_annotations() -> None:
    assert ours.DataLoader[int]("ab", 2).batch_size == 2  # type: ignore[misc]


def test_sq2_each_epoch_has_its_own_permutation() -> None:
    def loader(**options: Any) -> Any:
        return ours.DataLoader(range(50), 8, shuffle=True, collate_fn=as_list, **options)

    mine = loader(seed=1)
    epochs = [[x for batch in mine for x in batch] for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    again = loader(generator=torch.Generator().manual_seed(1), num_workers=2)
    assert [[x for batch in again for x in batch] for _ in range(2)] == epochs[:2]
    next(iter(again))  # a loop that was left: the next one is the next epoch
    other = loader(seed=1)
    other.load_state_dict(again.state_dict())
    assert [x for batch in other for x in batch] == epochs[2][8:]
    torch.manual_seed(11)
    first = loader()
    rest = list(first)
    state = first.state_dict()  # the start of the next epoch
    torch.manual_seed(12)
    second = loader()
    second.load_state_dict(json.dumps(state))
    assert list(second) == list(first) != rest


def test_sq2_torchs_samplers_repeat_themselves() -> None:
    def samplers(seed: int | None) -> list[Any]:
        own = None if seed is None else torch.Generator().manual_seed(seed)
        return [
            RandomSampler(range(30), generator=own),
            RandomSampler(range(30), True, 50, generator=own),
            SubsetRandomSampler(range(9, 30), generator=own),
            WeightedRandomSampler([1.0, 2.0, 3.0], 40, generator=own),
        ]

    for number in range(4):
        for seed in (None, 4):
            options: dict[str, Any] = {"collate_fn": as_list, "seed": 2}

            def loader(number=number, seed=seed, options=options) -> Any:
                return ours.DataLoader(range(30), 4, sampler=samplers(seed)[number], **options)

            before = torch.get_rng_state()
            mine = loader()
            epochs = [list(mine) for _ in range(3)]
            assert torch.equal(before, torch.get_rng_state())
            assert epochs[0] != epochs[1] != epochs[2]
            if seed is not None:
                other = TorchLoader(
                    range(30), 4, sampler=samplers(seed)[number], collate_fn=as_list
                )
                assert list(other) == epochs[0]
            away = loader()
            list(away)
            part = list(islice(away, 3))
            resumed = loader()
            resumed.load_state_dict(away.state_dict())
            assert part + list(resumed) == epochs[1]
            assert list(resumed) == epochs[2]
            again = ours.DataLoader(range(30), 4, sampler=resumed.sampler, **options)
            again.load_state_dict(json.loads(json.dumps(away.state_dict())))
            assert part + list(again) == epochs[1]
            assert list(again) == epochs[2]


def test_sq3_large_batches_come_through_shared_memory() -> None:
    loader = ours.DataLoader(Pictures(), 4, num_workers=2, shm_size=1)
    kept = list(loader)
    assert all(isinstance(batch, torch.Tensor) for batch in kept)
    assert torch.equal(torch.cat(kept)[:, 0, 0], torch.arange(24))
    kept[0][:] = -1
    assert int(kept[1].min()) == 4


class Pictures:
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((32, 64), index)


FIELDS = [
    lambda i: torch.tensor([i, i]),
    lambda i: np.array([i, i / 2]),
    lambda i: i,
    lambda i: i / 2,
    lambda i: bool(i % 2),
    lambda i: f"text {i}",
    lambda i: b"bytes",
    lambda i: (i, float(i)),
    lambda i: Point(i, str(i)),
    lambda i: {"x": i, "y": [i, (i, 0.5)]},
    lambda i: np.float32(i),
]


@given(st.sampled_from(FIELDS), st.integers(1, 5))
def test_sq4_collate_as_torch_does(make: Callable[[int], Any], size: int) -> None:
    data = [make(i) for i in range(size)]
    assert plain(next(iter(ours.DataLoader(data, size)))) == plain(
        next(iter(TorchLoader(data, size)))
    )
    assert plain(list(ours.DataLoader(data, None))) == plain(list(TorchLoader(data, None)))


@pytest.mark.parametrize("workers", [0, 2])
def test_sq4_iterables_and_endless_samplers(workers: int) -> None:
    stream = ours.DataLoader(IterableTen(), 4, num_workers=workers, collate_fn=as_list)
    assert list(stream) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] == list(stream)
    with pytest.raises(TypeError):
        len(stream)
    endless = ours.DataLoader(
        list("abcd"), 2, sampler=Forever(), num_workers=workers, collate_fn="".join
    )
    batches = iter(endless)
    assert list(islice(batches, 4)) == ["db", "cd", "bc", "db"]
    resumed = ours.DataLoader(list("abcd"), 2, sampler=Forever(), collate_fn="".join)
    resumed.load_state_dict(endless.state_dict())
    assert list(islice(resumed, 2)) == list(islice(batches, 2)) == ["cd", "bc"]
    pipeline = lz.source(range(9)) | lz.filter(lambda x: x % 2)
    assert list(ours.DataLoader(pipeline, 3, collate_fn=as_list)) == [[1, 3, 5], [7]]


def test_sq4_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(fetching, "import_module", missing)
    assert plain(list(ours.DataLoader([0.5, 1.5], 2))) == plain([np.array([0.5, 1.5])])
    assert list(ours.DataLoader([0.5, "x"], None)) == [0.5, "x"]


@given(st.integers(0, 30), st.integers(1, 7), st.booleans())
def test_sq5_the_length_is_that_of_iterating(size: int, k: int, drop_last: bool) -> None:
    loader = ours.DataLoader(range(size), k, drop_last=drop_last)
    assert len(loader) == len(list(loader)) == size // k + (bool(size % k) and not drop_last)


def test_sq6_floats_and_strings() -> None:
    assert plain(next(iter(ours.DataLoader([(0.5, "a"), (1.5, "b")], 2)))) == plain(
        [torch.tensor([0.5, 1.5], dtype=torch.float64), ("a", "b")]
    )


def test_sq7_pinning_leaves_alone_what_is_no_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[Any] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(1) or self)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    item = {"x": torch.tensor(1), "y": ["s", None], "p": Point(torch.tensor(2), 0.5), "t": (1,)}
    loader = ours.DataLoader([item], None, pin_memory=True, collate_fn=same)
    assert plain(list(loader)) == plain([item])
    assert len(pinned) == 2
    held = SimpleNamespace(pin_memory=lambda: "pinned")
    assert pinning.pinned([held, None]) == ["pinned", None]


def test_sq7_without_a_device_pinning_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    for item in (torch.arange(3), {"x": torch.tensor(1)}, SimpleNamespace(pin_memory=None)):
        assert plain(list(ours.DataLoader([item], None, pin_memory=True))) == plain([item])


def test_sq8_an_empty_sampler_gives_nothing() -> None:
    for options in ({"sampler": []}, {"batch_sampler": []}, {"sampler": Repeated([])}):
        loader = ours.DataLoader(range(5), **options)
        assert (list(loader), len(loader)) == ([], 0)
    assert list(ours.DataLoader([])) == list(ours.DataLoader([], shuffle=True)) == []


def test_sq9_the_default_shared_memory() -> None:
    loader = ours.DataLoader(Pictures(), 6, num_workers=1, shm_size=None, persistent_workers=True)
    assert [tuple(batch.shape) for batch in loader] == [(6, 32, 64)] * 4
    assert [int(batch[0, 0, 0]) for batch in loader] == [0, 6, 12, 18]


def test_sq28_errors_of_a_loader_are_the_batches_own() -> None:
    for workers in (0, 2):
        data = ours.smap(fails_at_five, range(9))
        loader = ours.DataLoader(data, 2, num_workers=workers, collate_fn=as_list)
        batches = iter(loader)
        assert list(islice(batches, 2)) == [[0, 1], [2, 3]]
        with pytest.raises(ours.EvaluationError, match="item 5"):
            next(batches)
        state = loader.state_dict()
        assert state["items"] == 2  # the one that failed is tried again by a resume
        assert list(batches) == [[6, 7], [8]]
        resumed = ours.DataLoader(ours.smap(same, range(9)), 2, collate_fn=as_list)
        resumed.load_state_dict(state)
        assert list(resumed) == [[4, 5], [6, 7], [8]]


def test_sq1_worker_init_and_seeds() -> None:
    loader = ours.DataLoader(
        Drawing(), None, num_workers=2, worker_init_fn=tell, seed=7, collate_fn=same
    )
    first, second = list(loader), list(loader)
    assert {worker for worker, _ in first} <= {0, 1}
    assert not {draw for _, draw in first} & {draw for _, draw in second}  # nor twice the same


class Drawing:
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[int, tuple[float, float]]:
        return TOLD[-1], (float(np.random.random()), float(torch.rand(())))


def test_sq1_states_of_others_are_refused() -> None:
    loader = ours.DataLoader(range(9), 2, shuffle=True, seed=1)
    good = loader.state_dict()
    for other in (
        ours.DataLoader(range(8), 2, shuffle=True, seed=1),
        ours.DataLoader(range(9), 3, shuffle=True, seed=1),
        ours.DataLoader(range(9), 2, seed=1),
        ours.DataLoader(range(9), 2, shuffle=True, seed=2),
        ours.DataLoader(range(9), 2, sampler=Repeated([1])),
    ):
        with pytest.raises(lz.StateMismatch):
            other.load_state_dict(good)
    for bad in ({}, {"seed": 1}, {**good, "items": 3}, "x", b"[", None, {**good, "seed": "q"}):
        with pytest.raises(lz.InvalidState):
            loader.load_state_dict(bad)  # type: ignore[arg-type]
    loader.load_state_dict(good)
    drawing = ours.DataLoader(
        range(9), 2, sampler=RandomSampler(range(9), generator=torch.Generator())
    )
    drawn = drawing.state_dict()
    for bad in ([1], 3, ["q"], [None]):
        with pytest.raises(lz.InvalidState):
            drawing.load_state_dict({**drawn, "sampler_seeds": bad})
    with pytest.raises(lz.StateMismatch, match="2 generators"):
        drawing.load_state_dict({**drawn, "sampler_seeds": ["0x1", "0x2"]})


def test_sq1_a_state_that_is_refused_changes_nothing() -> None:
    def loader(size: int) -> Any:
        return ours.DataLoader(range(size), 2, shuffle=True, collate_fn=as_list)

    refusing = loader(9)
    with pytest.raises(lz.StateMismatch):
        refusing.load_state_dict(
            ours.DataLoader(range(8), 2, shuffle=True, collate_fn=as_list, seed=1).state_dict()
        )
    assert list(refusing) == list(loader(9))


def test_sq1_wrong_arguments() -> None:
    stream: Any = IterableTen()
    for dataset, options in (
        (stream, {"shuffle": True}),
        (stream, {"sampler": [1]}),
        (stream, {"batch_sampler": [[1]]}),
        (range(3), {"batch_size": None, "drop_last": True}),
        (range(3), {"num_workers": -1}),
        (range(3), {"timeout": -1}),
        (range(3), {"batch_size": 0}),
    ):
        for loader in (ours.DataLoader, TorchLoader):
            with pytest.raises(REFUSED):
                loader(dataset, **options)
    with pytest.raises(ValueError, match="one-shot"):
        ours.DataLoader(range(3), sampler=iter([1]))


def test_sq1_two_loops_at_once_and_loops_that_are_left() -> None:
    loader = ours.DataLoader(range(4), None, num_workers=1, collate_fn=same)
    assert list(zip(loader, loader, strict=True)) == [(i, i) for i in range(4)]
    for item in loader:
        if item == 1:
            break
    resumed = ours.DataLoader(range(4), None, collate_fn=same)
    resumed.load_state_dict(loader.state_dict())
    assert list(resumed) == [2, 3]
    assert list(loader) == [0, 1, 2, 3]
    kept = ours.DataLoader(
        range(4),
        None,
        shuffle=True,
        num_workers=1,
        collate_fn=same,
        persistent_workers=True,
        seed=0,
    )
    once = ours.DataLoader(range(4), None, shuffle=True, collate_fn=same, seed=0)
    assert [list(kept), list(kept)] == [list(once), list(once)]


def test_sq1_the_end_of_an_epoch_is_the_start_of_the_next() -> None:
    def loader() -> Any:
        return ours.DataLoader(range(6), None, shuffle=True, collate_fn=same, seed=0)

    mine = loader()
    epochs = [list(mine) for _ in range(3)]
    first = loader()
    batches = iter(first)
    for _ in range(6):
        next(batches)
    within = first.state_dict()  # after the last item, the loop not yet ended
    assert next(batches, None) is None
    for state, expected in ((within, [[], *epochs[1:]]), (first.state_dict(), epochs[1:])):
        resumed = loader()
        resumed.load_state_dict(state)
        assert [list(resumed) for _ in expected] == expected
