"""Laws of work that ranks share, each rank a thread: same items, and nothing computed twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import islice
from operator import or_
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.errors import PipelineError, RankMissing
from lazyckpt.executors.sharing import payloads, tee
from lazyckpt.testing import equal
from lazyckpt.testing.strategies import pipelines
from tests.executors.sharing.ranks import Hub, on_ranks, shared_by

Made = list[tuple[Any, str]]


def tokens(n: int) -> list[int]:
    return [n] * (n % 7 + 1)


def is_kept(document: list[int]) -> bool:
    return len(document) != 3


def packed(map_: Callable[[int], Any] = tokens, count: int = 300) -> lz.Pipeline[Any]:
    documents = lz.source(range(count)) | lz.shuffle(seed=1) | lz.map(map_) | lz.filter(is_kept)
    return documents | lz.pack_first_fit(16, num_bins=4)


def mixed() -> lz.Pipeline[Any]:
    files = lz.source(range(9)) | lz.flat_map(lambda n: range(n * 10, n * 10 + n))
    parts = [
        lz.source(range(50)) | lz.map(str),
        files | lz.map(tokens),
        lz.source([*"abc"]) | lz.repeat(),
    ]
    return lz.mix(parts, weights=[3, 2, 1], seed=0) | lz.block_shuffle(8, seed=2)


PIPELINES: dict[str, Callable[[], lz.Pipeline[Any]]] = {
    "packed": packed,
    "repeated": lambda: lz.source(range(20)) | lz.repeat() | lz.map(tokens) | lz.filter(is_kept),
    "mixed": mixed,
    "a stream": lambda: lz.from_generator(lambda: iter(range(60))) | lz.map(tokens),
    "a buffer": lambda: (
        lz.source(range(60)) | lz.filter(bool) | lz.block_shuffle(9, seed=0) | lz.map(tokens)
    ),
    "random access": lambda: lz.source(range(60)) | lz.shuffle(seed=0) | lz.map(tokens),
}


def batches() -> lz.Pipeline[Any]:
    files = lz.source(range(9)) | lz.flat_map(lambda n: [[tokens(n)] * 5] * n)
    return files | lz.filter(bool)


def dealt(pipeline: lz.Pipeline[Any], size: int, rank: int) -> lz.Pipeline[Any]:
    return pipeline | lz.shard(num_shards=size, index=rank) | lz.batch(2)


def made(run: Any, count: int) -> Made:
    return [(item, state.to_json()) for item, state in islice(run.with_state(), count)]


def alone(pipeline: lz.Pipeline[Any], size: int, count: int, state: Any = None) -> list[Made]:
    """The items that each rank computes by itself."""
    return [
        made(lz.run(dealt(pipeline, size, rank), state), count if isinstance(count, int) else 0)
        for rank in range(size)
    ]


def together(
    pipeline: lz.Pipeline[Any], hub: Hub, count: int, state: Any = None, chunk_size: int = 4,
    executor: Callable[[int], lz.Executor] = lambda rank: lz.threads(2), **options: Any,
) -> list[Any]:  # fmt: skip
    """The items of ranks that share their work."""

    def work(rank: int) -> Made:
        own = dealt(pipeline, hub.size, rank)
        inner = shared_by(hub, rank, executor(rank), chunk_size)
        with lz.run(own, state, executor=inner, **options) as run:
            return made(run, count)

    return on_ranks(hub.size, work)


def is_once(hub: Hub) -> bool:
    return len(hub.posted) == len(set(hub.posted))


READERS = {
    "a reader each": (0, payloads.SMALL_BYTES),
    "a reader each, items stay": (0, 0),
    "one for two, items stay": (2, 0),
    "one": (9, payloads.SMALL_BYTES),
}


@pytest.fixture(params=READERS.values(), ids=READERS, autouse=True)
def per_node(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many ranks of a node one of them reads for; and whether small items stay, as large do."""
    per_node, small = request.param
    monkeypatch.setattr(Hub, "per_node", per_node)
    monkeypatch.setattr(payloads, "SMALL_BYTES", small)
    return int(per_node)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", PIPELINES)
