"""Ranks that are processes of their own, and meet by sockets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.errors import WorkerDied
from lazyckpt.executors.sharing.executor import shared
from lazyckpt.executors.sharing.meeting import SocketMeeting
from tests.executors.sharing.rank import SECRET, pipeline
from tests.executors.sharing.ranks import on_ranks, place
from tests.helpers import IS_DEEP, all_pids, is_alive, until

LIMIT = 120  # seconds; no test comes near it
LIMITS = {"SIGSTOP": 3.0, "SIGKILL": 60.0}  # seconds of silence; who is killed is missed earlier
NEVER = 10_000  # a document that isn't there: no process is killed, but ranks have some
KILLER = 871  # a document among the first that are read


def is_any(n: int) -> bool:
    return True


Nodes = list[list[int]]

NODES: dict[str, Nodes] = {"a reader each": [], "a reader a node": [[0, 1], [2]]}


LEAVING = [[30, 3, 12], [3, 30, 12]]  # items of each rank


def job(
    size: int, nodes: Nodes | None = None, stops: float = 0.0, **more: list[Any]
) -> list[list[list[Any]]]:
    """The output of each rank of a job, perhaps stopped meanwhile; of `more`, each has its own."""
    command = [sys.executable, "-m", "tests.executors.sharing.rank"]
    with place() as found, ExitStack() as stack:
        told = [
            {"rank": rank, "size": size, "port": found.port, "nodes": nodes or []}
            | {name: values[rank] for name, values in more.items()}
            for rank in range(size)
        ]
        # A rank waits for a reader once its pipe is full, and the other ranks wait for that rank.
        files = [stack.enter_context(TemporaryFile("w+")) for _ in range(size)]
        errors = stack.enter_context(TemporaryFile("w+"))
        ranks = [
            subprocess.Popen(
                [*command, json.dumps(each)], stdout=file, stderr=errors, start_new_session=True
            )
            for each, file in zip(told, files, strict=True)
        ]
        try:
            if stops:
                until(lambda: all(os.fstat(file.fileno()).st_size for file in files), LIMIT)
                for number, seconds in ((signal.SIGSTOP, stops), (signal.SIGCONT, 0.0)):
                    for each in ranks:
                        os.killpg(each.pid, number)
                    time.sleep(seconds)
            for rank, process in enumerate(ranks):
                if not more.get("end", [""] * size)[rank]:
                    process.wait(LIMIT)
        finally:
            for process in ranks:
                process.kill()
                if "forks" in more.get("does", []):
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        until(lambda: not [*filter(is_alive, pids_in({each.pid for each in ranks}))])
        for file in (*files, errors):
            file.seek(0)
        assert errors.read() == ""
        return [[json.loads(line) for line in file] for file in files]


def pids_in(sessions: set[int]) -> list[int]:
    """The processes of some sessions: those that ranks have started, and so on."""
    found = []
    for pid in all_pids():
        with suppress(ProcessLookupError):  # it has ended
            if os.getsid(pid) in sessions:
                found.append(pid)
    return found


def alone(size: int, rank: int, steps: int, state: Any = None) -> list[list[str]]:
    run = lz.run(pipeline(size, rank), state).with_state()
    return [[repr(item), found.to_json()] for item, found in islice(run, steps)]


@pytest.mark.parametrize("nodes", NODES.values(), ids=NODES)
def test_ranks_get_what_they_get_alone_and_go_on_as_fewer(nodes: Nodes) -> None:
    found = job(3, nodes, steps=[8, 8, 8])
    assert found == [alone(3, rank, 8) for rank in range(3)]
    state = lz.rebase(found[0][-1][1], pipeline(2, 0)).to_json()
    again = job(2, nodes[:1], steps=[4, 4], state=[state] * 2)
    assert again == [alone(2, rank, 4, state) for rank in range(2)]


@pytest.mark.parametrize("nodes", NODES.values(), ids=NODES)
def test_the_time_limit_of_an_item_does_not_run_while_ranks_come(nodes: Nodes) -> None:
    found = job(3, nodes, steps=[2] * 3, kills=[NEVER] * 3, limit=[2.0] * 3, waits=[0, 0, 5])
    assert found == [alone(3, rank, 2) for rank in range(3)]


@pytest.mark.parametrize(
    ("nodes", "counts", "is_closed", "where"),
    [
        ([], LEAVING[0], True, "main"),
        (NODES["a reader each"], LEAVING[0], False, "main"),
        (NODES["a reader a node"], LEAVING[1], False, "main"),
        (NODES["a reader a node"], LEAVING[1], False, "child"),
        (NODES["a reader a node"], [60, 60, 60], True, "thread"),
    ],
)
def test_who_leaves_early_is_no_loss(
    nodes: Nodes, counts: list[int], is_closed: bool, where: str
) -> None:
    """Nor is it if its interpreter ends with an open run, wherever that is."""
    more = {"where": [where] * 3, "pace": [0.05 if where == "thread" else 0.01] * 3}
    found = job(3, nodes, steps=counts, is_closed=[is_closed] * 3, **more)
    assert [each[-1][:2] for each in found if len(each[-1]) > 2] == []  # the errors
    assert found == [alone(3, rank, steps) for rank, steps in enumerate(counts)]


def held(n: int, process: int, until: Path) -> int:
    """An item that a process doesn't compute before there is a file."""
    while n >= 8 and os.getpid() == process and not until.exists():
        time.sleep(0.01)
    return n


