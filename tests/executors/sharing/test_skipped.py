"""Records that ranks leave out together: `on_error="skip"`."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.executors.sharing import payloads
from lazyckpt.executors.sharing.executor import shared
from lazyckpt.executors.sharing.meeting import SocketMeeting
from lazyckpt.testing import equal
from tests.executors.sharing.rank import SECRET
from tests.executors.sharing.ranks import Hub, Nodes, on_ranks, place, shared_by
from tests.executors.sharing.test_laws import dealt, made, together

JOINED: dict[str, Callable[[lz.Pipeline[Any], lz.Pipeline[Any]], lz.Pipeline[Any]]] = {
    "alone": lambda documents, others: documents,
    "mix": lambda documents, others: lz.mix([documents, others], [3, 1], seed=0),
    "interleave": lambda documents, others: lz.interleave(others, documents),
    "concat": lambda documents, others: lz.concat(documents, others),
}
REACHED = {"alone": 150, "mix": 100, "interleave": 75, "concat": 150}  # documents by 64 rows


@pytest.fixture(params=[(), ((0, 1), (2, 3)), ((0, 1, 2, 3),)], ids=["each", "two nodes", "a node"])
def nodes(request: pytest.FixtureRequest) -> Nodes:
    found: Nodes = request.param
    return found


@pytest.fixture(params=[0, payloads.SMALL_BYTES], ids=["items stay", "items travel"], autouse=True)
def _small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "SMALL_BYTES", request.param)


def documents(
    fails: Callable[[int], bool], seen: Counter[int], count: int = 400
) -> lz.Pipeline[Any]:
    def tokens(n: int) -> list[int]:
        seen[n] += 1
        if fails(n):
            raise ValueError(n)
        return [n] * 8

    return lz.source(range(count)) | lz.map(tokens) | lz.filter(bool)


def others() -> lz.Pipeline[Any]:
    return lz.source(range(1_000, 1_400)) | lz.map(lambda n: [n] * 4) | lz.filter(bool)


@pytest.mark.parametrize("join", JOINED.values(), ids=JOINED)
def test_states_count_what_is_left_out_as_those_of_one_rank(join: Any, nodes: Nodes) -> None:
    pipeline = join(documents(lambda n: n % 10 == 7, Counter()), others())
    options: dict[str, Any] = {"on_error": "skip"}
    expected = [made(lz.run(dealt(pipeline, 4, rank), **options), 20) for rank in range(4)]
    assert equal(together(pipeline, Hub(4, nodes=nodes), 20, **options), expected)
    assert '"skipped"' in expected[0][-1][1]


@pytest.mark.parametrize("name", JOINED)
def test_failures_by_chance_are_the_same_on_all_ranks(name: str, nodes: Nodes) -> None:
    agree_on_chance(name, Hub(4, nodes=nodes))


def agree_on_chance(name: str, hub: Hub) -> None:
    """Items that are left out are so on each rank, and no row comes twice."""
    chance, seen = random.Random(0), Counter[int]()
    pipeline = JOINED[name](documents(lambda n: chance.random() < 0.2, seen), others())
    pipeline |= lz.pack_first_fit(16, num_bins=4)
    found = together(pipeline, hub, 8, on_error="skip")
    for step in range(8):
        states = {rank[step][1] for rank in found}
        assert len(states) == 1
    assert '"skipped"' in states.pop()
    rows = [tuple(row["tokens"].tolist()) for rank in found for batch, _ in rank for row in batch]
    assert len(set(rows)) == len(rows) == 64
    assert all(count == 1 for n, count in seen.items() if n < REACHED[name])


@pytest.mark.parametrize(("does", "late"), [("close", 1.6), ("rewind", 0.4)])
def test_the_last_rows_of_a_rank_that_is_behind_its_reader_are_not_made_again(
    does: str, late: float
) -> None:
    """The reader waits with its end, or new beginning."""
    chance, hub = random.Random(0), Hub(2, nodes=((0, 1),))
    found = documents(lambda n: chance.random() < 0.2, Counter(), count=2_000)
    pipeline = found | lz.map(lambda tokens: tokens * 10) | lz.pack_first_fit(300, num_bins=4)

    def work(rank: int) -> tuple[str, list[Any]]:
        executor = shared_by(hub, rank, lz.threads(2, buffer_size=1))
        own, rows = pipeline | lz.shard(num_shards=2, index=rank), list[Any]()
        with lz.run(own, executor=executor, on_error="skip") as run:
            for step in range(40):
                if rank and step == 15:
                    time.sleep(late)  # so that its reader is done before
                rows.append(tuple(next(run)["tokens"].tolist()))
            state = run.state.to_json()
            if does == "rewind":
                run.load_state_dict(run.state)
                next(run)
        return state, rows

    (state, rows), (other_state, other_rows) = on_ranks(2, work)
    assert state == other_state
    assert len({*rows, *other_rows}) == 80


def kills(slow: Path, n: int) -> list[int]:
    """Kill the worker at item 13, the first time late."""
    if n == 13:
        if not slow.exists():
            slow.touch()
            time.sleep(1.5)  # the slow rank looks at later items meanwhile
        os.kill(os.getpid(), signal.SIGKILL)
    return [n]


def test_outcomes_that_came_before_a_worker_was_lost_are_kept_on_each_rank(tmp_path: Path) -> None:
    """One rank waits for the item that kills; the other has looked at items after it."""
    items = lz.source(range(40)) | lz.map(partial(kills, tmp_path / "slow")) | lz.filter(bool)

    def work(rank: int) -> list[int]:
        meeting = SocketMeeting("127.0.0.1", found.port, SECRET, rank, 2, 20.0)
        executor = shared(kills, lz.processes(2), meeting, {"chunk_size": 1, "timeout": 10.0})
        numbers = []
        own = items | lz.shard(num_shards=2, index=rank)
        with lz.run(own, executor=executor, on_error="skip") as run:
            for (n,) in run:
                numbers.append(n)
                time.sleep(0.1 * rank)  # a step of training, on the slow rank
        return numbers

    kept = [n for n in range(40) if n != 13]
    with place() as found:
        assert on_ranks(2, work) == [kept[::2], kept[1::2]]