def test_ranks_get_what_they_get_alone(name: str, size: int) -> None:
    pipeline, hub = PIPELINES[name](), Hub(size)
    assert equal(together(pipeline, hub, 12), alone(pipeline, size, 12))
    assert is_once(hub)


@given(
    pipelines(max_stages=4), st.integers(1, 3), st.integers(1, 9), st.sampled_from([0, 0.001]),
    st.lists(st.integers(1, 20), min_size=3, max_size=3),
)  # fmt: skip
def test_any_composition(
    pipeline: lz.Pipeline[Any], size: int, chunk_size: int, delay: float, buffers: list[int]
) -> None:
    """With unlike buffers, and messages that come late."""
    assume(dealt(pipeline, size, 0).own_rank is None)
    hub = Hub(size, delay=delay)
    found = together(
        pipeline, hub, 9, None, chunk_size, lambda rank: lz.threads(2, buffer_size=buffers[rank])
    )
    assume('readers="rank"' not in str(found[0]))  # an inner stage deals items to two ranks
    assume("some ranks read items again" not in str(found[0]))
    assert equal(found, alone(pipeline, size, 9))
    assert is_once(hub)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_resume_on_other_numbers_of_ranks(name: str) -> None:
    pipeline, items, state, reached = PIPELINES[name](), [], None, 0
    for size, count in (4, 2), (3, 1), (1, 2), (2, 3):
        state = state and lz.rebase(state, dealt(pipeline, size, 0))
        found = together(pipeline, Hub(size), count, state)
        assert equal(found, alone(pipeline, size, count, state))
        for step in range(count):
            batches = [rank[step][0] for rank in found]
            items += [batch[place] for place in range(2) for batch in batches]
        reached += 2 * size * count
        state = found[0][-1][1]
    assert equal(items, list(islice(pipeline, reached)))


@pytest.mark.parametrize("then", [[], [lz.map(len)]], ids=["dealt", "mapped"])
@pytest.mark.parametrize("source", [lambda: PIPELINES["a buffer"]() | lz.batch(9), batches])
def test_parts_of_batches(source: Callable[[], lz.Pipeline[Any]], then: list[Any]) -> None:
    """Each is of one rank, though a rank's stages before it are all of one item each."""

    def own(rank: int) -> lz.Pipeline[Any]:
        return reduce(or_, then, source() | lz.shard_batch(num_shards=2, index=rank, key=len))

    def work(rank: int) -> Made:
        with lz.run(own(rank), executor=shared_by(hub, rank, lz.threads(2))) as run:
            return made(run, 9)

    hub = Hub(2)
    assert equal(on_ranks(2, work), [made(lz.run(own(rank)), 9) for rank in range(2)])


def test_workers_of_other_executors() -> None:
    with ThreadPoolExecutor(3) as pool:
        found = together(packed(), Hub(2), 9, executor=lambda rank: lz.futures(pool, buffer_size=3))
    assert equal(found, alone(packed(), 2, 9))


def test_functions_after_shard_are_called_for_own_rows() -> None:
    calls = Counter[int]()

    def work(rank: int) -> Made:
        def used(row: Any) -> Any:
            calls[rank] += 1
            return row

        own = packed() | lz.shard(num_shards=3, index=rank) | lz.map(used)
        own |= lz.batch(2, collate=lz.stack)
        with lz.run(own, executor=shared_by(hub, rank, lz.threads(2))) as run:
            return made(run, 99)

    hub = Hub(3)
    found = on_ranks(3, work)
    for rank in range(3):
        own = packed() | lz.shard(num_shards=3, index=rank) | lz.batch(2, collate=lz.stack)
        assert equal([item for item, _ in found[rank]], list(own))
    assert calls.total() == len(list(packed()))