def test_who_leaves_while_its_reader_waits_for_others_is_no_loss(tmp_path: Path) -> None:
    """Its reader is a process, which waits for an item that it reads ahead."""
    has_left = tmp_path / "left"
    items = lz.source(range(80)) | lz.map(partial(held, process=os.getpid(), until=has_left))

    def own(rank: int) -> lz.Pipeline[int]:
        return items | lz.filter(is_any) | lz.shard(num_shards=2, index=rank)

    with place() as found:

        def work(rank: int) -> list[int]:
            meeting = SocketMeeting("127.0.0.1", found.port, SECRET, rank, 2, 60.0)
            inner = lz.threads(1) if rank else lz.processes(1)
            executor = shared(lz.threads, inner, meeting, {"chunk_size": 4, "timeout": 30.0})
            with lz.run(own(rank), executor=executor) as run:
                made = [*run] if rank else [*islice(run, 3)]
            if not rank:
                has_left.touch()
            return made

        assert on_ranks(2, work) == [[0, 2, 4], [*range(1, 80, 2)]]


@pytest.mark.parametrize(
    ("end", "nodes", "lost", "step", "kills", "does"),
    [
        ("SIGKILL", [], 1, 6, -1, ""),
        ("SIGSTOP", [], 1, 6, -1, ""),
        ("SIGKILL", [[0, 1, 2]], 0, 6, -1, ""),
        ("SIGKILL", [[0, 1, 2]], 2, 6, -1, ""),
        ("SIGSTOP", [[0, 1], [2]], 2, 6, -1, ""),
        ("SIGKILL", [], 0, 1, NEVER, ""),
        ("SIGSTOP", [], 1, 15, NEVER, ""),
        ("SIGKILL", [[0, 1], [2]], 1, 9, NEVER, ""),
        ("SIGKILL", [[0, 1], [2]], 1, 9, NEVER, "closes"),
        ("SIGKILL", [], 1, 9, NEVER, "closes"),
        ("SIGKILL", [], 1, 6, -1, "forks"),
    ],
)
def test_a_rank_that_is_lost_is_named(
    end: str, nodes: Nodes, lost: int, step: int, kills: int, does: str
) -> None:
    """At once if its connections are closed, after the time limit if nothing is heard of it.

    Also if it is a process that reads for its trainer, which is killed or stopped, and if a child
    lives on that it has forked.
    """
    ends, limit = [end if rank == lost else "" for rank in range(3)], LIMITS[end]
    steps = [step if each else 999 for each in ends]
    more: dict[str, list[Any]] = {"steps": steps, "end": ends, "does": [does] * 3}
    found = job(3, nodes, **more, kills=[kills] * 3, timeout=[limit] * 3)
    for rank in {0, 1, 2} - {lost}:
        *items, (kind, text, told) = found[rank]
        assert kind == "RankMissing"
        assert f"rank {lost}" in text
        assert items == alone(3, rank, len(items))
        assert end == "SIGSTOP" or told - found[lost][-1][1] < limit / 2


@pytest.mark.parametrize("nodes", NODES.values(), ids=NODES)
def test_the_time_while_a_job_is_stopped_is_no_silence(nodes: Nodes) -> None:
    more: dict[str, list[Any]] = {"timeout": [2.0] * 3, "pace": [0.0] * 3}
    found = job(3, nodes, stops=4.0, steps=[500] * 3, **more)
    assert [len(each) for each in found] == [500] * 3
    assert found[0][-1] == alone(3, 0, 500)[-1]


def test_a_rank_whose_trainer_is_busy_is_not_lost() -> None:
    """Though others wait for it for longer than the time limit."""
    found = job(2, steps=[60, 60], busy=[0, 6])
    assert found == [alone(2, rank, 60) for rank in range(2)]


def killing(on_error: str, nodes: Nodes) -> list[list[list[Any]]]:
    return job(2, nodes, steps=[20, 20], kills=[KILLER] * 2, on_error=[on_error] * 2)


@pytest.mark.parametrize("nodes", [[], [[0, 1]]] if IS_DEEP else [[[0, 1]]])
def test_a_worker_that_dies_does_so_for_all_ranks(nodes: Nodes) -> None:
    """The one that made the item is another rank's on all but one."""
    for rank, (*items, (kind, text, _)) in enumerate(killing("raise", nodes)):
        assert kind == "WorkerDied"
        assert "SIGKILL" in text
        assert "lazyckpt: a worker of rank " in text
        with lz.run(pipeline(2, rank, kills=KILLER), executor=lz.processes(2)) as run:
            found: list[Any] = []
            with pytest.raises(WorkerDied):
                found.extend(run)
        assert len(items) == len(found)


@pytest.mark.parametrize("nodes", [[], [[0, 1]]] if IS_DEEP else [[]])
def test_an_item_that_kills_workers_is_left_out_on_all_ranks(nodes: Nodes) -> None:
    with lz.run(pipeline(1, 0, kills=KILLER), executor=lz.processes(2), on_error="skip") as run:
        expected = [row for batch in islice(run, 20) for row in batch]
    first, second = killing("skip", nodes)
    assert '"skipped"' in first[-1][1]
    both = [[lz.State.from_json(state) for _, state in rank] for rank in (first, second)]
    assert both[0] == both[1]
    batches = [batch for step in zip(first, second, strict=True) for batch, _ in step]
    rows = [repr(row) for row in expected]
    assert all(row in "".join(batches) for row in rows)
