"""Another seed from here on: what was given stays given, and nothing is lost or comes twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing.laws import Stream

Maker = Callable[[int], Any]

SHUFFLES: dict[str, Maker] = {
    "shuffle": lambda seed: lz.shuffle(seed=seed),
    "shuffle of a buffer": lambda seed: lz.shuffle(8, seed=seed),
    "block_shuffle": lambda seed: lz.block_shuffle(7, seed=seed),
    "local_shuffle": lambda seed: lz.local_shuffle(2, seed=seed, block_size=4),
    "bucket_batch": lambda seed: lz.bucket_batch(2, key=hash, window_size=10, seed=seed),
}
DRAWS: dict[str, Maker] = {
    "random_floats": lambda seed: lz.random_floats(seed=seed),
    "random_indices": lambda seed: lz.random_indices([1, 2], seed=seed),
    "random_map": lambda seed: lz.count() | lz.random_map(lambda rng, x: rng.random(), seed=seed),
    "mix": lambda seed: lz.mix([lz.count(), lz.count(1000)], [1, 2], seed=seed),
}


def flat(items: Any) -> list[Any]:
    return [each for item in items for each in (item if isinstance(item, list) else [item])]


@pytest.mark.parametrize("kind", [range, Stream])
@pytest.mark.parametrize("name", sorted(SHUFFLES))
@given(size=st.integers(0, 60), cuts=st.lists(st.integers(0, 25), min_size=1, max_size=3))
def test_nothing_is_lost_and_nothing_comes_twice(
    name: str, kind: Any, size: int, cuts: list[int]
) -> None:
    if name in ("shuffle", "local_shuffle") and kind is Stream:
        return
    data: Any = range(size) if kind is range else Stream(range(size))
    first: Any = lz.source(data) | SHUFFLES[name](0)
    state, found = lz.init(first), []
    for seed, steps in enumerate(cuts, 1):
        run = lz.run(first, state)
        found += list(islice(run, steps))
        first = lz.source(data) | SHUFFLES[name](seed)
        state = lz.State.from_json(lz.rebase(run.state.to_json(), first, branch=True).to_json())
        assert state.items == len(found)
    rest: list[Any] = []
    for item, after in lz.run(first, state).with_state():
        rest.append(item)
        again = lz.run(first, lz.State.from_json(after.to_json()))
        assert list(islice(again, 2)) == list(islice(lz.run(first, after), 2))
    resumed = list(lz.run(first, state))
    assert resumed == rest
    assert Counter(flat(found + rest)) == Counter(range(size))


@pytest.mark.parametrize("name", sorted(SHUFFLES))
def test_every_cut_behind_a_branch_resumes(name: str) -> None:
    old, new = (lz.source(range(40)) | SHUFFLES[name](seed) | lz.repeat(2) for seed in (0, 1))
    run = lz.run(old)
    list(islice(run, 3))
    state = lz.rebase(run.state, new, branch=True)
    pairs = list(lz.run(new, state).with_state())
    for number, (_, after) in enumerate(pairs):
        rest = list(lz.run(new, after.to_json()))
        assert rest == [item for item, _ in pairs[number + 1 :]]


@pytest.mark.parametrize(
    "name", ["shuffle", "shuffle of a buffer", "block_shuffle", "local_shuffle"]
)
def test_what_is_left_comes_in_another_order(name: str) -> None:
    old, new = (lz.source(range(200)) | SHUFFLES[name](seed) for seed in (0, 1))
    state = lz.state_at(old, 50)
    assert list(lz.run(new, lz.rebase(state, new, branch=True))) != list(lz.run(old, state))


@pytest.mark.parametrize("name", sorted(SHUFFLES))
def test_the_next_epoch_is_that_of_the_new_seed(name: str) -> None:
    """So a branch is forgotten, and states are as small as before."""
    old, new = (lz.source(range(40)) | SHUFFLES[name](seed) for seed in (0, 1))
    run = lz.run(new, lz.rebase(lz.state_at(old, 5), new, branch=True))
    list(run.epoch())
    fresh = lz.run(new, lz.init(new, epoch=1))
    assert list(run.epoch()) == list(fresh)


@pytest.mark.parametrize("name", sorted(DRAWS))
def test_draws_go_on_at_their_place(name: str) -> None:
    old, new = DRAWS[name](0), DRAWS[name](1)
    state = lz.rebase(lz.state_at(old, 10), new, branch=True)
    if name != "mix":
        assert list(islice(lz.run(new, state), 5)) == list(islice(new, 10, 15))
    assert list(islice(lz.run(new, state), 30)) != list(
        islice(lz.run(old, lz.state_at(old, 10)), 30)
    )


def test_it_has_to_be_asked_for() -> None:
    old, new = (lz.source(range(9)) | lz.shuffle(seed=seed) for seed in (0, 1))
    state = lz.state_at(old, 4)
    with pytest.raises(lz.StateMismatch, match="branch=True goes on in another"):
        lz.rebase(state, new)
    with pytest.raises(lz.StateMismatch, match=r"lz.rebase\(state, pipeline, branch=True\)"):
        lz.run(new, state)
    with pytest.raises(lz.ArgumentError, match="branch must be True or False"):
        lz.rebase(state, new, branch=1)  # type: ignore[arg-type]
