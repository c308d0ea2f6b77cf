"""Mapping stages: what the laws can't see of them."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from case_helpers import Costly, wants

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.testing.laws import Stream


def noise(rng: np.random.Generator, item: Any) -> tuple[Any, float, int, float]:
    return item, rng.random(), int(rng.integers(1000)), float(rng.standard_normal())


def doubled(x: Any) -> Any:
    return x * 2


def test_random_draws_depend_on_seed_epoch_and_number_alone() -> None:
    draws = lz.random_map(noise, seed=5)
    whole = list(lz.source(range(1500)) | draws)
    greedy = lz.random_map(lambda rng, item: (rng.random(item % 3), rng.random())[1], seed=5)
    assert [item[1:] for item in lz.source(list("x" * 1500)) | draws] == [i[1:] for i in whole]
    assert list(lz.source(Stream(range(1500))) | draws) == whole
    assert [(lz.source(range(1500)) | draws)[i] for i in (0, 1, 17, 900, 1499)] == [
        whole[i] for i in (0, 1, 17, 900, 1499)
    ]
    for start in (1, 16, 17, 400, 1400):
        state = lz.state_at(lz.source(range(1500)) | draws, start)
        assert list(lz.run(lz.source(range(1500)) | draws, state)) == whole[start:]
    assert list(lz.source(range(0, 30, 3)) | greedy) == [item[1] for item in whole[:10]]


def test_random_draws_are_uniform_and_differ_by_item_epoch_and_seed() -> None:
    n = 20_000
    drawn = lz.source(range(n)) | lz.random_map(lambda rng, _: rng.random(2), seed=0)
    first, second = np.array(list(drawn | lz.repeat(2))).reshape(2, n, 2)
    other = np.array(list(lz.source(range(n)) | lz.random_map(lambda r, _: r.random(2), seed=1)))
    series = [first[:, 0], first[:, 1], second[:, 0], other[:, 0], np.roll(first[:, 0], 1)]
    for each in series:
        counts = np.histogram(each, 50, (0, 1))[0]
        assert ((counts - n / 50) ** 2 / (n / 50)).sum() < 105  # chi square, 49 degrees
    assert np.abs(np.corrcoef(series) - np.eye(5)).max() < 5 / n**0.5


def test_a_half_used_draw_does_not_reach_the_next_item() -> None:
    """A 32-bit draw leaves its other half in the bit generator."""
    halves = lz.source([1, 0, 1, 0]) | lz.random_map(
        lambda rng, odd: [int(v) for v in rng.integers(2**32, size=1 + odd, dtype=np.uint32)],
        seed=0,
    )
    whole = lz.source([1, 1, 1, 1]) | lz.random_map(
        lambda rng, odd: [int(v) for v in rng.integers(2**32, size=2, dtype=np.uint32)], seed=0
    )
    assert [item[0] for item in halves] == [item[0] for item in whole]


def test_random_maps_within_one_another_have_their_own_generators() -> None:
    inner = lz.source(range(3)) | lz.random_map(noise, seed=0)
    alone = list(inner)
    outer = lz.source(range(3)) | lz.random_map(lambda rng, i: (inner[i], rng.random()), seed=0)
    assert [item[0] for item in outer] == alone
    same = lz.source(range(3)) | lz.random_map(lambda rng, i: (list(outer), rng.random()), seed=0)
    assert [item[1] for item in same] == [item[1] for item in outer]


def test_random_map_golden() -> None:
    found = list(
        lz.source([0, 0]) | lz.random_map(lambda rng, _: rng.bit_generator.random_raw(), seed=7)
    )
    assert found == RAW


RAW = [17791763316810972009, 11663316425665377338]


def test_starmap_and_tap() -> None:
    seen: list[Any] = []
    pairs = lz.source([(1, 2), (3, 4)]) | lz.tap(seen.append) | lz.starmap(lambda a, b: a * b)
    assert list(pairs) == [2, 12]
    assert seen == [(1, 2), (3, 4)]
    seen.clear()
    assert pairs[1] == 12
    assert seen == [(3, 4)]
    assert list(lz.source([None, 0, np.arange(0)]) | lz.tap(id))[:2] == [None, 0]
    wants("must be an iterable", lambda: lz.source([3]) | lz.starmap(max))


def test_enumerate_numbers_each_epoch_anew_and_jumps() -> None:
    letters = lz.source(["a", "b"]) | lz.enumerate(5)
    assert list(letters | lz.repeat(2)) == [(5, "a"), (6, "b")] * 2
    assert (lz.count() | lz.enumerate(-1))[10**12] == (10**12 - 1, 10**12)
    ranks = [lz.source(range(5)) | lz.enumerate() | lz.shard(num_shards=2, index=i) for i in (0, 1)]
    assert [[n for n, _ in rank] for rank in ranks] == [[0, 2, 4], [1, 3]]


def test_transition_gives_none_to_many_outputs_an_item() -> None:
    def repeated(state: int, item: int) -> tuple[int, list[int]]:
        return state + 1, [item] * item

    pipeline = lz.source([0, 3, 0, 1]) | lz.flat_scan(repeated, 0, flush=lambda n: [f"{n} items"])
    assert list(pipeline) == [3, 3, 3, 1, "4 items"]
    testing.check_pipeline(pipeline | lz.repeat(2))
    assert list(lz.source([]) | lz.flat_scan(repeated, 7, flush=lambda n: [n, None])) == [7, None]
    assert list(lz.source([0, 0]) | lz.flat_scan(repeated, 0)) == []


def test_transition_dedupes() -> None:
    def novel(last: list[Any], item: Any) -> tuple[list[Any], list[Any]]:
        return [item], [] if last == [item] else [item]

    pipeline = lz.source(["a", "a", None, None, "a"]) | lz.flat_scan(novel, list[Any]())
    assert list(pipeline) == ["a", None, "a"]
    testing.check_pipeline(pipeline)


def test_transition_flushes_once_and_leaves_its_state_alone() -> None:
    calls = Counter[str]()

    def flush(state: list[int]) -> list[int]:
        calls["flush"] += 1
        out, state[:] = state[:], []
        return out

    def keep(state: list[int], item: int) -> tuple[list[int], list[int]]:
        state.append(item)
        return state, []

    pipeline = lz.source([1, 2, 3]) | lz.flat_scan(keep, list[int](), flush)
    run = lz.run(pipeline)
    assert list(run) == [1, 2, 3]
    assert list(lz.run(pipeline, run.state)) == []
    assert calls["flush"] == 1
    testing.check_pipeline(pipeline)
    middle = lz.state_at(pipeline, 2)
    assert list(lz.run(pipeline, middle.to_json())) == [3]


def test_transition_outputs_may_be_pipelines_and_generators() -> None:
    def read(state: int, item: int) -> tuple[int, Any]:
        return state + 1, lz.source(range(item)) | lz.shuffle(seed=state)

    testing.check_pipeline(lz.source([4, 0, 3]) | lz.flat_scan(read, 0))
    lazy = lz.flat_scan(lambda s, x: (s + x, (s + i for i in range(x))), 0)
    assert list(lz.source([2, 0, 3]) | lazy) == [0, 1, 2, 3, 4]


def test_transition_refuses_what_is_no_state_and_no_outputs() -> None:
    wants(r"flat_scan: init.*set", lambda: [1] | lz.flat_scan(lambda s, x: (s, []), {1}))
    wants(r"flat_scan: its state.*set", lambda: [1, 2] | lz.flat_scan(lambda s, x: ({1}, []), 0))
    wants("not iterable", lambda: [1] | lz.flat_scan(lambda s, x: (s, 3), 0))
    wants("flush must be callable or None", lambda: [1] | lz.flat_scan(max, 0, flush=3))
    changed = lz.source([1]) | lz.flat_scan(lambda s, x: (s, [1, 2, 3]), 0)
    state = lz.state_at(changed, 3)
    shorter = lz.source([1]) | lz.flat_scan(lambda s, x: (s, [1, 2]), 0)
    with pytest.raises(lz.SourceChanged):
        list(lz.run(shorter, state))


def test_a_cache_of_everything_reads_once_in_whatever_order_and_epoch() -> None:
    data = Costly(10)
    pipeline = lz.source(data) | lz.cache(10) | lz.shuffle(seed=0) | lz.repeat(3) | lz.batch(4)
    assert sorted(i for b in pipeline for i in b) == sorted([i * 10 for i in range(10)] * 3)
    assert sorted(data.read) == list(range(10))


def test_a_cache_forgets_the_least_recently_used() -> None:
    data = Costly(5)
    pipeline = lz.source(data) | lz.cache(2)
    for index in (0, 1, 0, 2, 0, 1):  # 2 takes the place of 1, then 1 that of 2
        assert pipeline[index] == index * 10
    assert data.read == [0, 1, 2, 1]


def test_a_cache_behind_a_batch_keeps_within_the_epoch() -> None:
    data = Costly(6)
    pipeline = lz.source(data) | lz.batch(2) | lz.cache(3)
    assert [pipeline[i] for i in (0, 2, 0, 2)] == [[0, 10], [40, 50]] * 2
    assert data.read == [0, 1, 4, 5]


def test_a_cache_keeps_nothing_of_an_error_and_none_as_an_item() -> None:
    calls: list[int] = []

    def moody(item: int) -> None:
        calls.append(item)
        if len(calls) == 1:
            raise OSError("once")

    pipeline = lz.source([7]) | lz.map(moody) | lz.cache(1)
    with pytest.raises(OSError, match="once"):
        pipeline[0]
    assert [pipeline[0], pipeline[0], calls] == [None, None, [7, 7]]


def test_a_cache_needs_random_access_and_pickles_empty() -> None:
    wants("cache: what comes before it has no random access", lambda: Stream([1]) | lz.cache(2))
    wants("cache: size must be an int >= 1", lambda: [1] | lz.cache(0))
    pipeline = pickle.loads(pickle.dumps(lz.source([1, 2]) | lz.cache(2)))
    assert list(pipeline) == [1, 2]
    assert lz.run(lz.source([1, 2]) | lz.cache(9), lz.init(pipeline)) is not None


@pytest.mark.parametrize("kind", [np.asarray, list, Stream])
def test_a_vectorized_map_gives_what_it_gives_item_by_item(kind: Any) -> None:
    pipeline = lz.source(kind(np.arange(12.0))) | lz.map(doubled, vectorized=True)
    assert list(pipeline) == [2.0 * i for i in range(12)]
    batches = list(pipeline | lz.batch(5, collate=lz.stack))
    assert [b.tolist() for b in batches] == [[0, 2, 4, 6, 8], [10, 12, 14, 16, 18], [20, 22]]
    testing.check_pipeline(pipeline)
    testing.check_pipeline(pipeline | lz.batch(5, collate=lz.stack))


def test_a_vectorized_map_gets_whole_batches_of_columns() -> None:
    sizes = []

    def summed(rows: dict[str, Any]) -> dict[str, Any]:
        sizes.append(len(rows["x"]))
        return {"sum": rows["x"].sum(axis=1) + rows["y"], "y": rows["y"]}

    table = lz.columns(x=np.arange(20).reshape(10, 2), y=np.arange(10))
    pipeline = table | lz.map(summed, vectorized=True) | lz.shuffle(seed=0) | lz.repeat(2)
    batches = list(pipeline | lz.batch(8, collate=lz.stack))
    assert sizes == [8, 8, 4]
    assert all((b["sum"] == 5 * b["y"] + 1).all() for b in batches)
    assert pipeline[3]["sum"] == 5 * pipeline[3]["y"] + 1
    testing.check_pipeline(table | lz.map(summed, vectorized=True), model=False)


def test_a_vectorized_map_must_keep_the_number() -> None:
    first = lz.map(lambda x: x[:1], vectorized=True)
    numbers = lz.source(np.arange(4))
    assert list(numbers | first) == [0, 1, 2, 3]
    wants("got 4 items and gave 1", lambda: numbers | first | lz.batch(4, collate=lz.stack))
    wants("got 1 items and gave 2", lambda: [3] | lz.map(lambda x: [1, 2], vectorized=True))
    uneven = lz.map(lambda x: {"a": x, "b": x[:2]}, vectorized=True)
    wants("got 3 items and gave 2", lambda: numbers | uneven | lz.batch(3, collate=lz.stack))
    wants("no array can be made of None", lambda: [None] | lz.map(doubled, vectorized=True))
    wants("vectorized must be True or False", lambda: [1] | lz.map(doubled, vectorized=1))


def test_vectorized_is_no_part_of_a_state() -> None:
    plain, fast = (lz.source([1, 2]) | lz.map(doubled, vectorized=v) for v in (False, True))
    assert lz.init(plain) == lz.init(fast)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: lz.starmap(3), "starmap: fn must be callable"),
        (lambda: lz.tap(None), "tap: fn must be callable"),
        (lambda: lz.enumerate("1"), "enumerate: start must be an int"),
        (lambda: lz.random_map(noise), "seed"),
        (lambda: lz.random_map(noise, 0), "random_map"),
        (lambda: lz.random_map(noise, seed=1.5), "random_map: seed must be an int >= 0"),
        (lambda: lz.flat_scan(None, 0), "flat_scan: step must be callable"),
    ],
)
def test_bad_arguments_are_refused(build: Any, message: str) -> None:
    wants(message, build)


@pytest.mark.parametrize(
    "stage",
    [
        lz.starmap(lambda *a: next(iter(()))),
        lz.tap(lambda a: next(iter(()))),
        lz.random_map(lambda rng, a: next(iter(())), seed=0),
        lz.flat_scan(lambda s, a: next(iter(())), 0),
        lz.take_while(lambda a: next(iter(()))),
        lz.drop_while(lambda a: next(iter(()))),
        lz.map(lambda a: next(iter(())), vectorized=True),
    ],
)
def test_a_stopiteration_out_of_a_function_ends_nothing(stage: lz.Stage[Any, Any]) -> None:
    with pytest.raises(lz.PipelineError, match="StopIteration"):
        list(lz.source(np.ones((3, 2))) | stage)
