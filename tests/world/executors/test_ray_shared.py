"""Ranks that share work by a keeper, on a Ray cluster of this machine."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.errors import ArgumentError, PipelineError, RankMissing
from lazyckpt.testing import equal
from tests.executors.sharing.ranks import on_ranks
from tests.executors.sharing.test_laws import alone, dealt, made, mixed, packed, tokens
from tests.helpers import HANGS, until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what its packages say at import
    import ray
    from ray.cluster_utils import Cluster

pytestmark = pytest.mark.timeout(600)
NODE = {"object_store_memory": 100 << 20, "include_dashboard": False}
LOST = 20  # seconds after which a rank that is killed is missed, and until it has to have started


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # the workers' too
        patch.setenv("RAY_AUTH_MODE", "disabled")  # which else writes a token
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about future versions
            head = {"num_cpus": 3, "resources": {"near": 9}, **NODE}
            found = Cluster(initialize_head=True, head_node_args=head)
            ray.init(address=found.address, log_to_driver=False, logging_level="error")
        yield found
        ray.shutdown()
        found.shutdown()


@pytest.fixture(autouse=True)
def nothing_left(cluster: Cluster) -> Iterator[None]:
    yield
    until(lambda: not ray.util.list_named_actors(all_namespaces=True), 240)


def shared(name: str, **options: Any) -> lz.Executor:
    return lz.ray(shared=name, **{"workers": 3, "chunk_size": 4, "timeout": 60, **options})


def noted(folder: Path) -> Callable[[int], list[int]]:
    """A function of documents, which notes each call."""

    def call(n: int) -> list[int]:
        with (folder / f"{os.getpid()}").open("a") as file:
            file.write(f"{n}\n")
        return tokens(n)

    return call


def calls(folder: Path) -> list[str]:
    return [line for each in folder.iterdir() for line in each.read_text().split()]


def test_ranks_get_what_they_get_alone_and_nothing_is_made_twice(
    cluster: Cluster, tmp_path: Path
) -> None:
    def work(rank: int) -> Any:
        own = dealt(packed(noted(tmp_path)), 2, rank)
        with lz.run(own, executor=shared("same", buffer_size=1 + 7 * rank)) as run:
            found = made(run, 6)
            run.load_state_dict(lz.State.from_json(found[3][1]).to_dict())  # all start again
            before = len(calls(tmp_path)), len(set(calls(tmp_path)))
            return found + made(run, 6), before

    found = on_ranks(2, work)
    expected = alone(packed(), 2, 10)
    assert equal([items for items, _ in found], [rank[:6] + rank[4:10] for rank in expected])
    assert all(count == distinct for _, (count, distinct) in found)


def test_joined_pipelines_and_a_resume_as_more_ranks(cluster: Cluster) -> None:
    expected = alone(mixed(), 1, 4)
    state = expected[0][-1][1]

    def work(rank: int) -> Any:
        own = dealt(mixed(), 3, rank)
        with lz.run(own, lz.rebase(state, own), executor=shared("more")) as run:
            return made(run, 4)

    again = lz.rebase(state, dealt(mixed(), 3, 0))
    assert equal(on_ranks(3, work), alone(mixed(), 3, 4, again))


def test_ranks_that_wait_for_each_other_at_each_step(cluster: Cluster) -> None:
    """Though their buffers differ, so that each would read ahead as far as its own allows."""
    all_ranks = threading.Barrier(3)

    def own(rank: int) -> lz.Pipeline[Any]:
        return packed(count=6_000) | lz.shard(num_shards=3, index=rank) | lz.map(str)

    def work(rank: int) -> Any:
        executor = shared("lockstep", buffer_size=[1, 60, 3][rank])
        with lz.run(own(rank), executor=executor) as run:
            found = []
            for _ in range(60):
                found += made(run, 1)
                all_ranks.wait(HANGS / 2)
            return found

    expected = [made(lz.run(own(rank)), 60) for rank in range(3)]
    assert equal(on_ranks(3, work), expected)


def test_ranks_with_different_numbers_of_workers_are_told(cluster: Cluster) -> None:
    """The number is that of all ranks in sum."""

    def work(rank: int) -> Any:
        with lz.run(dealt(packed(), 2, rank), executor=shared("sum", workers=3 + rank)) as run:
            return next(run)

    for error in on_ranks(2, work):
        assert isinstance(error, PipelineError)
        assert "workers: 3 and 4" in str(error) or "workers: 4 and 3" in str(error)


def test_failures_by_chance_and_deaths_are_the_same_on_all_ranks(
    cluster: Cluster, tmp_path: Path
) -> None:
    def fails(n: int) -> list[int]:
        if n == 250 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if random.random() < 0.2:
            raise ValueError(n)
        return [n] * 8

    documents = lz.source(range(400)) | lz.map(fails) | lz.filter(bool)
    pipeline = documents | lz.pack_first_fit(16, num_bins=4)

    def work(rank: int) -> Any:
        own = dealt(pipeline, 2, rank)
        with lz.run(own, executor=shared("chance"), on_error="skip") as run:
            items: list[Any] = []
            with pytest.raises(lz.WorkerDied, match="WorkerCrashedError"):
                items.extend(run.with_state())
            first = len(items)
            items += islice(run.with_state(), 4)
            return first, [(batch, state.to_json()) for batch, state in items]

    (count, items), (other, others) = on_ranks(2, work)
    assert count == other
    assert [state for _, state in items] == [state for _, state in others]
    assert '"skipped"' in items[-1][1]
    rows = [tuple(row["tokens"].tolist()) for batch, _ in items + others for row in batch]
    assert len(set(rows)) == len(rows)


def test_an_error_comes_at_the_same_place_on_all(cluster: Cluster) -> None:
    def fails(n: int) -> list[int]:
        if n == 150:
            raise KeyError(n)
        return tokens(n)

    def ended(run: Any) -> Any:
        with run:
            items: list[Any] = []
            with pytest.raises(KeyError, match="150"):
                items.extend(run)
            return items, run.state.to_json()

    def work(rank: int) -> Any:
        return ended(lz.run(dealt(packed(fails), 2, rank), executor=shared("error")))

    expected = [ended(lz.run(dealt(packed(fails), 2, rank))) for rank in range(2)]
    assert equal(on_ranks(2, work), expected)


def test_what_does_not_fit_is_refused(cluster: Cluster) -> None:
    def work(rank: int) -> Any:
        with lz.run(dealt(packed(count=300 + rank), 2, rank), executor=shared("unlike")) as run:
            return next(run)

    for error in on_ranks(2, work):
        assert isinstance(error, PipelineError)
        assert '{"length":300}' in str(error)

    def late(rank: int) -> Any:
        sleep(rank)
        with lz.run(dealt(packed(), 3, 2 * rank), executor=shared("late", timeout=3)) as run:
            return next(run)

    for error in on_ranks(2, late):
        assert isinstance(error, RankMissing)
        assert error.ranks == (1,)

    with pytest.raises(PipelineError, match="has no shard"):
        lz.run(packed(), executor=shared("none"))


def ended() -> None:
    ray.kill(ray.get_actor("dies", "lazyckpt"))


def hangs() -> None:
    """Stop the keeper, for longer than its ranks wait."""
    (pid,) = keepers()
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(20, os.kill, (pid, signal.SIGCONT)).start()


def keepers() -> list[int]:
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [int(each.parent.name)] * each.read_text().startswith("ray::Keeper")
    return found


@pytest.mark.parametrize("fails", [ended, hangs])
def test_a_keeper_that_dies_or_hangs_is_told(cluster: Cluster, fails: Callable[[], None]) -> None:
    begun = threading.Barrier(2, timeout=HANGS)

    def work(rank: int) -> Any:
        executor = shared("dies", timeout=15)
        with lz.run(dealt(packed(count=3_000), 2, rank), executor=executor) as run:
            items = made(run, 2)
            begun.wait()
            if rank == 0:
                fails()
            items += until_lost(run)
            return [item for item, _ in items], run.state.items

    for rank, (items, count) in enumerate(on_ranks(2, work)):
        assert count == len(items)
        expected = alone(packed(count=3_000), 2, count)[rank]
        assert equal(items, [item for item, _ in expected])


def until_lost(run: Any) -> list[Any]:
    found: list[Any] = []
    with pytest.raises(lz.WorkerDied, match="keeper of shared='dies'"):
        found.extend((item, state.to_json()) for item, state in run.with_state())
    return found


def large(n: int) -> Any:
    return np.full(40_000, n)


def different(n: int) -> Any:
    return np.full(40_000, os.getpid())


class Rank:
    """A rank that is a process of its own, somewhere in the cluster."""

    def __init__(self, rank: int, size: int, name: str, function: Any, **options: Any) -> None:
        arrays = lz.source(range(500)) | lz.map(function) | lz.filter(lambda array: True)
        executor = shared(name, **{"timeout": LOST, **options})
        self._run = lz.run(dealt(arrays, size, rank), executor=executor)

    def take(self, count: int) -> list[tuple[int, str]]:
        """Of each of the next items the number, and the state; the last may be an error."""
        found: list[Any] = []
        try:
            for batch, state in islice(self._run.with_state(), count):
                found.append(([int(each[0]) for each in batch], state.to_json()))
        except PipelineError as error:
            found.append((type(error).__name__, str(error)))
        return found

    def close(self) -> None:
        self._run.close()


def numbers(rank: int, size: int, count: int) -> list[Any]:
    batches = dealt(lz.source(range(500)) | lz.filter(lambda n: True), size, rank)
    return list(islice(batches, count))


def rank_on(where: dict[str, float], *args: Any, **options: Any) -> Any:
    return ray.remote(Rank).options(num_cpus=0, resources=where).remote(*args, **options)


def test_a_rank_that_is_killed_is_named_and_another_one_of_its_name_is_refused(
    cluster: Cluster,
) -> None:
    ranks = [rank_on({}, n, 2, "killed", tokens_of) for n in range(2)]
    found = ray.get([each.take.remote(3) for each in ranks])
    assert [[batch for batch, _ in rank] for rank in found] == [numbers(n, 2, 3) for n in range(2)]
    rival = rank_on({}, 0, 2, "killed", tokens_of)
    ((kind, text),) = ray.get(rival.take.remote(1))
    assert kind == "PipelineError"
    assert "reads part 0 under this name" in text
    ray.kill(ranks[1])
    *items, (kind, text) = ray.get(ranks[0].take.remote(999))
    assert kind == "RankMissing"
    assert "rank 1 is lost" in text
    assert [batch for batch, _ in found[0] + items] == numbers(0, 2, 3 + len(items))
    ray.get([each.close.remote() for each in (ranks[0], rival)])


def test_a_keeper_that_has_outlived_its_ranks(cluster: Cluster) -> None:
    """Others of the same name take their places."""
    for _ in range(2):
        ranks = [rank_on({}, n, 2, "outlived", tokens_of) for n in range(2)]
        found = ray.get([each.take.remote(3) for each in ranks])
        assert [[b for b, _ in rank] for rank in found] == [numbers(n, 2, 3) for n in range(2)]
        for each in ranks:
            ray.kill(each)


def tokens_of(n: int) -> list[int]:
    return [n]


@pytest.mark.parametrize("function", [large, different])
def test_outcomes_that_are_lost_with_a_node(cluster: Cluster, function: Any) -> None:
    """A different node computes them again, and they are the same, or there is an error."""
    far = cluster.add_node(num_cpus=2, resources={"far": 9}, object_store_memory=100 << 20)
    options = {"resources": {"far": 0.1}, "timeout": 60}  # in which another node does the work
    here = rank_on({"near": 0.1}, 1, 2, "node", function, **options)
    first = here.take.remote(1)
    until(lambda: ray.util.list_named_actors(all_namespaces=True))  # on the node of this one
    there = rank_on({"far": 0.1}, 0, 2, "node", function, **options)
    ray.get(there.take.remote(9))
    found = ray.get(first)
    other = cluster.add_node(num_cpus=2, resources={"far": 9}, object_store_memory=100 << 20)
    cluster.remove_node(far)
    found += ray.get(here.take.remote(8))
    if function is large:
        assert [batch for batch, _ in found] == numbers(1, 2, 9), found[-1]
    else:
        assert "came out differently" in found[-1][1]
    ray.get(here.close.remote())
    cluster.remove_node(other)
    ray.kill(ray.get_actor("node", "lazyckpt"))  # it would wait for the rank that is lost


@pytest.mark.parametrize("name", ["max_retries", "num_returns"])
def test_a_task_is_not_to_be_made_twice(name: str) -> None:
    own = dealt(packed(), 2, 0)
    with pytest.raises(ArgumentError, match=f"{name} can't be set with shared"):
        lz.run(own, executor=shared("options", **{name: 2}))