def test_processes_of_one_index() -> None:
    """As of tensor parallelism: they get the same rows, and share the work as any others do."""
    hub = Hub(4)

    def work(number: int) -> Made:
        executor = shared_by(hub, number, lz.threads(2))
        with lz.run(dealt(packed(), 2, number // 2), executor=executor) as run:
            return made(run, 9)

    first, second = alone(packed(), 2, 9)
    assert equal(on_ranks(4, work), [first, first, second, second])
    assert is_once(hub)


def test_a_stream_that_is_begun_again_and_again() -> None:
    """Items that were prefetched beyond an earlier end are never requested."""
    documents = lz.source(range(400)) | lz.map(tokens) | lz.filter(is_kept)
    pipeline, hub = documents | lz.take(7) | lz.repeat(), Hub(2)
    assert equal(together(pipeline, hub, 60), alone(pipeline, 2, 60))


def test_an_error_comes_at_the_same_place_on_all_and_again() -> None:
    def fails(n: int) -> list[int]:
        if n == 150:
            raise KeyError(n)
        return tokens(n)

    def ended(run: Any) -> list[Any]:
        """The results of a run up to its error, and after that once more."""
        found: list[Any] = []
        for _ in range(2):
            with pytest.raises(KeyError, match="150"):
                found.extend(run)
            found.append(run.state.to_json())
        return found

    def work(rank: int) -> list[Any]:
        executor = shared_by(hub, rank, lz.threads(2))
        with lz.run(dealt(packed(fails), 3, rank), executor=executor) as run:
            return ended(run)

    hub = Hub(3)
    expected = [ended(lz.run(dealt(packed(fails), 3, rank))) for rank in range(3)]
    assert equal(on_ranks(3, work), expected)


def test_a_rewind_by_all_is_a_new_beginning() -> None:
    """Also with tasks of the one before under way, which others are further with."""

    def work(rank: int) -> list[Any]:
        executor = shared_by(hub, rank, lz.threads(2, buffer_size=1 + 7 * rank))
        with lz.run(dealt(packed(), 2, rank), executor=executor) as run:
            found = made(run, 6)
            for _ in range(3):
                run.load_state_dict(lz.State.from_json(found[-3][1]).to_dict())
                found += made(run, 6)
            return found

    hub = Hub(2, delay=0.003)
    first, second = on_ranks(2, work), alone(packed(), 2, 18)
    rows = [[item for n in range(0, 13, 4) for item in rank[n : n + 6]] for rank in second]
    assert equal(first, rows)


def test_a_rewind_to_where_a_run_is_is_a_new_beginning() -> None:
    """For all ranks, however far each has read ahead."""

    def work(rank: int) -> list[Any]:
        executor = shared_by(hub, rank, lz.threads(2 + rank, buffer_size=2 - rank), 1)
        own = mixed | lz.shard(num_shards=2, index=rank, remainder="drop")
        with lz.run(own, executor=executor) as run:
            found = [next(run)]
            run.pause()
            time.sleep(0.05)  # what is under way comes, and nothing more is asked for
            run.unpause()
            found.append(next(run))
            run.load_state_dict(run.state_dict())
            return [*found, *islice(run, 3)]

    mixed, hub = kept([*range(200)]) | lz.shuffle(9, seed=1), Hub(2, timeout=3.0)
    expected = [[*islice(mixed | lz.shard(num_shards=2, index=n), 5)] for n in range(2)]
    assert equal(on_ranks(2, work), expected)


def test_a_change_and_a_pause_by_all() -> None:
    def gone_through(run: Any, rank: int) -> list[Any]:
        found = made(run, 4)
        run.change(packed() | lz.shard(num_shards=2, index=rank) | lz.batch(3))
        found += made(run, 4)
        run.pause()
        run.unpause()
        return found + made(run, 3)

    def work(rank: int) -> list[Any]:
        executor = shared_by(hub, rank, lz.threads(2))
        with lz.run(dealt(packed(), 2, rank), executor=executor) as run:
            return gone_through(run, rank)

    hub = Hub(2)
    expected = [gone_through(lz.run(dealt(packed(), 2, rank)), rank) for rank in range(2)]
    assert equal(on_ranks(2, work), expected)


def test_a_rewind_by_one_is_an_error() -> None:
    def work(rank: int) -> Any:
        executor = shared_by(hub, rank, lz.threads(2))
        with lz.run(dealt(packed(), 2, rank), executor=executor) as run:
            state = made(run, 3)[0][1]
            if rank:
                run.load_state_dict(lz.State.from_json(state).to_dict())
            return made(run, 3)

    hub = Hub(2, timeout=2)
    found = on_ranks(2, work)
    assert isinstance(found[1], RankMissing)
    assert equal(found[0], alone(packed(), 2, 6)[0][3:])  # by itself, as the other has left


@pytest.mark.parametrize("delay", [0, 0.002])
def test_ranks_that_leave_early(delay: float) -> None:
    """The others make what those would have made."""
    hub, counts = Hub(4, delay=delay), [2, 9, 20, 5]

    def work(rank: int) -> Made:
        executor = shared_by(hub, rank, lz.threads(1 + rank % 2, buffer_size=1 + 5 * rank))
        with lz.run(dealt(packed(), 4, rank), executor=executor) as run:
            return made(run, counts[rank])

    expected = alone(packed(), 4, 20)
    assert equal(on_ranks(4, work), [expected[rank][: counts[rank]] for rank in range(4)])


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_loss_of_a_rank_is_an_error_that_names_it(per_node: int, lost: int) -> None:
    hub, count = Hub(3), 8_000
    told = {0, 1, 2} - {lost}

    def work(rank: int) -> Any:
        own = dealt(packed(count=count), 3, rank)
        with lz.run(own, executor=shared_by(hub, rank, lz.threads(2))) as run:
            found: Made = []
            if rank not in told:
                made(run, 4)
                if rank == lost:
                    link = next(each for each in hub.links if each.rank == lost)
                    link.close("is lost: its connection was closed")
                return None
            items = run.with_state()
            with pytest.raises(RankMissing, match=rf"rank {lost}, .* is lost") as raised:
                found.extend((item, state.to_json()) for item, state in items)
            assert raised.value.ranks == (lost,)
            return found, run.state.to_json()

    found = on_ranks(3, work)
    expected = alone(packed(count=count), 3, 10_000)
    for rank in told:
        items, state = found[rank]
        assert equal(items, expected[rank][: len(items)])
        begin = lz.init(dealt(packed(count=count), 3, rank))
        assert state == (items[-1][1] if items else begin.to_json())


def test_a_slow_rank_bounds_how_far_the_others_are_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank holds no more bytes ahead than it allows, also if the first item is small."""
    monkeypatch.setattr(tee, "SHARED_BYTES", 1 << 20)
    large = lz.source(range(3_000)) | lz.map(lambda n: bytes(1 << 18 if n else 1)) | lz.filter(len)
    lag = threading.Event()
    counts = Counter[int]()

    def work(rank: int) -> int:
        executor = shared_by(hub, rank, lz.threads(1, buffer_size=1), 1)
        with lz.run(dealt(large, 2, rank), executor=executor) as run:
            for _ in range(3):
                next(run)
            if rank:
                lag.wait(20)
                return 0
            while counts[0] < 400 and not lag.is_set():
                next(run)
                counts[0] += 1
        return counts[0]

    def watch() -> None:
        last = -1
        while last != counts[0] or not last:
            last = counts[0]
            time.sleep(0.3)
        lag.set()

    hub = Hub(2)
    threading.Thread(target=watch, daemon=True).start()
    assert on_ranks(2, work)[0] < 100


def kept(numbers: list[int]) -> lz.Pipeline[Any]:
    return lz.source(numbers) | lz.map(tokens) | lz.filter(is_kept)


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (packed, lambda: packed(count=301), "differ"),
        (lambda: kept([*range(300)]), lambda: kept([*range(299), 7]), "differ"),
    ],
)
def test_ranks_that_differ_are_refused(one: Any, other: Any, text: str) -> None:
    def work(rank: int) -> None:
        pipeline = dealt(other() if rank else one(), 2, rank)
        with lz.run(pipeline, executor=shared_by(hub, rank, lz.threads(2))) as run:
            next(run)

    hub = Hub(2, timeout=1)
    for error in on_ranks(2, work):
        assert isinstance(error, PipelineError)
        assert text in str(error) or isinstance(error, RankMissing)


def test_what_can_not_be_shared_is_refused() -> None:
    executor = shared_by(Hub(1), 0, lz.threads(2))
    with pytest.raises(PipelineError, match="has no shard"):
        lz.run(packed(), executor=executor)
    drifting = dealt(packed(), 2, 0) | lz.filter(bool)
    with pytest.raises(PipelineError, match="positions of their own after filter"):
        lz.run(drifting, executor=executor)
    failing = dealt(packed(), 2, 0) | lz.map(len) | lz.batch(2)
    with pytest.raises(PipelineError, match=r"before batch\(2\), .*fail \(a map, a collate\), and"):
        lz.run(failing, on_error="skip", executor=executor)
    lanes = lz.lanes([lz.source([1]), lz.source([2])], num_shards=2, index=0)
    with pytest.raises(PipelineError, match=r"after lanes\(.* differ; run it with threads\("):
        lz.run(lanes | lz.batch(2), executor=executor)
    again = packed() | lz.shard(num_shards=2, index=0, remainder="repeat")
    with pytest.raises(
        PipelineError, match='others don\'t wait for; pass remainder="pad" or "drop"'
    ):
        lz.run(again, executor=executor)
    by_index = lz.source(range(5)) | lz.shard(num_shards=2, index=1, remainder="repeat")
    assert [*lz.run(by_index, executor=executor)] == [1, 3, 0]


@pytest.mark.parametrize("chunk_size", [1, 8])
@pytest.mark.parametrize(
    "own",
    [
        lambda rows: rows,
        lambda rows: rows | lz.map(str),
        lambda rows: rows | lz.batch(2) | lz.map(len),
    ],
    ids=["dealt", "mapped", "batched"],
)
def test_ranks_that_wait_for_each_other_at_each_item_go_on(
    own: Callable[[lz.Pipeline[Any]], lz.Pipeline[Any]], chunk_size: int
) -> None:
    """Though each has other workers and another buffer, and so reads ahead as far as it can."""
    assert in_lockstep(own, chunk_size, [4, 1, 2], [1, 60, 3], 60) == [60, 60, 60]


def test_ranks_that_wait_for_each_other_hold_no_item_back() -> None:
    """Though items come so fast that many would fit into a chunk."""
    assert in_lockstep(lambda rows: rows, 1, [1, 1, 1], [2, 2, 2], 60, 1_000) == [60, 60, 60]


def in_lockstep(
    own: Callable[[lz.Pipeline[Any]], lz.Pipeline[Any]],
    chunk_size: int,
    workers: list[int],
    buffers: list[int],
    steps: int,
    free: int = 0,
) -> list[Any]:
    """The steps of three ranks that wait for each other after each item, but for the first."""
    hub, together_at = Hub(3), threading.Barrier(3)

    def work(rank: int) -> int:
        numbers = lz.source(range(20_000)) | lz.shuffle(seed=1) | lz.map(abs)
        kept = numbers | lz.filter(lambda number: number % 8 != 3)
        rows = own(kept | lz.shard(num_shards=3, index=rank))
        inner = lz.threads(workers[rank], buffer_size=buffers[rank])
        with lz.run(rows, executor=shared_by(hub, rank, inner, chunk_size)) as run:
            for _ in range(free):
                next(run)
            for _ in range(steps):
                next(run)
                together_at.wait(Hub.patience)
        return steps

    return on_ranks(3, work)


def test_the_time_limit_of_an_item_does_not_run_while_ranks_come() -> None:
    def executor(rank: int) -> lz.Executor:
        time.sleep(1.6 * rank)
        return lz.threads(2, timeout=1.0)

    found = together(packed(), Hub(2), 4, executor=executor)
    assert equal(found, alone(packed(), 2, 4))
