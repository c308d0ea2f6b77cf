"""`lazyckpt.compat.seqtools`, compared with SeqTools 1.4.1: names, indices and slices."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import (
    ITEMS,
    LIBRARIES,
    Endless,
    Ends,
    beside_theirs,
    double,
    same,
    theirs,
)
from tests.helpers import loaded


@beside_theirs
def test_all_of_their_public_names_are_there() -> None:
    assert set(theirs.__all__) <= set(ours.__all__)


def test_every_public_name_is_there() -> None:
    assert all(hasattr(ours, name) for name in ours.__all__)
    assert ours.instrument.debug is ours.debug


def test_importing_brings_no_optional_package() -> None:
    found = loaded("import lazyckpt.compat.seqtools")
    assert not {"torch", "multiprocessing", "seqtools", "hypothesis"} & found


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


@beside_theirs
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
    assert len(sequence.pipeline.calls) <= 4
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
    for library in LIBRARIES:
        assert list(library.smap(same, Ends())) == list(range(7))
    with pytest.raises(IndexError):
        ends[7]
