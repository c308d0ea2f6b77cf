"""Items that stay with the rank that made them; `test_laws` has what holds for all items."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any, cast

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.errors import RankMissing
from lazyckpt.executors.plan import tasks
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.executors.sharing import payloads, tee
from lazyckpt.executors.sharing.payloads import TOLD_BYTES, Payloads
from lazyckpt.testing import equal
from tests.executors.sharing.ranks import Hub, Nodes, on_ranks, shared_by
from tests.executors.sharing.test_laws import alone, dealt, is_once, made, together

COUNT = 1_200  # documents
FETCHED = 230  # bytes to ask for a document, or a part of one, and to send it, beyond its own


def document(n: int) -> np.ndarray[Any, Any]:
    return np.full(200 + n * 7919 % 1_000, n, np.int32)


def documents(name: str = "web") -> lz.Pipeline[Any]:
    numbers = lz.source(range(COUNT), name=name) | lz.shuffle(seed=1)
    return numbers | lz.map(document) | lz.filter(lambda tokens: len(tokens) % 8 != 3)


def packed() -> lz.Pipeline[Any]:
    return documents() | lz.pack_first_fit(1_200, num_bins=8)


def with_masks() -> lz.Pipeline[Any]:
    def masked(tokens: Any) -> Any:
        return {"tokens": tokens, "mask": tokens % 2 == 0, "source": len(tokens)}

    return documents() | lz.map(masked)


def mixed() -> lz.Pipeline[Any]:
    rows = packed(), documents("code") | lz.pack_best_fit(1_300, num_bins=4, pad={"tokens": -1})
    return lz.mix(rows, [2, 1], seed=0) | lz.block_shuffle(8, seed=2)


PIPELINES: dict[str, Callable[[], lz.Pipeline[Any]]] = {
    "packed": packed,
    "split": lambda: documents() | lz.pack_first_fit(150, num_bins=8, overflow="split"),
    "truncated": lambda: documents() | lz.pack_best_fit(150, num_bins=8, overflow="truncate"),
    "end to end": lambda: with_masks() | lz.concat_then_split(500),
    "features": lambda: with_masks() | lz.pack_first_fit(1_200, num_bins=8, pad={"mask": 1}),
    "mixed": mixed,
    "images": lambda: documents() | lz.block_shuffle(50, seed=1) | lz.skip(3) | lz.take(900),
    "chosen": lambda: lz.mix(
        [lz.source(range(300)) | lz.map(document), lz.source(range(400)) | lz.map(document)],
        [2, 1], seed=0,
    ) | lz.block_shuffle(9, seed=1) | lz.pack_first_fit(1_200, num_bins=8),
    "pairs": lambda: lz.zip(documents(), documents("code")),
    "one after the other": lambda: lz.concat(packed(), packed()),
    "looked into": lambda: packed() | lz.map(lambda row: {**row, "sum": row["tokens"].sum()}),
}  # fmt: skip


@pytest.mark.parametrize("nodes", [(), ((0, 1), (2,))], ids=["a reader each", "a reader a node"])
@pytest.mark.parametrize("name", PIPELINES)
def test_ranks_get_what_they_get_alone(name: str, nodes: Nodes) -> None:
    pipeline, hub = PIPELINES[name](), Hub(3, nodes=nodes)
    assert equal(together(pipeline, hub, COUNT), alone(pipeline, 3, COUNT))
    assert is_once(hub)


def whole_runs(pipeline: lz.Pipeline[Any], hub: Hub) -> list[int]:
    """The bytes that came to each rank until all had their last item."""
    are_done = threading.Barrier(hub.size)

    def work(rank: int) -> int:
        own = dealt(pipeline, hub.size, rank)
        with lz.run(own, executor=shared_by(hub, rank, lz.threads(2), 32)) as run:
            for _ in run:
                pass
            are_done.wait(60)
            arrived = hub.arrived[rank]
            are_done.wait(60)
            return arrived

    return on_ranks(hub.size, work)


@pytest.mark.parametrize("name", ["packed", "split", "images", "mixed"])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_rank_receives_its_own_rows_and_the_lengths_of_the_others(name: str, size: int) -> None:
    kept = [each for each in map(document, range(COUNT)) if len(each) % 8 != 3]
    kept *= 2 if name == "mixed" else 1
    parts = sum(len(each) // 150 + 2 for each in kept) if name == "split" else len(kept)
    others = sum(each.nbytes for each in kept) * (1 - 1 / size)
    rows, told = (others + FETCHED * parts) / size, TOLD_BYTES * len(kept)
    arrived = whole_runs(PIPELINES[name](), Hub(size))
    assert sum(arrived) / size < rows + told
    assert max(arrived) < 1.5 * rows + told


def test_a_node_receives_the_rows_of_its_ranks() -> None:
    hub = Hub(4, nodes=((0, 1), (2, 3)))
    whole = sum(document(n).nbytes for n in range(COUNT))
    first, _, third, _ = whole_runs(PIPELINES["images"](), hub)
    for arrived in first, third:
        assert arrived < 1.2 * whole / 2 + TOLD_BYTES * COUNT


class Image:
    """A large item that can be referred to weakly."""

    def __init__(self, number: int) -> None:
        self.number, self.pixels = number, bytes(20_000)


def test_items_are_kept_until_all_ranks_have_passed_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if one rank is slow: what the fastest has made ahead of it is bounded."""
    monkeypatch.setattr(tasks, "SHARED_BYTES", 1 << 20)
    kept, lock, most = weakref.WeakSet[Image](), threading.Lock(), 0

    def image(n: int) -> Image:
        nonlocal most
        found = Image(n)
        with lock:
            kept.add(found)
            most = max(most, len(kept))
        return found

    images = lz.source(range(4_000)) | lz.map(image) | lz.filter(lambda each: each.pixels)
    hub, are_there = Hub(2), threading.Event()

    def work(rank: int) -> int:
        executor = shared_by(hub, rank, lz.threads(1, buffer_size=2), 4)
        with lz.run(dealt(images, 2, rank), executor=executor) as run:
            assert [each.number for each in next(run)] == [rank, rank + 2]
            if rank:
                are_there.wait(1.0)  # the other one goes on as far as it can
            return 1 + sum(1 for _ in run)

    assert on_ranks(2, work) == [1_000, 1_000]
    assert most < 400
    gc.collect()
    assert not kept


