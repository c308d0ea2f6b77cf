"""Items assigned through sequences, beside SeqTools."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import (
    LIBRARIES,
    Endless,
    IterableTen,
    beside_theirs,
    double,
    same,
    theirs,
)

SIZE = 6

ARRANGEMENTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "gather": lambda lib, s, t: lib.gather(s, [3, 0, -1, 3]),
    "take": lambda lib, s, t: lib.take(s, np.array([2, 1])),
    "cycle": lambda lib, s, t: lib.cycle(s, 2 * SIZE + 1),
    "interleave": lambda lib, s, t: lib.interleave(s, t[:2], t),
    "concatenate": lambda lib, s, t: lib.concatenate([lib.concatenate([s, t]), s]),
    "collate": lambda lib, s, t: lib.collate([s, t]),
    "switch": lambda lib, s, t: lib.switch([True, False] * (SIZE // 2), s, t),
    "case": lambda lib, s, t: lib.case([0, 1, -1, -2, 1, 0], s, t),
    "split": lambda lib, s, t: lib.split(s, [1, 4]),
    "batch": lambda lib, s, t: lib.batch(s, 2),
    "padded": lambda lib, s, t: lib.batch(lib.gather(s, [4, 3, 2]), 2, pad=0, collate_fn=list),
    "add_cache": lambda lib, s, t: lib.add_cache(s, 3),
    "slice": lambda lib, s, t: lib.gather(s, range(SIZE))[1:5:2],
    "slice of a slice": lambda lib, s, t: lib.gather(s, range(SIZE))[1:][::-2],
    "nested": lambda lib, s, t: lib.cycle(lib.gather(lib.concatenate([s, t]), [7, 2, 5, 0]), 9),
}


def tried(action: Callable[[], Any]) -> type[Exception] | None:
    try:
        action()
    except (IndexError, TypeError, ValueError) as error:
        return next(kind for kind in (IndexError, TypeError, ValueError) if isinstance(error, kind))
    return None


def replaced(item: Any, number: int) -> Any:
    """Something else of the same shape."""
    if isinstance(item, (list, tuple)):
        return type(item)(replaced(each, 10 * number + i) for i, each in enumerate(item))
    return f"new {number}"


@beside_theirs
@given(
    st.sampled_from(sorted(ARRANGEMENTS)),
    st.lists(st.tuples(st.integers(-14, 14), st.integers(0, 99)), max_size=6),
)
def test_sq10_assigning_an_item_writes_where_it_is(name: str, writes: list[Any]) -> None:
    data = [[[f"{letter}{i}" for i in range(SIZE)] for letter in "st"] for _ in range(2)]
    mine, other = (
        ARRANGEMENTS[name](library, *each)
        for library, each in zip((ours, theirs), data, strict=True)
    )
    for index, number in writes:
        is_there = -len(other) <= index < len(other)
        value = replaced(list(other)[index], number) if is_there else None
        if name == "padded" and index in (-1, 1):
            value = value[:1]  # what pads it is nowhere
        assert tried(lambda: mine.__setitem__(index, value)) == tried(  # noqa: B023
            lambda: other.__setitem__(index, value)  # noqa: B023
        )
        assert data[0] == data[1]
        assert list(mine) == [mine[i] for i in range(len(mine))]
        assert [*map(list, mine)] == [*map(list, other)]


@pytest.mark.parametrize("name", sorted(ARRANGEMENTS))
def test_sq10_a_slice_is_assigned_one_to_one(name: str) -> None:
    data = [[[f"{letter}{i}" for i in range(SIZE)] for letter in "st"] for _ in LIBRARIES]
    for library, each in zip(LIBRARIES, data, strict=True):
        sequence = ARRANGEMENTS[name](library, *each)
        before = [list(part) for part in each]
        with pytest.raises(ValueError, match=r"assign"):
            sequence[:1] = []
        assert each == before
        sequence[:1] = [replaced(sequence[0], 5)]
        assert each != before
        assert each == data[0]


def test_sq10_what_makes_its_items_takes_none() -> None:
    for library in LIBRARIES:
        made = library.smap(double, [1, 2])
        watched = library.instrument.debug([1], same), library.instrument.monitor_throughput([1])
        numbers = library.arange(3), library.unbatch([[1]], 1), library.uniter([1])
        for sequence in (made, *watched, *numbers, library.prefetch([1], 1)):
            with pytest.raises(TypeError, match="item assignment"):
                sequence[0] = 1
        for sequence in (library.gather(made, [0]), library.gather("ab", [1]), made[:1]):
            with pytest.raises(TypeError, match="item assignment"):
                sequence[0] = 1
        with pytest.raises(TypeError, match="integers or slices"):
            library.gather([1], [0])[1.0] = 1
    streams = ours.interleave(IterableTen(1), [7, 8])
    with pytest.raises(TypeError, match="no indices"):
        streams[0] = 1


def test_sq17_a_repeated_value_is_one() -> None:
    for library in LIBRARIES:
        three, endless = library.repeat("x", 3), library.repeat("x")
        three[-1] = "y"
        endless[10**9] = "y"
        assert (list(three), endless[0], list(endless[4:6])) == (["y"] * 3, "y", ["y"] * 2)
        endless[2:4] = ["u", "v"]
        three[:2] = ["u", "v"]
        assert (list(three), endless[0]) == (["v"] * 3, "v")
        with pytest.raises(IndexError):
            endless[-1] = "z"
        with pytest.raises(IndexError):
            three[3] = "z"


def test_sq26_what_is_assigned_is_no_longer_in_the_cache() -> None:
    for library in LIBRARIES:
        data = [1, 2, 3]
        cached = library.add_cache(data, 2, cache := {})
        assert (cached[0], cached[1], sorted(cache)) == (1, 2, [0, 1])
        cached[1] = 5
        assert (data, cached[1], cached[0]) == ([1, 5, 3], 5, 1)
    derived = ours.smap(double, cached := ours.add_cache(data := [1, 2]))
    assert derived[0] == 2
    cached[0] = 7
    assert (derived[0], data) == (14, [7, 2])


def test_sq26_an_item_that_was_being_made_when_it_is_assigned_is_not_kept() -> None:
    class Slow:
        def __init__(self) -> None:
            self.items = [1]

        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> int:
            found = self.items[index]
            if found == 1:
                cached[0] = 2
            return found

        def __setitem__(self, index: int, item: int) -> None:
            self.items[index] = item

    cached = ours.add_cache(Slow())
    assert (cached[0], cached[0]) == (1, 2)


def test_sq10_writes_are_seen_by_all_that_is_made_of_it() -> None:
    data = np.arange(SIZE)
    chosen = ours.gather(data, [4, 2])
    batches = ours.batch(ours.smap(same, chosen), 2, collate_fn=list)
    assert batches[0] == [4, 2]
    chosen[0] = 40
    assert (batches[0], data[4], list(lz.run(chosen.pipeline))) == ([40, 2], 40, [40, 2])


def test_sq10_a_pickle_writes_to_its_own_copy() -> None:
    data = [1, 2, 3]
    joined = ours.concatenate([ours.gather(data, [2, 1]), ours.batch([7, 8], 2, collate_fn=same)])
    copy = pickle.loads(pickle.dumps(joined))
    copy[0], copy[2] = 9, [0, 0]
    assert list(copy) == [9, 2, [0, 0]]
    assert (data, list(joined)) == ([1, 2, 3], [3, 2, [7, 8]])


def test_sq10_endless_sequences_are_assigned_too() -> None:
    class Rows(Endless):
        def __setitem__(self, index: int, item: int) -> None:
            written.append((index, item))

    written: list[tuple[int, int]] = []
    ours.gather(Rows(), ours.cycle([3, 5]))[10**6 + 1] = 4
    ours.interleave(Rows(), [1, 2])[7] = 6
    assert written == [(5, 4), (5, 6)]
    items = [1, 2]
    ours.cycle(items)[10**9 + 1] = 7
    assert items == [1, 7]
