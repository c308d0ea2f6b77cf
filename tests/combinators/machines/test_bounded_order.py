"""How well a bounded order mixes, and that it is bounded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyckpt.combinators.machines.bounded_order import BoundedOrder, Grid

SIZES = st.one_of(st.integers(1, 80), st.integers(1, 5000))


def order(grid: Grid, seed: int, length: int, epoch: int = 0) -> np.ndarray:
    found = BoundedOrder(grid, seed, epoch, length).at(range(length))
    assert isinstance(found, np.ndarray)
    return found


@given(size=SIZES, seed=st.integers(0), buffers=st.floats(0, 8))
def test_no_item_moves_further_than_the_buffer_reaches(
    size: int, seed: int, buffers: float
) -> None:
    grid, length = Grid.of(size), int(size * buffers)
    found = order(grid, seed, length)
    assert sorted(found.tolist()) == list(range(length))
    if length >= grid.reach:
        moved = found - np.arange(length)
        assert moved.max() < grid.reach
        assert -moved.min() <= grid.stay


@given(size=SIZES)
def test_a_grid_fits_the_buffer(size: int) -> None:
    grid = Grid.of(size)
    assert size - size // 16 <= grid.reach <= size
    assert grid.width % grid.chunk == 0
    for passed in range(0, 5 * size, max(1, size // 5)):
        again = passed + grid.reach - grid.anchor(passed)
        assert again <= 2 * size + 64 * (size < 512)


@given(size=SIZES, seed=st.integers(0), buffers=st.floats(1, 8))
def test_the_end_changes_nothing_before_it_is_seen(size: int, seed: int, buffers: float) -> None:
    grid = Grid.of(size)
    length = max(grid.reach, int(size * buffers))
    seen = length - grid.reach + grid.sure
    endless = BoundedOrder(grid, seed, 0, None).at(range(seen))
    assert (endless == order(grid, seed, length)[:seen]).all()


@given(size=SIZES, seed=st.integers(0), buffers=st.floats(0, 8), places=st.lists(st.floats(0, 1)))
def test_any_place_can_be_asked_for(
    size: int, seed: int, buffers: float, places: list[float]
) -> None:
    grid, length = Grid.of(size), int(size * buffers)
    whole = order(grid, seed, length)
    chosen = [int(place * (length - 1)) for place in places if length]
    fresh = BoundedOrder(grid, seed, 0, length)
    assert [fresh[place] for place in chosen] == whole[chosen].tolist()
    assert np.asarray(fresh.at(np.array(chosen, np.int64))).tolist() == whole[chosen].tolist()
    for place in chosen[:3]:
        assert np.concatenate([*fresh.since(place)]).tolist() == whole[place:].tolist()


@pytest.mark.parametrize("size", [100, 1000, 10_000])
def test_distances_are_uniform(size: int) -> None:
    grid, length = Grid.of(size), 60_000 + 40 * size
    found = order(grid, 1, length)
    midst = slice(2 * size, -2 * size)
    moved = (found - np.arange(length))[midst] / (grid.width / 2)
    assert np.abs(moved).max() < 1.25
    inside = np.histogram(moved, bins=10, range=(-0.8, 0.8))[0]
    assert np.abs(inside / inside.mean() - 1).max() < 0.1
    assert abs(moved.mean()) < 0.02
    assert abs(moved.std() * 3**0.5 - 1) < 0.05  # that of a uniform distribution


@pytest.mark.parametrize("size", [100, 1000, 10_000])
def test_neighbours_are_independent(size: int) -> None:
    """But for this: of a chunk no two items are displaced alike, so fewer neighbours are of one."""
    grid = Grid.of(size)
    found = order(grid, 2, 60_000 + 40 * size)
    moved = (found - np.arange(len(found)))[2 * size : -2 * size].astype(float)
    for lag in (1, 2, 7):
        correlation = np.corrcoef(moved[:-lag], moved[lag:])[0, 1]
        assert abs(correlation) < 0.03 + 1.2 * grid.chunk / grid.width


@pytest.mark.parametrize("edge", ["begin", "end"])
def test_the_edges_are_mixed_too(edge: str) -> None:
    size, length = 200, 2000
    grid = Grid.of(size)
    found = np.stack([order(grid, seed, length) for seed in range(400)])
    if edge == "end":
        found = length - 1 - found[:, ::-1]
    first = found[:, 0]  # uniform over the items that half a width holds
    assert first.max() < grid.reach
    counts = np.histogram(first, bins=5, range=(0, grid.width // 2))[0]
    assert counts.min() > 45
    assert counts.max() < 115


def test_no_boundary_shows() -> None:
    """The mean number of the items around a place rises with it, without steps."""
    size, length = 1000, 12_000
    grid = Grid.of(size)
    means = np.mean([order(grid, seed, length) for seed in range(400)], axis=0)
    steps = (means - np.arange(length))[2 * size : -2 * size]
    assert np.abs(steps).max() < 6 * grid.width / 12**0.5 / 20 + grid.chunk


def test_two_epochs_are_independent() -> None:
    grid = Grid.of(500)
    one, two = (order(grid, 0, 20_000, epoch) - np.arange(20_000) for epoch in (0, 1))
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.03


def test_golden_values() -> None:
    assert order(Grid.of(5), 0, 12).tolist() == [0, 1, 4, 2, 5, 3, 6, 8, 10, 7, 9, 11]
    assert order(Grid.of(64), 7, 400)[100:110].tolist() == [
        97,
        82,
        112,
        93,
        142,
        109,
        69,
        111,
        122,
        140,
    ]