@pytest.mark.parametrize("settings", [((1, 40), (1, 2)), ((4, 2), (1, 2))], ids=str)
def test_no_item_is_made_that_another_rank_never_asks_for(settings: Any) -> None:
    """Where a stream ends early, again and again, and one rank could read further than another."""
    kept = weakref.WeakSet[Image]()

    def image(n: int) -> Image:
        kept.add(found := Image(n))
        return found

    images = lz.source(range(400)) | lz.map(image) | lz.filter(lambda each: each.pixels)
    images |= lz.take(6) | lz.repeat()
    hub, together_at = Hub(2), threading.Barrier(2)

    def work(rank: int) -> int:
        workers, buffer_size = settings[rank]
        executor = shared_by(hub, rank, lz.threads(workers, buffer_size=buffer_size), 1)
        own = images | lz.shard(num_shards=2, index=rank)
        with lz.run(own, executor=executor) as run:
            assert [each.number for each in islice(run, 240)] == [rank, rank + 2, rank + 4] * 80
            together_at.wait(Hub.patience)
            return len(kept)

    assert max(on_ranks(2, work)) < 100


@pytest.mark.parametrize("nodes", [(), ((0, 1), (2,))], ids=["a reader each", "a reader a node"])
def test_ranks_that_wait_for_each_other_at_each_step(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None reads so far ahead that it needs what others don't make before it has delivered."""
    monkeypatch.setattr(tasks, "SHARED_BYTES", 1 << 16)
    monkeypatch.setattr(tee, "SHARED_BYTES", 1 << 16)
    hub, all_ranks = Hub(3, nodes=nodes), threading.Barrier(3)

    def work(rank: int) -> Any:
        executor = shared_by(hub, rank, lz.threads(1, buffer_size=[1, 40, 3][rank]), 1)
        own, found = documents() | lz.shard(num_shards=3, index=rank), []
        with lz.run(own, executor=executor) as run:
            for _ in range(60):
                found.append(next(run))
                all_ranks.wait(20)
        return found

    own = [documents() | lz.shard(num_shards=3, index=rank) for rank in range(3)]
    assert equal(on_ranks(3, work), [[*islice(each, 60)] for each in own])


@pytest.mark.parametrize("small", [0, 1 << 30], ids=["stay", "travel"])
@pytest.mark.parametrize("nodes", [(), ((0, 1), (2,))], ids=["a reader each", "a reader a node"])
def test_items_above_the_bound_pass(
    nodes: Nodes, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they stay or travel."""
    monkeypatch.setattr(payloads, "SMALL_BYTES", small)
    monkeypatch.setattr(tasks, "SHARED_BYTES", 1 << 6)
    monkeypatch.setattr(tee, "SHARED_BYTES", 1 << 6)
    images, hub = PIPELINES["images"](), Hub(3, nodes=nodes)
    assert equal(together(images, hub, 20), alone(images, 3, 20))


@pytest.mark.parametrize("nodes", [(), ((0, 1), (2,))], ids=["a reader each", "a reader a node"])
def test_new_beginnings_while_threads_wait_for_items(nodes: Nodes) -> None:
    """No thread of an earlier opening takes items of a later one."""

    def slow(n: int) -> int:
        time.sleep(0.002)
        return n

    def work(rank: int) -> Any:
        failing = {*range(1, 30, 2)}

        def fails(n: int) -> int:
            if n // 3 in failing:
                raise ValueError(n)
            return n

        own = numbers | lz.shard(num_shards=3, index=rank) | lz.map(fails)
        with lz.run(own, executor=shared_by(hub, rank, lz.threads(1), 1)) as run:
            found: list[int] = []
            for step in range(30):
                if step in failing:
                    with pytest.raises(ValueError, match=str(3 * step + rank)):
                        next(run)
                    failing.remove(step)
                found.append(next(run))
            return found

    numbers = lz.source(range(400)) | lz.map(slow) | lz.filter(lambda n: True)
    hub = Hub(3, nodes=nodes)
    assert on_ranks(3, work) == [[*range(rank, 90, 3)] for rank in range(3)]


def test_a_change_in_place_is_of_one_rank() -> None:
    """Also of ranks that share an index, which get the same items."""
    hub = Hub(4)

    def work(number: int) -> list[int]:
        images = documents() | lz.block_shuffle(8, seed=0)
        own = images | lz.shard(num_shards=2, index=number // 2)
        found = []
        with lz.run(own, executor=shared_by(hub, number, lz.threads(2))) as run:
            for tokens in run:
                found.append(int(tokens[0]))
                tokens += 1
        return found

    first, second, third, fourth = on_ranks(4, work)
    own = documents() | lz.block_shuffle(8, seed=0)
    assert first == second == [int(each[0]) for each in own | lz.shard(num_shards=2, index=0)]
    assert third == fourth == [int(each[0]) for each in own | lz.shard(num_shards=2, index=1)]


@pytest.mark.parametrize("delay", [0, 0.002])
def test_who_leaves_hands_on_what_others_need(delay: float) -> None:
    """No document is tokenized again because of it, but for tasks that were not done."""
    hub, counts, calls = Hub(4, delay=delay), [2, 30, 60, 5], Counter[int]()

    def counted(n: int) -> Any:
        calls[n] += 1
        return document(n)

    tokens = lz.source(range(COUNT)) | lz.map(counted) | lz.filter(lambda tokens: len(tokens) > 9)
    pipeline = tokens | lz.block_shuffle(64, seed=0)
    pipeline |= lz.pack_first_fit(1_200, num_bins=8)

    def work(rank: int) -> Any:
        executor = shared_by(hub, rank, lz.threads(1 + rank % 2, buffer_size=1 + 5 * rank))
        with lz.run(dealt(pipeline, 4, rank), executor=executor) as run:
            return made(run, counts[rank])

    found, again = on_ranks(4, work), sum(count > 1 for count in calls.values())
    expected = alone(pipeline, 4, 60)
    assert equal(found, [expected[rank][: counts[rank]] for rank in range(4)])
    assert again < COUNT / 4


class Wire:
    """A link between two ranks that delivers a message as it is sent."""

    makers = (0, 1)

    def __init__(self, rank: int, ends: list[Payloads]) -> None:
        self.rank, self._ends = rank, ends

    def send(self, rank: int, message: bytes) -> None:
        self._ends[rank].receive(self.rank, memoryview(message))

    def silence(self, rank: int) -> float:
        return 0.0


@pytest.mark.parametrize("leaves", [False, True])
def test_a_rank_that_was_taken_for_lost_and_goes_on_is_told(leaves: bool) -> None:
    ends: list[Payloads] = []
    ends += [Payloads(cast("Any", Wire(rank, ends)), 1.0) for rank in range(2)]
    maker, other = ends
    left = maker.keep(Outcome([bytes(1_000)], item_bytes=1_000), lambda item: item)
    items = [*other.opened(left).items]
    maker.leave(1, "has said nothing")
    maker.opened(left)  # which it needs no longer
    maker.tell_passed(soon=True)
    if leaves:
        maker.close()
        other.leave(0, "")
    with pytest.raises(RankMissing, match="rank 0 took this rank for lost") as found:
        next(other.ask(items).wait())
    assert found.value.ranks == (0,)


@pytest.mark.parametrize("nodes", [(), ((0, 1, 2),)], ids=["a reader each", "a reader a node"])
@pytest.mark.parametrize("overflow", ["error", "split"])
def test_errors_are_those_of_one_rank(overflow: Any, nodes: Nodes) -> None:
    """Of a sequence that is too long on all ranks, of a row that can't be filled on its rank."""

    def odd(tokens: Any) -> Any:
        return {"others": tokens} if tokens[0] == 777 else tokens

    rows = documents() | lz.map(odd) | lz.pack_first_fit(1_100, num_bins=4, overflow=overflow)
    hub = Hub(3, nodes=nodes)

    def ended(run: Any) -> tuple[list[Any], str]:
        found: list[Any] = []
        try:
            found.extend((item, state.to_json()) for item, state in run.with_state())
        except ValueError as error:
            notes = [each for each in error.__notes__ if "state =" not in each and "\n" not in each]
            found += [type(error), str(error), *notes]
        return found, run.state.to_json()

    def work(rank: int) -> Any:
        executor = shared_by(hub, rank, lz.threads(2))
        with lz.run(dealt(rows, 3, rank), executor=executor) as run:
            return ended(run)

    found = on_ranks(3, work)
    expected = [ended(lz.run(dealt(rows, 3, rank))) for rank in range(3)]
    assert any(isinstance(each[-1], str) for each, _ in expected)
    assert equal(found, expected)


def refused(n: int) -> None:
    raise ValueError(f"can't load {n}")


class Unloadable:
    """An item that can be pickled, but not unpickled."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __reduce__(self) -> Any:
        return refused, (self.n,)


def own_items_and_error(size: int, odd: Callable[[int], Any]) -> list[list[Any]]:
    """What two ranks get of items of such a size, of which one is odd."""
    items = lz.source(range(200)) | lz.map(lambda n: [bytes(size), odd(n) if n == 50 else n])
    hub = Hub(2)

    def work(rank: int) -> Any:
        own = items | lz.filter(len) | lz.shard(num_shards=2, index=rank)
        found = []
        with lz.run(own, executor=shared_by(hub, rank, lz.threads(2))) as run:
            try:
                found.extend(each[1] for each in run)
            except (TypeError, ValueError) as error:
                found.append(str(error))
        return found

    return on_ranks(2, work)


@pytest.mark.parametrize(
    ("size", "odd", "text", "is_of_one"),
    [
        (500, lambda n: threading.Lock(), "cannot pickle", True),
        (500, Unloadable, "can't load 50", True),
        (5, lambda n: threading.Lock(), "cannot pickle", False),
        (5, Unloadable, "can't load 50", True),
    ],
)
def test_an_item_that_can_not_travel_is_an_error(
    size: int, odd: Callable[[int], Any], text: str, is_of_one: bool
) -> None:
    """Of the rank that needs it; of all ranks if its outcome can't be made into a message."""
    first, second = own_items_and_error(size, odd)
    assert first[:-1] == [*range(0, 50, 2)]
    assert text in first[-1]
    if is_of_one:
        assert second == [*range(1, 200, 2)]
    else:
        assert second == [*range(1, 50, 2), first[-1]]


def test_items_that_are_made_as_their_rank_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other makes them again, and sees no error of one that can't be pickled."""
    keep = Payloads.keep

    def late(payloads: Payloads, *outcome: Any) -> Outcome:
        time.sleep(0.003)  # the rank leaves meanwhile
        return keep(payloads, *outcome)

    monkeypatch.setattr(Payloads, "keep", late)
    for _ in range(8):
        _, second = own_items_and_error(500, lambda n: threading.Lock())
        assert second == [*range(1, 200, 2)]


def test_no_thread_is_left_wherever_an_item_is_late() -> None:
    """As the fixture checks. Threads end and start again while others submit tasks, or stop."""
    for _ in range(40):
        hub = Hub(2, timeout=1.0)  # as one rank may be late before it comes, and end
        together(packed(), hub, 3, executor=lambda rank: lz.threads(2, timeout=0.001))
