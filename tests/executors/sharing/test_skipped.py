"""Records that ranks leave out together: `on_error="skip"`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.executors.sharing import payloads
from lazyckpt.testing import equal
from tests.executors.sharing.ranks import Hub, Nodes
from tests.executors.sharing.test_laws import dealt, made, together

JOINED: dict[str, Callable[[lz.Pipeline[Any], lz.Pipeline[Any]], lz.Pipeline[Any]]] = {
    "alone": lambda documents, others: documents,
    "mix": lambda documents, others: lz.mix([documents, others], [3, 1], seed=0),
    "interleave": lambda documents, others: lz.interleave(others, documents),
    "concat": lambda documents, others: lz.concat(documents, others),
}


@pytest.fixture(params=[(), ((0,), (1, 2)), ((0, 1, 2),)], ids=["each", "two nodes", "a node"])
def nodes(request: pytest.FixtureRequest) -> Nodes:
    found: Nodes = request.param
    return found


@pytest.fixture(params=[0, payloads.SMALL_BYTES], ids=["items stay", "items travel"], autouse=True)
def _small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "SMALL_BYTES", request.param)


def documents(fails: Callable[[int], bool], seen: Counter[int]) -> lz.Pipeline[Any]:
    def tokens(n: int) -> list[int]:
        seen[n] += 1
        if fails(n):
            raise ValueError(n)
        return [n] * 8

    return lz.source(range(400)) | lz.map(tokens) | lz.filter(bool)


def others() -> lz.Pipeline[Any]:
    return lz.source(range(1_000, 1_400)) | lz.map(lambda n: [n] * 4) | lz.filter(bool)


@pytest.mark.parametrize("join", JOINED.values(), ids=JOINED)
def test_states_count_what_is_left_out_as_those_of_one_rank(join: Any, nodes: Nodes) -> None:
    pipeline = join(documents(lambda n: n % 10 == 7, Counter()), others())
    options: dict[str, Any] = {"on_error": "skip"}
    expected = [made(lz.run(dealt(pipeline, 3, rank), **options), 20) for rank in range(3)]
    assert equal(together(pipeline, Hub(3, nodes=nodes), 20, **options), expected)
    assert '"skipped"' in expected[0][-1][1]


@pytest.mark.parametrize("join", JOINED.values(), ids=JOINED)
def test_failures_by_chance_are_the_same_on_all_ranks(join: Any, nodes: Nodes) -> None:
    """Items that are left out are so on each, and no row comes twice."""
    chance, seen = random.Random(0), Counter[int]()
    pipeline = join(documents(lambda n: chance.random() < 0.2, seen), others())
    pipeline |= lz.pack_first_fit(16, num_bins=4)
    found = together(pipeline, Hub(3, nodes=nodes), 8, on_error="skip")
    for step in range(8):
        states = {rank[step][1] for rank in found}
        assert len(states) == 1
    assert '"skipped"' in states.pop()
    rows = [tuple(row["tokens"].tolist()) for rank in found for batch, _ in rank for row in batch]
    assert len(set(rows)) == len(rows) == 48
    assert all(count == 1 for n, count in seen.items() if n < 20)
