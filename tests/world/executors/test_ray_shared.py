"""Ranks that share work, on a Ray cluster of this machine."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.errors import PipelineError, RankMissing
from lazyckpt.testing import equal
from tests.executors.sharing.ranks import Hub, on_ranks
from tests.executors.sharing.test_laws import alone, dealt, made, mixed, packed, together, tokens
from tests.helpers import HANGS, all_pids, command_of, is_alive, parent_of, until

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
    until(lambda: not ray.util.list_named_actors(all_namespaces=True) and not actors())


def actors() -> list[int]:
    """The processes of actors, which are children of children of this one."""
    named = [pid for pid in all_pids() if command_of(pid).startswith(b"ray::ActorWorker")]
    return [pid for pid in named if parent_of(parent_of(pid)) == os.getpid() and is_alive(pid)]


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
    both = threading.Barrier(2, timeout=HANGS)

    def work(rank: int) -> Any:
        own = dealt(packed(noted(tmp_path)), 2, rank)
        with lz.run(own, executor=shared("same", buffer_size=1 + 7 * rank)) as run:
            found = made(run, 6)
            both.wait()
            assert len(actors()) == 2
            before = calls(tmp_path)
            both.wait()
            run.load_state_dict(lz.State.from_json(found[3][1]).to_dict())  # all start again
            return found + made(run, 6), before

    found = on_ranks(2, work)
    expected = alone(packed(), 2, 10)
    assert equal([items for items, _ in found], [rank[:6] + rank[4:10] for rank in expected])
    assert all(len(before) == len({*before}) for _, before in found)


def test_rank_0_goes_on_while_the_actor_that_tells_where_to_meet_is_slow(cluster: Cluster) -> None:
    with lz.run(dealt(packed(), 1, 0), executor=shared("slow")) as run:
        next(run)
        teller = ray.get_actor("slow", "lazyckpt")
        process = ray.get(teller.__ray_call__.remote(lambda self: os.getpid()))
        os.kill(process, signal.SIGSTOP)
        try:
            run.load_state_dict(lz.init(dealt(packed(), 1, 0)).to_dict())
            found = made(run, 4)
        finally:
            os.kill(process, signal.SIGCONT)
    assert equal([found], alone(packed(), 1, 4))


class Image:
    """A large item; counts how many were unpickled, on all ranks."""

    unpickled = 0

    def __init__(self, number: int) -> None:
        self.number, self.pixels = number, bytes(20_000)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        Image.unpickled += 1  # by threads: some may be missed


def test_large_items_are_sent_only_to_the_rank_that_needs_them(cluster: Cluster) -> None:
    count = 240
    images = lz.source(range(count)) | lz.map(Image) | lz.filter(lambda each: each.pixels)

    def work(rank: int) -> list[int]:
        own = images | lz.shard(num_shards=4, index=rank)
        with lz.run(own, executor=shared("images", workers=4)) as run:
            return [each.number for each in run]

    assert on_ranks(4, work) == [[*range(rank, count, 4)] for rank in range(4)]
    # Each by the rank whose actor made it, and by the rank that it is for; not by all four.
    assert Image.unpickled < 2.5 * count


def test_actors_of_ranks_of_which_one_reads(cluster: Cluster) -> None:
    """As with `lz.torch.shared(lz.ray(...))`."""
    hub = Hub(2, nodes=((0, 1),))
    found = together(packed(), hub, 6, executor=lambda rank: lz.ray(workers=1))
    assert equal(found, alone(packed(), 2, 6))


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
            with pytest.raises(lz.WorkerDied, match="ActorDiedError"):
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
        with lz.run(dealt(packed(), 3, 2 * rank), executor=shared("late", timeout=12)) as run:
            return next(run)

    for error in on_ranks(2, late):
        assert isinstance(error, RankMissing)
        assert error.ranks == (1,)

    with pytest.raises(PipelineError, match="has no shard"):
        lz.run(packed(), executor=shared("none"))


@pytest.mark.parametrize(
    ("workers", "ranks", "each"), [(64, 4, 16), (7, 3, 2), (64, 64, 1), (3, 64, 1)]
)
def test_workers_are_those_of_all_ranks_in_sum(workers: int, ranks: int, each: int) -> None:
    own = packed() | lz.shard(num_shards=ranks, index=0, remainder="repeat")
    with pytest.raises(PipelineError, match=rf"run it with ray\(.*workers={each}\b"):
        lz.run(own, executor=shared("sum", workers=workers))


def test_the_actor_that_tells_an_address_may_die(cluster: Cluster) -> None:
    """Ranks don't need it until they begin again."""
    begun = threading.Barrier(2, timeout=HANGS)

    def work(rank: int) -> Any:
        with lz.run(dealt(packed(), 2, rank), executor=shared("dies")) as run:
            items = made(run, 2)
            begun.wait()
            if rank == 0:
                ray.kill(ray.get_actor("dies", "lazyckpt"))
            items += made(run, 4)
            run.load_state_dict(run.state_dict())
            return items + made(run, 4)

    assert equal(on_ranks(2, work), alone(packed(), 2, 10))


def large(n: int) -> Any:
    return np.full(40_000, n)


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
    assert "another process reads as rank 0 under shared='killed'" in text
    ray.kill(ranks[1])
    *items, (kind, text) = ray.get(ranks[0].take.remote(999))
    assert kind == "RankMissing"
    assert "rank 1" in text
    assert [batch for batch, _ in found[0] + items] == numbers(0, 2, 3 + len(items))
    ray.get([each.close.remote() for each in (ranks[0], rival)])


def test_ranks_that_are_killed_and_start_again(cluster: Cluster) -> None:
    """Others of the same name take their places."""
    for _ in range(2):
        ranks = [rank_on({}, n, 2, "outlived", tokens_of) for n in range(2)]
        found = ray.get([each.take.remote(3) for each in ranks])
        assert [[b for b, _ in rank] for rank in found] == [numbers(n, 2, 3) for n in range(2)]
        for each in ranks:
            ray.kill(each)


def tokens_of(n: int) -> list[int]:
    return [n]


def test_actors_that_are_lost_with_a_node(cluster: Cluster) -> None:
    """Both ranks are told at the same place, and go on with actors of another node."""
    far = cluster.add_node(num_cpus=2, resources={"far": 9}, object_store_memory=100 << 20)
    options = {"resources": {"far": 0.1}, "timeout": 60}  # in which another node does the work
    ranks = [rank_on({"near": 0.1}, n, 2, "node", large, **options) for n in range(2)]
    found = ray.get([each.take.remote(3) for each in ranks])
    other = cluster.add_node(num_cpus=2, resources={"far": 9}, object_store_memory=100 << 20)
    cluster.remove_node(far)
    for rank, more in enumerate(ray.get([each.take.remote(99) for each in ranks])):
        *items, (kind, _) = more
        found[rank] += items
        assert kind == "WorkerDied"
    count = len(found[0])
    assert count == len(found[1])
    for rank, more in enumerate(ray.get([each.take.remote(8) for each in ranks])):
        batches = [batch for batch, _ in found[rank] + more]
        assert batches == numbers(rank, 2, count + 8)
    ray.get([each.close.remote() for each in ranks])
    cluster.remove_node(other)
