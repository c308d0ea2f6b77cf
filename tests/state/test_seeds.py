"""A different seed: of stages that draw per item at any time, of shuffles between two epochs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
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


@pytest.mark.parametrize("kind", [range, Stream])
@pytest.mark.parametrize("name", sorted(SHUFFLES))
def test_it_begins_with_an_epoch(name: str, kind: Any) -> None:
    if name in ("shuffle", "local_shuffle") and kind is Stream:
        return
    data: Any = range(40) if kind is range else Stream(range(40))
    old, new = (lz.source(data) | SHUFFLES[name](seed) for seed in (0, 1))
    run = lz.run(old)
    assert list(run.epoch()) == list(old)
    run.change(new)
    assert list(run.epoch()) == list(lz.run(new, lz.init(new, epoch=1)))
    assert list(lz.run(new, lz.rebase(lz.init(old), new))) == list(new)


@pytest.mark.parametrize(
    "behind", [lz.repeat(), lz.repeat() | lz.batch(5), lz.repeat() | lz.shuffle(8, seed=3)]
)
@pytest.mark.parametrize("name", sorted(SHUFFLES))
@given(cut=st.integers(0, 130))
def test_amid_an_epoch_it_is_refused_and_nothing_is_lost(name: str, behind: Any, cut: int) -> None:
    old, new = (lz.source(range(40)) | SHUFFLES[name](seed) | behind for seed in (0, 1))
    run = lz.run(old)
    found = list(islice(run, cut))
    with suppress(lz.StateMismatch):
        run.change(new)
    while run.state.epoch < 5:
        found.append(next(run))
    counts = Counter(flat(found))
    times = [counts[x] for x in range(40)]
    assert max(times) - min(times) <= 1


def flat(items: Any) -> list[Any]:
    return [x for item in items for x in (flat(item) if isinstance(item, list) else [item])]


@pytest.mark.parametrize("name", sorted(DRAWS))
def test_draws_go_on_at_their_place(name: str) -> None:
    old, new = DRAWS[name](0), DRAWS[name](1)
    state = lz.rebase(lz.state_at(old, 10), new)
    if name != "mix":
        assert list(islice(lz.run(new, state), 5)) == list(islice(new, 10, 15))
    assert list(islice(lz.run(new, state), 30)) != list(
        islice(lz.run(old, lz.state_at(old, 10)), 30)
    )


def test_the_reason_is_said() -> None:
    old, new = (lz.source(range(9)) | lz.shuffle(seed=seed) for seed in (0, 1))
    with pytest.raises(lz.StateMismatch, match="seed decides the order; change it between two"):
        lz.rebase(lz.state_at(old, 4), new)
    with pytest.raises(lz.StateMismatch, match=r"lz.rebase\(state, pipeline\) to carry it over"):
        lz.run(new, lz.init(old))
