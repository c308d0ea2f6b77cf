"""The law *noise*: bijective, uniform, independent, and the same forever."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lazyckpt.core.prng import Permutation, affine, as_array, derive, draws, hashed, hashes

Ints = NDArray[np.int64]
Order = Callable[[int, int], Ints]  # key, size -> permuted range


def ours(key: int, size: int) -> Ints:
    return Permutation(key, size).at(range(size))


def rotation(key: int, size: int) -> Ints:
    return np.roll(np.arange(size), hashed(key, 0) % size)


def with_repeats(key: int, size: int) -> Ints:
    return draws(key, 0, size, size)


def keyless(key: int, size: int) -> Ints:
    return ours(0, size)


def neighbouring(key: int, size: int) -> Ints:
    return ours(key // 2, size)


def is_bijective(order: Order, size: int) -> bool:
    return np.array_equal(np.sort(order(derive("bijective", size), size)), np.arange(size))


def is_uniform(order: Order, size: int, keys: int = 400) -> bool:
    """Place against value over many keys in a table of 16 x 16, chi-squared, 6 sigma."""
    table = np.zeros(16 * 16)
    places = np.arange(size) * 16 // size
    for key in range(keys):
        values = order(derive("uniform", key), size) * 16 // size
        table += np.bincount(places * 16 + values, minlength=16 * 16)
    expected = np.outer(np.bincount(places), np.bincount(places)).ravel() * keys / size
    return is_chance(((table - expected) ** 2 / expected).sum(), 15 * 15)


def has_no_memory(order: Order, size: int, keys: int = 400) -> bool:
    """Neighbours rise as often as they fall."""
    rises = [int((np.diff(order(derive("rise", k), size)) > 0).sum()) for k in range(keys)]
    mean, deviation = (size - 1) / 2, math.sqrt((size + 1) / 12)
    return abs(np.mean(rises) - mean) < 6 * deviation / math.sqrt(keys) and (
        0.7 < np.std(rises) / deviation < 1.4
    )


def is_independent(order: Order, size: int, pairs: int = 400) -> bool:
    """Orders of neighbouring keys agree in one place on average."""
    agree = 0
    for key in range(0, 2 * pairs, 2):
        agree += np.count_nonzero(order(key, size) == order(key + 1, size))
    return abs(agree - pairs) < 6 * math.sqrt(pairs)


def is_chance(chi_squared: float, freedom: int) -> bool:
    return abs(chi_squared - freedom) < 6 * math.sqrt(2 * freedom)


SIZES = [16, 100, 4096, 4097, 5000, 32_768, 32_769, 40_000]


@pytest.mark.parametrize("size", SIZES)
def test_a_permutation_is_a_bijection_uniform_without_memory_and_independent(size: int) -> None:
    keys = 400 if size < 10_000 else 100  # large ones have many places each
    assert is_bijective(ours, size)
    assert is_uniform(ours, size, keys)
    assert has_no_memory(ours, size, keys)
    assert is_independent(ours, size, keys)


def test_each_law_catches_a_broken_permutation() -> None:
    assert not is_bijective(with_repeats, 100)
    assert not is_uniform(keyless, 100)
    assert not has_no_memory(rotation, 100)
    assert not is_independent(neighbouring, 100)


@given(st.integers(0, 2**64 - 1), st.integers(1, 9000) | st.integers(32_760, 40_000))
def test_one_by_one_many_at_once_and_in_any_pieces_are_the_same(key: int, size: int) -> None:
    order = Permutation(key, size)
    whole = order.at(range(size)).tolist()
    assert sorted(whole) == list(range(size))
    picks = draws(key, 0, 20, size)
    assert order.at(picks).tolist() == [whole[i] for i in picks] == [order[int(i)] for i in picks]
    fresh = Permutation(key, size)
    for start in (0, size // 3, size // 2, 1):
        for stride in (1, 3, 50):
            piece = range(start, min(size, start + 2500), stride)
            assert fresh.at(piece).tolist() == whole[start : start + 2500 : stride][: len(piece)]


@given(st.integers(0, 2**64 - 1), st.integers(2, 2**62))
def test_large_permutations_stay_in_range_and_scalars_equal_arrays(key: int, size: int) -> None:
    order = Permutation(key, size)
    places = sorted({0, size - 1, hashed(key, 1) % size, hashed(key, 2) % size})
    values = order.at(np.array(places, np.int64)).tolist()
    assert values == [order[place] for place in places]
    assert len(set(values)) == len(places)
    assert all(0 <= value < size for value in values)


def test_every_small_permutation_comes_up_equally_often() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for key in range(24_000):
        found = tuple(ours(derive("all", key), 4).tolist())
        counts[found] = counts.get(found, 0) + 1
    assert len(counts) == 24
    assert is_chance(sum((n - 1000) ** 2 / 1000 for n in counts.values()), 23)


@pytest.mark.parametrize("bound", [1, 2, 7, 1000, 65_536])
def test_draws_are_uniform_and_do_not_depend_on_pieces(bound: int) -> None:
    whole = draws(5, 0, 100_000, bound)
    pieces = [draws(5, start, start + 1000, bound) for start in range(0, 100_000, 1000)]
    assert np.array_equal(whole, np.concatenate(pieces))
    cells = min(bound, 50)
    counts = np.bincount(whole * cells // bound, minlength=cells)
    expected = _cells(bound, cells) * 100_000 / bound
    assert is_chance(((counts - expected) ** 2 / expected).sum(), max(1, cells - 1))


def _cells(bound: int, cells: int) -> NDArray[np.int64]:
    return np.bincount(np.arange(bound) * cells // bound, minlength=cells)


def test_hashes_are_hashed_many_times() -> None:
    assert hashes(9, 3, 8).tolist() == [hashed(9, i) for i in range(3, 8)]


def test_keys_of_other_seeds_epochs_and_purposes_differ() -> None:
    parts = [(s, p, e) for s in (0, 1, 2**64, 2**200) for p in ("shuffle", "mix") for e in (0, 1)]
    assert len({derive(*part) for part in parts}) == len(parts)


@given(st.integers(0, 50), st.integers(0, 20), st.integers(1, 5), st.integers(1, 4))
def test_affine_and_as_array_take_ranges_as_arrays(a: int, n: int, step: int, by: int) -> None:
    span = range(a, a + n, step)
    moved = affine(span, 3, by)
    assert list(moved) == [3 + by * i for i in span] == affine(as_array(span), 3, by).tolist()  # type: ignore[union-attr]


def test_golden_values() -> None:
    """Orders are promises: these must never change."""
    assert [hashed(0, i) for i in range(2)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    assert derive(0, "shuffle", 0) == GOLDEN["derive"]
    assert draws(1, 0, 8, 100).tolist() == GOLDEN["draws"]
    assert ours(2, 10).tolist() == GOLDEN["small"]
    assert Permutation(3, 10**6).at(range(5)).tolist() == GOLDEN["large"]
    assert Permutation(3, 10**12).at(range(3)).tolist() == GOLDEN["huge"]


GOLDEN = {
    "derive": 15744344701641279680,
    "draws": [65, 19, 90, 35, 61, 48, 45, 33],
    "small": [8, 4, 5, 0, 2, 6, 9, 7, 1, 3],
    "large": [674586, 257588, 353601, 693781, 84194],
    "huge": [563058812197, 541173884255, 167592001856],
}
